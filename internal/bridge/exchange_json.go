package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep JSON from or for an agent may be nested (language.md §10).
const MaxDepth = 64

// DefectError says what is wrong with the form of a message. Kind is one word for
// metrics, Text a sentence for people.
type DefectError struct {
	Kind string
	Text string
}

// Defectf makes a [DefectError].
func Defectf(kind, format string, args ...any) *DefectError {
	return &DefectError{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// Error gives Text.
func (d *DefectError) Error() string { return d.Text }

// CheckJSON gives body without a byte order mark and without the space around
// its one JSON value, which [Members], [Elements] and [Text] can then read. The
// error is a [*DefectError]: empty, html, not_utf8, too_deep or not_json; its text
// begins with what, the name of the body.
//
// Names may repeat and escaped surrogates may lack their pair: both pass
// unchanged inside opaque values. Whoever reads an object decides about the
// names that mean something there.
func CheckJSON(what string, body []byte) ([]byte, error) {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	body = bytes.Trim(body, " \t\r\n")
	switch {
	case len(body) == 0:
		return nil, Defectf("empty", "%s is empty, JSON was expected", what)
	case body[0] == '<':
		return nil, Defectf("html", "%s is HTML or XML, JSON was expected", what)
	case !utf8.Valid(body):
		return nil, Defectf("not_utf8", "%s is not UTF-8", what)
	}
	if d := depth(body); d > MaxDepth {
		return nil, Defectf("too_deep", "%s is nested more than %d deep", what, MaxDepth)
	}
	opts := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	if jsontext.Value(body).IsValid(opts...) {
		return body, nil
	}
	return nil, notJSON(what, body, opts)
}

// notJSON reads once more to find the place.
func notJSON(what string, body []byte, opts []jsontext.Options) *DefectError {
	dec := jsontext.NewDecoder(bytes.NewReader(body), opts...)
	_, err := dec.ReadValue()
	if err == nil {
		return Defectf("not_json", "%s is not one JSON value: something follows it at byte %d", what, dec.InputOffset())
	}
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return Defectf("not_json", "%s is not JSON: error at byte %d", what, s.ByteOffset)
	}
	return Defectf("not_json", "%s is not JSON: it ends too early", what)
}

// depth is the deepest nesting of b, counted up to one more than MaxDepth.
func depth(b []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = endOfString(b, i) - 1
		case '{', '[':
			now++
			deepest = max(deepest, now)
			if deepest > MaxDepth {
				return deepest
			}
		case '}', ']':
			now--
		}
	}
	return deepest
}

// Members gives the names and raw values of a JSON object in their order; of
// any other value it gives none. The object must have passed [CheckJSON]. The
// names are unquoted; both slices belong to the object and must not be changed.
func Members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if len(object) == 0 || object[0] != '{' {
			return
		}
		for i := skipTo(object, 1); i < len(object) && object[i] == '"'; {
			end := endOfString(object, i)
			name := unquoted(object[i:end])
			i = skipTo(object, end) // the value, behind the colon
			end = endOfValue(object, i)
			if end <= i || !yield(name, object[i:end:end]) {
				return
			}
			i = skipTo(object, end) // behind the comma, or the closing brace
		}
	}
}

// Elements gives the raw elements of a JSON array in their order; of any other
// value it gives none. The array must have passed [CheckJSON].
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if len(array) == 0 || array[0] != '[' {
			return
		}
		for i := skipTo(array, 1); i < len(array) && array[i] != ']'; {
			end := endOfValue(array, i)
			if end <= i || !yield(array[i:end:end]) {
				return
			}
			i = skipTo(array, end)
		}
	}
}

// Text gives the content of a JSON string; ok is false for any other value.
func Text(raw []byte) (text string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	return string(unquoted(raw)), true
}

// unquoted gives the content of a JSON string, without a copy if nothing in it
// is escaped.
func unquoted(raw []byte) []byte {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	// Its error is about unpaired surrogates, for which it puts U+FFFD.
	b, _ := jsontext.AppendUnquote(nil, raw)
	return b
}

// skipTo gives the index of the next byte that is neither space nor a comma nor
// a colon, from i on.
func skipTo(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		default:
			return i
		}
	}
	return i
}

// endOfString gives the index behind the string that begins at b[i].
func endOfString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return len(b)
		}
		i += j
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
	return len(b)
}

// endOfValue gives the index behind the value that begins at b[i].
func endOfValue(b []byte, i int) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return endOfString(b, i)
	case '{', '[':
		for open := 0; i < len(b); i++ {
			switch b[i] {
			case '"':
				i = endOfString(b, i) - 1
			case '{', '[':
				open++
			case '}', ']':
				if open--; open == 0 {
					return i + 1
				}
			}
		}
		return i
	}
	if j := bytes.IndexAny(b[i:], ",]} \t\r\n"); j >= 0 {
		return i + j
	}
	return len(b)
}
