package main

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/parley-project/parley/internal/logging"
)

const (
	hiddenValue = `"[redacted]"`
	// redactAhead is how far behind the end of a shown text credentials are
	// looked for, in bytes, so that none is cut where it can no longer be
	// recognised.
	redactAhead = 512
)

// excerpt gives the beginning of a message for people, at most limit bytes: on
// one line, without white space between the tokens, and with what stands under
// the name of a credential replaced. What is not JSON is shown up to the first
// such name. cut says that there is more.
func excerpt(r *logging.Redactor, text []byte, limit int, valid bool) (shown string, cut bool) {
	if limit <= 0 {
		return "", false
	}
	e := excerpter{text: text, most: limit + redactAhead, valid: valid}
	e.run()
	shown = r.String(string(e.out))
	if len(shown) > limit {
		for limit > 0 && !utf8.RuneStart(shown[limit]) {
			limit--
		}
		return shown[:limit], true
	}
	return shown, e.at < len(text)
}

// excerpter copies text to out token by token.
type excerpter struct {
	text  []byte
	at    int
	out   []byte
	most  int // bytes of out
	valid bool
}

func (e *excerpter) run() {
	for e.at < len(e.text) && len(e.out) < e.most {
		switch c := e.text[e.at]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			e.at++
			if !e.valid {
				e.out = append(e.out, c)
			}
		case c == '"':
			e.word(stringEnd(e.text, e.at))
		case !e.valid && isWordByte(c):
			e.word(wordEnd(e.text, e.at))
		default:
			e.out = append(e.out, c)
			e.at++
		}
	}
}

// word copies the token up to end, and hides what belongs to it if it is the
// name of a credential.
func (e *excerpter) word(end int) {
	token := e.text[e.at:end]
	colon := skipBlanks(e.text, end)
	isName := colon < len(e.text) && e.text[colon] == ':'
	e.at = end
	if room := e.most - len(e.out); len(token) > room {
		// Nothing is hidden by being cut: the rest is not shown either.
		e.out = append(e.out, token[:room]...)
		return
	}
	e.out = append(e.out, token...)
	if e.valid && isName && logging.SensitiveKey(unquoted(token)) {
		e.out = append(append(e.out, ':'), hiddenValue...)
		e.at = valueEnd(e.text, skipBlanks(e.text, colon+1))
	}
	if !e.valid && logging.SensitiveKey(bytes.Trim(token, "\"':=\\ ")) {
		// Where the value ends is anybody's guess.
		e.out = append(append(e.out, ' '), hiddenValue...)
		e.at = len(e.text)
	}
}

// unquoted gives the text of a JSON string.
func unquoted(token []byte) []byte {
	if bytes.IndexByte(token, '\\') < 0 {
		return bytes.Trim(token, `"`)
	}
	var s string
	if json.Unmarshal(token, &s) != nil {
		return token
	}
	return []byte(s)
}

// stringEnd gives the end of the string that begins at i, which is the end of
// text if nothing ends it.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// valueEnd gives the end of the value that begins at i.
func valueEnd(text []byte, i int) int {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			i = stringEnd(text, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(text)
}

func skipBlanks(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}

func isWordByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		return true
	}
	return false
}

func wordEnd(text []byte, i int) int {
	for i < len(text) && isWordByte(text[i]) {
		i++
	}
	return i
}
