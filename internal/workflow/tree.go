package workflow

import (
	"encoding/json"
	"slices"

	"github.com/parley-project/parley"
)

// ValueKind is the JSON type of a [Value].
type ValueKind int

// The types of values.
const (
	NullValue   = ValueKind(nodeNull)
	BoolValue   = ValueKind(nodeBool)
	NumberValue = ValueKind(nodeNumber)
	StringValue = ValueKind(nodeString)
	ListValue   = ValueKind(nodeList)
	ObjectValue = ValueKind(nodeObject)
)

// String gives the type as it is said to people: "a text", "a list" …
func (k ValueKind) String() string { return nodeKind(k).String() }

// Value is one value of a document as it was written, for what draws, compares
// and rewrites documents. YAML and JSON give the same tree; aliases are
// expanded. It may be built by hand too.
type Value struct {
	Kind ValueKind
	// Text is the value of a string, the literal of a number, "true" or "false".
	Text string
	// Line and Col count from 1; 0 if the value was not read. Path names the value
	// from the top of the document: steps[2].input.text.
	Line, Col int
	Path      string
	// Members of an object in the order of the source; Items of a list.
	Members []ValueMember
	Items   []*Value
}

// ValueMember is one member of an object. Line and Col are those of its name.
type ValueMember struct {
	Name      string
	Line, Col int
	Value     *Value
}

// ReadTree reads a document, YAML or JSON, without judging what it says. The
// value is nil if it cannot be read; the problems say why.
func ReadTree(o ParseOptions, source []byte) (*Value, parley.Problems) {
	root, reader := nodeRead(source, o.Limits.filled())
	for i := range reader.problems {
		reader.problems[i].File = o.File
	}
	if root == nil {
		return nil, problemsSort(reader.problems, reader.dropped)
	}
	return root.value(""), problemsSort(reader.problems, reader.dropped)
}

// value copies the tree for others. path is that of n.
func (n *node) value(path string) *Value {
	v := &Value{Kind: ValueKind(n.kind), Text: n.text, Line: n.line, Col: n.col, Path: path}
	for _, m := range n.members {
		v.Members = append(v.Members, ValueMember{Name: m.name, Line: m.line, Col: m.col, Value: m.value.value(nodeJoin(path, m.name))})
	}
	for i, item := range n.items {
		v.Items = append(v.Items, item.value(nodeIndex(path, i)))
	}
	return v
}

// Form says in which of the two spellings a document is written.
func (v *Value) Form() Form {
	steps := v.Get("steps")
	return formOf(steps != nil, steps != nil && steps.Kind == ObjectValue, v.Get("start_step") != nil)
}

// formOf tells the forms apart by what stands at the top of a document.
func formOf(steps, object, start bool) Form {
	if object || !steps && start {
		return FormGraph
	}
	return FormList
}

// Get gives the value of a member, nil if there is none.
func (v *Value) Get(name string) *Value {
	if v == nil {
		return nil
	}
	for i := range v.Members {
		if v.Members[i].Name == name {
			return v.Members[i].Value
		}
	}
	return nil
}

// Given is Get without members that are null: old writers spell every member
// that they leave out.
func (v *Value) Given(name string) *Value {
	if m := v.Get(name); m != nil && m.Kind != NullValue {
		return m
	}
	return nil
}

// String gives the text of a string, "" for anything else and for nil.
func (v *Value) String() string {
	if v == nil || v.Kind != StringValue {
		return ""
	}
	return v.Text
}

// JSON renders the value: compact, members in their order, the digits of numbers
// as they were written.
func (v *Value) JSON() json.RawMessage { return v.node().json() }

func (v *Value) node() *node {
	n := &node{kind: nodeKind(v.Kind), text: v.Text}
	for _, m := range v.Members {
		n.members = append(n.members, nodeMember{name: m.Name, value: m.Value.node()})
	}
	for _, item := range v.Items {
		n.items = append(n.items, item.node())
	}
	return n
}

// KindOf gives the kind of a step of a document by its members, as the parser
// does, also for kinds that this version does not run; "" if none can be seen.
// graph is set for a step of the graph form, whose type says it.
func KindOf(step *Value, graph bool) Kind {
	if t := step.Given("type").String(); t != "" {
		return Kind(t)
	}
	if graph {
		return KindAgent
	}
	for _, row := range kindMembers() {
		if slices.ContainsFunc(row.names, func(name string) bool { return step.Get(name) != nil }) {
			return row.kind
		}
	}
	return ""
}

// kindMembers are all kinds of language.md §2 by the members that make them. A
// loop has steps too, so it stands before the group.
func kindMembers() []parseKind {
	return []parseKind{
		{KindAgent, []string{"agent", "agent_name", "agents"}},
		{"loop", []string{"for_each", "repeat"}},
		{KindGroup, []string{"steps"}},
		{KindParallel, []string{"parallel"}},
		{"fork_join", []string{"fork"}},
		{KindConditional, []string{"then", "else"}},
		{KindSwitch, []string{"switch"}},
		{"sub_workflow", []string{"workflow"}},
		{"plan", []string{"plan"}},
		{KindWait, []string{"wait"}},
		{"wait_for_event", []string{"event"}},
		{"emit", []string{"emit"}},
		{"approval", []string{"approval"}},
		{KindSet, []string{"set"}},
		{"validate", []string{"validate"}},
		{KindFail, []string{"fail"}},
		{KindFinish, []string{"finish"}},
	}
}

// HasMember says whether a step of a kind may have a member; "" asks for the top
// of a document.
func HasMember(kind Kind, name string) bool {
	if kind == "" {
		p := &parser{def: &Definition{}}
		return slices.ContainsFunc(p.topMembers(), func(f parseField) bool { return f.name == name })
	}
	for _, row := range parseMembers() {
		if row.name == name && row.takes(kind) {
			return true
		}
	}
	return false
}
