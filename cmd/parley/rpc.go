package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// rpcSchemes are the ways a JSON-RPC peer can be reached.
func rpcSchemes() []string {
	return []string{"stdio:", "tcp://", "tls://", "unix:", "http://", "https://", "ws://", "wss://"}
}

const rpcURLHelp = `A URL names where the peer is and how it is talked to:

  stdio:COMMAND ARGS    a process to start, over its standard input and output;
                        without a command this process's own
  tcp://HOST:PORT       TCP; tls://HOST:PORT with TLS
  unix:PATH             a Unix socket
  http://… https://…    one POST per message
  ws://… wss://…        WebSocket

Over the first three each message is a line; with +lsp after the scheme, as in
stdio+lsp:gopls, or --framing header it has the headers of language servers.`

func newRPCCommand(a *app) *cobra.Command {
	group := newGroup("rpc", "Call, serve and watch JSON-RPC 2.0 peers", `
  parley rpc serve tcp://127.0.0.1:7000
  parley rpc call tcp://127.0.0.1:7000 subtract '[42, 23]'
  parley rpc proxy tcp://127.0.0.1:7001 tcp://127.0.0.1:7000`)
	group.Long = "Call, serve and watch JSON-RPC 2.0 peers. They need no Parley server.\n\n" + rpcURLHelp
	group.AddCommand(newRPCCall(a), newRPCServe(a), newRPCProxy(a))
	return group
}

// The framings of byte streams.
const (
	framingLine   = "line"
	framingHeader = "header"
)

func checkFraming(flag, value string) error {
	framings := []string{framingLine, framingHeader}
	if value == "" || slices.Contains(framings, value) {
		return nil
	}
	u := usagef("--%s %s: the framings are line and header", flag, value)
	return u.withHint("%s", didYouMean(value, framings))
}

// rpcAddress is a URL of the command line that has one of the schemes.
type rpcAddress struct {
	scheme string // one of rpcSchemes
	// headers: the scheme says "+lsp".
	headers bool
	text    string // as it was given
}

// own reports whether the address is this process's standard input and output.
func (r rpcAddress) own() bool {
	_, command, _ := strings.Cut(r.text, ":")
	return r.scheme == "stdio:" && strings.TrimSpace(command) == ""
}

// rpcURL checks a URL of the command line as far as that goes without
// connecting.
func rpcURL(text string) (rpcAddress, error) {
	name, rest, colon := strings.Cut(text, ":")
	plain, headers := strings.CutSuffix(strings.ToLower(name), "+lsp")
	var names []string
	for _, scheme := range rpcSchemes() {
		known := strings.TrimRight(scheme, ":/")
		names = append(names, known)
		if !colon || plain != known {
			continue
		}
		r := rpcAddress{scheme: scheme, headers: headers, text: text}
		return r, r.check(rest)
	}
	u := usagef("%q is no URL of a JSON-RPC peer: it begins with one of %s", clip(name, nameColumn), strings.Join(rpcSchemes(), " "))
	return rpcAddress{}, u.withHint("%s", didYouMean(plain, names))
}

// check looks at what follows the colon of the scheme.
func (r rpcAddress) check(rest string) error {
	switch r.scheme {
	case "stdio:":
		return nil
	case "unix:":
		if strings.Trim(rest, "/") == "" {
			return usagef("unix: needs the path of the socket: unix:/run/app.sock")
		}
		return nil
	}
	u, err := url.Parse(r.scheme + strings.TrimPrefix(rest, "//"))
	switch bare := r.scheme == "tcp://" || r.scheme == "tls://"; {
	case err != nil || !strings.HasPrefix(rest, "//") || u.Host == "":
		return usagef("write the URL with a host: %sHOST:PORT", r.scheme)
	case u.User != nil:
		return usagef("the URL must not hold a user or password: use --header Authorization=env:NAME")
	case bare && (u.Port() == "" || strings.Trim(u.Path, "/") != ""):
		return usagef("write the URL with a host and a port and nothing else: %sHOST:PORT", r.scheme)
	case r.headers && !bare:
		return usagef("+lsp is for stdio, tcp, tls and unix: HTTP and WebSocket have a framing of their own")
	}
	return nil
}

// refuseToListen says why nobody can listen at a URL.
func (r rpcAddress) refuseToListen() error {
	for secure, plain := range map[string]string{"tls://": "tcp://", "https://": "http://", "wss://": "ws://"} {
		if r.scheme == secure {
			return usagef("cannot listen at %s…: that needs a certificate", secure).
				withHint("listen at %s…, and put a server that speaks TLS in front", plain)
		}
	}
	return nil
}

// headers reads the K=V of --header; the value, or what follows its first word
// (as in "Bearer env:NAME"), may be a reference.
func (a *app) headers(list []string) (http.Header, error) {
	h := http.Header{}
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " :\t\r\n") {
			// What stands there may be a credential: it is not repeated.
			return nil, usagef("--header: write it as NAME=VALUE, NAME=env:VARIABLE or NAME=file:PATH")
		}
		word, rest, two := strings.Cut(value, " ")
		prefix := ""
		if two && isReference(rest) {
			prefix, value = word+" ", rest
		}
		if isReference(value) {
			s, err := a.secret("--header "+name, value)
			if err != nil {
				return nil, err
			}
			value = string(s.Reveal())
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			return nil, usagef("--header %s: the value has more than one line", name)
		}
		h.Add(name, prefix+value)
	}
	if a.flags.key != "" {
		s, err := a.secret("the key", a.flags.key)
		if err != nil {
			return nil, err
		}
		h.Set("Authorization", "Bearer "+string(s.Reveal()))
	}
	return h, nil
}

func isReference(s string) bool {
	return strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "file:")
}

// byteSize is a flag for a number of bytes: 4096, 64KiB, 4MiB.
type byteSize int

// String gives the size as it can be typed.
func (b *byteSize) String() string {
	switch n := int(*b); {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + "MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + "KiB"
	default:
		return strconv.Itoa(n)
	}
}

// Set reads a size.
func (b *byteSize) Set(text string) error {
	digits, shift := text, 0
	for suffix, s := range map[string]int{"KiB": 10, "MiB": 20} {
		if d, ok := strings.CutSuffix(text, suffix); ok {
			digits, shift = d, s
		}
	}
	const most = 1 << 30
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n == 0 || n > most>>shift {
		return usagef("write a size as 4096, 64KiB or 4MiB, at most 1024MiB")
	}
	*b = byteSize(n << shift)
	return nil
}

// Type names the kind of value in help texts.
func (*byteSize) Type() string { return "size" }

// readJSON reads what an argument names: JSON, @FILE or - for standard input.
// what names it in errors.
func (a *app) readJSON(what, text string) (raw json.RawMessage, err error) {
	where, b := what, []byte(text)
	switch {
	case text == "-":
		where = "standard input"
		b, err = readAll(a.stdin, where, maxInput)
	case strings.HasPrefix(text, "@"):
		where = text[1:]
		b, err = readFile(a.path(where), maxInput)
	}
	if err != nil {
		return nil, usagef("%s: %v", what, err)
	}
	b = withoutMark(b)
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, invalidf("%s is not JSON: %v", where, jsonFault(b, err))
	}
	return bytes.TrimSpace(raw), nil
}
