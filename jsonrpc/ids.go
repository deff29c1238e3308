package jsonrpc

import (
	"math/rand/v2"
	"strconv"
)

// idForm writes the ids of our calls and reads them back from responses.
type idForm struct {
	uuid bool
	// head is the constant beginning of a UUID id, its quote included, and high
	// the constant bits of its last 64: 69 random bits, which make the ids of
	// different connections different (RPC-11).
	head string
	high uint64
}

const (
	idBits     = 53 // of an id, so that it survives floating point
	uuidText   = 38 // bytes of a quoted UUID
	uuidHead   = 20 // bytes of `"xxxxxxxx-xxxx-8xxx-`
	uuidTailAt = uuidHead + 5
	hexDigits  = "0123456789abcdef"
)

func newIDForm(f IDFormat) idForm {
	if f != UUIDs {
		return idForm{}
	}
	random := rand.Uint64()
	head := append(make([]byte, 0, uuidHead), '"')
	for i := range 15 { // 60 bits in 15 digits; the 13th of the UUID is its version
		switch i {
		case 8:
			head = append(head, '-')
		case 12:
			head = append(head, '-', '8')
		}
		head = append(head, hexDigits[random>>(4*i)&15])
	}
	return idForm{
		uuid: true,
		head: string(append(head, '-')),
		high: 2<<62 | rand.Uint64()>>(64-9)<<idBits, // the variant and 9 more random bits
	}
}

// append appends the text of an id.
func (f *idForm) append(dst []byte, id uint64) []byte {
	if !f.uuid {
		return strconv.AppendUint(dst, id, 10)
	}
	id |= f.high
	dst = append(dst, f.head...)
	for shift := 60; shift >= 0; shift -= 4 {
		if shift == 44 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[id>>shift&15])
	}
	return append(dst, '"')
}

// parse reads the text of an id that append may have written.
func (f *idForm) parse(text []byte) (id uint64, ok bool) {
	if !f.uuid {
		return parseInteger(text)
	}
	if len(text) != uuidText || string(text[:uuidHead]) != f.head || text[uuidText-1] != '"' {
		return 0, false
	}
	for i, c := range text[uuidHead : uuidText-1] {
		switch {
		case i == uuidTailAt-uuidHead-1:
			if c != '-' {
				return 0, false
			}
			continue
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return 0, false
		}
		id = id<<4 | uint64(c)
	}
	return id &^ f.high, (id^f.high)>>idBits == 0
}

// parseInteger reads a positive decimal integer below 2^53, the way it was
// written: without sign, fraction or leading zeros.
func parseInteger(text []byte) (n uint64, ok bool) {
	if len(text) == 0 || len(text) > 16 || text[0] == '0' {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, n>>idBits == 0
}
