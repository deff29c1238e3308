package workflow

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// compensateAttempts is how often a step that compensates is called unless it says
// something else (rule C2).
const compensateAttempts = 5

func compensateRetry() []RetryPolicy {
	return []RetryPolicy{{
		Attempts: compensateAttempts, Delay: defaultDelay, Multiplier: defaultMultiplier, MaxDelay: defaultMaxDelay, FullJitter: true,
	}}
}

// maxHandlers bounds the handlers of one step.
const maxHandlers = 100

// onError reads a word, a handler or a list of them (language.md §6).
func (p *parser) onError(s *parseStep, n *node) {
	switch {
	case n.kind == nodeObject:
		p.handlers(s, []*node{n})
	case n.kind == nodeList && (len(n.items) == 0 || len(n.items) > maxHandlers):
		p.errorf(n, problemValue, "a list of handlers has 1 to %d of them", maxHandlers)
	case n.kind == nodeList:
		p.handlers(s, n.items)
	default:
		if w, ok := p.word(n, "fail", "continue"); ok && w == "continue" {
			s.Handlers = []Handler{{Then: ThenContinue}}
		}
	}
}

func (p *parser) handlers(s *parseStep, nodes []*node) {
	s.Handlers = make([]Handler, len(nodes))
	for i, n := range nodes {
		h := &s.Handlers[i]
		h.Then = ThenContinue
		if n.kind != nodeObject {
			if w, ok := p.word(n, "fail", "continue"); ok {
				h.Then = HandlerThen(w)
			}
			continue
		}
		p.object(n, s.list, p.handlerMembers(s, h))
		switch then := n.get("then"); {
		case n.get("goto") != nil && then == nil:
			h.Then = ThenGoto
		case n.get("goto") != nil && h.Then != ThenGoto:
			p.errorf(then, problemValue, "goto goes with then: goto, here it is %s", h.Then)
		case n.get("goto") == nil && h.Then == ThenGoto:
			p.missing(n, "goto", "then: goto needs goto, the id of a later step")
		}
		if out := n.get("output"); out != nil && h.Then == ThenFail {
			p.errorf(out, problemValue, "output has no effect where the handler fails the step")
		}
	}
}

func (p *parser) handlerMembers(s *parseStep, h *Handler) []parseField {
	return []parseField{
		{"match", func(n *node) { h.Match = p.codes(n) }},
		{"if", func(n *node) {
			p.condition(n, parseExpr{of: s, at: expr.At{Error: true}, cond: func(c *expr.Condition) { h.If = c }})
		}},
		{"compensate", func(n *node) {
			if n.kind != nodeBool {
				p.errorf(n, problemType, "this must be true or false, it is %s", n.kind)
				return
			}
			h.Compensate = n.text == "true"
		}},
		{"steps", func(*node) {}},
		{"then", func(n *node) {
			if w, ok := p.word(n, "continue", "fail", "goto"); ok {
				h.Then = HandlerThen(w)
			}
		}},
		{"goto", func(n *node) {
			if id, ok := p.text(n, 1, 255); ok {
				p.jumps = append(p.jumps, parseJump{from: s, handler: h, node: n, id: id})
			}
		}},
		{"output", func(n *node) {
			p.template(n, parseExpr{of: s, at: expr.At{Error: true}, set: func(t *expr.Template) { h.Output = t }})
		}},
	}
}

func (p *parser) compensateIf(s *parseStep, n *node) {
	if s.node.get("compensate") == nil {
		p.errorf(n, problemUnknown, "compensate_if goes with compensate")
		return
	}
	if w, ok := p.word(n, "completed", "started"); ok {
		s.CompensateStarted = w == "started"
	}
}

// aside reads the lists of a step that are carried out beside its own: those of its
// handlers, and what compensates it.
func (p *parser) aside(s *parseStep, depth int) {
	if n := s.seen["on_error"]; n != nil && s.Handlers != nil {
		nodes := handlerNodes(n)
		for i, h := range nodes {
			list := h.get("steps")
			if h.kind != nodeObject || list == nil {
				continue
			}
			name := "on_error"
			if len(nodes) > 1 {
				name += "_" + strconv.Itoa(i+1)
			}
			s.Handlers[i].Body = &Block{Parent: s.Step, Name: name, Role: roleHandler}
			p.list(list, s.Handlers[i].Body, depth+1)
		}
	}
	n := s.seen["compensate"]
	if n == nil {
		return
	}
	if role := s.role(); role == roleCompensate || role == roleFinally {
		p.errorf(n, problemValue, "a step that compensates, or stands in finally, cannot be compensated itself")
		return
	}
	s.Compensate = &Block{Parent: s.Step, Name: "compensate", Role: roleCompensate}
	if n.kind == nodeObject {
		// One step is a list of one.
		n = &node{kind: nodeList, items: []*node{n}, parent: n.parent, key: n.key, line: n.line, col: n.col}
	}
	p.list(n, s.Compensate, depth+1)
}

// handlerNodes are the handlers of an on_error, which may be one.
func handlerNodes(n *node) []*node {
	if n.kind == nodeObject {
		return []*node{n}
	}
	return n.items
}

// replaced reports whether a handler may give the step another output than its own (rule
// H1), of which its schema says nothing.
func (s *parseStep) replaced() bool {
	n := s.seen["on_error"]
	return n != nil && slices.ContainsFunc(handlerNodes(n), func(h *node) bool {
		return h.get("output") != nil || h.get("steps") != nil
	})
}

// role is that of the outermost list with one that a step stands in.
func (s *parseStep) role() (role BlockRole) {
	for b := s.Block; b != nil; {
		if b.Role == roleCompensate || b.Role == roleFinally {
			return b.Role
		}
		if b.Role != roleBody {
			role = b.Role
		}
		if b.Parent == nil {
			break
		}
		b = b.Parent.Block
	}
	return role
}

// parseJump is a goto, of which the target is found when all steps are known.
type parseJump struct {
	from    *parseStep
	handler *Handler
	node    *node
	id      string
}

// targets finds the steps that handlers go to (rule H2).
func (p *parser) targets() {
	for _, j := range p.jumps {
		target := p.steps[j.id]
		problem := parley.Problem{Code: problemReference}
		switch {
		case target == nil:
			problem.Text = fmt.Sprintf("there is no step %q", j.id)
		case !j.from.list && j.from.Block == nil:
			continue // it is never reached, which was said
		case !j.from.list && target.Block != j.from.Block:
			problem.Text = p.graphTargets(j, target)
		case j.from.Block == nil || target.Block != j.from.Block:
			problem.Text = fmt.Sprintf("goto leads to a later step of the same list, %q is none", j.id)
		case target.Index <= j.from.Index:
			problem.Text, problem.Suggestion = fmt.Sprintf("goto cannot lead back to %q", j.id), "use repeat"
		case target.needs != nil:
			problem.Text = fmt.Sprintf("the step %q has needs, goto cannot lead to it", j.id)
		case p.beside[target.Block]:
			problem.Text = "goto has no meaning among steps that run side by side"
		default:
			j.handler.Goto = target.Step
			continue
		}
		p.report(j.node, problem)
	}
}
