package records

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// writer makes one record, member by member. After the first fault it writes
// nothing of use any more.
type writer struct {
	record string
	dst    []byte
	err    *parley.Error
}

func newWriter(record string, size int) *writer {
	return &writer{record: record, dst: append(make([]byte, 0, size), '{')}
}

func (w *writer) fail(code parley.Code, member, format string, args ...any) {
	if w.err == nil {
		w.err = fault(w.record, member, &wrong{code, fmt.Sprintf(format, args...)})
	}
}

// fault is the error about one member of a record.
func fault(record, member string, w *wrong) *parley.Error {
	return parley.Errorf(w.code, "%s, member %q: %s", record, member, w.text)
}

func (w *writer) end() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	return append(w.dst, '}'), nil
}

func (w *writer) name(name string) {
	if len(w.dst) > 1 {
		w.dst = append(w.dst, ", "...)
	}
	w.dst = append(w.dst, '"')
	w.dst = append(w.dst, name...)
	w.dst = append(w.dst, `": `...)
}

func (w *writer) null(name string) {
	w.name(name)
	w.dst = append(w.dst, "null"...)
}

func (w *writer) text(name, v string) {
	w.name(name)
	w.dst = appendText(w.dst, v)
}

// id writes a text that must arrive as it is.
func (w *writer) id(name, v string) {
	switch {
	case v == "":
		w.fail(parley.CodeInvalid, name, "it is empty")
	case len(v) > MaxID:
		w.fail(parley.CodeLimit, name, "it has %d bytes, the limit is %d bytes", len(v), MaxID)
	case strings.IndexByte(v, 0) >= 0 || !utf8.ValidString(v):
		w.fail(parley.CodeInvalid, name, "U+0000 and bytes that are not UTF-8 cannot stand in it")
	}
	w.text(name, v)
}

func (w *writer) timestamp(t time.Time) {
	if t.IsZero() {
		w.fail(parley.CodeInvalid, "timestamp", "it is missing")
	}
	t = t.UTC()
	w.name("timestamp")
	layout := `"2006-01-02T15:04:05.000000"`
	if t.Nanosecond() < 1000 {
		layout = `"2006-01-02T15:04:05"`
	}
	w.dst = t.AppendFormat(w.dst, layout)
}

// object writes a value that is to be an object; none is {}.
func (w *writer) object(name string, raw json.RawMessage) {
	w.name(name)
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	if first(raw) != '{' {
		w.fail(parley.CodeInvalid, name, "it is not a JSON object")
	}
	w.value(name, raw)
}

// output writes any value as an object.
func (w *writer) output(name string, raw json.RawMessage) {
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	if first(raw) == '{' {
		w.object(name, raw)
		return
	}
	w.name(name)
	w.dst = append(w.dst, `{"result": `...)
	w.value(name, raw)
	w.dst = append(w.dst, '}')
}

func (w *writer) value(name string, raw json.RawMessage) {
	s := scanner{src: raw, out: w.dst, copies: true}
	err := s.whole()
	w.dst = s.out
	if err == nil {
		err = s.odd // what the reader would take, and JSON does not have
	}
	if err != nil {
		w.fail(err.code, name, "%s", err.text)
	}
}

// first gives the first character of a JSON text.
func first(raw []byte) byte {
	if t := bytes.TrimLeft(raw, " \t\r\n"); len(t) > 0 {
		return t[0]
	}
	return 0
}

// appendText writes s as a JSON string.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			dst = appendRune(dst, rune(c))
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		dst = appendRune(dst, r)
		i += n
	}
	return append(dst, '"')
}

// appendRune writes one character of a string.
func appendRune(dst []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(dst, '\\', byte(r))
	case r >= ' ' && r <= '~':
		return append(dst, byte(r))
	case r == 0:
		return appendUnit(dst, utf8.RuneError)
	case r >= 0x10000:
		r -= 0x10000
		return appendUnit(appendUnit(dst, 0xd800+r>>10), 0xdc00+r&0x3ff)
	}
	if i := strings.IndexRune("\b\t\n\f\r", r); i >= 0 {
		return append(dst, '\\', "btnfr"[i])
	}
	return appendUnit(dst, r)
}

// appendUnit writes one UTF-16 unit as an escape.
func appendUnit(dst []byte, u rune) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
}
