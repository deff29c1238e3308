package a2a

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// The bridge of the existing platform is a Python program, and what its agents get as
// text is what Python makes of a value (formats.md): json.dumps of a whole input, and
// str of a text that is no string. Agents that take such texts apart do so by these
// spellings, so a task of an executor of that platform has them here, too.

// pythonText is the str of a value that is no string, or json.dumps of it, as a JSON
// string. raw was checked.
func pythonText(raw []byte, dumps bool) []byte {
	p := python{raw: raw, dumps: dumps}
	text := p.value(make([]byte, 0, len(raw)+16))
	return quote(make([]byte, 0, len(text)+len(text)/8+2), text)
}

// python writes a JSON value as Python does.
type python struct {
	raw   []byte
	at    int
	dumps bool
}

// value appends the value at p.at, and stands behind it after that.
func (p *python) value(b []byte) []byte {
	p.space()
	switch c := p.raw[p.at]; c {
	case '{':
		return p.object(b)
	case '[':
		return p.list(b)
	case '"':
		if p.dumps {
			return appendDumped(b, p.text())
		}
		return appendRepr(b, p.text())
	case 't', 'f', 'n':
		word, name := "null", "None"
		switch c {
		case 't':
			word, name = "true", "True"
		case 'f':
			word, name = "false", "False"
		}
		p.at += len(word)
		if p.dumps {
			name = word
		}
		return append(b, name...)
	}
	return p.number(b)
}

func (p *python) space() {
	for p.at < len(p.raw) && bytes.IndexByte([]byte(" \t\r\n"), p.raw[p.at]) >= 0 {
		p.at++
	}
}

// more goes behind the sign that opens a list or an object, or behind a comma, and is
// false behind the end of it.
func (p *python) more(end byte) bool {
	p.at++
	p.space()
	if p.raw[p.at] == end {
		p.at++
		return false
	}
	return true
}

func (p *python) list(b []byte) []byte {
	b = append(b, '[')
	for first := true; p.more(']'); first = false {
		if !first {
			b = append(b, ", "...)
		}
		b = p.value(b)
		if p.space(); p.raw[p.at] == ']' {
			p.at++
			break
		}
	}
	return append(b, ']')
}

// object appends a dict: of members of one name the last counts, where the first stood.
func (p *python) object(b []byte) []byte {
	type member struct{ name, value []byte }
	var members []member
	known := make(map[string]int)
	for p.more('}') {
		name := p.value(nil)
		for p.space(); p.raw[p.at] != ':'; {
			p.at++
		}
		p.at++
		m := member{name, p.value(nil)}
		if i, ok := known[string(name)]; ok {
			members[i].value = m.value
		} else {
			known[string(name)] = len(members)
			members = append(members, m)
		}
		if p.space(); p.raw[p.at] == '}' {
			p.at++
			break
		}
	}
	b = append(b, '{')
	for i, m := range members {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(append(b, m.name...), ": "...), m.value...)
	}
	return append(b, '}')
}

// number appends an int of any length, or a float.
func (p *python) number(b []byte) []byte {
	from := p.at
	for p.at < len(p.raw) && bytes.IndexByte([]byte("+-.0123456789Ee"), p.raw[p.at]) >= 0 {
		p.at++
	}
	n := p.raw[from:p.at]
	switch {
	case bytes.ContainsAny(n, ".eE"):
		f, _ := strconv.ParseFloat(string(n), 64) // what is too large becomes infinite, as there
		return appendFloat(b, f, p.dumps)
	case string(n) == "-0":
		return append(b, '0')
	}
	return append(b, n...)
}

// appendFloat is float.__repr__: the shortest digits, with an exponent below 1e-4 and
// from 1e16 on.
func appendFloat(b []byte, f float64, dumps bool) []byte {
	if math.IsInf(f, 0) {
		word := "inf"
		if dumps {
			word = "Infinity"
		}
		if f < 0 {
			b = append(b, '-')
		}
		return append(b, word...)
	}
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	from := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if bytes.IndexByte(b[from:], '.') < 0 {
		b = append(b, ".0"...)
	}
	return b
}

// text decodes the string at p.at. Halves of surrogate pairs stay what they are.
func (p *python) text() []rune {
	var s []rune
	for p.at++; p.raw[p.at] != '"'; {
		r, size := utf8.DecodeRune(p.raw[p.at:])
		if p.at += size; r == '\\' {
			r = p.escape()
		}
		if n := len(s) - 1; n >= 0 && utf16.IsSurrogate(s[n]) {
			if pair := utf16.DecodeRune(s[n], r); pair != unicode.ReplacementChar {
				s[n] = pair
				continue
			}
		}
		s = append(s, r)
	}
	p.at++
	return s
}

// escape reads what stands behind a backslash.
func (p *python) escape() rune {
	c := p.raw[p.at]
	p.at++
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'u':
		n, _ := strconv.ParseUint(string(p.raw[p.at:p.at+4]), 16, 16)
		p.at += 4
		return rune(n)
	}
	return rune(c)
}

// appendRepr is str.__repr__.
func appendRepr(b []byte, s []rune) []byte {
	quote := '\''
	for _, r := range s {
		if r == '"' {
			quote = '\''
			break
		}
		if r == '\'' {
			quote = '"'
		}
	}
	b = utf8.AppendRune(b, quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r <= 0xff:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return utf8.AppendRune(b, quote)
}

// appendDumped is json.dumps of a string: ASCII alone.
func appendDumped(b []byte, s []rune) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch short := strings.IndexRune("\"\\\n\r\t\b\f", r); {
		case short >= 0:
			b = append(b, '\\', `"\nrtbf`[short])
		case r >= ' ' && r <= '~':
			b = append(b, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return append(b, '"')
}
