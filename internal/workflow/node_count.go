package workflow

import (
	"fmt"
	"strings"

	"github.com/parley-project/parley"
)

// nodeCount counts the values of YAML text without reading it: the library builds
// all of them before the first can be counted, at some 400 bytes each. It
// follows quotes, flow collections, block scalars and plain text over several
// lines, and never counts more than a document has that can be read; where it is
// in doubt it counts nothing.
type nodeCount struct {
	src string
	i   int
	// n are the values so far, most is where counting ends.
	n, most int
	// base is the column of the last key or dash. Lines that begin behind text
	// are the rest of a scalar; text is -2 if there is none.
	base, text int
}

// nodeMany reports whether YAML text has more values than most, and where the
// first of them stands.
func nodeMany(src string, most int) (offset int, many bool) {
	if len(src)/2 <= most { // a value and what tells it from the next
		return 0, false
	}
	c := nodeCounted(src, most)
	return min(c.i, len(src)), c.n > most
}

// nodeCounted counts up to one more than most.
func nodeCounted(src string, most int) *nodeCount {
	c := &nodeCount{src: src, most: most, base: -1, text: -2}
	for c.i < len(src) && c.n <= most {
		c.line()
	}
	return c
}

// checkMany stops at YAML with too many values.
func (r *nodeReader) checkMany() {
	offset, many := nodeMany(r.src, r.limits.Nodes)
	if !many {
		return
	}
	line, col := r.position(offset)
	r.stopAt(parley.Problem{
		Line: line, Col: col, Code: problemLimit,
		Text: fmt.Sprintf("the document has more values than the limit `nodes` of %d", r.limits.Nodes),
	})
}

func (c *nodeCount) at(i int) byte {
	if i < len(c.src) {
		return c.src[i]
	}
	return '\n'
}

func nodeBreak(b byte) bool { return b == '\n' || b == '\r' }
func nodeBlank(b byte) bool { return b == ' ' || b == '\t' || nodeBreak(b) }

func (c *nodeCount) spaces() {
	for c.at(c.i) == ' ' || c.at(c.i) == '\t' {
		c.i++
	}
}

// rest goes behind the end of the line.
func (c *nodeCount) rest() {
	if n := strings.IndexAny(c.src[min(c.i, len(c.src)):], "\r\n"); n >= 0 {
		c.i += n + 1
		return
	}
	c.i = len(c.src)
}

// line counts what one line of block style holds, and all of a flow collection or
// a quoted text that begins in it.
func (c *nodeCount) line() {
	start := c.i
	for c.at(c.i) == ' ' {
		c.i++
	}
	indent := c.i - start
	marker := strings.HasPrefix(c.src[c.i:], "---") && nodeBlank(c.at(c.i+3))
	switch {
	case indent == 0 && marker:
		c.i += 3
		c.base, c.text = -1, -2
		c.spaces()
	case nodeBreak(c.at(c.i)) || indent == 0 && c.at(c.i) == '%' || indent > c.text && c.text > -2:
		c.rest()
		return
	}
	c.text = -2
	for c.entry(start) && c.n <= c.most {
		c.spaces()
	}
	c.rest()
}

// entry counts what begins here, in the line that begins at start; it reports
// whether the line may go on.
func (c *nodeCount) entry(start int) bool {
	from := c.i
	switch b := c.at(c.i); {
	case nodeBreak(b), b == '#', b == '*':
		return false
	case (b == '-' || b == '?') && nodeBlank(c.at(c.i+1)):
		if b == '-' {
			c.n++
		}
		c.base = from - start
		c.i++
		return true
	case b == '&' || b == '!':
		for !nodeBlank(c.at(c.i)) {
			c.i++
		}
		return true
	case b == '|' || b == '>':
		c.text = c.base
		return false
	case b == '"' || b == '\'':
		c.quoted()
	case b == '[' || b == '{':
		c.flow()
	default:
		return c.plain(start)
	}
	c.spaces()
	if c.at(c.i) == ':' && nodeBlank(c.at(c.i+1)) && c.i < len(c.src) {
		c.n++
		c.base = from - start
		c.i++
		return true
	}
	return false
}

// plain reads text without quotes: a key, or a value that may go on in the lines
// below.
func (c *nodeCount) plain(start int) bool {
	from := c.i
	for ; !nodeBreak(c.at(c.i)); c.i++ {
		switch b := c.at(c.i); {
		case b == ':' && nodeBlank(c.at(c.i+1)):
			c.n++
			c.base = from - start
			c.i++
			return true
		case b == '#' && c.i > from && nodeBlank(c.at(c.i-1)):
			return false
		}
	}
	c.text = c.base
	return false
}

// quoted goes behind the closing quote.
func (c *nodeCount) quoted() {
	quote := c.at(c.i)
	for c.i++; c.i < len(c.src); c.i++ {
		switch b := c.src[c.i]; {
		case b == '\\' && quote == '"':
			c.i++
		case b == quote && quote == '\'' && c.at(c.i+1) == '\'':
			c.i++
		case b == quote:
			c.i++
			return
		}
	}
}

// flow counts what stands behind the brackets and commas of a flow collection and
// goes behind its end.
func (c *nodeCount) flow() {
	depth, plain, fresh := 0, false, false
	for c.i < len(c.src) && c.n <= c.most {
		b := c.src[c.i]
		if fresh && !nodeBlank(b) && b != '#' {
			if fresh = false; b != ']' && b != '}' {
				c.n++
			}
		}
		switch {
		case b == '[' || b == '{':
			depth, plain, fresh = depth+1, false, true
		case b == ']' || b == '}':
			if depth, plain = depth-1, false; depth == 0 {
				c.i++
				return
			}
		case b == ',':
			plain, fresh = false, true
		case b == '#' && (!plain || nodeBlank(c.at(c.i-1))):
			c.rest()
			plain = false
			continue
		case plain:
			plain = b != '?' && (b != ':' || !nodeBlank(c.at(c.i+1)))
		case b == '"' || b == '\'':
			c.quoted()
			continue
		case b == '&' || b == '*' || b == '!':
			for !nodeBlank(c.at(c.i)) && strings.IndexByte(",[]{}", c.at(c.i)) < 0 {
				c.i++
			}
			continue
		default:
			plain = !nodeBlank(b) && b != ':' && b != '?'
		}
		c.i++
	}
}
