package expr

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/common/ast"
)

// maxUnknown is up to how many unknown names CEL's own checker looks at an expression:
// it seeks similar ones for each by itself, and cannot be told not to.
const maxUnknown = 8

// toldUnknown is how many unknown names of one expression are told.
const toldUnknown = 20

// explainUnknown words what is wrong with an expression of unknown names.
func (c *Compiler) explainUnknown(env *environment, names []string) (findings []Finding) {
	for _, name := range names[:min(len(names), toldUnknown)] {
		findings = append(findings, c.unknownName(env, name))
	}
	if more := len(names) - toldUnknown; more > 0 {
		findings = append(findings, Finding{Code: CodeReference, Text: fmt.Sprintf("there are %d more names that do not exist", more)})
	}
	return findings
}

// unknownNames gives the names in e that mean nothing, each once, if there are so many
// of them, or so much was looked for before, that they are all that is said of e. Else
// it is nil, and the checker tells what is wrong.
func (c *Compiler) unknownNames(env *environment, e ast.Expr) []string {
	u := unknowns{env: env, bound: map[string]int{}}
	u.walk(e)
	if len(u.names) > maxUnknown || c.looked.Load() > maxLooked {
		return u.names
	}
	return nil
}

// unknowns collects names that are no variable, no type and nothing that an expression
// has made itself.
type unknowns struct {
	env   *environment
	bound map[string]int
	names []string
}

func (u *unknowns) walk(e ast.Expr) {
	switch e.Kind() {
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		u.walk(c.IterRange())
		u.walk(c.AccuInit())
		for _, name := range []string{c.IterVar(), c.IterVar2(), c.AccuVar()} {
			u.bound[name]++
			defer func() { u.bound[name]-- }()
		}
		u.walk(c.LoopCondition())
		u.walk(c.LoopStep())
		u.walk(c.Result())
		return
	case ast.IdentKind:
		u.name(e.AsIdent())
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() && call.Target().Kind() == ast.IdentKind && u.env.cel.HasFunction(call.Target().AsIdent()+"."+call.FunctionName()) {
			for _, arg := range call.Args() {
				u.walk(arg)
			}
			return // the target is the first part of a function's name
		}
	}
	for _, child := range children(e) {
		u.walk(child)
	}
}

func (u *unknowns) name(name string) {
	if _, declared := slices.BinarySearch(u.env.names, name); declared || u.bound[name] > 0 || u.env.typeNames[name] || slices.Contains(u.names, name) {
		return
	}
	if _, known := u.env.cel.CELTypeProvider().FindIdent(name); !known {
		u.names = append(u.names, name)
	}
}
