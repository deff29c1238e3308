package workflow

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// parseExpr is an expression that waits until all steps are known.
type parseExpr struct {
	// node is where it stands; nil for a default.
	node *node
	// raw is the value, text the condition.
	raw  json.RawMessage
	text string
	// of is the step that it belongs to; nil for one of the workflow.
	of *parseStep
	// after is set for what is evaluated when the steps inside `of` have ended.
	after bool
	// body is set for what is evaluated in the last iteration of the loop `of`.
	body bool
	at   expr.At
	// set takes a template, cond a condition, old one of the old grammar.
	set  func(*expr.Template)
	cond func(*expr.Condition)
	old  func(*expr.OldCondition)
}

// template has a value compiled when all steps are known.
func (p *parser) template(n *node, e parseExpr) {
	if !p.shallow(n) {
		return
	}
	e.node, e.raw, e.at.Member = n, n.json(), e.member(n)
	p.later = append(p.later, e)
}

// member names a node from the step that it belongs to: emit.data.
func (e parseExpr) member(n *node) string {
	if e.of == nil {
		return n.path()
	}
	return strings.TrimPrefix(strings.TrimPrefix(n.path(), e.of.node.path()), ".")
}

// condition has a CEL text compiled when all steps are known.
func (p *parser) condition(n *node, e parseExpr) {
	switch n.kind {
	case nodeString, nodeBool:
		e.node, e.text, e.at.Member = n, n.text, e.member(n)
		p.later = append(p.later, e)
	default:
		p.errorf(n, problemType, "this must be a CEL expression, it is %s", n.kind)
	}
}

// compile compiles the expressions in the order of the source.
func (p *parser) compile() {
	for _, e := range p.later {
		form := p.def.Form
		if e.of != nil && e.of.list {
			form = FormList
		}
		c := p.compiler(form)
		if c == nil {
			return
		}
		e.at.Visible = p.visible(e)
		e.at.Each = e.loops()
		e.at.Error, e.at.Outcome = e.tells()
		if p.plan != nil {
			e.at.Plan, e.at.PathsOnly = true, !p.plan.Expressions
		}
		var found []expr.Finding
		switch {
		case e.cond != nil:
			var cond *expr.Condition
			cond, found = c.Condition(e.text, e.at)
			e.cond(cond)
		case e.old != nil:
			var cond *expr.OldCondition
			cond, found = c.OldCondition(e.text, e.at)
			e.old(cond)
		default:
			var t *expr.Template
			t, found = c.Template(e.raw, e.at)
			e.set(t)
		}
		for _, f := range found {
			p.finding(e, f)
		}
	}
}

// loops are those around an expression, the innermost first (rule E4).
func (e parseExpr) loops() (around []expr.LoopAt) {
	if e.of == nil {
		return nil
	}
	add := func(s *Step, b *Block) {
		if s.Loop != nil && b == s.Body {
			around = append(around, expr.LoopAt{Parallel: s.Loop.Over != nil && s.Loop.MaxParallel != 1})
		}
	}
	if e.body {
		add(e.of.Step, e.of.Body)
	}
	for b := e.of.Block; b != nil && b.Parent != nil; b = b.Parent.Block {
		add(b.Parent, b)
	}
	return around
}

// tells says whether an expression sees the error that a handler or a compensation
// follows, and how the run ended, which finally follows.
func (e parseExpr) tells() (fault, outcome bool) {
	fault, outcome = e.at.Error, e.at.Outcome
	if e.of == nil {
		return fault, outcome
	}
	for b := e.of.Block; b != nil; b = b.Parent.Block {
		fault = fault || b.Role == roleHandler || b.Role == roleCompensate
		outcome = outcome || b.Role == roleFinally
		if b.Parent == nil {
			break
		}
	}
	return fault, outcome
}

// finding maps a finding of an expression to its place.
func (p *parser) finding(e parseExpr, f expr.Finding) {
	if p.refused && f.Code == expr.CodeReference {
		// It may name what stands inside a step that was refused already.
		return
	}
	at := e.node
	if at == nil {
		at = e.of.node
	}
	at = at.at(f.Pointer)
	problem := parley.Problem{Code: f.Code, Text: f.Text, Suggestion: f.Suggestion}
	if f.Warning {
		problem.Severity = parley.SeverityWarning
	}
	line, col := at.line, at.col
	if len(p.problems) <= problemsMax { // each looks through the line anew
		line, col = p.reader.within(at, f.Offset)
	}
	p.report(&node{line: line, col: col, parent: at.parent, key: at.key, index: at.index}, problem)
}

// compiler gives the compiler of a form; nil if it cannot be built.
func (p *parser) compiler(form Form) *expr.Compiler {
	if c := p.compilers[form]; c != nil {
		return c
	}
	o := expr.Options{Graph: form == FormGraph, Accepted: p.o.accepted, InputSchema: p.inputSchema, StepSchemas: map[string]json.RawMessage{}}
	for id, s := range p.steps {
		o.StepIDs = append(o.StepIDs, id)
		if s.schema != nil && (s.Kind != KindValidate || s.seen["output"] == nil) && !s.replaced() {
			o.StepSchemas[id] = s.schema
		}
	}
	slices.Sort(o.StepIDs)
	c, err := expr.NewCompiler(o)
	if err != nil {
		p.problems = append(p.problems, parley.Problem{
			Line: 1, Col: 1, Severity: parley.SeverityError, Code: problemSchema, Text: err.Error(),
		})
		return nil
	}
	if p.compilers == nil {
		p.compilers = map[Form]*expr.Compiler{}
	}
	p.compilers[form] = c
	return c
}
