package bridge

import (
	"bytes"
	"encoding/hex"
	"unicode/utf16"
	"unicode/utf8"
)

// maxEscape is how many bytes one byte of a secret takes at most where it is
// escaped in a JSON string.
const maxEscape = 6

// spelled finds the first place of secret in text, as it is or as a JSON string
// has it, and gives its length there; at is -1 without one. Which characters are
// escaped is up to who writes: many do so with "/", "+", "=" or "&", which keys are
// full of.
func spelled(text, secret []byte) (at, n int) {
	at, n = bytes.Index(text, secret), len(secret)
	if at >= 0 { // an escaped one counts if it is before
		text = text[:min(len(text), at+len(secret)*maxEscape)]
	}
	for i := 0; i < len(text); {
		ahead := bytes.IndexByte(text[i:], '\\')
		if ahead < 0 || at >= 0 && i+ahead-len(secret) >= at {
			break
		}
		i += ahead
		if from, length := escapedAround(text, secret, i); length > 0 && (at < 0 || from < at) {
			return from, length
		}
		_, width := unescape(text[i:])
		i += max(width, 1)
	}
	return at, n
}

// escapedAround gives the place of secret in text whose first escape is at i, and its
// length there, 0 without one.
func escapedAround(text, secret []byte, i int) (from, n int) {
	r, width := unescape(text[i:])
	if width == 0 {
		return 0, 0
	}
	var buf [utf8.UTFMax]byte
	char := buf[:utf8.EncodeRune(buf[:], r)]
	for before := 0; before < len(secret); before++ {
		next := bytes.Index(secret[before:], char)
		if next < 0 {
			break
		}
		before += next
		if !bytes.HasSuffix(text[:i], secret[:before]) {
			continue
		}
		if length := escapedPrefix(text[i:], secret[before:]); length > 0 {
			return i - before, before + length
		}
	}
	return 0, 0
}

// escapedPrefix gives how much of text is secret, where any character may be escaped;
// 0 if it is another text.
func escapedPrefix(text, secret []byte) int {
	i := 0
	for len(secret) > 0 {
		if i == len(text) {
			return 0
		}
		r, width := unescape(text[i:])
		if width == 0 {
			if text[i] != secret[0] {
				return 0
			}
			secret = secret[1:]
			i++
			continue
		}
		var buf [utf8.UTFMax]byte
		rest, ok := bytes.CutPrefix(secret, buf[:utf8.EncodeRune(buf[:], r)])
		if !ok {
			return 0
		}
		secret = rest
		i += width
	}
	return i
}

// unescape gives the character that is escaped at the beginning of text, and how many
// bytes that takes, 0 if there is none.
func unescape(text []byte) (r rune, width int) {
	if len(text) < 2 || text[0] != '\\' {
		return 0, 0
	}
	switch c := text[1]; c {
	case '"', '\\', '/':
		return rune(c), 2
	case 'b', 'f', 'n', 'r', 't':
		return rune("\b\f\n\r\t"[bytes.IndexByte([]byte("bfnrt"), c)]), 2
	}
	r, ok := codeUnit(text)
	if !ok {
		return 0, 0
	}
	if low, ok := codeUnit(text[6:]); ok && utf16.IsSurrogate(r) {
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
}

// codeUnit reads an escape such as \u00e9 at the beginning of text.
func codeUnit(text []byte) (rune, bool) {
	var two [2]byte
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	if _, err := hex.Decode(two[:], text[2:6]); err != nil {
		return 0, false
	}
	return rune(two[0])<<8 | rune(two[1]), true
}
