package workflow

import (
	"encoding/json"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// none is the case of which there is none.
const none = -1

// beginComposite starts a step that holds others, or its next round.
func (a *decider) beginComposite(x *execution) {
	p := stepScheduled{Kind: x.step.Kind, Round: x.round, Deadline: a.deadlineOf(x)}
	switch {
	case x.entered:
		p.Round++ // nothing is evaluated again on a retry (rule S2)
	case x.step.Cases != nil:
		chosen, err := a.choose(x)
		if err != nil {
			a.fail(x, asError(err), attemptEnd{})
			return
		}
		p.Case = &chosen
	case x.step.Loop != nil && x.step.Loop.Over != nil:
		items, truncated, err := a.itemsOf(x)
		if err != nil {
			a.fail(x, asError(err), attemptEnd{})
			return
		}
		p.Input, p.Truncated = items, truncated
	case x.step.Plan != nil:
		if err := a.evalPlan(x, &p); err != nil {
			a.fail(x, asError(err), attemptEnd{})
			return
		}
	}
	a.recordAt(parley.EventStepScheduled, x.path, x.attempts+1, p)
	if !x.holds() {
		a.complete(x, a.compositeOutput(x), completion{attemptEnd: attemptEnd{started: x.scheduledAt}})
	}
}

// choose gives the first case whose condition holds.
func (a *decider) choose(x *execution) (int, error) {
	if c, ok := a.entered(x); ok && c.Case != nil {
		return *c.Case, nil
	}
	scope := a.scope(x)
	for i := range x.step.Cases {
		holds, err := a.holds(&x.step.Cases[i], x, scope)
		if err != nil {
			return none, err
		}
		if holds {
			return i, nil
		}
	}
	return none, nil
}

// holds evaluates the condition of a case. A fault makes an old condition false,
// and is said in the history (language.md §4).
func (a *decider) holds(c *Case, x *execution, scope *expr.Scope) (bool, error) {
	switch {
	case c.When != nil:
		return c.When.Eval(scope)
	case c.Old != nil:
		value, warning := c.Old.Eval(scope)
		if warning != nil {
			fault := asError(warning)
			a.recordAt(parley.EventRunWarning, x.path, 0, runWarning{
				Message: "The condition counts as false: " + fault.Message, Code: fault.Code,
			})
		}
		return value, nil
	}
	return true, nil
}

// compositeOutput is what a step that holds others gives when those have ended.
func (a *decider) compositeOutput(x *execution) json.RawMessage {
	switch {
	case x.step.Kind == KindParallel, x.step.Kind == KindPlan:
		return parallelOutput(x.inside())
	case x.step.Branching:
		return branchOutput(x)
	case x.block() == nil:
		return json.RawMessage("null")
	}
	return x.inside().output()
}

// parallelOutput has the output of each step of a block by its id.
func parallelOutput(r *region) json.RawMessage {
	o := object{buf: []byte{'{'}}
	for i, x := range r.steps {
		var value json.RawMessage
		if x != nil && x.hasOutput() {
			value = x.output
		}
		o.value(r.block.Steps[i].ID, value)
	}
	return o.end()
}

// branchOutput is the output of a conditional of the graph form (formats.md).
func branchOutput(x *execution) json.RawMessage {
	o := object{buf: []byte{'{'}}
	taken, id, output := "then", json.RawMessage("null"), json.RawMessage("null")
	if x.chosen != 0 {
		taken = "else"
	}
	if block := x.block(); block != nil {
		id = appendString(nil, block.Steps[x.step.Cases[x.chosen].Entry].ID)
		output = x.inside().output()
	}
	o.raw("condition_result", json.RawMessage(map[bool]string{true: "true", false: "false"}[x.chosen == 0]))
	o.str("branch_taken", taken)
	o.raw("branch_step_id", id)
	o.raw("branch_output", output)
	return o.end()
}
