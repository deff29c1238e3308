package workflow

import (
	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// parseGraphMembers are the members of a kind that only the graph form has
// (formats.md).
func parseGraphMembers(k Kind) []string {
	switch k {
	case KindParallel:
		return []string{"parallel_steps", "max_parallelism"}
	case KindConditional:
		return []string{"condition", "if_true_step", "if_false_step"}
	case KindForkJoin:
		return []string{"fork_join_config"}
	case KindLoop:
		return []string{"loop_config"}
	}
	return nil
}

// given is a member of a step in graph form, nil if it is null or absent.
func (s *parseStep) given(name string) *node {
	if n := s.node.get(name); n != nil && n.kind != nodeNull {
		return n
	}
	return nil
}

// graphChildren gives a composite of the graph form the steps that it runs: those
// that its members name, or lists in it that follow list-form rules. whole is false
// if they cannot be found.
func (p *parser) graphChildren(s *parseStep, flow *graphFlow) (whole bool) {
	switch {
	case s.Kind == KindParallel && s.given("parallel_steps") != nil:
		return p.graphParallel(s)
	case s.Branching:
		return p.graphBranches(s, flow)
	case s.Kind == KindForkJoin && s.given("fork_join_config") != nil:
		return p.graphFork(s)
	case s.Kind == KindLoop && s.given("loop_config") != nil:
		return p.graphLoop(s)
	}
	p.children(s, 1)
	return true
}

// graphParallel reads parallel_steps: steps that run side by side, whatever they
// name as next_step, all to their end unless losers says otherwise (rule S4).
func (p *parser) graphParallel(s *parseStep) (whole bool) {
	n := s.given("parallel_steps")
	if n.kind != nodeList || len(n.items) < 2 || len(n.items) > p.o.Limits.Branches {
		p.errorf(n, problemType, "parallel_steps is a list of 2 to %d ids of steps", p.o.Limits.Branches)
		return false
	}
	s.Body = &Block{Parent: s.Step, MaxParallel: p.maxParallel(s), Wait: p.losersWait(s)}
	p.beside[s.Body] = true
	if most := s.given("max_parallelism"); most != nil {
		s.Body.MaxParallel, _ = p.whole(most, 1, maxWidth)
	}
	whole = true
	for _, item := range n.items {
		child := p.graphChild(s, item)
		whole = child != nil && p.graphPlace(s.Body, child, item) && whole
	}
	return whole
}

// graphChild finds the step that a composite names.
func (p *parser) graphChild(s *parseStep, n *node) *parseStep {
	id, ok := p.text(n, 1, 255)
	if !ok {
		return nil
	}
	child := p.graphTarget(n, id)
	if child == s {
		p.errorf(n, problemReference, "a step cannot run itself")
		return nil
	}
	return child
}

// graphCondition reads the condition of a conditional: an object of the old
// platform's grammar, or CEL.
func (p *parser) graphCondition(s *parseStep) {
	s.Branching, s.Cases = true, make([]Case, 2)
	n := s.given("condition")
	switch {
	case n == nil:
		p.missing(s.node, "condition", "a conditional needs a condition")
	case n.kind != nodeObject:
		p.condition(n, parseExpr{of: s, cond: func(c *expr.Condition) { s.Cases[0].When = c }})
	default:
		text := n.get("expression")
		if text == nil || text.kind != nodeString {
			p.missing(n, "expression", "a condition needs an expression, a text")
			return
		}
		p.later = append(p.later, parseExpr{of: s, node: text, text: text.text, old: func(c *expr.OldCondition) { s.Cases[0].Old = c }})
	}
	if s.given("if_true_step") == nil && s.given("if_false_step") == nil {
		p.missing(s.node, "if_true_step", "a conditional needs if_true_step, if_false_step or both")
	}
}

// graphBranches follows the two branches to their ends: null, the conditional
// itself, or its next_step (language.md §9, 1). Where they meet they are one list,
// which begins at one step or another.
func (p *parser) graphBranches(s *parseStep, flow *graphFlow) (whole bool) {
	whole = true
	next := flow.next[s]
	ends := []*parseStep{s}
	if next != nil {
		ends = append(ends, next)
	}
	first := make([]*parseStep, 2)
	for i, name := range []string{"if_true_step", "if_false_step"} {
		n := s.given(name)
		if n == nil {
			continue
		}
		child := p.graphChild(s, n)
		if child == nil {
			whole = false
			continue
		}
		if child == next {
			p.report(n, parley.Problem{
				Severity: parley.SeverityWarning, Code: problemReference, Text: "this is also the next step, which runs anyway: the branch is left empty",
			})
			continue
		}
		first[i] = child
	}
	if p.graphMeet(first, flow, ends) {
		b := &Block{Parent: s.Step, Name: "branches"}
		whole = p.graphPath(b, first, flow, ends...) && whole
		for i, entry := range first {
			s.Cases[i].Body, s.Cases[i].Entry = b, entry.Index
		}
		return whole
	}
	for i, entry := range first {
		if entry != nil {
			s.Cases[i].Body = &Block{Parent: s.Step, Name: []string{"then", "else"}[i], Part: i}
			whole = p.graphPath(s.Cases[i].Body, []*parseStep{entry}, flow, ends...) && whole
		}
	}
	return whole
}

// graphMeet reports whether two branches lead to the same step.
func (p *parser) graphMeet(first []*parseStep, flow *graphFlow, ends []*parseStep) bool {
	if first[0] == nil || first[1] == nil {
		return false
	}
	w := flow.walk(p, first, ends)
	other := w.reach(first[1])
	for t := range w.reach(first[0]) {
		if other[t] {
			return true
		}
	}
	return false
}
