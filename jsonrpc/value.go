package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"unicode/utf8"
)

// The functions in this file follow the grammar of RFC 8259 over a text that
// is whole. Each takes the index where something begins and returns the index
// behind it, or one of two negative numbers. They do not say what is wrong;
// whoever wants to tell asks a valueChecker.
const (
	malformed = -1 // no JSON
	deep      = -2 // nested more deeply than allowed, grammar unknown
)

// maxRecursion bounds the nesting that is followed by recursion, in levels: a
// Config that allows more gets this much, since each level costs stack.
const maxRecursion = 10_000

// Bytes of a word, for looking at eight of them at once.
const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// checkValue checks that text is one JSON value with nothing but whitespace
// around it: RFC 8259 without a byte order mark, valid UTF-8, no lone
// surrogates, at most maxDepth levels of arrays and objects. The error is a
// *SyntaxError or a *ResourceError.
func checkValue(text []byte, maxDepth int) error {
	maxDepth = min(maxDepth, maxRecursion)
	if skipWhole(text, maxDepth) >= 0 {
		return nil
	}
	check := valueChecker{maxDepth: maxDepth}
	if err := check.Write(text); err != nil {
		return err
	}
	return check.Close()
}

// appendValue checks raw as checkValue does and appends it to dst with line
// breaks made spaces. In a valid text they are insignificant whitespace, and
// the framing of Streams is lines. On an error it returns dst as it was.
func appendValue(dst, raw []byte, maxDepth int) ([]byte, error) {
	if err := checkValue(raw, maxDepth); err != nil {
		return dst, err
	}
	n := len(dst)
	dst = append(dst, raw...)
	spaceOut(dst[n:])
	return dst, nil
}

// spaceOut makes the line breaks of a valid text spaces. Carriage returns go
// too: a server-sent event ends its lines with them.
func spaceOut(text []byte) {
	for _, c := range [...]byte{'\n', '\r'} {
		for rest := text; ; {
			i := bytes.IndexByte(rest, c)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
}

// skipWhole skips a whole text; the end is its length.
func skipWhole(text []byte, maxDepth int) int {
	end := skipValue(text, skipSpace(text, 0), maxDepth)
	if end < 0 {
		return end
	}
	if skipSpace(text, end) != len(text) {
		return malformed
	}
	return len(text)
}

// skipDeep skips the value that begins at b[i] however deep it is, without
// recursion, to learn whether the grammar is kept. It is the slow way, for
// values that are refused anyway.
func skipDeep(b []byte, i int) int {
	check := valueChecker{maxDepth: math.MaxInt}
	n, err := check.step(b[i:], true)
	if err != nil || !check.complete() {
		return malformed
	}
	return i + n
}

// skipSpace skips insignificant whitespace.
func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && isSpace(b[i]) {
		i++
	}
	return i
}

// isSpace says whether JSON takes a byte for insignificant whitespace.
func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// skipValue skips the value that begins at b[i] and has at most depth levels
// of arrays and objects.
func skipValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return malformed
	}
	switch b[i] {
	case '"':
		return skipString(b, i+1)
	case '{':
		return skipObject(b, i+1, depth)
	case '[':
		return skipArray(b, i+1, depth)
	case 't':
		return skipLiteral(b, i, "true")
	case 'f':
		return skipLiteral(b, i, "false")
	case 'n':
		return skipLiteral(b, i, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return skipNumber(b, i)
	default:
		return malformed
	}
}

// skipObject skips the rest of an object; i is behind its brace.
func skipObject(b []byte, i, depth int) int {
	if depth <= 0 {
		return deep
	}
	i = skipSpace(b, i)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return malformed
		}
		if i = skipString(b, i+1); i < 0 {
			return i
		}
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return malformed
		}
		if i = skipValue(b, skipSpace(b, i+1), depth-1); i < 0 {
			return i
		}
		if i = skipSpace(b, i); i >= len(b) {
			return malformed
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case '}':
			return i + 1
		default:
			return malformed
		}
	}
}

// skipArray skips the rest of an array; i is behind its bracket.
func skipArray(b []byte, i, depth int) int {
	if depth <= 0 {
		return deep
	}
	i = skipSpace(b, i)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = skipValue(b, i, depth-1); i < 0 {
			return i
		}
		if i = skipSpace(b, i); i >= len(b) {
			return malformed
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case ']':
			return i + 1
		default:
			return malformed
		}
	}
}

func skipLiteral(b []byte, i int, want string) int {
	if len(b)-i < len(want) || string(b[i:i+len(want)]) != want {
		return malformed
	}
	return i + len(want)
}

// skipNumber skips a number, which begins with a minus or a digit.
func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b):
		return malformed
	case b[i] == '0':
		i++
	case b[i] >= '1' && b[i] <= '9':
		i = skipDigits(b, i+1)
	default:
		return malformed
	}
	if i < len(b) && b[i] == '.' {
		frac := i + 1
		if i = skipDigits(b, frac); i == frac {
			return malformed
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		exp := i
		if i = skipDigits(b, exp); i == exp {
			return malformed
		}
	}
	return i
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// load8 loads the eight bytes from b[i] on, the first one lowest. The way by an
// array is there for the compiler, which then needs one comparison and no
// arithmetic between one string's end and the next load: a tenth of a scan.
func load8(b []byte, i int) uint64 {
	p := (*[8]byte)(b[i : i+8])
	return binary.LittleEndian.Uint64(p[:])
}

// stops marks the high bit of the first byte of w that cannot be skipped
// within a string: a quote, a backslash, a control character. Marks behind the
// first one may be wrong, since a subtraction borrows from the next byte.
//
// Flipping bit 1 changes places between the quote (0x22) and the blank (0x20),
// and leaves control characters among themselves, so that one subtraction
// finds both: all below 0x21. Bytes beyond ASCII keep their high bit in both
// terms and are never marked.
func stops(w uint64) uint64 {
	return (((w ^ 0x02*lowBits) - 0x21*lowBits) | ((w ^ '\\'*lowBits) - lowBits)) &^ w & highBits
}

// skipString skips the rest of a string; i is behind its first quote. It looks
// at eight bytes at a time, which is three times faster than one by one, and
// checks UTF-8 at the end, if there was anything but ASCII.
func skipString(b []byte, i int) int {
	start, wide := i, uint64(0)
	for i+8 <= len(b) {
		w := load8(b, i)
		m := stops(w)
		if m == 0 {
			wide |= w
			if i += 8; i-start == longString {
				i, w = skipLong(b, i)
				wide |= w
			}
			continue
		}
		wide |= w & (m - 1) // of w before the stop; marks are where w has no high bit
		i += bits.TrailingZeros64(m) >> 3
		switch b[i] {
		case '"':
			if wide&highBits != 0 && !utf8.Valid(b[start:i]) {
				return malformed
			}
			return i + 1
		case '\\':
			if i = skipEscape(b, i+1); i < 0 {
				return malformed
			}
		default:
			return malformed
		}
	}
	return skipStringTail(b, start, i)
}

// longString is after how many bytes a string is taken for a long one.
const longString = 64

// skipLong skips the inside of a string, 32 bytes at a time, as far as nothing
// stops it. It returns all words that it skipped, ored.
func skipLong(b []byte, i int) (end int, wide uint64) {
	for i+32 <= len(b) {
		w0, w1, w2, w3 := load8(b, i), load8(b, i+8), load8(b, i+16), load8(b, i+24)
		if stops(w0)|stops(w1)|stops(w2)|stops(w3) != 0 {
			break
		}
		wide |= w0 | w1 | w2 | w3
		i += 32
	}
	return i, wide
}

// skipStringTail skips the rest of a string that began at start, when fewer
// than eight bytes of the text are left.
func skipStringTail(b []byte, start, i int) int {
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			if !utf8.Valid(b[start:i]) {
				return malformed
			}
			return i + 1
		case c == '\\':
			if i = skipEscape(b, i+1); i < 0 {
				return malformed
			}
		case c < ' ':
			return malformed
		default:
			i++
		}
	}
	return malformed
}

// skipEscape skips the rest of an escape; i is behind its backslash. Half of a
// surrogate pair is refused: RFC 8259 section 8.2 calls what receivers make of
// it unpredictable.
func skipEscape(b []byte, i int) int {
	if i >= len(b) {
		return malformed
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		r := hex4(b, i+1)
		switch {
		case r < 0, r >= 0xDC00 && r <= 0xDFFF:
			return malformed
		case r >= 0xD800 && r <= 0xDBFF:
			if i+6 >= len(b) || b[i+5] != '\\' || b[i+6] != 'u' {
				return malformed
			}
			if low := hex4(b, i+7); low < 0xDC00 || low > 0xDFFF {
				return malformed
			}
			return i + 11
		}
		return i + 5
	default:
		return malformed
	}
}

// hex4 reads four hexadecimal digits, or returns a negative number.
func hex4(b []byte, i int) rune {
	if i+4 > len(b) {
		return -1
	}
	var r rune
	for _, c := range b[i : i+4] {
		d := hexDigit(c)
		if d < 0 {
			return -1
		}
		r = r<<4 | d
	}
	return r
}

func hexDigit(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10
	default:
		return -1
	}
}

// unescape appends what the inside of a valid string stands for.
func unescape(dst, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(dst, s[:i]...)
		c := s[i+1]
		s = s[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(s, 0)
			s = s[4:]
			if r >= 0xD800 && r <= 0xDBFF {
				r = (r-0xD800)<<10 + hex4(s, 2) - 0xDC00 + 0x10000
				s = s[6:]
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
}
