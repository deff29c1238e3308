package workflow

import (
	"fmt"
	"slices"

	"github.com/parley-project/parley"
)

// graphFlow is what the steps of the graph form name as what comes after them.
type graphFlow struct {
	next map[*parseStep]*parseStep
	// gotos are the targets of the handlers of a step.
	gotos map[*parseStep][]*parseStep
	// named are the steps that a composite runs, and what follows them: no goto from
	// elsewhere leads to them.
	named map[*parseStep]bool
	// circle numbers the steps: those of which each leads to the other have the same
	// number.
	circle map[*parseStep]int
}

// graphNexts finds what the steps name as next_step, and what their handlers go to;
// whole is false if something of it is not there.
func (p *parser) graphNexts() (f *graphFlow, whole bool) {
	f, whole = &graphFlow{
		next: map[*parseStep]*parseStep{}, gotos: map[*parseStep][]*parseStep{},
		named: map[*parseStep]bool{}, circle: map[*parseStep]int{},
	}, true
	for _, s := range p.order {
		n := s.node.get("next_step")
		if n == nil || n.kind == nodeNull || n.kind == nodeString && n.text == "" {
			continue
		}
		if id, ok := p.text(n, 1, 255); ok {
			f.next[s] = p.graphTarget(n, id)
		}
		whole = whole && f.next[s] != nil
	}
	for _, j := range p.jumps {
		if target := p.steps[j.id]; target != nil && !slices.Contains(f.gotos[j.from], target) {
			f.gotos[j.from] = append(f.gotos[j.from], target)
		}
	}
	for _, s := range p.order {
		for _, n := range graphNamed(s) {
			for child := p.steps[n.text]; n.kind == nodeString && child != nil && !f.named[child] && child != f.next[s]; child = f.next[child] {
				f.named[child] = true
				if s.Kind != KindConditional {
					break // what the others run does not follow next_step
				}
			}
		}
	}
	f.circles(p.order)
	return f, whole
}

// graphNamed gives the places in which a composite names the steps that it runs.
func graphNamed(s *parseStep) (nodes []*node) {
	add := func(n *node) {
		switch {
		case n == nil:
		case n.kind == nodeList:
			nodes = append(nodes, n.items...)
		default:
			nodes = append(nodes, n)
		}
	}
	for _, name := range parseGraphMembers(s.Kind) {
		switch n := s.given(name); {
		case n == nil || name == "condition" || name == "max_parallelism":
		case name == "loop_config":
			add(n.get("loop_body"))
		case name == "fork_join_config":
			if branches := n.get("branches"); branches != nil {
				for _, m := range branches.members {
					add(m.value.get("steps"))
				}
			}
		default:
			add(n)
		}
	}
	return nodes
}

// circles numbers the strongly connected parts of the graph.
func (f *graphFlow) circles(all []*parseStep) {
	low, at := map[*parseStep]int{}, map[*parseStep]int{}
	var open []*parseStep
	var visit func(s *parseStep)
	visit = func(s *parseStep) {
		at[s] = len(at) + 1
		low[s] = at[s]
		open = append(open, s)
		for _, t := range append(slices.Clone(f.gotos[s]), f.next[s]) {
			switch {
			case t == nil || f.circle[t] != 0:
			case at[t] == 0:
				visit(t)
				low[s] = min(low[s], low[t])
			default:
				low[s] = min(low[s], at[t])
			}
		}
		if low[s] != at[s] {
			return
		}
		i := slices.Index(open, s)
		for _, t := range open[i:] {
			f.circle[t] = at[s]
		}
		open = open[:i]
	}
	for _, s := range all {
		if at[s] == 0 {
			visit(s)
		}
	}
}

// graphPath makes a block of what is come to from its first steps by next_step, and
// by goto, up to the steps that end it. Where chains meet, or part, the list is one
// all the same: each step comes after those that lead to it, and what the flow
// leaves out is skipped. whole is false if they cannot be followed.
func (p *parser) graphPath(b *Block, entries []*parseStep, f *graphFlow, ends ...*parseStep) (whole bool) {
	w := f.walk(p, entries, ends)
	whole = true
	for _, s := range slices.Backward(entries) {
		whole = w.visit(s) && whole
	}
	slices.Reverse(w.order)
	for _, s := range w.order {
		if !p.graphPlace(b, s, s.node) {
			return false
		}
		if s.Index > 0 {
			s.Needs = []int{s.Index - 1}
		}
	}
	after := make([]int, len(w.order))
	b.Chained = len(entries) > 1
	for i, s := range w.order {
		after[i] = len(w.order)
		if t := f.next[s]; t != nil && t.Block == b && !slices.Contains(ends, t) {
			after[i] = t.Index
		}
		b.Chained = b.Chained || after[i] != i+1
	}
	for i, s := range w.order {
		if b.Chained {
			s.Next = after[i]
		}
	}
	return whole
}

// graphWalk puts steps into an order in which each comes after those that lead to
// it: order is that from its end.
type graphWalk struct {
	p     *parser
	flow  *graphFlow
	ends  []*parseStep
	own   map[*parseStep]bool
	state map[*parseStep]int
	order []*parseStep
}

// The states of a walk: a step is being visited, or was.
const (
	walkOpen = 1
	walkDone = 2
)

func (f *graphFlow) walk(p *parser, entries, ends []*parseStep) *graphWalk {
	w := &graphWalk{p: p, flow: f, ends: ends, state: map[*parseStep]int{}, own: map[*parseStep]bool{}}
	for _, s := range entries {
		for ; s != nil && !w.own[s] && !slices.Contains(ends, s); s = f.next[s] {
			w.own[s] = true
		}
	}
	return w
}

// reach gives what is come to from a step.
func (w *graphWalk) reach(s *parseStep) map[*parseStep]bool {
	seen := map[*parseStep]bool{}
	for open := []*parseStep{s}; len(open) > 0; {
		s, open = open[0], open[1:]
		if s == nil || seen[s] || slices.Contains(w.ends, s) {
			continue
		}
		seen[s] = true
		open = append(open, w.flow.next[s])
		for _, t := range w.flow.gotos[s] {
			if w.follows(s, t) {
				open = append(open, t)
			}
		}
	}
	return seen
}

func (w *graphWalk) visit(s *parseStep) (whole bool) {
	if w.state[s] == walkDone {
		return true
	}
	w.state[s] = walkOpen
	whole = true
	for _, t := range w.flow.gotos[s] {
		if w.follows(s, t) && w.state[t] == 0 {
			whole = w.visit(t) && whole
		}
	}
	switch after := w.flow.next[s]; {
	case after == nil || slices.Contains(w.ends, after):
	case w.state[after] == walkOpen:
		w.p.report(s.node.get("next_step"), parley.Problem{
			Code: problemReference, Text: fmt.Sprintf("the step %q has run already: the steps go round in a circle", after.ID),
		})
		whole = false
	default:
		whole = w.visit(after) && whole
	}
	w.state[s] = walkDone
	w.order = append(w.order, s)
	return whole
}

// follows reports whether a goto continues the flow of the block: it leads neither
// back nor to steps that stand elsewhere.
func (w *graphWalk) follows(from, to *parseStep) bool {
	switch {
	case w.flow.circle[from] == w.flow.circle[to], slices.Contains(w.ends, to), to.Block != nil:
		return false
	}
	return w.own[to] || !w.flow.named[to]
}

// graphTargets says why a goto of the graph form cannot be.
func (p *parser) graphTargets(j parseJump, target *parseStep) string {
	switch {
	case p.flow != nil && p.flow.circle[j.from] == p.flow.circle[target]:
		return fmt.Sprintf("goto cannot lead back: %q leads to %q again", target.ID, j.from.ID)
	case target.Block == nil:
		return fmt.Sprintf("goto leads to %q, which cannot be reached", target.ID)
	}
	return fmt.Sprintf("goto cannot lead into or out of the steps that another one holds: %q stands elsewhere", target.ID)
}
