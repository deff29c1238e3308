package expr

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// astDepth measures how deep an expression is nested; it stops counting soon
// after maxASTDepth.
func astDepth(e ast.Expr, above int) int {
	depth := above + 1
	if depth > maxASTDepth+1 {
		return depth
	}
	deepest := depth
	for _, child := range children(e) {
		deepest = max(deepest, astDepth(child, depth))
	}
	return deepest
}

// children gives the expressions that e consists of.
func children(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			return append([]ast.Expr{call.Target()}, call.Args()...)
		}
		return call.Args()
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()}
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var parts []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return parts
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.StructKind:
		var parts []ast.Expr
		for _, field := range e.AsStruct().Fields() {
			parts = append(parts, field.AsStructField().Value())
		}
		return parts
	}
	return nil
}

// access is one step from a value to a part of it.
type access struct {
	name    string
	index   bool // an element of a list, or a member that is not known statically
	unknown bool
	// soft is set where absence is no error: has(…), .? and [?…].
	soft bool
}

func fromSegments(segments []segment) []access {
	chain := make([]access, len(segments))
	for i, s := range segments {
		chain[i] = access{name: s.name, index: s.isIndex}
	}
	return chain
}

// checker looks at the names of a checked expression: which are in scope,
// which steps are read, and what declared schemas say about members.
type checker struct {
	c        *Compiler
	env      *environment
	at       At
	bound    map[string]int // variables of macros that hide names
	refs     []string
	findings []Finding
	// folds is set if planning may find a fault: that of a function whose value
	// is known without a scope.
	folds bool
}

func (k *checker) add(f Finding) {
	if !slices.Contains(k.findings, f) {
		k.findings = append(k.findings, f)
	}
}

func (k *checker) walk(e ast.Expr) {
	if root, chain, inner := accesses(e); root != "" {
		for _, x := range inner {
			k.walk(x)
		}
		if k.bound[root] == 0 {
			k.name(root, chain)
		}
		return
	}
	switch e.Kind() {
	case ast.CallKind:
		k.literal(e.AsCall())
	case ast.StructKind:
		k.add(Finding{Code: CodeExpression, Text: "messages cannot be made here", Suggestion: "write a map: {\"member\": value}"})
	case ast.ComprehensionKind:
		k.comprehension(e.AsComprehension())
		return
	}
	for _, child := range children(e) {
		k.walk(child)
	}
}

func (k *checker) comprehension(c ast.ComprehensionExpr) {
	k.walk(c.IterRange())
	k.walk(c.AccuInit())
	k.bound[c.AccuVar()]++
	k.walk(c.Result())
	k.bound[c.IterVar()]++
	k.bound[c.IterVar2()]++
	k.walk(c.LoopCondition())
	k.walk(c.LoopStep())
	k.bound[c.IterVar()]--
	k.bound[c.IterVar2()]--
	k.bound[c.AccuVar()]--
}

// accesses takes apart a chain of selections that starts from a variable:
// root is "" if e is none. inner are the computed indexes on the way.
func accesses(e ast.Expr) (root string, chain []access, inner []ast.Expr) {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent(), nil, nil
	case ast.SelectKind:
		sel := e.AsSelect()
		root, chain, inner = accesses(sel.Operand())
		return root, append(chain, access{name: sel.FieldName(), soft: sel.IsTestOnly()}), inner
	case ast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
		default:
			return "", nil, nil
		}
		root, chain, inner = accesses(call.Args()[0])
		step := access{soft: call.FunctionName() != operators.Index}
		key := call.Args()[1]
		if key.Kind() != ast.LiteralKind {
			step.index, step.unknown = true, true
			inner = append(inner, key)
		} else if name, ok := key.AsLiteral().(types.String); ok {
			step.name = string(name)
		} else {
			step.index = true
		}
		return root, append(chain, step), inner
	}
	return "", nil, nil
}

// name checks one use of a name of rule E4 and what is selected from it.
func (k *checker) name(root string, chain []access) {
	// Selections behind an optional one are optional too.
	for i := 1; i < len(chain); i++ {
		chain[i].soft = chain[i].soft || chain[i-1].soft
	}
	if k.at.InputOnly && k.isName(root) && (root != "workflow" || len(chain) == 0 || chain[0].name != "input") {
		k.add(onlyInput())
		return
	}
	if k.at.Trigger != nil && k.isName(root) {
		k.trigger(root, chain)
		return
	}
	switch root {
	case "workflow":
		if len(chain) > 0 && chain[0].name == "input" {
			k.members(k.c.input, "workflow.input", chain[1:])
		}
	case "steps":
		if len(chain) == 0 || chain[0].index {
			k.add(Finding{Code: CodeExpression, Text: "`steps` must be followed by the id of a step"})
			return
		}
		k.step(chain[0].name, chain[1:])
	case "result":
		k.inScope(k.at.Result, root, "the `output` of a step")
	case "error":
		k.inScope(k.at.Error, root, "`on_error` and `compensate`")
	case "run":
		if len(chain) > 0 && (chain[0].name == "outcome" || chain[0].name == "error") {
			k.inScope(k.at.Outcome, "run."+chain[0].name, "`finally`")
		}
	case "each":
		k.each(chain)
	case "event":
		k.inScope(k.at.Event, root, "`match` and triggers")
	case "plan":
		k.inScope(k.at.Plan, root, "plans")
	case "now":
	default:
		if k.env.steps[root] {
			k.step(root, chain)
		}
	}
}

// isName tells the names of the language from those of types.
func (k *checker) isName(root string) bool {
	switch root {
	case "workflow", "steps", "result", "error", "run", "each", "event", "plan", "now":
		return true
	}
	return k.env.steps[root]
}

func (k *checker) inScope(ok bool, name, where string) {
	if !ok {
		k.add(outOfScope(name, where))
	}
}

func outOfScope(name, where string) Finding {
	return Finding{Code: CodeExpression, Text: fmt.Sprintf("`%s` is in scope in %s only", name, where)}
}

func (k *checker) step(id string, chain []access) {
	if f := k.c.visible(id, k.at); f != nil {
		k.add(*f)
		return
	}
	k.refs = append(k.refs, id)
	if len(chain) > 0 && chain[0].name == "output" {
		k.members(k.c.steps[id], "steps."+id+".output", chain[1:])
	}
}

func (k *checker) members(s schema, path string, chain []access) {
	for _, f := range k.c.members(s, path, chain) {
		k.add(f)
	}
}
