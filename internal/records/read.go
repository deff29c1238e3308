package records

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// field is one member that a record may have.
type field struct {
	name     string
	required bool
	take     taker
}

// read goes through a record and gives the first fault of all. It goes on
// after faults of single members, so that the others are read.
func read(record string, value []byte, fields []field) error {
	var first *parley.Error
	note := func(member string, err *wrong) {
		if first == nil && err != nil {
			first = fault(record, member, err)
		}
	}
	if len(value) == 0 {
		return parley.Errorf(parley.CodeInvalid, "%s: the record is empty (a tombstone)", record)
	}
	seen := make([]bool, len(fields))
	s := &scanner{src: value}
	at := ""
	err := s.members(func(s *scanner, name []byte) *wrong {
		s.space()
		i := find(fields, name)
		start := s.pos
		if at = ""; i >= 0 {
			at = fields[i].name
		}
		if err := s.value(); err != nil {
			return err
		}
		if i < 0 {
			s.odd = nil // nobody reads it
			return nil
		}
		seen[i] = true
		note(at, s.odd)
		s.odd = nil
		note(at, fields[i].take.value(value[start:s.pos]))
		at = ""
		return nil
	})
	if err == nil {
		err = s.rest()
	}
	switch {
	case len(value) > MaxSize:
		return parley.Errorf(parley.CodeLimit, "%s: the record has %d bytes, the limit is %d bytes", record, len(value), MaxSize)
	case err != nil && at != "":
		return fault(record, at, err)
	case err != nil:
		return parley.Errorf(err.code, "%s: %s", record, err.text)
	case !utf8.Valid(value):
		return parley.Errorf(parley.CodeInvalid, "%s: the record is not UTF-8", record)
	}
	for i, f := range fields {
		if f.required && !seen[i] {
			note(f.name, &wrong{parley.CodeInvalid, "it is missing"})
		}
	}
	if first != nil {
		return first
	}
	return nil
}

// find gives the place of the field of that name as it stands in the record, or -1.
func find(fields []field, name []byte) int {
	for i := range fields {
		if names(name, fields[i].name) {
			return i
		}
	}
	return -1
}

// names reports whether a member's name as it stands in the record is that one.
func names(raw []byte, name string) bool {
	if in := raw[1 : len(raw)-1]; string(in) == name {
		return true
	}
	return slices.Contains(raw, '\\') && unquote(raw) == name
}

// unquote gives the text of a JSON string that was scanned.
func unquote(raw []byte) string {
	in := raw[1 : len(raw)-1]
	if !slices.ContainsFunc(in, func(c byte) bool { return !plain(c) }) {
		return string(in)
	}
	var b strings.Builder
	for s := (scanner{src: in}); s.pos < len(in); {
		if plain(in[s.pos]) {
			b.WriteByte(in[s.pos])
			s.pos++
			continue
		}
		r, _ := s.char()
		b.WriteRune(r)
	}
	return b.String()
}

// kind names what a value is, for errors.
func kind(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a truth value"
	case 'n':
		return "null"
	}
	return "a number"
}

func unlike(raw []byte, want string) *wrong {
	return &wrong{parley.CodeInvalid, "it is " + kind(raw) + " instead of " + want}
}

// taker is what a member may hold and where that goes. It is no function: each of those
// would be made anew on the heap for every member of every record.
type taker struct {
	kind   takerKind
	text   *string
	object *json.RawMessage
	at     *time.Time
	// limit is that of a text in bytes, want the only text that is taken. needed: null
	// is not.
	limit  int
	want   string
	needed bool
}

type takerKind uint8

const (
	takesText takerKind = iota
	takesOptional
	takesObject
	takesExactly
	takesInstant
)

// text takes a string of at most limit bytes that is not empty.
func text(to *string, limit int) taker { return taker{kind: takesText, text: to, limit: limit} }

// optional takes a string or null.
func optional(to *string) taker { return taker{kind: takesOptional, text: to} }

// object takes an object or null.
func object(to *json.RawMessage) taker { return taker{kind: takesObject, object: to} }

// needed refuses null.
func needed(t taker) taker {
	t.needed = true
	return t
}

// exactly takes one text, or null.
func exactly(want string) taker { return taker{kind: takesExactly, want: want} }

// instant takes a string, which need not be a time, or null.
func instant(to *time.Time) taker { return taker{kind: takesInstant, at: to} }

// value takes a JSON value that was scanned.
func (t *taker) value(raw []byte) *wrong {
	switch t.kind {
	case takesText:
		return t.takeText(raw)
	case takesObject:
		return t.takeObject(raw)
	case takesOptional, takesExactly, takesInstant:
	}
	v := ""
	if raw[0] == '"' {
		v = unquote(raw)
	} else if string(raw) != "null" {
		if t.kind == takesOptional {
			*t.text = ""
		}
		return unlike(raw, "a string or null")
	}
	switch {
	case t.kind == takesOptional:
		*t.text = v
	case t.kind == takesInstant:
		*t.at = readInstant(v)
	case v != t.want && raw[0] == '"':
		return &wrong{parley.CodeInvalid, fmt.Sprintf("it is %.100q instead of %q", v, t.want)}
	}
	return nil
}

func (t *taker) takeText(raw []byte) *wrong {
	*t.text = ""
	if raw[0] != '"' {
		return unlike(raw, "a string")
	}
	v := unquote(raw)
	switch {
	case v == "":
		return &wrong{parley.CodeInvalid, "it is empty"}
	case len(v) > t.limit:
		return &wrong{parley.CodeLimit, fmt.Sprintf("it has %d bytes, the limit is %d bytes", len(v), t.limit)}
	case strings.IndexByte(v, 0) >= 0:
		return &wrong{parley.CodeInvalid, "U+0000 cannot stand in it"}
	}
	*t.text = v
	return nil
}

func (t *taker) takeObject(raw []byte) *wrong {
	*t.object = nil
	switch {
	case raw[0] == '{':
		*t.object = raw
	case t.needed || string(raw) != "null":
		return unlike(raw, "an object")
	}
	return nil
}

// readInstant gives a time as peers write it, or zero.
func readInstant(v string) time.Time {
	for _, layout := range []string{"2006-01-02T15:04:05.999999999", time.RFC3339Nano, "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}
