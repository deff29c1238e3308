// Package convert writes a workflow document in the other of its two forms. What
// comes of it schedules the same calls with the same inputs and outputs; what the
// other form cannot say is refused, with its place.
package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/expr"
	"github.com/parley-project/parley/internal/workflow/outline"
)

// Other gives the form that a document is not in.
func Other(form workflow.Form) workflow.Form {
	if form == workflow.FormGraph {
		return workflow.FormList
	}
	return workflow.FormGraph
}

// To writes a document in a form: as it is if it is in that form. The tree is nil
// if one of the problems is an error; the others say what was left out. file names
// the document in problems.
func To(form workflow.Form, file string, source []byte) (*workflow.Value, parley.Problems) {
	tree, problems := workflow.ReadTree(workflow.ParseOptions{File: file}, source)
	if tree == nil {
		return nil, problems
	}
	if _, found := workflow.Parse(workflow.ParseOptions{File: file}, source); hasErrors(found) {
		return nil, errorsOf(found)
	}
	if tree.Form() == form {
		return tree, nil
	}
	c := &converter{file: file, from: map[*workflow.Value]*workflow.Value{}, outline: outline.Of(tree)}
	var out *workflow.Value
	if form == workflow.FormGraph {
		out = c.graph(tree)
	} else {
		out = c.list(tree)
	}
	if out != nil && !hasErrors(c.problems) {
		c.check(out)
	}
	slices.SortStableFunc(c.problems, func(a, b parley.Problem) int { return cmp.Or(a.Line-b.Line, a.Col-b.Col) })
	if hasErrors(c.problems) {
		return nil, errorsOf(c.problems)
	}
	return out, c.problems
}

// unsupported is the code of what language.md names and this version does not
// run: it can be rewritten all the same.
const unsupported = "unsupported"

func isError(p parley.Problem) bool {
	return p.Severity == parley.SeverityError && p.Code != unsupported
}

func hasErrors(list []parley.Problem) bool { return slices.ContainsFunc(list, isError) }

func errorsOf(list []parley.Problem) (all parley.Problems) {
	for _, p := range list {
		if isError(p) {
			all = append(all, p)
		}
	}
	return all
}

type converter struct {
	file     string
	outline  *outline.Workflow
	problems []parley.Problem
	// from says what a value of the new document was made of.
	from map[*workflow.Value]*workflow.Value
	// old reads the expressions of the graph form.
	old *expr.Compiler
}

// refuse records what the other form cannot say.
func (c *converter) refuse(v *workflow.Value, format string, args ...any) {
	c.problems = append(c.problems, parley.Problem{
		File: c.file, Line: v.Line, Col: v.Col, Path: v.Path, Severity: parley.SeverityError, Code: "convert", Text: fmt.Sprintf(format, args...),
	})
}

// leave records what is left out because it has no meaning.
func (c *converter) leave(m workflow.ValueMember, why string) {
	c.problems = append(c.problems, parley.Problem{
		File: c.file, Line: m.Line, Col: m.Col, Path: m.Value.Path, Severity: parley.SeverityWarning, Code: "left_out",
		Text: fmt.Sprintf("%q is left out: %s", m.Name, why),
	})
}

// check compiles what was written. What it finds is said of what that was made
// of.
func (c *converter) check(out *workflow.Value) {
	source := out.JSON()
	_, found := workflow.Parse(workflow.ParseOptions{}, source)
	if !hasErrors(found) {
		return
	}
	read, _ := workflow.ReadTree(workflow.ParseOptions{}, source)
	places := map[string]*workflow.Value{}
	c.places(places, read, out)
	for _, p := range errorsOf(found) {
		at := places[p.Path]
		for path := p.Path; at == nil && path != ""; at = places[path] {
			path = path[:max(0, strings.LastIndexAny(path, ".["))]
		}
		if at == nil {
			at = &workflow.Value{Line: 1, Col: 1}
		}
		p.File, p.Line, p.Col, p.Path = c.file, at.Line, at.Col, at.Path
		p.Text = fmt.Sprintf("in %s form: %s", Other(c.outline.Form), p.Text)
		c.problems = append(c.problems, p)
	}
}

// places finds what stands at each path of the new document.
func (c *converter) places(to map[string]*workflow.Value, read, out *workflow.Value) {
	if from := c.from[out]; from != nil {
		to[read.Path] = from
	} else if out.Line > 0 {
		to[read.Path] = out
	}
	for _, m := range out.Members {
		if v := read.Get(m.Name); v != nil {
			c.places(to, v, m.Value)
		}
	}
	for i, item := range out.Items[:min(len(out.Items), len(read.Items))] {
		c.places(to, read.Items[i], item)
	}
}

// object builds an object of the new document.
type object struct{ value *workflow.Value }

func (c *converter) object(from *workflow.Value) object {
	v := &workflow.Value{Kind: workflow.ObjectValue}
	c.from[v] = from
	return object{v}
}

func (o object) set(name string, v *workflow.Value) {
	o.value.Members = append(o.value.Members, workflow.ValueMember{Name: name, Value: v})
}

// text makes a string of the new document.
func (c *converter) text(text string, from *workflow.Value) *workflow.Value {
	v := &workflow.Value{Kind: workflow.StringValue, Text: text}
	c.from[v] = from
	return v
}

func number(text string) *workflow.Value {
	return &workflow.Value{Kind: workflow.NumberValue, Text: text}
}

func null() *workflow.Value { return &workflow.Value{Kind: workflow.NullValue} }

func list(items ...*workflow.Value) *workflow.Value {
	return &workflow.Value{Kind: workflow.ListValue, Items: items}
}

// block finds a list of a step by its role and name.
func block(s *outline.Step, name string) *outline.Block {
	for _, b := range s.Blocks {
		if b.Name == name && (b.Role == outline.Body || b.Role == outline.Branch) {
			return b
		}
	}
	return nil
}
