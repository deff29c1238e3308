package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/containers"
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
	if len(u.names) == 0 {
		return nil
	}
	work := u.sought * env.nameBytes()
	if len(u.names) > maxUnknown || c.looked.Load() > maxLooked || c.sought.Load()+work > maxLooked {
		return u.names
	}
	c.sought.Add(work)
	return nil
}

// nameBytes is how long all names are that the checker compares an unknown one with.
func (env *environment) nameBytes() (n int64) {
	for _, names := range [][]string{env.names, env.functions} {
		for _, name := range names {
			n += int64(len(name) + 1)
		}
	}
	return n
}

// unknowns collects names that are no variable, no type, no function and nothing that an
// expression has made itself.
type unknowns struct {
	env   *environment
	bound map[string]int
	names []string
	// sought counts the bytes of what the checker would look for: a name with members
	// as often as it has some.
	sought int64
}

func (u *unknowns) walk(e ast.Expr) {
	switch e.Kind() {
	case ast.ComprehensionKind:
		u.comprehension(e.AsComprehension())
		return
	case ast.IdentKind:
		u.name(e.AsIdent())
	case ast.SelectKind:
		if u.qualified(e, "") {
			return // all of it is one name
		}
	case ast.StructKind:
		name := strings.TrimPrefix(e.AsStruct().TypeName(), ".")
		if _, known := u.env.cel.CELTypeProvider().FindStructType(name); !known {
			u.add(name)
		}
	case ast.CallKind:
		if call := e.AsCall(); u.called(call) {
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

func (u *unknowns) comprehension(c ast.ComprehensionExpr) {
	u.walk(c.IterRange())
	u.walk(c.AccuInit())
	names := []string{c.IterVar(), c.IterVar2(), c.AccuVar()}
	for _, name := range names {
		u.bound[name]++
	}
	u.walk(c.LoopCondition())
	u.walk(c.LoopStep())
	u.walk(c.Result())
	for _, name := range names {
		u.bound[name]--
	}
}

// called looks at the name of a function, and reports whether it has the target in it.
func (u *unknowns) called(call ast.CallExpr) bool {
	if call.IsMemberFunction() && u.qualified(call.Target(), "."+call.FunctionName()) {
		return true
	}
	// Operators have names that nobody can write.
	if name := call.FunctionName(); plainName.MatchString(name) && !u.env.cel.HasFunction(name) {
		u.add(name)
	}
	return false
}

// plainName is how people write the name of a function.
var plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

// qualified reports whether an expression with a rest is one name with dots in it that
// means something. What is none is sought by the checker as a whole, if it begins with a
// name that means nothing.
func (u *unknowns) qualified(e ast.Expr, rest string) bool {
	name, ok := containers.ToQualifiedName(e)
	if !ok {
		return false
	}
	root, _, _ := strings.Cut(strings.TrimPrefix(name, "."), ".")
	if u.means(root) {
		return false
	}
	name = strings.TrimPrefix(name, ".") + rest
	if _, known := u.env.cel.CELTypeProvider().FindIdent(name); known || u.env.cel.HasFunction(name) {
		return true
	}
	if _, known := u.env.cel.CELTypeProvider().FindStructType(name); known {
		return true
	}
	u.sought += int64(len(name) + 1)
	return false
}

// means reports whether something has that name.
func (u *unknowns) means(name string) bool {
	if _, declared := slices.BinarySearch(u.env.names, name); declared || u.bound[name] > 0 || u.env.typeNames[name] {
		return true
	}
	_, known := u.env.cel.CELTypeProvider().FindIdent(name)
	return known
}

func (u *unknowns) name(name string) {
	if name = strings.TrimPrefix(name, "."); !u.means(name) {
		u.add(name)
	}
}

func (u *unknowns) add(name string) {
	u.sought += int64(len(name) + 1)
	if !slices.Contains(u.names, name) {
		u.names = append(u.names, name)
	}
}
