package workflow

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// maxWidth bounds the numbers that count children, items or rounds of one step
// (language.md §2, S5).
const maxWidth = 1000

// when reads `if`: whether the step runs, or what a conditional decides by.
func (p *parser) when(s *parseStep, n *node) {
	set := func(c *expr.Condition) { s.If = c }
	if s.Kind == KindConditional {
		s.Cases = make([]Case, 2)
		set = func(c *expr.Condition) { s.Cases[0].When = c }
	}
	p.condition(n, parseExpr{of: s, cond: set})
}

// completeConditional checks that it is said what is decided, and for what.
func (p *parser) completeConditional(s *parseStep) {
	if !s.list && s.given("then") == nil && s.given("else") == nil {
		p.graphCondition(s)
		return
	}
	if s.node.get("if") == nil {
		p.missing(s.node, "if", "a conditional needs if, what it decides by")
	}
	if s.node.get("then") == nil && s.node.get("else") == nil {
		p.missing(s.node, "then", "a conditional needs then, else or both")
	}
}

// children reads the lists inside a step; they follow list-form rules.
func (p *parser) children(s *parseStep, depth int) {
	switch s.Kind {
	case KindGroup:
		if n := s.node.get("steps"); n != nil {
			s.Body = &Block{Parent: s.Step, MaxParallel: p.maxParallel(s)}
			p.list(n, s.Body, depth+1)
		}
	case KindParallel:
		p.parallel(s, depth)
	case KindConditional:
		if s.Cases == nil {
			s.Cases = make([]Case, 2) // `if` is missing, which was said
		}
		for i, name := range []string{"then", "else"} {
			if n := s.node.get(name); n != nil && !s.Branching {
				s.Cases[i].Body = &Block{Parent: s.Step, Name: name, Part: i}
				p.list(n, s.Cases[i].Body, depth+1)
			}
		}
	case KindSwitch:
		if n := s.node.get("switch"); n != nil {
			p.cases(s, n, depth)
		}
	case KindForkJoin:
		if n := s.node.get("fork"); n != nil {
			p.fork(s, n, depth)
		}
	case KindLoop:
		if n := s.node.get("steps"); n != nil {
			s.Body = &Block{Parent: s.Step}
			p.list(n, s.Body, depth+1)
		}
	}
}

// parallel reads steps that run side by side.
func (p *parser) parallel(s *parseStep, depth int) {
	n := s.node.get("parallel")
	if n == nil {
		return
	}
	s.Body = &Block{Parent: s.Step, MaxParallel: p.maxParallel(s), Wait: p.losersWait(s)}
	p.beside[s.Body] = true
	switch {
	case n.kind == nodeList && len(n.items) == 1:
		p.report(n, parley.Problem{Code: problemValue, Text: "parallel needs at least two steps", Suggestion: "one step needs no parallel"})
	case n.kind == nodeList && len(n.items) > p.o.Limits.Branches:
		p.errorf(n, problemLimit, "parallel has more steps than the limit `branches` of %d", p.o.Limits.Branches)
		return
	}
	p.list(n, s.Body, depth+1)
}

// losersWait reads `losers`, whose default is that of the form (rule S4).
func (p *parser) losersWait(s *parseStep) bool {
	n := s.given("losers")
	if s.list {
		n = s.node.get("losers")
	}
	if n == nil {
		return !s.list
	}
	word, _ := p.word(n, "cancel", "wait")
	return word == "wait"
}

// maxParallel reads how many steps may run at the same time; 0 is no bound.
func (p *parser) maxParallel(s *parseStep) int {
	n := s.node.get("max_parallel")
	if n == nil || !s.list && n.kind == nodeNull {
		return 0
	}
	most, _ := p.whole(n, 1, maxWidth)
	return most
}

// cases reads the list of a switch.
func (p *parser) cases(s *parseStep, n *node, depth int) {
	switch {
	case n.kind != nodeList:
		p.errorf(n, problemType, "switch is a list of {when, steps}, this is %s", n.kind)
		return
	case len(n.items) == 0:
		p.errorf(n, problemValue, "switch must have at least one case")
		return
	case len(n.items) > p.o.Limits.Branches:
		p.errorf(n, problemLimit, "switch has more cases than the limit `branches` of %d", p.o.Limits.Branches)
		return
	}
	s.Cases = make([]Case, len(n.items))
	for i, item := range n.items {
		if item.kind != nodeObject {
			p.errorf(item, problemType, "a case is an object {when, steps}, this is %s", item.kind)
			continue
		}
		p.oneCase(s, i, item, depth)
		if i < len(n.items)-1 && item.get("when") == nil {
			p.report(item, parley.Problem{
				Path: nodeJoin(item.path(), "when"), Code: problemRequired, Text: "only the last case may be without when: those after it would never run",
			})
		}
	}
}

func (p *parser) oneCase(s *parseStep, i int, n *node, depth int) {
	c := &s.Cases[i]
	p.object(n, true, []parseField{
		{"when", func(w *node) { p.condition(w, parseExpr{of: s, cond: func(cond *expr.Condition) { c.When = cond }}) }},
		{"steps", func(list *node) {
			c.Body = &Block{Parent: s.Step, Name: strconv.Itoa(i + 1), Part: i}
			p.list(list, c.Body, depth+1)
		}},
	})
	if n.get("steps") == nil {
		p.missing(n, "steps", "a case needs steps")
	}
}

// needs resolves what the steps of a list say that they need, once all of them
// are known (rule S1).
func (p *parser) needs(b *Block, read []*parseStep) {
	index := make(map[string]int, len(read))
	for i, s := range read {
		if s.ID != "" {
			index[s.ID] = i
		}
	}
	for _, s := range read {
		if s.needs != nil {
			p.woven[b] = true
			s.Needs = p.needed(s, index)
		}
	}
	if p.woven[b] {
		p.circle(read)
	}
}

// needed gives the places of the siblings that a step names.
func (p *parser) needed(s *parseStep, index map[string]int) (places []int) {
	if s.needs.kind != nodeList {
		problem := parley.Problem{Code: problemType, Text: fmt.Sprintf("needs is a list of the ids of steps in the same list, this is %s", s.needs.kind)}
		if s.needs.kind == nodeString {
			problem.Suggestion = fmt.Sprintf("write [%s]", s.needs.text)
		}
		p.report(s.needs, problem)
		return nil
	}
	for _, item := range s.needs.items {
		id, ok := p.text(item, 1, 255)
		if !ok {
			continue
		}
		switch i, found := index[id]; {
		case !found:
			problem := parley.Problem{Code: problemReference, Text: fmt.Sprintf("needs names %q, which is no step of the same list", id)}
			var names []string
			for name := range index {
				names = append(names, name)
			}
			slices.Sort(names)
			problem.Suggestion = p.suggest(id, names)
			p.report(item, problem)
		case i == s.Index:
			p.errorf(item, problemReference, "a step cannot need itself")
		case slices.Contains(places, i):
			p.errorf(item, problemValue, "%q is named twice", id)
		default:
			places = append(places, i)
		}
	}
	slices.Sort(places)
	return places
}

// circle refuses steps that need each other.
func (p *parser) circle(read []*parseStep) {
	left := make([]int, len(read)) // what each step still waits for
	after := make([][]int, len(read))
	var free []int
	for i, s := range read {
		if left[i] = len(s.Needs); left[i] == 0 {
			free = append(free, i)
		}
		for _, n := range s.Needs {
			after[n] = append(after[n], i)
		}
	}
	for ; len(free) > 0; free = free[1:] {
		for _, i := range after[free[0]] {
			if left[i]--; left[i] == 0 {
				free = append(free, i)
			}
		}
	}
	for i, s := range read {
		if left[i] == 0 {
			continue
		}
		at := s.node
		if s.needs != nil {
			at = s.needs
		}
		p.errorf(at, problemReference, "the step %q can never start: it and others need each other in a circle", s.ID)
		return
	}
}
