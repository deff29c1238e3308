package expr

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The scanner finds members in JSON text without decoding it. It is given text
// that was checked when it was stored; other text gives wrong answers, never a
// panic.

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString gives the index behind the string that starts at b[i].
func skipString(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		end := i + n
		back := end
		for back > i && b[back-1] == '\\' {
			back--
		}
		i = end + 1
		if (end-back)%2 == 0 {
			return i
		}
	}
	return len(b)
}

// skipValue gives the index behind the value that starts at b[i].
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	for start := i; i < len(b); i++ {
		switch b[i] {
		case ',', ']', '}', ':', ' ', '\n', '\t', '\r':
			return max(i, start+1)
		}
	}
	return len(b)
}

func skipNested(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(b)
}

// trim gives the value without the space around it.
func trim(b []byte) json.RawMessage {
	i := skipSpace(b, 0)
	j := len(b)
	for j > i && (b[j-1] == ' ' || b[j-1] == '\n' || b[j-1] == '\t' || b[j-1] == '\r') {
		j--
	}
	return b[i:j:j]
}

// eachMember calls yield with the quoted name and the value of every member of
// the object b, until yield returns false.
func eachMember(b []byte, yield func(name, value []byte) bool) {
	for i := skipSpace(b, 1); i < len(b) && b[i] == '"'; {
		nameEnd := skipString(b, i)
		name := b[i:nameEnd]
		i = skipSpace(b, nameEnd)
		if i >= len(b) || b[i] != ':' {
			return
		}
		i = skipSpace(b, i+1)
		end := skipValue(b, i)
		if i >= end || !yield(name, b[i:end:end]) {
			return
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ',' {
			return
		}
		i = skipSpace(b, i+1)
	}
}

// eachElement calls yield with every element of the list b, until yield
// returns false.
func eachElement(b []byte, yield func(value []byte) bool) {
	i := skipSpace(b, 1)
	if i < len(b) && b[i] == ']' {
		return
	}
	for i < len(b) {
		end := skipValue(b, i)
		if i >= end || !yield(b[i:end:end]) {
			return
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ',' {
			return
		}
		i = skipSpace(b, i+1)
	}
}

// member finds a member of the object b. Of members with the same name the
// last one counts, as for every decoder that sees the same value.
func member(b []byte, name string) (value json.RawMessage, ok bool) {
	for i := skipSpace(b, 1); i < len(b) && b[i] == '"'; {
		nameEnd := skipString(b, i)
		key := b[i:nameEnd]
		i = skipSpace(b, nameEnd)
		if i >= len(b) || b[i] != ':' {
			break
		}
		i = skipSpace(b, i+1)
		end := skipValue(b, i)
		if i >= end {
			break
		}
		if sameName(key, name) {
			value, ok = b[i:end:end], true
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ',' {
			break
		}
		i = skipSpace(b, i+1)
	}
	return value, ok
}

// element finds an element of the list b; n is the number of elements that
// were seen.
func element(b []byte, index int) (value json.RawMessage, n int) {
	eachElement(b, func(v []byte) bool {
		n++
		if n == index+1 {
			value = v
			return false
		}
		return true
	})
	return value, n
}

// sameName compares a quoted name with a plain one.
func sameName(quoted []byte, name string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name
	}
	return unquote(quoted) == name
}

// unquote gives the text of a JSON string.
func unquote(quoted []byte) string {
	if len(quoted) >= 2 && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		// Lone surrogates: the text with U+FFFD in their place.
		var s string
		if json.Unmarshal(quoted, &s) != nil {
			return ""
		}
		return s
	}
	return string(text)
}

// appendQuote appends text as a JSON string. Bytes that are not UTF-8 become
// U+FFFD.
func appendQuote(dst []byte, text string) []byte {
	n := len(dst)
	out, err := jsontext.AppendQuote(dst, text)
	if err != nil {
		quoted, _ := jsontext.AppendQuote(dst[:n], string([]rune(text)))
		return quoted
	}
	return out
}

// isPlain reports whether quoted is a string that stands between its quotes as it
// is: quoting its text again would give the same bytes.
func isPlain(quoted []byte) bool {
	return len(quoted) >= 2 && quoted[0] == '"' && bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted)
}

// kindOf names the type of a JSON value with its article.
func kindOf(raw []byte) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return anObject
	case '[':
		return aList
	case '"':
		return aString
	case 't', 'f':
		return aBoolean
	case 'n':
		return aNull
	}
	return aNumber
}

// depthOf counts how deep lists and objects are nested; 0 for other values.
func depthOf(raw []byte) int {
	if len(raw) == 0 || (raw[0] != '{' && raw[0] != '[') {
		return 0
	}
	depth, most := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			// Most strings are short: looking for their end here is faster than a
			// call for each.
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			most = max(most, depth)
		case '}', ']':
			depth--
		}
	}
	return most
}

func itemsText(n int) string {
	if n == 1 {
		return "1 item"
	}
	return strconv.Itoa(n) + " items"
}
