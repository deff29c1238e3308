package rpcdial

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// A urlError says that a URL is wrong, which will not change by dialing again.
type urlError struct{ error }

// Unwrap returns what is wrong with it.
func (e urlError) Unwrap() error { return e.error }

// Recoverable returns false (RPC-22).
func (urlError) Recoverable() bool { return false }

// A target is a URL, taken apart.
type target struct {
	scheme  string // without "+lsp"
	headers bool   // "+lsp"
	address string // host:port, or the path of a socket
	command []string
	raw     string // http and ws: the URL
}

// schemes are those that there are, in the order in which errors list them.
func schemes() []string {
	return []string{"stdio:", "tcp://", "tls://", "unix:", "http://", "https://", "ws://", "wss://"}
}

// parse takes a URL apart. Its errors name the scheme at most: the rest of a
// URL may hold credentials.
func parse(rawURL string) (target, error) {
	name, rest, ok := strings.Cut(rawURL, ":")
	if !ok || !isScheme(name) {
		return target{}, urlError{fmt.Errorf("rpcdial: the URL has no scheme; write %s", known())}
	}
	t := target{scheme: strings.ToLower(name), raw: rawURL}
	t.scheme, t.headers = cutFraming(t.scheme)
	var err error
	switch t.scheme {
	case "stdio":
		t.command, err = splitCommand(rest)
	case "tcp", "tls":
		t.address, err = hostPort(rest)
	case "unix":
		t.address, err = socketPath(rest)
	case "http", "https", "ws", "wss":
		if t.headers {
			err = errors.New("it has a framing of its own; leave out +lsp")
		} else if !strings.HasPrefix(rest, "//") {
			err = fmt.Errorf("write %s://host:port/path", t.scheme)
		}
	default:
		return target{}, urlError{fmt.Errorf("rpcdial: scheme %q is not known; write %s", name, known())}
	}
	if err != nil {
		return target{}, urlError{fmt.Errorf("rpcdial: %s: %w", name, err)}
	}
	return t, nil
}

// isScheme says whether name may be shown as a scheme, as RFC 3986 has them: what stands
// before the first colon of a URL without one may be a credential.
func isScheme(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	rest := strings.TrimLeft(name, letters)
	return len(rest) < len(name) && strings.Trim(rest, letters+"0123456789+-.") == ""
}

func known() string {
	all := schemes()
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

func cutFraming(scheme string) (string, bool) { return strings.CutSuffix(scheme, "+lsp") }

func hostPort(rest string) (string, error) {
	u, err := url.Parse("tcp:" + rest)
	if err != nil || u.Host == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", errors.New("write it with a host and a port and nothing else, such as tcp://127.0.0.1:4000 or tcp://[::1]:4000")
	}
	return u.Host, nil
}

// socketPath takes unix:/path, unix:relative/path and unix:///path; the path
// is used as it is written.
func socketPath(rest string) (string, error) {
	path := rest
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		if !strings.HasPrefix(after, "/") {
			return "", errors.New("write the path of the socket after one colon, such as unix:/run/x.sock or unix:x.sock; after // comes no host")
		}
		path = after
	}
	if path == "" {
		return "", errors.New("write the path of the socket, such as unix:/run/x.sock")
	}
	return path, nil
}

// splitCommand splits a command into words at blanks. Quotes keep blanks
// together: 'anything but a single quote', or "anything", in which \" and \\
// stand for a quote and a backslash. Nothing else has a meaning: no variables,
// no patterns, and a backslash outside of quotes is one, as in Windows' paths.
func splitCommand(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ', '\t':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case '\'', '"':
			n, err := quoted(&word, text[i:])
			if err != nil {
				return nil, err
			}
			i += n - 1
			inWord = true
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	if len(words) > 0 && words[0] == "" {
		return nil, errors.New("the command is empty; write stdio:PROGRAM ARGUMENTS, or stdio: for the standard input and output of this process")
	}
	return words, nil
}

// quoted appends the quoted text at the beginning of text to word and returns
// its length with the quotes.
func quoted(word *strings.Builder, text string) (int, error) {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			return i + 1, nil
		case c == '\\' && quote == '"' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			word.WriteByte(text[i])
		default:
			word.WriteByte(c)
		}
	}
	return 0, fmt.Errorf("the command has a %c without its partner", quote)
}
