package expr

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// check type-checks a parsed expression. Two things that CEL's checker refuses
// and this language allows are put in other words first: steps whose id is the
// name of a type (rule E4), and equality across numeric types (rule E6).
func (e *environment) check(parsed *cel.Ast) (*cel.Ast, *cel.Issues) {
	root := parsed.NativeRep().Expr()
	r := &rewriter{fac: ast.NewExprFactory(), next: highestID(root), bound: map[string]int{}, steps: e.typeNames}
	if len(e.typeNames) > 0 {
		r.typeNames(root)
	}
	for range maxASTDepth {
		checked, issues := e.cel.Check(parsed)
		if issues.Err() == nil || !r.numbers(root, issues) {
			return checked, issues
		}
	}
	return e.cel.Check(parsed)
}

// rewriter changes parsed expressions in place.
type rewriter struct {
	fac   ast.ExprFactory
	next  int64
	bound map[string]int
	steps map[string]bool
}

func (r *rewriter) id(int64) int64 {
	r.next++
	return r.next
}

func highestID(e ast.Expr) int64 {
	highest := e.ID()
	for _, child := range children(e) {
		highest = max(highest, highestID(child))
	}
	return highest
}

// numbers wraps operands of == != in with dyn(…) where issues say that only
// numeric types differ. It reports whether it changed anything.
func (r *rewriter) numbers(e ast.Expr, issues *cel.Issues) bool {
	mixed := map[int64]bool{}
	for _, issue := range issues.Errors() {
		if mixesNumbers(issue.Message) {
			mixed[issue.ExprID] = true
		}
	}
	return len(mixed) > 0 && r.wrap(e, mixed)
}

func (r *rewriter) wrap(e ast.Expr, mixed map[int64]bool) bool {
	changed := false
	for _, child := range children(e) {
		changed = r.wrap(child, mixed) || changed
	}
	if !mixed[e.ID()] || e.Kind() != ast.CallKind {
		return changed
	}
	operand := e.AsCall().Args()[0]
	inner := r.fac.CopyExpr(operand)
	inner.RenumberIDs(r.id)
	operand.SetKindCase(r.fac.NewCall(r.id(0), "dyn", inner))
	return true
}

// mixesNumbers reads the checker's message about an equality.
func mixesNumbers(message string) bool {
	name, ok := quotedAfter(message, "found no matching overload for '")
	if !ok || name != operators.Equals && name != operators.NotEquals && name != operators.In {
		return false
	}
	_, rest, _ := strings.Cut(message, "applied to '(")
	operands, _, _ := strings.Cut(rest, ")'")
	left, right, ok := strings.Cut(operands, ", ")
	if name == operators.In {
		right = strings.TrimSuffix(strings.TrimPrefix(right, "list("), ")")
	}
	for strings.HasPrefix(left, "list(") && strings.HasPrefix(right, "list(") {
		left, right = left[len("list("):len(left)-1], right[len("list("):len(right)-1]
	}
	return ok && isNumeric(left) && isNumeric(right)
}

func isNumeric(typeName string) bool {
	return typeName == "int" || typeName == "uint" || typeName == "double"
}

// typeNames writes steps.int for int where something is selected from it.
func (r *rewriter) typeNames(e ast.Expr) {
	if e.Kind() == ast.ComprehensionKind {
		c := e.AsComprehension()
		r.typeNames(c.IterRange())
		r.typeNames(c.AccuInit())
		for _, name := range []string{c.IterVar(), c.IterVar2(), c.AccuVar()} {
			r.bound[name]++
			defer func() { r.bound[name]-- }()
		}
		r.typeNames(c.LoopCondition())
		r.typeNames(c.LoopStep())
		r.typeNames(c.Result())
		return
	}
	if base := selectedFrom(e); base != nil && base.Kind() == ast.IdentKind {
		if name := base.AsIdent(); r.steps[name] && r.bound[name] == 0 {
			base.SetKindCase(r.fac.NewSelect(r.id(0), r.fac.NewIdent(r.id(0), "steps"), name))
			return
		}
	}
	for _, child := range children(e) {
		r.typeNames(child)
	}
}

// selectedFrom gives what a selection or an index is applied to.
func selectedFrom(e ast.Expr) ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand()
	case ast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			return call.Args()[0]
		}
	}
	return nil
}
