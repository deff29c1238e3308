package workflow

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// The codes of problems (interface of validate; they are stable).
const (
	problemSyntax       = "syntax"
	problemDuplicate    = "duplicate_key"
	problemUnknown      = "unknown_member"
	problemType         = "type"
	problemRequired     = "required"
	problemValue        = "value"
	problemID           = "id"
	problemReference    = "reference"
	problemExpression   = "expression"
	problemLimit        = "limit"
	problemUnsupported  = "unsupported"
	problemUnknownAgent = "unknown_agent"
	problemUnreachable  = "unreachable"
	problemSchema       = "schema"
)

// nodeReader turns one source into a tree of nodes. It stops at the first
// syntax error or passed limit, and goes on after everything else.
type nodeReader struct {
	src    string
	limits ParseLimits
	// lines are the byte offsets at which the lines of src begin.
	lines    []int
	count    int
	stopped  bool
	problems []parley.Problem
	// dropped counts the findings beyond problemsKept.
	dropped int
}

// nodeRead reads a document as JSON if its first character is a brace or a
// bracket, else as YAML (rule D1). The tree is nil if there is none.
func nodeRead(source []byte, limits ParseLimits) (*node, *nodeReader) {
	r := &nodeReader{limits: limits}
	if len(source) > limits.SourceBytes {
		r.stop(1, 1, problemLimit, fmt.Sprintf("the document has %d bytes; the limit `source` is %d", len(source), limits.SourceBytes))
		return nil, r
	}
	r.src = strings.TrimPrefix(string(source), "\ufeff")
	r.lines = nodeLines(r.src)
	if line, col, ok := r.invalidUTF8(); ok {
		r.stop(line, col, problemSyntax, "the document is not UTF-8 here")
		return nil, r
	}
	var root *node
	switch first := strings.TrimLeft(r.src, " \t\r\n"); {
	case first == "":
		r.stop(1, 1, problemSyntax, "the document is empty")
	case first[0] == '{' || first[0] == '[':
		root = r.readJSON()
	default:
		root = r.readYAML()
	}
	if r.stopped {
		return nil, r
	}
	return root, r
}

// stop records what ends the reading. Only the first counts.
func (r *nodeReader) stop(line, col int, code, text string) {
	r.stopAt(parley.Problem{Line: line, Col: col, Code: code, Text: text})
}

func (r *nodeReader) stopAt(p parley.Problem) {
	if r.stopped {
		return
	}
	r.stopped = true
	r.add(p)
}

func (r *nodeReader) add(p parley.Problem) {
	p.Severity = parley.SeverityError
	if len(r.problems) >= problemsKept {
		r.dropped++
		return
	}
	p.Path = nodePath(p.Path)
	r.problems = append(r.problems, p)
}

// grow counts one more value at the given depth and reports whether reading
// may go on.
func (r *nodeReader) grow(depth int, n *node) bool {
	if r.stopped {
		return false
	}
	if r.count++; r.count > r.limits.Nodes {
		r.stopAt(parley.Problem{Line: n.line, Col: n.col, Path: n.path(), Code: problemLimit, Text: fmt.Sprintf("the document has more values than the limit `nodes` of %d, aliases expanded", r.limits.Nodes)})
	}
	// Every scope adds a list and an object around the values of its steps.
	if most := 2*r.limits.Scopes + r.limits.Depth + 4; depth > most {
		r.stopAt(parley.Problem{Line: n.line, Col: n.col, Code: problemLimit, Text: fmt.Sprintf("values are nested deeper than the limit `depth` of %d", most)})
	}
	return !r.stopped
}

// nodeLines gives the offsets at which lines begin: after LF, CR LF or CR.
func nodeLines(src string) []int {
	lines := []int{0}
	for i := 0; i < len(src); i++ {
		switch {
		case src[i] == '\n', src[i] == '\r' && !strings.HasPrefix(src[i+1:], "\n"):
			lines = append(lines, i+1)
		}
	}
	return lines
}

// line gives the text of a line, counted from 1, without its end.
func (r *nodeReader) line(n int) string {
	if n < 1 || n > len(r.lines) {
		return ""
	}
	end := len(r.src)
	if n < len(r.lines) {
		end = r.lines[n]
	}
	return strings.TrimRight(r.src[r.lines[n-1]:end], "\r\n")
}

// position gives line and column of a byte offset.
func (r *nodeReader) position(offset int) (line, col int) {
	offset = min(max(offset, 0), len(r.src))
	lo, hi := 0, len(r.lines)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; r.lines[mid] <= offset {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo + 1, utf8.RuneCountInString(r.src[r.lines[lo]:offset]) + 1
}

func (r *nodeReader) invalidUTF8() (line, col int, found bool) {
	if utf8.ValidString(r.src) {
		return 0, 0, false
	}
	for i, c := range r.src {
		if c == utf8.RuneError && !strings.HasPrefix(r.src[i:], "\ufffd") {
			line, col = r.position(i)
			return line, col, true
		}
	}
	return 1, 1, true
}

// within gives the position of a byte offset inside the value of a string node,
// if the source spells that value on one line without escapes, or as a block, else
// that of the node.
func (r *nodeReader) within(n *node, offset int) (line, col int) {
	if n.kind != nodeString || offset < 0 || offset > len(n.text) {
		return n.line, n.col
	}
	rest := r.line(n.line)
	for range n.col - 1 {
		_, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
	}
	inset := 0
	if !strings.HasPrefix(rest, n.text) && len(rest) > 0 && (rest[0] == '"' || rest[0] == '\'') {
		rest, inset = rest[1:], 1
	}
	if !strings.HasPrefix(rest, n.text) {
		if line, col, ok := r.inBlock(n, rest, offset); ok {
			return line, col
		}
		return n.line, n.col
	}
	return n.line, n.col + inset + utf8.RuneCountInString(n.text[:offset])
}

// inBlock is within for a block scalar, whose first line is head. Its words stand in
// the lines of the source as they are, whatever becomes of the blanks and line ends
// between them: the one at the offset has as many equal ones before it there.
func (r *nodeReader) inBlock(n *node, head string, offset int) (line, col int, ok bool) {
	if !strings.HasPrefix(head, "|") && !strings.HasPrefix(head, ">") {
		return 0, 0, false
	}
	word := n.text[offset:min(offset+maxWord, len(n.text))]
	if end := strings.IndexAny(word, " \n"); end >= 0 {
		word = word[:end]
	}
	if word == "" {
		return 0, 0, false
	}
	_, before := nth(n.text[:offset+len(word)-1], word, math.MaxInt)
	indent := -1
	for line = n.line + 1; line <= len(r.lines); line++ {
		text := r.line(line)
		inset := len(text) - len(strings.TrimLeft(text, " "))
		switch {
		case inset == len(text): // an empty line
			continue
		case indent < 0:
			indent = inset
		case inset < indent: // what comes after the block
			return 0, 0, false
		}
		at, seen := nth(text, word, before)
		if at >= 0 {
			return line, utf8.RuneCountInString(text[:at]) + 1, true
		}
		before -= seen
	}
	return 0, 0, false
}

// maxWord bounds what is looked for, in bytes: it is compared at many places.
const maxWord = 64

// nth gives where word begins in text after n others, which may overlap; -1 and how many
// there are if there are no more.
func nth(text, word string, n int) (at, seen int) {
	for ; ; at++ {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return -1, seen
		}
		if at += i; seen == n {
			return at, seen
		}
		seen++
	}
}
