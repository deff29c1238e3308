package workflow

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
)

// nodeYAML turns the library's nodes into ours and keeps to rule D1 on the way.
type nodeYAML struct {
	*nodeReader
	// open holds the anchored nodes around the current one: an alias to one of
	// them would never end.
	open map[*yaml.Node]bool
	// tagged is set when the source holds a "!" at all; offset, line and col
	// walk along with the nodes to look for it.
	tagged            bool
	offset, line, col int
	// aliases counts the aliases around the current node, repeated the bytes of text
	// that stand in the tree by them: a short one may repeat a long text.
	aliases, repeated int
}

func (r *nodeReader) readYAML() *node {
	// YAML 1.2 has no line breaks besides LF and CR; the library breaks at
	// these three too, and would change the text silently.
	if i := strings.IndexAny(r.src, "\u0085\u2028\u2029"); i >= 0 {
		line, col := r.position(i)
		c, _ := utf8.DecodeRuneInString(r.src[i:])
		r.stop(line, col, problemSyntax, fmt.Sprintf(`the character U+%04X cannot stand in YAML: write "\u%04x" in double quotes`, c, c))
		return nil
	}
	if r.checkMany(); r.stopped {
		return nil
	}
	r.src = nodeDirective(r.src)
	dec := yaml.NewDecoder(strings.NewReader(r.src))
	doc, err := nodeDecode(dec)
	if errors.Is(err, io.EOF) {
		r.stop(1, 1, problemSyntax, "the document is empty")
		return nil
	}
	if err != nil {
		r.yamlError(err)
		return nil
	}
	switch more, err := nodeDecode(dec); {
	case errors.Is(err, io.EOF):
	case err != nil:
		r.yamlError(err)
		return nil
	default:
		r.stop(more.Line, more.Column, problemSyntax, "a second document begins here: one file holds one workflow")
		return nil
	}
	y := &nodeYAML{nodeReader: r, open: map[*yaml.Node]bool{}, tagged: strings.Contains(r.src, "!"), line: 1, col: 1}
	return y.value(doc.Content[0], 1, &node{})
}

// nodeDirective makes a comment of the line that says that a document is YAML 1.2: the
// library knows the line of 1.1 alone.
func nodeDirective(src string) string {
	const directive = "%YAML 1.2"
	for at := 0; at < len(src); {
		line, _, _ := strings.Cut(src[at:], "\n")
		rest, ok := strings.CutPrefix(line, directive)
		switch {
		case ok && (rest == "" || nodeBlank(rest[0])):
			return src[:at] + "#" + src[at+1:]
		case strings.TrimSpace(line) != "" && line[0] != '#':
			return src
		}
		at += len(line) + 1
	}
	return src
}

// nodeDecode reads one document. The library reports what it did not expect by
// panicking; nothing that a file holds may end the process.
func nodeDecode(dec *yaml.Decoder) (doc *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: the parser gave up: %v", p)
		}
	}()
	doc = new(yaml.Node)
	if err := dec.Decode(doc); err != nil {
		return nil, err
	}
	return doc, nil
}

// value converts y; nil after a stop. What n says already about the place in
// the tree stays.
func (y *nodeYAML) value(from *yaml.Node, depth int, n *node) *node {
	if n.line == 0 {
		n.line, n.col = from.Line, from.Column
		if n.line > len(y.lines) {
			// The library puts a value that is left out behind the last line.
			n.line, n.col = y.position(len(y.src))
		}
	}
	if from.Kind == yaml.AliasNode {
		if y.open[from.Alias] {
			y.stopAt(parley.Problem{
				Line: n.line, Col: n.col, Path: n.path(), Code: problemSyntax,
				Text: fmt.Sprintf("the alias *%s stands inside what it repeats", from.Value),
			})
			return nil
		}
		y.aliases++
		defer func() { y.aliases-- }()
		return y.value(from.Alias, depth, n)
	}
	if !y.grow(depth, n) || y.aliases > 0 && !y.repeat(from.Value, n) {
		return nil
	}
	if from.Anchor != "" {
		y.open[from] = true
		defer delete(y.open, from)
	}
	y.checkTag(from, n)
	switch from.Kind {
	case yaml.MappingNode:
		n.kind = nodeObject
		y.object(from, depth, n)
	case yaml.SequenceNode:
		n.kind = nodeList
		for i, item := range from.Content {
			if child := y.value(item, depth+1, &node{parent: n, index: i}); child != nil {
				n.items = append(n.items, child)
			}
		}
	default:
		y.scalar(from, n)
	}
	if y.stopped {
		return nil
	}
	return n
}

// repeat counts text that stands at n by an alias and reports whether reading may go
// on: what a document holds with its aliases expanded is bounded as its source is (rule
// D1).
func (y *nodeYAML) repeat(text string, n *node) bool {
	if y.repeated += len(text); y.repeated > y.limits.SourceBytes {
		y.stopAt(parley.Problem{
			Line: n.line, Col: n.col, Path: n.path(), Code: problemLimit,
			Text: fmt.Sprintf("the aliases repeat more bytes of text than the limit `source` of %d", y.limits.SourceBytes),
		})
	}
	return !y.stopped
}

func (y *nodeYAML) scalar(from *yaml.Node, n *node) {
	n.kind, n.text = nodeString, from.Value
	if from.Style != 0 {
		return
	}
	kind, text, ok := nodeCore(from.Value)
	if !ok {
		y.add(parley.Problem{
			Line: n.line, Col: n.col, Path: n.path(), Code: problemValue,
			Text: from.Value + " is not a number in JSON", Suggestion: "quote it if text is meant",
		})
		return
	}
	n.kind, n.text = kind, text
}

func (y *nodeYAML) object(from *yaml.Node, depth int, n *node) {
	seen := nodeSeen{}
	for i := 0; i+1 < len(from.Content) && !y.stopped; i += 2 {
		key := from.Content[i]
		name, ok := y.name(key, n)
		again := y.aliases > 0 || key.Kind == yaml.AliasNode
		if again && !y.repeat(name, &node{parent: n, key: name, line: key.Line, col: key.Column}) {
			return
		}
		value := y.value(from.Content[i+1], depth+1, &node{parent: n, key: name})
		if ok && value != nil {
			y.member(n, seen, nodeMember{name: name, line: key.Line, col: key.Column, value: value})
		}
	}
}

// name gives the name of a member; ok is false if it cannot be one.
func (y *nodeYAML) name(key *yaml.Node, n *node) (name string, ok bool) {
	bad := func(code, text, suggestion string) (string, bool) {
		y.add(parley.Problem{Line: key.Line, Col: key.Column, Path: n.path(), Code: code, Text: text, Suggestion: suggestion})
		return "", false
	}
	target := key
	if key.Kind == yaml.AliasNode {
		target = key.Alias
	} else {
		y.checkTag(key, &node{parent: n, key: key.Value, line: key.Line, col: key.Column})
	}
	switch {
	case target.Kind != yaml.ScalarNode:
		return bad(problemType, "the name of a member must be a text", "")
	case target.Style == 0 && target.Value == "<<":
		return bad(problemSyntax, "merge keys (<<) are not part of YAML 1.2", "write the members out, or use an alias for a whole value")
	case target.Style != 0:
		return target.Value, true
	}
	if kind, _, _ := nodeCore(target.Value); kind != nodeString {
		return bad(problemType, fmt.Sprintf("the name of a member must be a text, %q is %s", target.Value, kind), fmt.Sprintf("write %q in quotes", target.Value))
	}
	return target.Value, true
}

// checkTag refuses tags (rule D1). The tag "!" leaves no trace in the
// library's nodes and is looked up in the source.
func (y *nodeYAML) checkTag(from *yaml.Node, n *node) {
	if !y.tagged || from.Style&yaml.TaggedStyle == 0 && !y.sourceTag(from) {
		return
	}
	y.add(parley.Problem{
		Line: n.line, Col: n.col, Path: n.path(), Code: problemSyntax,
		Text: "tags (!…) are not allowed", Suggestion: "leave it out; quotes make a text of anything",
	})
}

func (y *nodeYAML) sourceTag(from *yaml.Node) bool {
	if from.Line < y.line || from.Line == y.line && from.Column < y.col {
		return false // an alias: what it repeats was looked at in its own place
	}
	if from.Line > y.line {
		y.line, y.col, y.offset = from.Line, 1, y.lines[min(from.Line, len(y.lines))-1]
	}
	for y.col < from.Column && y.offset < len(y.src) {
		_, size := utf8.DecodeRuneInString(y.src[y.offset:])
		y.offset += size
		y.col++
	}
	rest := y.src[y.offset:]
	if strings.HasPrefix(rest, "&") {
		i := strings.IndexAny(rest, " \t\r\n")
		if i < 0 {
			return false
		}
		rest = strings.TrimLeft(rest[i:], " \t\r\n")
	}
	return strings.HasPrefix(rest, "!")
}

// nodeOneByte gives a source byte by byte. How much of it was taken says where
// the library stopped, which its errors say only roughly.
type nodeOneByte struct {
	src  string
	done int
}

func (o *nodeOneByte) Read(p []byte) (int, error) {
	if o.done == len(o.src) {
		return 0, io.EOF
	}
	o.done++
	return copy(p[:1], o.src[o.done-1:]), nil
}

// yamlError stops at a syntax error, as near to its place as can be found.
func (r *nodeReader) yamlError(err error) {
	one := &nodeOneByte{src: r.src}
	dec := yaml.NewDecoder(one)
	for again := error(nil); again == nil; {
		_, again = nodeDecode(dec)
	}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	said := 0
	if n, scanErr := fmt.Sscanf(text, "line %d:", &said); n == 1 && scanErr == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	code := problemSyntax
	if strings.Contains(text, "exceeded max depth") {
		code = problemLimit
	}
	offset, text := r.yamlPlace(text, said, r.src[:one.done])
	line, col := r.position(offset)
	r.stopAt(parley.Problem{Line: line, Col: col, Path: r.yamlPath(line), Code: code, Text: text})
}

// yamlPlace finds the offset of an error and says in plain words what it is.
// said is the line that the library names, taken the part that it had read.
func (r *nodeReader) yamlPlace(text string, said int, taken string) (int, string) {
	trimmed := strings.TrimRight(taken, " \t\r\n")
	last, _ := r.position(max(len(trimmed)-1, 0))
	start := r.lines[last-1]
	indent := start + len(r.line(last)) - len(strings.TrimLeft(r.line(last), " \t"))
	find := func(chars string) int {
		if i := strings.LastIndexAny(taken, chars); i >= 0 {
			return i
		}
		return indent
	}
	switch {
	case strings.Contains(text, "expected ',' or ']'"):
		return r.yamlOpening("[", said, indent), "the list that begins with [ is not closed, or a comma is missing in it"
	case strings.Contains(text, "expected ',' or '}'"):
		return r.yamlOpening("{", said, indent), "the object that begins with { is not closed, or a comma is missing in it"
	case strings.Contains(text, "unexpected end of stream"):
		return r.yamlOpening("\"'", said-1, indent), "the quote that begins here is not closed"
	case strings.Contains(text, "mapping values are not allowed"):
		return find(":"), "a second \": \" cannot stand here: quote the text, or check the indentation"
	case strings.Contains(text, "unknown anchor"):
		return find("*"), "nothing before this alias has an anchor (&) of its name"
	case strings.Contains(text, "cannot start any token"):
		i := find("@`%\t")
		return i, fmt.Sprintf("the character %q cannot begin a value here; indent with spaces, or quote the text", r.src[i])
	case strings.Contains(text, "escape"):
		return find(`\`), text
	case strings.Contains(text, "incompatible YAML"):
		return 0, "only YAML 1.2 is read: leave the %YAML line out"
	case strings.Contains(text, "control characters"):
		return len(taken) - 1, text
	case strings.Contains(text, "expected key"), strings.Contains(text, "'-' indicator"):
		return indent, "this line does not fit the block above it: check its indentation, and that the names end with \":\""
	}
	return indent, text
}

// yamlOpening finds where something opened that was not closed: on the line
// that the library names, whose count is one behind, or else from the top.
func (r *nodeReader) yamlOpening(chars string, said, otherwise int) int {
	for _, n := range []int{said + 1, 1} {
		line := r.line(n)
		for i := len(line) - 1; i >= 0; i-- {
			if strings.IndexByte(chars, line[i]) < 0 || i > 0 && strings.IndexByte(" \t[{,", line[i-1]) < 0 {
				continue
			}
			return r.lines[n-1] + i
		}
	}
	return otherwise
}

// yamlPath names the member that a broken line belongs to, by what stands
// before it; "" if that is not known.
func (r *nodeReader) yamlPath(line int) string {
	before := &nodeReader{src: r.src[:r.lines[line-1]], limits: r.limits}
	before.lines = nodeLines(before.src)
	text := strings.TrimLeft(r.line(line), " \t-")
	col := utf8.RuneCountInString(r.line(line)) - utf8.RuneCountInString(text) + 1
	name, _, ok := strings.Cut(text, ":")
	if ok = ok && !strings.ContainsAny(name, " \"'{[&*!"); !ok {
		name = ""
	}
	doc, err := nodeDecode(yaml.NewDecoder(strings.NewReader(before.src)))
	if err != nil || len(doc.Content) == 0 {
		return name
	}
	y := &nodeYAML{nodeReader: before, open: map[*yaml.Node]bool{}, line: 1, col: 1}
	n := y.value(doc.Content[0], 1, &node{})
	if n == nil {
		return name
	}
	for next := nodeLast(n, col); next != nil; next = nodeLast(n, col) {
		n = next
	}
	item := strings.HasPrefix(strings.TrimLeft(r.line(line), " \t"), "-")
	if name == "" || n.kind != nodeObject && (n.kind != nodeNull || item) {
		return n.path()
	}
	return nodeJoin(n.path(), name)
}

// nodeLast gives the last child of n whose name stands left of col; nil if
// there is none.
func nodeLast(n *node, col int) *node {
	if i := len(n.members) - 1; i >= 0 && n.members[i].col < col {
		return n.members[i].value
	}
	if i := len(n.items) - 1; i >= 0 && n.items[i].col <= col {
		return n.items[i]
	}
	return nil
}
