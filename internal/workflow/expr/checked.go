package expr

import (
	"slices"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
)

// checkedText is CEL text that was parsed and type-checked: all that does not
// depend on the place where it stands.
type checkedText struct {
	root   ast.Expr
	result *cel.Type
	// plan gives the program; it is made when it is first needed.
	plan func() (cel.Program, error)
	// findings say why there is nothing else.
	findings []Finding
}

// checkedTexts holds what was checked, by text: the same few expressions stand in
// many steps.
type checkedTexts struct {
	mu     sync.Mutex
	byText map[string]*checkedText
}

func (t *checkedTexts) get(src string) *checkedText {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byText[src]
}

func (t *checkedTexts) put(src string, x *checkedText) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byText == nil {
		t.byText = map[string]*checkedText{}
	}
	t.byText[src] = x
}

// checked parses and checks CEL text, once for all places.
func (c *Compiler) checked(env *environment, src string) *checkedText {
	x := c.texts.get(src)
	if x == nil {
		x = c.check(env, src)
		c.texts.put(src, x)
	}
	return x
}

func (c *Compiler) check(env *environment, src string) *checkedText {
	ast, issues := env.read(src)
	if issues.Err() != nil {
		return &checkedText{findings: c.explain(env, issues)}
	}
	if depth := astDepth(ast.NativeRep().Expr(), 0); depth > maxASTDepth {
		return &checkedText{findings: []Finding{tooMuch("expression_depth", maxASTDepth, "levels").finding()}}
	}
	if names := c.unknownNames(env, ast.NativeRep().Expr()); names != nil {
		return &checkedText{findings: c.explainUnknown(env, names)}
	}
	ast, issues = env.check(ast)
	if issues.Err() != nil {
		return &checkedText{findings: c.explain(env, issues)}
	}
	return &checkedText{
		root: ast.NativeRep().Expr(), result: ast.OutputType(),
		plan: sync.OnceValues(func() (cel.Program, error) { return env.program(ast) }),
	}
}

// compile makes an expression of CEL text, as it may stand at a place.
func (c *Compiler) compile(src string, at At) (expression, []Finding) {
	env, err := c.env()
	if err != nil {
		return nil, []Finding{{Code: CodeExpression, Text: err.Error()}}
	}
	x := c.checked(env, src)
	if x.findings != nil {
		return nil, slices.Clone(x.findings)
	}
	k := &checker{c: c, env: env, at: at, bound: map[string]int{}}
	k.walk(x.root)
	if failed(k.findings) {
		return c.failing(src, k.findings)
	}
	if k.folds {
		if _, err := x.plan(); err != nil {
			return nil, []Finding{evalFault(err).finding()}
		}
	}
	slices.Sort(k.refs)
	return &celExpr{src: src, env: env, plan: x.plan, result: x.result, refs: slices.Compact(k.refs)}, k.findings
}
