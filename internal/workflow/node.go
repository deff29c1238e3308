package workflow

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// nodeKind is the JSON type of a node.
type nodeKind int

const (
	nodeNull nodeKind = iota
	nodeBool
	nodeNumber
	nodeString
	nodeList
	nodeObject
)

// String gives the kind as it is said to people.
func (k nodeKind) String() string {
	switch k {
	case nodeNull:
		return "null"
	case nodeBool:
		return "true or false"
	case nodeNumber:
		return "a number"
	case nodeString:
		return "a text"
	case nodeList:
		return "a list"
	default:
		return "an object"
	}
}

// node is one value of a document with its place in the source. YAML and JSON
// give the same tree; aliases are expanded, so every node has one parent.
type node struct {
	kind nodeKind
	// text is the value of a string, the JSON literal of a number, or "true"
	// and "false".
	text string
	// line and col count from 1, col in characters.
	line, col int

	// members of an object, in source order, without duplicates.
	members []nodeMember
	items   []*node

	// parent, key and index say where the node stands; parent is nil at the top.
	parent *node
	key    string
	index  int
}

// nodeMember is one member of an object. line and col are those of its name.
type nodeMember struct {
	name      string
	line, col int
	value     *node
}

// get gives the value of a member, or nil.
func (n *node) get(name string) *node {
	for i := range n.members {
		if n.members[i].name == name {
			return n.members[i].value
		}
	}
	return nil
}

// path names the node from the top of the document: steps[2].input.text.
func (n *node) path() string {
	if n == nil || n.parent == nil {
		return ""
	}
	if n.parent.kind == nodeList {
		return nodeIndex(n.parent.path(), n.index)
	}
	return nodeJoin(n.parent.path(), n.key)
}

// nodeIndex appends the place in a list to a path.
func nodeIndex(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// maxPathName bounds the names in a path, in characters, as an id is bounded; maxPath
// bounds the path of a finding, in bytes.
const (
	maxPathName = 255
	maxPath     = 1000
)

// nodeJoin appends a member's name to a path.
func nodeJoin(path, name string) string {
	name = nodeShort(name)
	if name == "" || strings.ContainsAny(name, ".[]\" \t\r\n") {
		return path + "[" + strconv.Quote(name) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// nodeShort keeps the path of a value readable, and small, where the name of a member is
// as long as a document may be.
func nodeShort(name string) string {
	n := 0
	for i := range name {
		if n++; n > maxPathName {
			return name[:i] + "…"
		}
	}
	return name
}

// nodePath shortens the path of a finding in its middle.
func nodePath(path string) string {
	if len(path) <= maxPath {
		return path
	}
	return strings.ToValidUTF8(path[:maxPath/2], "") + "…" + strings.ToValidUTF8(path[len(path)-maxPath/2:], "")
}

// json renders the node as compact JSON: members in source order, the digits
// of numbers as they were written.
func (n *node) json() json.RawMessage { return n.appendJSON(nil) }

func (n *node) appendJSON(b []byte) []byte {
	switch n.kind {
	case nodeNull:
		return append(b, "null"...)
	case nodeBool, nodeNumber:
		return append(b, n.text...)
	case nodeString:
		return nodeQuote(b, n.text)
	case nodeList:
		b = append(b, '[')
		for i, item := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b)
		}
		return append(b, ']')
	default:
		b = append(b, '{')
		for i, m := range n.members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(nodeQuote(b, m.name), ':')
			b = m.value.appendJSON(b)
		}
		return append(b, '}')
	}
}

// nodeQuote appends s as a JSON string. Readers let only valid UTF-8 in, so
// quoting cannot fail.
func nodeQuote(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// at follows a JSON pointer and gives the deepest node that it reaches.
func (n *node) at(pointer string) *node {
	if !strings.HasPrefix(pointer, "/") {
		return n
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = nodeUnescape(token)
		next := n.child(token)
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// child gives the member or item that one token of a pointer names, or nil.
func (n *node) child(token string) *node {
	if n.kind == nodeObject {
		return n.get(token)
	}
	if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(n.items) {
		return n.items[i]
	}
	return nil
}

// depth is 0 for a scalar, else one more than that of the deepest child.
func (n *node) depth() int {
	deepest := -1
	for _, item := range n.items {
		deepest = max(deepest, item.depth())
	}
	for _, m := range n.members {
		deepest = max(deepest, m.value.depth())
	}
	if n.kind == nodeList || n.kind == nodeObject {
		return max(deepest, 0) + 1
	}
	return 0
}

// isTemplate says whether the text holds an expression.
func (n *node) isTemplate() bool { return n.kind == nodeString && strings.Contains(n.text, "${") }

// isLone says whether the text is one expression, as far as its ends tell.
func (n *node) isLone() bool {
	return n.kind == nodeString && strings.HasPrefix(n.text, "${") && strings.HasSuffix(n.text, "}")
}
