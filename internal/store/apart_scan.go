package store

import (
	"bytes"
	"encoding/json"
)

// eachMember calls each with the members of a JSON object: the name as it is
// written, with its quotes, and where the value is. v is JSON; of what is no
// object there are none. It does not copy the values, as encoding/json would.
func eachMember(v []byte, each func(name []byte, value span)) {
	i := skipSpace(v, 0)
	if i >= len(v) || v[i] != '{' {
		return
	}
	for i = skipSpace(v, i+1); i < len(v) && v[i] == '"'; i = skipSpace(v, i+1) {
		name := span{i, skipString(v, i)}
		i = skipSpace(v, name.to)
		from := skipSpace(v, i+1) // behind the colon
		i = skipValue(v, from)
		if from >= i || i > len(v) {
			return
		}
		each(v[name.from:name.to], span{from, i})
		i = skipSpace(v, i) // the comma, or the end
	}
}

// memberAt gives where the value of a member begins, or -1.
func memberAt(data []byte, member string) int {
	at := -1
	eachMember(data, func(quoted []byte, s span) {
		var name string
		if json.Unmarshal(quoted, &name) == nil && name == member {
			at = s.from
		}
	})
	return at
}

func skipSpace(v []byte, i int) int {
	for i < len(v) && (v[i] == ' ' || v[i] == '\t' || v[i] == '\n' || v[i] == '\r') {
		i++
	}
	return i
}

// skipString gives the end of the string that begins at i.
func skipString(v []byte, i int) int {
	for i++; i < len(v); i++ {
		n := bytes.IndexByte(v[i:], '"')
		if n < 0 {
			return len(v)
		}
		i += n
		escapes := 0
		for v[i-1-escapes] == '\\' { // the quote at the begin ends that
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
	return len(v)
}

// skipValue gives the end of the value that begins at i.
func skipValue(v []byte, i int) int {
	depth := 0
	for i < len(v) {
		switch v[i] {
		case '"':
			i = skipString(v, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue // only within an object or an array
		default:
			i = skipWord(v, i)
		}
		if depth == 0 {
			return i
		}
	}
	return len(v)
}

// skipWord gives the end of a number, or of true, false or null.
func skipWord(v []byte, i int) int {
	n := bytes.IndexAny(v[i:], ",}] \t\n\r")
	if n < 0 {
		return len(v)
	}
	return i + n
}
