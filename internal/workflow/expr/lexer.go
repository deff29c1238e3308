package expr

import "strings"

const opening = "${"

// closing gives the index of the brace that ends an expression whose text
// starts at text[from:], outside CEL strings (rule E1); -1 if there is none. A quote in
// a comment begins no string.
func closing(text string, from int) int {
	depth, comment := 0, false
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		case '/':
			comment = comment || strings.HasPrefix(text[i:], "//")
		case '\n':
			comment = false
		case '"', '\'':
			if comment {
				continue
			}
			end := celStringEnd(text, i, rawPrefix(text[from:i]))
			if end < 0 {
				return -1
			}
			i = end - 1
		}
	}
	return -1
}

// rawPrefix reports whether before ends in the prefix of a raw CEL string.
func rawPrefix(before string) bool {
	n := len(before)
	for n > 0 && identByte(before[n-1]) {
		n--
	}
	switch strings.ToLower(before[n:]) {
	case "r", "br", "rb":
		return true
	}
	return false
}

func identByte(c byte) bool {
	return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// celStringEnd gives the index behind the CEL string that starts at text[i];
// -1 if it does not end.
func celStringEnd(text string, i int, raw bool) int {
	quote := text[i : i+1]
	if strings.HasPrefix(text[i:], strings.Repeat(quote, 3)) {
		quote = text[i : i+3]
	}
	for i += len(quote); i < len(text); i++ {
		if text[i] == '\\' && !raw {
			i++
			continue
		}
		if strings.HasPrefix(text[i:], quote) {
			return i + len(quote)
		}
	}
	return -1
}
