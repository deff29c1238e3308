package expr

import (
	"fmt"

	"cel.dev/cel-go/common/types"
)

// Wanted says what the value of a member has to be, as far as that can be told before
// there is one (rule E10).
type Wanted int

// What is wanted.
const (
	// Anything is wanted of most members.
	Anything Wanted = iota
	// List is wanted of for_each and plan.
	List
	// Name is a string: an agent or a workflow.
	Name
	// Text may be a number or a boolean too, which are written as text.
	Text
	// Time is a time, or its text.
	Time
)

// String names what is wanted.
func (w Wanted) String() string {
	return [...]string{"any value", "a list", "a name", "text", "a time"}[w]
}

// takes reports whether a value of that kind will do; "" is unknown.
func (w Wanted) takes(kind string) bool {
	switch kind {
	case "":
		return true
	case aList:
		return w == Anything || w == List
	case anObject, aNull:
		return w == Anything
	case aString:
		return w != List
	}
	return w == Anything || w == Text
}

// The kinds of values, as kindOf names them.
const (
	aList    = "a list"
	anObject = "an object"
	aNull    = "null"
	aString  = "a string"
	aNumber  = "a number"
	aBoolean = "a boolean"
)

// misfit gives the finding that an expression surely gives what is not wanted; nil if it
// may give something else. Text is inText if it stands inside a longer one. In graph form,
// and in what was accepted before, it is a warning: it is an error once it is evaluated.
func (c *Compiler) misfit(x expression, wanted Wanted, inText bool) *Finding {
	kind := c.kindFor(x)
	if wanted.takes(kind) {
		return nil
	}
	f := &Finding{Code: CodeExpression, Warning: c.graph || c.accepted, Text: fmt.Sprintf("%s is wanted here, this gives %s", wanted, kind)}
	if inText {
		f.Text = insideText(kind).text
		if kind != aNull {
			f.Suggestion = fmt.Sprintf("write it as JSON: ${to_json(%s)}", shorten(x.source()))
		}
	}
	return f
}

// kindFor gives the kind of the values of an expression, "" if there may be several: by
// its type, or for a path by the schema that is declared for what it leads to.
func (c *Compiler) kindFor(x expression) string {
	switch x := x.(type) {
	case *celExpr:
		return x.kind()
	case *pathExpr:
		return c.kindAt(&x.path)
	}
	return ""
}

func (x *celExpr) kind() string {
	switch x.result.Kind() {
	case types.ListKind:
		return aList
	case types.MapKind, types.StructKind:
		return anObject
	case types.NullTypeKind:
		return aNull
	case types.IntKind, types.UintKind, types.DoubleKind:
		return aNumber
	case types.BoolKind:
		return aBoolean
	case types.StringKind, types.BytesKind, types.TimestampKind, types.DurationKind:
		return aString // as they are in JSON
	}
	return ""
}

func (c *Compiler) kindAt(p *path) string {
	var s schema
	switch p.root {
	case rootInput:
		s = c.input
	case rootStep:
		s = c.steps[p.name]
	default:
		return ""
	}
	for _, way := range p.segments {
		if way.isIndex {
			s = s.item()
			continue
		}
		s, _ = s.member(way.name)
	}
	return map[string]string{
		"array": aList, "object": anObject, "null": aNull, "string": aString, "integer": aNumber, "number": aNumber, "boolean": aBoolean,
	}[s.only()]
}
