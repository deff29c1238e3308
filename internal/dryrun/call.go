package dryrun

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
)

// call is one attempt as the script plays it.
type call struct {
	workflow.Schedule
	task parley.Task
	// agent is nil for one that is echoed without being named.
	agent *agent
	// number counts the calls of the agent from 1.
	number int
	began  time.Time
	// talks: silence does not end it. worked is how long it has worked, questions aside (rule T2).
	talks  bool
	worked time.Duration
	// news counts what it has told of questions.
	news int
}

// schedule calls an agent at its time.
func (w *world) schedule(s workflow.Schedule) {
	c := &call{Schedule: s, task: s.Task}
	w.calls[s.Task.ID] = c
	at := s.At
	if at.Before(w.now) {
		at = w.now
	}
	w.at(at, func() workflow.Fact { return w.begin(c) })
}

// lives reports whether a call is still wanted.
func (w *world) lives(c *call) bool { return w.calls[c.task.ID] == c && w.state.Waits(c.task.ID) }

// begin makes the call: it finds out what the agent does, and sets that going.
func (w *world) begin(c *call) workflow.Fact {
	if !w.lives(c) {
		return nil
	}
	w.called[c.task.Agent]++
	c.began, c.number = w.now, w.called[c.task.Agent]
	w.made = append(w.made, Call{
		Agent: c.task.Agent, Step: c.task.Step, Attempt: c.task.Attempt, Input: c.task.Input, At: w.now.Sub(w.cfg.Test.At),
	})
	c.agent = w.cfg.Test.agents[c.task.Agent]
	a, err := w.choose(c)
	if err != nil {
		w.broken = err
		return nil
	}
	if a == nil {
		return w.settle(c, parley.Result{Outcome: parley.OutcomeOK, Output: c.task.Input})
	}
	c.talks = a.talks
	switch {
	case a.ask != nil:
		w.work(c, a.after, func() workflow.Fact { return w.ask(c, a) })
	case a.output == nil && a.fault == nil:
		w.work(c, forever, nil)
	default:
		w.work(c, a.after, func() workflow.Fact { return w.answer(c, a, nil) })
	}
	return nil
}

// choose gives the case that a call is answered by; nil echoes the input.
func (w *world) choose(c *call) (*answer, error) {
	if c.agent == nil {
		if w.cfg.Test.echo {
			return nil, nil
		}
		return nil, parley.Errorf(parley.CodeUnknownAgent,
			"Step %s calls agent %q, of which the script says nothing", c.task.Step, c.task.Agent)
	}
	scope := w.scope(c, null())
	for _, a := range c.agent.cases {
		if a.times > 0 && w.taken[a] >= a.times {
			continue
		}
		fits := true
		switch {
		case a.members != nil:
			fits = contains(c.task.Input, a.members)
		case a.when != nil:
			var err error
			if fits, err = a.when.Eval(scope); err != nil {
				return nil, parley.Errorf(parley.CodeExpression, "The script: when of %s %q for step %s: %s", w.what(c), c.task.Agent, c.task.Step, message(err))
			}
		}
		if fits {
			w.taken[a]++
			return a, nil
		}
	}
	if c.agent.echo {
		return nil, nil
	}
	return nil, parley.Errorf(parley.CodeUnknownAgent, "Step %s calls %s %q for the %s time, and no case of the script fits the input %s",
		c.task.Step, w.what(c), c.task.Agent, ordinal(c.number), short(c.task.Input))
}

// forever is how long somebody works who is never heard of again.
const forever = time.Duration(-1)

// work lets the agent work for a while and then does what follows. Its limits end
// it before (rule T2).
func (w *world) work(c *call, d time.Duration, then func() workflow.Fact) {
	limit, name := c.Silence, "silence"
	if c.talks {
		limit = 0
	}
	if left := c.AttemptTimeout - c.worked; c.AttemptTimeout > 0 && (limit == 0 || left < limit) {
		limit, name = left, "attempt_timeout"
	}
	if limit > 0 || name == "attempt_timeout" {
		if d == forever || d > limit {
			w.in(limit, func() workflow.Fact { return w.passed(c, name) })
			return
		}
	}
	if d == forever {
		return
	}
	w.in(d, func() workflow.Fact {
		if !w.lives(c) {
			return nil
		}
		c.worked += d
		return then()
	})
}

// passed ends an attempt whose time is up.
func (w *world) passed(c *call, limit string) workflow.Fact {
	if !w.lives(c) {
		return nil
	}
	e := parley.Errorf(parley.CodeStalled, "agent %q gave no sign of life for %v", c.task.Agent, c.Silence)
	if limit == "attempt_timeout" {
		e = parley.Errorf(parley.CodeTimeout, "agent %q gave no answer within attempt_timeout (%v)", c.task.Agent, c.AttemptTimeout)
	}
	e.Retryable = true
	return w.settle(c, parley.Result{Outcome: parley.OutcomeError, Err: e.WithDetails(map[string]string{"limit": limit})})
}

// ask puts the agent's question, and sets the answer going.
func (w *world) ask(c *call, a *answer) workflow.Fact {
	text, err := a.ask.text.Eval(w.scope(c, null()))
	if err != nil {
		w.broken = parley.Errorf(parley.CodeExpression, "The script: ask of agent %q for step %s: %s", c.task.Agent, c.task.Step, message(err))
		return nil
	}
	q := parley.Question{Kind: a.ask.kind, Text: string(text)}
	if err := json.Unmarshal(text, &q.Text); err != nil {
		q.Text = string(text) // another value than a text is shown as it is
	}
	c.news++
	if a.ask.reply != nil {
		w.in(a.ask.after, func() workflow.Fact { return w.reply(c, a) })
	}
	return workflow.Asked{At: w.now, TaskID: c.task.ID, Question: &q, News: c.news, Jitter: w.jitter()}
}

// reply gives what the person says.
func (w *world) reply(c *call, a *answer) workflow.Fact {
	if !w.lives(c) {
		return nil
	}
	said, err := json.Marshal(a.ask.reply)
	if err != nil {
		said = null() // what was read as JSON can be written as JSON
	}
	if a.output == nil && a.fault == nil {
		w.work(c, forever, nil)
	} else {
		w.work(c, a.ask.work, func() workflow.Fact { return w.answer(c, a, said) })
	}
	return workflow.Replied{At: w.now, TaskID: c.task.ID, Reply: *a.ask.reply}
}

// answer ends the call as the case says.
func (w *world) answer(c *call, a *answer, reply json.RawMessage) workflow.Fact {
	if f := a.fault; f != nil {
		e := f.err
		return w.settle(c, parley.Result{Outcome: f.outcome, Err: &e, RetryAfter: f.retryAfter})
	}
	if reply == nil {
		reply = null()
	}
	v, err := a.output.Eval(w.scope(c, reply))
	if err != nil {
		w.broken = parley.Errorf(parley.CodeExpression, "The script: output of agent %q for step %s: %s", c.task.Agent, c.task.Step, message(err))
		return nil
	}
	return w.settle(c, parley.Result{Outcome: parley.OutcomeOK, Output: v})
}

// settle makes the fact that the call has ended. Conversations go on under one
// name.
func (w *world) settle(c *call, r parley.Result) workflow.Fact {
	r.TaskID = c.task.ID
	if r.ContextID = c.task.ContextID; r.ContextID == "" {
		r.ContextID = "ctx-" + c.task.ID
	}
	f := workflow.Settled{
		At: w.now, TaskID: c.task.ID, Result: r, Started: c.began, Ended: w.now, AgentRetry: workflow.AgentRetry(parley.DefaultRetryConfig()),
	}
	if c.agent != nil {
		f.AgentRetry = c.agent.retry
	}
	if r.Outcome != parley.OutcomeOK || w.state.Judges(c.task.ID) {
		f.Jitter = w.jitter()
	}
	return f
}

// begun are the calls that have begun, for a timer that may end them.
func (w *world) begun() map[string]workflow.Call {
	m := make(map[string]workflow.Call, len(w.calls))
	for id, c := range w.calls {
		if !c.began.IsZero() {
			m[id] = workflow.Call{Started: c.began}
		}
	}
	return m
}

// stop asks the agent of a task to end.
func (w *world) stop(task string) {
	c := w.calls[task]
	if c == nil || c.agent != nil && c.agent.ignoresCancel && !c.began.IsZero() {
		return
	}
	w.in(0, func() workflow.Fact {
		if !w.lives(c) {
			return nil
		}
		if c.began.IsZero() {
			c.began = w.now
		}
		return w.settle(c, parley.Result{
			Outcome: parley.OutcomeCancelled, Err: parley.Errorf(parley.CodeCancelled, "agent %q was asked to end", c.task.Agent),
		})
	})
}

// message is what an error says besides its code.
func message(err error) string {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

func null() json.RawMessage { return json.RawMessage("null") }

func ordinal(n int) string {
	switch n {
	case 1:
		return "first"
	case 2:
		return "second"
	case 3:
		return "third"
	}
	return number(n) + "th"
}
