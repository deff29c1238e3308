package workflow

import (
	"slices"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// choiceReject is the choice that one answer is enough for, and that fails the
// step (rule C9); onTimeoutFail is what on_timeout says by default.
const (
	choiceReject  = "reject"
	onTimeoutFail = "fail"
)

// The most choices, roles and users, and escalations of one approval.
const (
	maxChoices     = 20
	maxTo          = 100
	maxEscalations = 20
	maxApprovers   = 100
)

// ApprovalSpec is what an approval step asks (rule C9).
type ApprovalSpec struct {
	// Title and To are evaluated when the step starts; To is nil for anybody.
	Title, To *expr.Template
	// Form is nil where any data will do.
	Form    *Schema
	Choices []string
	// Min is how many people have to make the same choice.
	Min      int
	Escalate []Escalation
	// OnTimeout is the choice that counts when the step's time is up; "" fails it.
	OnTimeout string
}

// Escalation adds to those who may answer.
type Escalation struct {
	// After counts from the step's start.
	After time.Duration
	To    *expr.Template
}

// approval reads {title, to, form, choices, min, escalate, on_timeout}.
func (p *parser) approval(s *parseStep, n *node) {
	if n.kind != nodeObject {
		p.errorf(n, problemType, "approval is an object {title, to, form, choices, min, escalate, on_timeout}, this is %s", n.kind)
		return
	}
	spec := &ApprovalSpec{Choices: []string{"approve", choiceReject}, Min: 1}
	s.Approval = spec
	var timeout *node
	p.object(n, s.list, []parseField{
		{"title", func(m *node) {
			p.template(m, parseExpr{of: s, at: expr.At{Wanted: expr.Text}, set: func(t *expr.Template) { spec.Title = t }})
		}},
		{"to", func(m *node) { p.approvers(s, m, func(t *expr.Template) { spec.To = t }) }},
		{"form", func(m *node) { spec.Form = p.schemaOf(m) }},
		{"choices", func(m *node) { p.choices(spec, m) }},
		{"min", func(m *node) { parseInto(&spec.Min)(p.whole(m, 1, maxApprovers)) }},
		{"escalate", func(m *node) { p.escalations(s, m) }},
		{"on_timeout", func(m *node) { timeout = m }},
	})
	if n.get("title") == nil {
		p.missing(n, "title", "an approval needs a title, which says what is asked")
	}
	if timeout == nil {
		return
	}
	if w, ok := p.word(timeout, append([]string{onTimeoutFail}, spec.Choices...)...); ok && w != onTimeoutFail {
		spec.OnTimeout = w
	}
}

// lateEscalations warns of those that never act, since the step's time is up before.
func (p *parser) lateEscalations() {
	for _, s := range p.order {
		if s.Approval == nil || s.Timeout == 0 {
			continue
		}
		for i, e := range s.Approval.Escalate {
			if e.After >= s.Timeout {
				p.report(s.seen["approval"].get("escalate").items[i], parley.Problem{
					Severity: parley.SeverityWarning, Code: problemValue, Text: "the step's timeout is up first: this escalation never acts",
				})
			}
		}
	}
}

// approvers reads a list of roles and users, which may be an expression.
func (p *parser) approvers(s *parseStep, n *node, set func(*expr.Template)) {
	switch {
	case n.kind == nodeString && n.isTemplate(), n.kind == nodeString && n.text == "any":
	case n.kind != nodeList:
		p.errorf(n, problemType, "to is a list of roles and users, or any; this is %s", n.kind)
		return
	case len(n.items) == 0 && !p.o.accepted: // what was deployed before asks nobody, and fails
		p.report(n, parley.Problem{Code: problemValue, Text: "to is empty, so that nobody could answer", Suggestion: "write any for anybody"})
		return
	case len(n.items) > maxTo:
		p.errorf(n, problemLimit, "to has more than %d roles and users", maxTo)
		return
	}
	p.template(n, parseExpr{of: s, set: set})
}

func (p *parser) choices(spec *ApprovalSpec, n *node) {
	if n.kind != nodeList || len(n.items) == 0 || len(n.items) > maxChoices {
		p.errorf(n, problemType, "choices is a list of 1 to %d words", maxChoices)
		return
	}
	spec.Choices = nil
	for _, item := range n.items {
		word, ok := p.text(item, 1, 64)
		switch {
		case !ok:
		case item.isTemplate():
			p.errorf(item, problemValue, "choices lists fixed words")
		case word == onTimeoutFail:
			p.errorf(item, problemValue, "%q cannot be a choice: on_timeout means something else by it", word)
		case slices.Contains(spec.Choices, word):
			p.errorf(item, problemValue, "%q is named twice", word)
		default:
			spec.Choices = append(spec.Choices, word)
		}
	}
}

// escalations reads [{after, to}], in the order of time.
func (p *parser) escalations(s *parseStep, n *node) {
	if n.kind != nodeList || len(n.items) > maxEscalations {
		p.errorf(n, problemType, "escalate is a list of at most %d {after, to}", maxEscalations)
		return
	}
	list := make([]Escalation, len(n.items))
	for i, item := range n.items {
		if item.kind != nodeObject {
			p.errorf(item, problemType, "an escalation is an object {after, to}, this is %s", item.kind)
			continue
		}
		p.object(item, s.list, []parseField{
			{"after", func(m *node) { parseInto(&list[i].After)(p.duration(m, time.Millisecond)) }},
			{"to", func(m *node) { p.approvers(s, m, func(t *expr.Template) { list[i].To = t }) }},
		})
		for _, name := range []string{"after", "to"} {
			if item.get(name) == nil {
				p.missing(item, name, "an escalation needs after, a duration, and to, who may answer then")
			}
		}
		if i > 0 && list[i].After < list[i-1].After && list[i].After > 0 {
			p.errorf(item, problemValue, "escalations stand in the order of time: this one comes before the one above it")
		}
	}
	s.Approval.Escalate = list
}
