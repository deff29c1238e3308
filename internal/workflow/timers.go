package workflow

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// wait reads a duration, or until when.
func (p *parser) wait(s *parseStep, n *node) {
	if n.kind != nodeObject {
		parseInto(&s.Wait)(p.duration(n, 0))
		return
	}
	p.object(n, s.list, []parseField{{"until", func(u *node) { p.waitUntil(s, u) }}})
	if n.get("until") == nil {
		p.missing(n, "until", "wait is a duration such as 5m, or {until: a time}")
	}
}

// waitUntil reads a time, or what gives one.
func (p *parser) waitUntil(s *parseStep, n *node) {
	if _, err := time.Parse(time.RFC3339Nano, n.text); !n.isTemplate() && (n.kind != nodeString || err != nil) {
		p.report(n, parley.Problem{Code: problemValue, Text: "until is a time, or a text with ${…} that gives one", Suggestion: "such as 2026-01-02T15:04:05Z"})
		return
	}
	p.template(n, parseExpr{of: s, at: expr.At{Wanted: expr.Time}, set: func(t *expr.Template) { s.WaitUntil = t }})
}

// beginWait sets the timer of a wait step. One that is due is over at once (rule
// T4).
func (a *decider) beginWait(x *execution) {
	until := a.at.Add(x.step.Wait)
	if x.step.WaitUntil != nil {
		var err error
		if until, err = a.timeOf(x, x.step.WaitUntil); err != nil {
			a.fail(x, asError(err), attemptEnd{})
			return
		}
	}
	if !until.After(a.at) {
		a.complete(x, waited(0), completion{})
		return
	}
	a.recordAt(parley.EventStepScheduled, x.path, x.attempts+1, stepScheduled{Kind: KindWait, Deadline: a.deadlineOf(x)})
	a.record(parley.EventTimerSet, x, timerSet{Until: until})
}

// timeOf evaluates a time: what CEL calls a timestamp, or its text by RFC 3339.
func (a *decider) timeOf(x *execution, t *expr.Template) (time.Time, error) {
	v, err := t.Eval(a.scope(x))
	if err != nil {
		return time.Time{}, err
	}
	var text string
	if json.Unmarshal(v, &text) == nil {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, parley.Errorf(parley.CodeInvalidInput, "wait: %s is no time such as 2026-01-02T15:04:05Z", capText(v))
}

// wake ends a wait step whose time has come.
func (a *decider) wake(x *execution) {
	if x.ask != nil {
		a.escalate(x)
		return
	}
	a.record(parley.EventTimerFired, x, timerFired{})
	a.complete(x, waited(a.at.Sub(x.scheduledAt)), completion{attemptEnd: attemptEnd{started: x.scheduledAt}})
}

// waited is the output of a wait step.
func waited(d time.Duration) json.RawMessage {
	return fmt.Appendf(nil, `{"waited_ms":%d}`, d.Milliseconds())
}
