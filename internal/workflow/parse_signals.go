package workflow

import (
	"github.com/parley-project/parley/internal/workflow/expr"
)

// Await is what a wait_for_event step waits for (rule C8).
type Await struct {
	// Event is the name; Key is nil for "".
	Event, Key *expr.Template
	// Match is nil where every event of that name and key will do.
	Match *expr.Condition
	// Fresh passes over the events that came before the step began.
	Fresh bool
}

// Emit is what an emit step publishes.
type Emit struct {
	// Key is nil for "", Data for null, ID for the run and the path of the step.
	Event, Key, Data, ID *expr.Template
}

// await gives what a step waits for, to be filled in.
func (s *parseStep) await() *Await {
	if s.Await == nil {
		s.Await = &Await{}
	}
	return s.Await
}

// awaited reads one member of a wait_for_event step that is a template.
func awaited(member func(*Await) **expr.Template) func(*parser, *parseStep, *node) {
	return func(p *parser, s *parseStep, n *node) {
		to := member(s.await())
		p.template(n, parseExpr{of: s, at: expr.At{Wanted: expr.Text}, set: func(t *expr.Template) { *to = t }})
	}
}

// match reads the condition on an event.
func (p *parser) match(s *parseStep, n *node) {
	to := s.await()
	p.condition(n, parseExpr{of: s, at: expr.At{Event: true}, cond: func(c *expr.Condition) { to.Match = c }})
}

// fresh reads whether only events count that come while the step waits.
func (p *parser) fresh(s *parseStep, n *node) {
	if n.kind != nodeBool {
		p.errorf(n, problemType, "fresh is true or false, this is %s", n.kind)
		return
	}
	s.await().Fresh = n.text == "true"
}

// completeAwait checks that a wait_for_event step says what it waits for.
func (p *parser) completeAwait(s *parseStep) {
	if s.seen["event"] == nil {
		p.missing(s.node, "event", "a step of kind wait_for_event needs the member event, the name of what it waits for")
	}
}

// emit reads {event, key, data, id}.
func (p *parser) emit(s *parseStep, n *node) {
	if n.kind != nodeObject {
		p.errorf(n, problemType, "emit is an object {event, key, data, id}, this is %s", n.kind)
		return
	}
	s.Emit = &Emit{}
	into := func(to **expr.Template, wanted expr.Wanted) func(*node) {
		return func(m *node) {
			p.template(m, parseExpr{of: s, at: expr.At{Wanted: wanted}, set: func(t *expr.Template) { *to = t }})
		}
	}
	p.object(n, s.list, []parseField{
		{"event", into(&s.Emit.Event, expr.Text)},
		{"key", into(&s.Emit.Key, expr.Text)},
		{"data", into(&s.Emit.Data, expr.Anything)},
		{"id", into(&s.Emit.ID, expr.Text)},
	})
	if n.get("event") == nil {
		p.missing(n, "event", "emit needs event, the name of what is published")
	}
}
