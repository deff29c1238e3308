package jsonrpc

import (
	"math"
	"math/bits"
	"strconv"
)

// A SyntaxError says why a text is no JSON value that this package takes.
type SyntaxError struct {
	// Offset is the byte at which the fault shows, counted from 0; the length
	// of the text when it ends too early.
	Offset int64
	// What is wrong, for people.
	What string
}

// Error says what is wrong and where.
func (e *SyntaxError) Error() string {
	return e.What + " at byte " + strconv.FormatInt(e.Offset, 10)
}

// phase is where in the grammar a valueChecker stands.
type phase uint8

const (
	phaseValue     phase = iota // a value must come
	phaseFirstItem              // a value or the end of an empty array
	phaseFirstKey               // a member or the end of an empty object
	phaseKey                    // a member
	phaseColon                  // the colon of a member
	phaseAfter                  // a comma or an end; at the top nothing more
	phaseString                 // inside a string
	phaseUTF8                   // inside a character of several bytes
	phaseEscape                 // after a backslash
	phaseHex                    // inside the digits of \u
	phaseLowEscape              // the backslash of the second half of a pair
	phaseLowU                   // the u of the second half of a pair
	phaseMinus                  // after the minus of a number
	phaseZero                   // after a leading zero
	phaseInteger                // inside the digits before the point
	phasePoint                  // after the point
	phaseFraction               // inside the digits after the point
	phaseE                      // after the e
	phaseESign                  // after the sign behind the e
	phaseExponent               // inside the digits of the exponent
	phaseLiteral                // inside true, false or null
)

// A valueChecker checks one JSON value that comes in pieces, by the same rules
// as checkValue and with the same verdict however the text is cut: for params
// and results that are streamed and never held whole (RPC-24). It uses no
// recursion and one bit of memory per level. The zero value allows no nesting.
type valueChecker struct {
	maxDepth int
	// spaceOut makes Write replace line breaks by spaces, in place, so that
	// the pieces may go out on a Stream.
	spaceOut bool

	phase   phase
	inKey   bool     // the string at hand is the name of a member
	high    bool     // the first half of a surrogate pair was read
	hex     uint8    // digits of \u read
	more    uint8    // bytes of the character that must come
	low, up byte     // what the next of them may be
	depth   int      // levels open
	objects []uint64 // bit per level: an object
	rest    string   // of a literal
	r       rune     // the digits of \u so far
	off     int64    // bytes read
	err     error    // the first, which stays
}

// Write checks the next piece.
func (c *valueChecker) Write(p []byte) error {
	_, err := c.step(p, false)
	return err
}

// Close says whether the value is complete.
func (c *valueChecker) Close() error {
	if c.err != nil || c.complete() {
		return c.err
	}
	switch c.phase {
	case phaseZero, phaseInteger, phaseFraction, phaseExponent:
		if c.depth == 0 { // only the end of the text ends such a number
			return nil
		}
	}
	return c.fail(0, "unexpected end")
}

// complete says whether the value has come to its end, which a number at the
// end of what was read may not have.
func (c *valueChecker) complete() bool {
	return c.err == nil && c.depth == 0 && c.phase == phaseAfter
}

// step reads p, or with one set only as far as the value goes. It returns how
// much of p it took.
func (c *valueChecker) step(p []byte, one bool) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	i := 0
	for i < len(p) {
		if c.phase == phaseString {
			i = skipPlain(p, i)
			if i == len(p) {
				break
			}
		}
		what := ""
		switch {
		case c.phase <= phaseAfter:
			if isSpace(p[i]) {
				if c.spaceOut && (p[i] == '\n' || p[i] == '\r') {
					p[i] = ' '
				}
				break
			}
			what = c.structure(p[i])
		case c.phase <= phaseLowU:
			what = c.text(p[i])
		case c.phase == phaseLiteral:
			what = c.literal(p[i])
		default:
			var again bool
			if what, again = c.number(p[i]); again {
				if one && c.complete() {
					c.off += int64(i)
					return i, nil
				}
				continue
			}
		}
		if what != "" {
			return i, c.fail(i, what)
		}
		if c.err != nil {
			c.off += int64(i)
			return i, c.err
		}
		i++
		if one && c.complete() {
			break
		}
	}
	c.off += int64(i)
	return i, nil
}

// deeper goes on where step has met too many levels, with p from there on,
// and takes any number of them.
func (c *valueChecker) deeper(p []byte) (int, error) {
	c.maxDepth, c.phase, c.err = math.MaxInt, phaseValue, nil
	return c.step(p, true)
}

func (c *valueChecker) fail(i int, what string) error {
	c.off += int64(i)
	c.err = &SyntaxError{Offset: c.off, What: what}
	return c.err
}

// structure takes a byte between values. It returns what is wrong with it.
func (c *valueChecker) structure(b byte) string {
	switch c.phase {
	case phaseFirstItem:
		if b == ']' {
			c.pop()
			return ""
		}
		return c.value(b)
	case phaseFirstKey:
		if b == '}' {
			c.pop()
			return ""
		}
		fallthrough
	case phaseKey:
		if b != '"' {
			return "a member name must come, in double quotes,"
		}
		c.phase, c.inKey = phaseString, true
		return ""
	case phaseColon:
		if b != ':' {
			return "a colon must come"
		}
		c.phase = phaseValue
		return ""
	case phaseAfter:
		return c.after(b)
	default:
		return c.value(b)
	}
}

// after takes the byte behind a value.
func (c *valueChecker) after(b byte) string {
	switch {
	case c.depth == 0:
		return "only one value may come, but more text follows"
	case b == ',' && c.inObject():
		c.phase = phaseKey
	case b == ',':
		c.phase = phaseValue
	case b == '}' && c.inObject(), b == ']' && !c.inObject():
		c.pop()
	case c.inObject():
		return "a comma or a closing brace must come"
	default:
		return "a comma or a closing bracket must come"
	}
	return ""
}

// value takes the first byte of a value.
func (c *valueChecker) value(b byte) string {
	switch {
	case b == '"':
		c.phase, c.inKey = phaseString, false
	case b == '{':
		c.push(true)
		c.phase = phaseFirstKey
	case b == '[':
		c.push(false)
		c.phase = phaseFirstItem
	case b == '-':
		c.phase = phaseMinus
	case b == '0':
		c.phase = phaseZero
	case b >= '1' && b <= '9':
		c.phase = phaseInteger
	case b == 't':
		c.phase, c.rest = phaseLiteral, "true"[1:]
	case b == 'f':
		c.phase, c.rest = phaseLiteral, "false"[1:]
	case b == 'n':
		c.phase, c.rest = phaseLiteral, "null"[1:]
	default:
		return "a value must come"
	}
	return ""
}

func (c *valueChecker) literal(b byte) string {
	if b != c.rest[0] {
		return "a value must be written true, false or null; something else came"
	}
	if c.rest = c.rest[1:]; c.rest == "" {
		c.phase = phaseAfter
	}
	return ""
}

// number takes a byte of a number, or says that the number was over before it
// and that the byte has to be taken again.
func (c *valueChecker) number(b byte) (what string, again bool) {
	digit := b >= '0' && b <= '9'
	e := b|0x20 == 'e'
	switch p := c.phase; {
	case p == phaseMinus && b == '0':
		c.phase = phaseZero
	case p == phaseMinus && digit:
		c.phase = phaseInteger
	case p == phaseInteger && digit, p == phaseFraction && digit, p == phaseExponent && digit:
	case (p == phaseZero || p == phaseInteger) && b == '.':
		c.phase = phasePoint
	case (p == phaseZero || p == phaseInteger || p == phaseFraction) && e:
		c.phase = phaseE
	case p == phasePoint && digit:
		c.phase = phaseFraction
	case p == phaseE && (b == '+' || b == '-'):
		c.phase = phaseESign
	case (p == phaseE || p == phaseESign) && digit:
		c.phase = phaseExponent
	case p == phaseZero && digit:
		return "a number must not begin with a zero and more digits,", false
	case p == phaseMinus || p == phasePoint || p == phaseE || p == phaseESign:
		return "a digit must come", false
	default:
		c.phase = phaseAfter
		return "", true
	}
	return "", false
}

// text takes a byte inside a string that skipPlain does not take.
func (c *valueChecker) text(b byte) string {
	switch c.phase {
	case phaseUTF8:
		if b < c.low || b > c.up {
			return "invalid UTF-8"
		}
		c.low, c.up = 0x80, 0xBF
		if c.more--; c.more == 0 {
			c.phase = phaseString
		}
	case phaseEscape:
		switch b {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			c.phase = phaseString
		case 'u':
			c.phase, c.hex, c.r = phaseHex, 0, 0
		default:
			return "unknown escape"
		}
	case phaseHex:
		return c.digit(b)
	case phaseLowEscape:
		if b != '\\' {
			return loneSurrogate
		}
		c.phase = phaseLowU
	case phaseLowU:
		if b != 'u' {
			return loneSurrogate
		}
		c.phase, c.hex, c.r = phaseHex, 0, 0
	default:
		return c.special(b)
	}
	return ""
}

const loneSurrogate = "half of a surrogate pair"

// special takes a byte that ends the plain part of a string.
func (c *valueChecker) special(b byte) string {
	c.low, c.up = 0x80, 0xBF
	switch {
	case b == '"' && c.inKey:
		c.phase = phaseColon
	case b == '"':
		c.phase = phaseAfter
	case b == '\\':
		c.phase = phaseEscape
	case b < ' ':
		return "control character in a string"
	case b >= 0xC2 && b <= 0xDF:
		c.phase, c.more = phaseUTF8, 1
	case b >= 0xE0 && b <= 0xEF:
		c.phase, c.more = phaseUTF8, 2
		switch b {
		case 0xE0: // shorter forms exist below
			c.low = 0xA0
		case 0xED: // surrogates
			c.up = 0x9F
		}
	case b >= 0xF0 && b <= 0xF4:
		c.phase, c.more = phaseUTF8, 3
		switch b {
		case 0xF0:
			c.low = 0x90
		case 0xF4: // beyond U+10FFFF
			c.up = 0x8F
		}
	default:
		return "invalid UTF-8"
	}
	return ""
}

// digit takes a digit of \u.
func (c *valueChecker) digit(b byte) string {
	d := hexDigit(b)
	if d < 0 {
		return "a hexadecimal digit must come"
	}
	c.r = c.r<<4 | d
	if c.hex++; c.hex < 4 {
		return ""
	}
	isHigh, isLow := c.r >= 0xD800 && c.r <= 0xDBFF, c.r >= 0xDC00 && c.r <= 0xDFFF
	if isLow != c.high {
		return loneSurrogate
	}
	c.high = isHigh
	c.phase = phaseString
	if isHigh {
		c.phase = phaseLowEscape
	}
	return ""
}

func (c *valueChecker) push(object bool) {
	if c.depth >= c.maxDepth {
		c.err = &ResourceError{What: "nesting", Limit: c.maxDepth, Unit: unitLevels}
		return
	}
	word, bit := c.depth/64, uint64(1)<<(c.depth%64)
	if word == len(c.objects) {
		c.objects = append(c.objects, 0)
	}
	if object {
		c.objects[word] |= bit
	} else {
		c.objects[word] &^= bit
	}
	c.depth++
}

func (c *valueChecker) pop() {
	c.depth--
	c.phase = phaseAfter
}

func (c *valueChecker) inObject() bool {
	d := c.depth - 1
	return c.objects[d/64]&(1<<(d%64)) != 0
}

// skipPlain skips the plain ASCII inside a string.
func skipPlain(b []byte, i int) int {
	for i+8 <= len(b) {
		w := load8(b, i)
		if m := stops(w) | w&highBits; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' && b[i] < 0x80 {
		i++
	}
	return i
}
