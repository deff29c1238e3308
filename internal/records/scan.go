package records

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// maxDigits is the longest integer that the existing platform's language reads.
const maxDigits = 4300

// wrong is a fault of a JSON text.
type wrong struct {
	code parley.Code
	text string
}

// scanner goes through one JSON text, and copies it in the form in which
// records are written if it is told to.
type scanner struct {
	src    []byte
	pos    int
	depth  int
	copies bool
	out    []byte
	// odd is the first thing that is no JSON, but that the existing platform
	// reads and writes all the same (NaN and its like).
	odd *wrong
}

func (s *scanner) wrong(what string) *wrong {
	if s.pos >= len(s.src) {
		return &wrong{parley.CodeInvalid, fmt.Sprintf("the JSON ends at byte %d, where %s should stand", s.pos, what)}
	}
	return &wrong{parley.CodeInvalid, fmt.Sprintf("no JSON: %s expected at byte %d", what, s.pos)}
}

func (s *scanner) emit(b ...byte) {
	if s.copies {
		s.out = append(s.out, b...)
	}
}

// space skips white space and gives the next character, 0 at the end.
func (s *scanner) space() byte {
	for ; s.pos < len(s.src); s.pos++ {
		switch c := s.src[s.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// whole goes through one value with nothing behind it.
func (s *scanner) whole() *wrong {
	if err := s.value(); err != nil {
		return err
	}
	return s.rest()
}

// rest wants nothing to follow.
func (s *scanner) rest() *wrong {
	if s.space(); s.pos < len(s.src) {
		return s.wrong("the end")
	}
	return nil
}

// value goes through one value.
func (s *scanner) value() *wrong {
	switch c := s.space(); {
	case c == '{':
		return s.members(func(s *scanner, _ []byte) *wrong { return s.value() })
	case c == '[':
		return s.list()
	case c == '"':
		return s.string()
	case c == '-' || (c >= '0' && c <= '9'):
		return s.number()
	}
	if slices.ContainsFunc([]string{"true", "false", "null", "NaN", "Infinity"}, s.word) {
		return nil
	}
	return s.wrong("a value")
}

// word takes one of the literals.
func (s *scanner) word(word string) bool {
	if len(s.src)-s.pos < len(word) || string(s.src[s.pos:s.pos+len(word)]) != word {
		return false
	}
	if word[0] < 'a' && s.odd == nil {
		s.odd = &wrong{parley.CodeInvalid, word + " at byte " + strconv.Itoa(s.pos) + " is not JSON; write null or a string"}
	}
	s.pos += len(word)
	s.emit([]byte(word)...)
	return true
}

// enter goes one level down.
func (s *scanner) enter() *wrong {
	s.emit(s.src[s.pos])
	s.pos++
	if s.depth++; s.depth > MaxDepth {
		return &wrong{parley.CodeLimit, fmt.Sprintf("it is nested more than %d deep", MaxDepth)}
	}
	return nil
}

// leave goes up at the given end, which reports whether it stands there.
func (s *scanner) leave(end byte) bool {
	if s.space() != end {
		return false
	}
	s.emit(end)
	s.pos++
	s.depth--
	return true
}

func (s *scanner) list() *wrong {
	if err := s.enter(); err != nil || s.leave(']') {
		return err
	}
	for {
		if err := s.value(); err != nil {
			return err
		}
		if s.leave(']') {
			return nil
		}
		if s.space() != ',' {
			return s.wrong("',' or ']'")
		}
		s.pos++
		s.emit(',', ' ')
	}
}

// members goes through an object; each is called at the value of every member,
// with its name as it stands there, and goes through it.
func (s *scanner) members(each func(s *scanner, name []byte) *wrong) *wrong {
	if s.space() != '{' {
		return s.wrong("an object")
	}
	if err := s.enter(); err != nil || s.leave('}') {
		return err
	}
	for {
		if s.space() != '"' {
			return s.wrong("a member's name")
		}
		start := s.pos
		if err := s.string(); err != nil {
			return err
		}
		name := s.src[start:s.pos]
		if s.space() != ':' {
			return s.wrong("':'")
		}
		s.pos++
		s.emit(':', ' ')
		if err := each(s, name); err != nil {
			return err
		}
		if s.leave('}') {
			return nil
		}
		if s.space() != ',' {
			return s.wrong("',' or '}'")
		}
		s.pos++
		s.emit(',', ' ')
	}
}

// number goes through a number, which stays as it is written unless nobody
// there could read or keep it.
func (s *scanner) number() *wrong {
	start := s.pos
	if s.src[s.pos] == '-' {
		s.pos++
		if s.word("Infinity") {
			return nil
		}
	}
	digits := s.digits()
	if digits == 0 || (digits > 1 && s.src[s.pos-digits] == '0') {
		s.pos -= digits
		return s.wrong("a number")
	}
	integer, exponent := true, false
	if s.at('.') {
		integer = false
		s.pos++
		if s.digits() == 0 {
			return s.wrong("a digit")
		}
	}
	if s.at('e') || s.at('E') {
		integer, exponent = false, true
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if s.digits() == 0 {
			return s.wrong("a digit")
		}
	}
	if !s.copies {
		return nil
	}
	raw := s.src[start:s.pos]
	if unreadable(raw, digits, integer, exponent) {
		s.out = append(append(append(s.out, '"'), raw...), '"')
		return nil
	}
	s.out = append(s.out, raw...)
	return nil
}

// unreadable reports whether a number is too much for the existing platform: a
// very long integer stops its reader, and a float beyond all bounds becomes
// Infinity, which its database refuses.
func unreadable(raw []byte, digits int, integer, exponent bool) bool {
	if integer {
		return digits > maxDigits
	}
	if !exponent && digits < 300 {
		return false
	}
	f, _ := strconv.ParseFloat(string(raw), 64)
	return math.IsInf(f, 0)
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.src) && s.src[s.pos] == c }

func (s *scanner) digits() (n int) {
	for s.pos < len(s.src) && s.src[s.pos] >= '0' && s.src[s.pos] <= '9' {
		s.pos++
		n++
	}
	return n
}

// string goes through a string.
func (s *scanner) string() *wrong {
	s.pos++
	s.emit('"')
	for s.pos < len(s.src) {
		start := s.pos
		for s.pos < len(s.src) && plain(s.src[s.pos]) {
			s.pos++
		}
		s.emit(s.src[start:s.pos]...)
		if s.pos == len(s.src) {
			break
		}
		switch c := s.src[s.pos]; {
		case c == '"':
			s.pos++
			s.emit('"')
			return nil
		case c < ' ':
			return s.wrong("an escape instead of a control character")
		default:
			r, err := s.char()
			if err != nil {
				return err
			}
			if s.copies {
				s.out = appendRune(s.out, r)
			}
		}
	}
	return s.wrong(`'"'`)
}

// plain characters are written as they are read.
func plain(c byte) bool { return c >= ' ' && c <= '~' && c != '"' && c != '\\' }

// char takes one character that is not plain.
func (s *scanner) char() (rune, *wrong) {
	if s.src[s.pos] != '\\' {
		r, n := utf8.DecodeRune(s.src[s.pos:])
		s.pos += n
		return r, nil
	}
	if s.pos+1 >= len(s.src) {
		s.pos = len(s.src)
		return 0, s.wrong("an escape")
	}
	c := s.src[s.pos+1]
	if c != 'u' {
		for i, from := range []byte(`"\/bfnrt`) {
			if c == from {
				s.pos += 2
				return rune("\"\\/\b\f\n\r\t"[i]), nil
			}
		}
		return 0, s.wrong("an escape")
	}
	r, ok := s.unit()
	if !ok {
		return 0, s.wrong("an escape")
	}
	s.pos += 6
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if low, ok := s.unit(); ok {
		if whole := utf16.DecodeRune(r, low); whole != utf8.RuneError {
			s.pos += 6
			return whole, nil
		}
	}
	return utf8.RuneError, nil
}

// unit reads the escape of a UTF-16 unit without going on.
func (s *scanner) unit() (rune, bool) {
	if len(s.src)-s.pos < 6 || s.src[s.pos] != '\\' || s.src[s.pos+1] != 'u' {
		return 0, false
	}
	r := rune(0)
	for _, c := range s.src[s.pos+2 : s.pos+6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
