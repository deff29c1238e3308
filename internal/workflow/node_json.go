package workflow

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-project/parley"
)

// nodeJSON reads JSON token by token, so that every value has its place.
type nodeJSON struct {
	*nodeReader
	dec *jsontext.Decoder
	// offset, line, col are the place that was computed last. Tokens come in
	// order: walking on from there keeps a long line from costing its square.
	offset, lineNo, colNo int
}

func (r *nodeReader) readJSON() *node {
	d := &nodeJSON{nodeReader: r, lineNo: 1, colNo: 1}
	d.dec = jsontext.NewDecoder(strings.NewReader(r.src), jsontext.AllowDuplicateNames(true))
	root := d.value(1, &node{})
	if d.stopped {
		return nil
	}
	start := d.next()
	if _, err := d.dec.ReadToken(); !errors.Is(err, io.EOF) {
		line, col := d.place(start)
		d.stop(line, col, problemSyntax, "there is text after the end of the document")
	}
	return root
}

// next gives the offset at which the next token begins.
func (d *nodeJSON) next() int {
	i := int(d.dec.InputOffset())
	for i < len(d.src) && strings.IndexByte(" \t\r\n,:", d.src[i]) >= 0 {
		i++
	}
	return i
}

// place gives line and column of an offset at or behind the last one.
func (d *nodeJSON) place(offset int) (line, col int) {
	for d.offset < min(offset, len(d.src)) {
		c, size := utf8.DecodeRuneInString(d.src[d.offset:])
		d.offset += size
		d.colNo++
		if c == '\n' || c == '\r' && !strings.HasPrefix(d.src[d.offset:], "\n") {
			d.lineNo++
			d.colNo = 1
		}
	}
	return d.lineNo, d.colNo
}

// value reads the next value; nil after a stop. What n says already about the
// place in the tree stays.
func (d *nodeJSON) value(depth int, n *node) *node {
	start := d.next()
	token, err := d.dec.ReadToken()
	if err != nil {
		d.fail(err)
		return nil
	}
	n.line, n.col = d.place(start)
	if !d.grow(depth, n) {
		return nil
	}
	switch token.Kind() {
	case jsontext.KindBeginObject:
		n.kind = nodeObject
		d.object(n, depth)
	case jsontext.KindBeginArray:
		n.kind = nodeList
		d.list(n, depth)
	case jsontext.KindString:
		n.kind, n.text = nodeString, token.String()
	case jsontext.KindNumber:
		n.kind, n.text = nodeNumber, d.src[start:d.dec.InputOffset()]
	case jsontext.KindTrue, jsontext.KindFalse:
		n.kind, n.text = nodeBool, d.src[start:d.dec.InputOffset()]
	default:
		n.kind = nodeNull
	}
	return n
}

func (d *nodeJSON) object(n *node, depth int) {
	seen := nodeSeen{}
	for !d.stopped && d.dec.PeekKind() != jsontext.KindEndObject {
		start := d.next()
		token, err := d.dec.ReadToken()
		if err != nil {
			d.fail(err)
			return
		}
		line, col := d.place(start)
		name := token.String()
		if value := d.value(depth+1, &node{parent: n, key: name}); value != nil {
			d.member(n, seen, nodeMember{name: name, line: line, col: col, value: value})
		}
	}
	d.end()
}

func (d *nodeJSON) list(n *node, depth int) {
	for !d.stopped && d.dec.PeekKind() != jsontext.KindEndArray {
		if item := d.value(depth+1, &node{parent: n, index: len(n.items)}); item != nil {
			n.items = append(n.items, item)
		}
	}
	d.end()
}

func (d *nodeJSON) end() {
	if d.stopped {
		return
	}
	if _, err := d.dec.ReadToken(); err != nil {
		d.fail(err)
	}
}

// nodeSeen holds the line of every member of one object.
type nodeSeen map[string]int

// member adds m to the object n unless its name is there already (rule D1).
func (r *nodeReader) member(n *node, seen nodeSeen, m nodeMember) {
	if first, ok := seen[m.name]; ok {
		r.add(parley.Problem{
			Line: m.line, Col: m.col, Path: nodeJoin(n.path(), m.name), Code: problemDuplicate,
			Text: fmt.Sprintf("%q is given twice; the first is on line %d", m.name, first),
		})
		return
	}
	seen[m.name] = m.line
	n.members = append(n.members, m)
}

// fail stops at a syntax error.
func (d *nodeJSON) fail(err error) {
	if d.stopped {
		return
	}
	problem := parley.Problem{Code: problemSyntax}
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case ok && errors.Is(err, io.ErrUnexpectedEOF), !ok:
		problem.Line, problem.Col = d.position(len(strings.TrimRight(d.src, " \t\r\n")))
		problem.Text = "the JSON ends before it is complete"
	default:
		problem.Line, problem.Col = d.position(int(syntax.ByteOffset))
		problem.Text = "invalid JSON: " + strings.TrimPrefix(syntax.Err.Error(), "jsontext: ")
	}
	if ok {
		problem.Path = nodePointerPath(string(syntax.JSONPointer))
	}
	rest := strings.TrimLeft(strings.TrimLeft(d.src, " \t\r\n")[1:], " \t\r\n")
	if rest != "" && strings.IndexByte(`"}]{[`, rest[0]) < 0 {
		problem.Suggestion = "what begins with a bracket is read as JSON; for YAML put a line --- before it"
	}
	d.stopAt(problem)
}

// nodePointerPath turns a JSON pointer into the form of [node.path].
func nodePointerPath(pointer string) string {
	path := ""
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = nodeUnescape(token)
		switch {
		case token == "" && path == "":
		case strings.Trim(token, "0123456789") == "" && path != "":
			path += "[" + token + "]"
		default:
			path = nodeJoin(path, token)
		}
	}
	return path
}

// nodeUnescape reads one token of a JSON pointer.
func nodeUnescape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}
