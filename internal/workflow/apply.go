package workflow

import (
	"slices"

	"github.com/parley-project/parley"
)

// Apply decides what follows from a fact, and changes s as the decision's
// events say. It is deterministic: the same state and the same fact give the
// same decision. A fact that comes too late (an attempt that is not in flight,
// a run that has ended) gives an empty decision.
//
// The caller makes the decision durable before it acts on it. If that fails or
// its outcome is unknown, s is ahead of the history and must be thrown away.
func (s *State) Apply(f Fact) Decision {
	a, waited, asked := &decider{State: s, pass: s.phase}, s.listening(), s.asking()
	if s.Queued() {
		a.whileWaiting(f)
	} else {
		a.apply(f)
	}
	a.d.dropUnsent()
	a.d.dropUnstarted()
	a.subscribe(waited, s.listening())
	a.ask(asked, s.asking())
	a.settle()
	return a.d
}

// apply applies a fact to a run that waits for nothing but its steps.
func (a *decider) apply(f Fact) {
	switch f := f.(type) {
	case Start:
		a.at, a.jitter = f.At, f.Jitter
		a.start(f)
	case Settled:
		a.at, a.jitter = f.At, f.Jitter
		a.settled(f)
	case Asked:
		a.at, a.jitter = f.At, f.Jitter
		a.asked(f)
	case Replied:
		a.at = f.At
		a.replied(f)
	case Tick:
		a.at, a.jitter, a.calls = f.At, f.Jitter, f.Calls
		a.tick(f.Hurry)
	case Cancel:
		a.at = f.At
		a.cancel(f)
	case Signalled:
		a.at, a.jitter = f.At, f.Jitter
		a.signalled(f)
	case Voted:
		a.at, a.jitter = f.At, f.Jitter
		a.voted(f)
	case ChildStarted:
		a.at, a.jitter = f.At, f.Jitter
		a.childBegun(f)
	case ChildEnded:
		a.at, a.jitter, a.calls = f.At, f.Jitter, f.Calls
		a.childOver(f)
	default:
		a.control(f)
	}
}

// dropUnsent takes out what was both begun and ended by the same fact, such as a
// call beside a step that ends the run: nobody needs to hear of it.
func (d *Decision) dropUnsent() {
	if len(d.Schedule) == 0 || len(d.Close) == 0 {
		return
	}
	begun := make(map[string]bool, len(d.Schedule))
	for _, s := range d.Schedule {
		begun[s.Task.ID] = true
	}
	ended := make(map[string]bool)
	d.Close = slices.DeleteFunc(d.Close, func(c Close) bool {
		if begun[c.TaskID] {
			ended[c.TaskID] = true
		}
		return begun[c.TaskID]
	})
	d.Schedule = slices.DeleteFunc(d.Schedule, func(s Schedule) bool { return ended[s.Task.ID] })
}

func (a *decider) start(f Start) {
	if a.seq != 0 {
		return
	}
	if len(f.Labels) == 0 {
		f.Labels = nil
	}
	timeout := a.def.Timeout
	if f.Timeout > 0 {
		timeout = min(timeout, f.Timeout)
	}
	p := runStarted{
		Workflow: a.def.ID, Version: a.def.Version, Input: f.Input, Labels: f.Labels, Trigger: f.Trigger, Priority: f.Priority,
		RetriedFrom: f.RetriedFrom, RerunFrom: f.RerunFrom, Chain: f.Chain, Copied: f.Copied, Edits: f.Edits, Concurrency: f.Turn,
		ScheduledAt: ptr(f.ScheduledAt), Parent: f.Parent, Children: f.Children,
		Traceparent: f.Trace.Parent, Tracestate: f.Trace.State,
	}
	if f.Turn != nil && f.Turn.Wait {
		p.TimeoutMS, p.Deadline = timeout.Milliseconds(), f.Until
		a.queue(p)
		return
	}
	p.Deadline = a.earliest(f.At.Add(timeout), f.Until)
	a.recordAt(parley.EventRunStarted, "", 0, p)
	a.advance()
}

// settled takes the result of an attempt.
func (a *decider) settled(f Settled) {
	path, ok := a.inFlight[f.TaskID]
	if !ok || a.status.Terminal() {
		return
	}
	a.d.Close = append(a.d.Close, Close{TaskID: f.TaskID, Absorb: true, Outcome: f.Result.Outcome})
	x := a.execs[path]
	call := x.flight(f.TaskID)
	switch {
	case f.Result.Outcome == parley.OutcomeOK:
		a.finishAgentStep(x, call, f)
	case f.Result.Outcome == parley.OutcomeCancelled && a.cancelling && !a.goesOn(x):
		a.record(parley.EventStepCancelled, x, stepEnded{Kind: x.step.Kind, Started: ptr(f.Started), AgentTaskID: f.Result.AgentTaskID})
	default:
		a.fail(x, failure(f.Result), endOf(call, f))
	}
	a.advance()
}

// failure gives the error of a result that is not a success.
func failure(r parley.Result) *parley.Error {
	if r.Err != nil {
		return r.Err
	}
	if r.Outcome == parley.OutcomeUnknown {
		return parley.Errorf(parley.CodeOutcomeUnknown, "The agent may have done the task: its answer was lost and could not be asked for")
	}
	if r.Outcome == parley.OutcomeCancelled {
		return parley.Errorf(parley.CodeCancelled, "The task was cancelled")
	}
	return parley.Errorf(parley.CodeAgentError, "Agent execution failed")
}

// timeOut ends a step whose time is up (rule T1): no retry, whatever policy.
func (a *decider) timeOut(x *execution) {
	if a.decidedByTimeout(x) {
		return
	}
	err := parley.Errorf(parley.CodeTimeout, "The step's timeout of %s is over", x.step.Timeout).
		WithDetails(map[string]string{"limit": "timeout"})
	err.Step, err.Agent = x.path, x.agent
	if n := len(x.flights); n > 0 {
		err.Attempt, err.Agent = x.flights[n-1].attempt, x.flights[n-1].agent
	}
	call := a.callOf(x)
	a.abandon(x, parley.OutcomeTimeout)
	a.failFinally(x, err, attemptEnd{started: call.Started, agentTaskID: call.AgentTaskID})
}

// abandon closes what is in flight in and below x without waiting for it.
func (a *decider) abandon(x *execution, outcome parley.Outcome) {
	for _, call := range x.flights {
		a.d.Close = append(a.d.Close, Close{TaskID: call.task, Outcome: outcome})
	}
	a.landed(x)
	a.leaveChild(x)
	for r := range x.regions {
		a.cancelOpen(r)
	}
	a.stopUndoing(x)
}

// cancelOpen cancels what runs in a scope (rule S3). Steps that never started
// become CANCELLED by the end of the scope, without an event of their own.
func (a *decider) cancelOpen(r *region) {
	for _, x := range r.steps {
		if x == nil || x.status.Terminal() {
			continue
		}
		a.giveUp(x)
	}
}

// giveUp cancels a step without waiting for what is in flight.
func (a *decider) giveUp(x *execution) {
	call := a.callOf(x)
	a.abandon(x, parley.OutcomeCancelled)
	a.record(parley.EventStepCancelled, x, stepEnded{Kind: x.step.Kind, Started: ptr(call.Started), AgentTaskID: call.AgentTaskID})
}

// callOf is what is known of the newest attempt of x that has begun.
func (a *decider) callOf(x *execution) Call {
	for _, f := range slices.Backward(x.flights) {
		if call, ok := a.calls[f.task]; ok {
			return call
		}
	}
	return Call{}
}

// cancel accepts a cancel once (rule C3).
func (a *decider) cancel(f Cancel) {
	if a.status.Terminal() || a.cancelling || a.seq == 0 || a.phase != phaseBody {
		return
	}
	a.recordAt(parley.EventRunCancelling, "", 0, runCancelling{
		By: f.By, Reason: f.Reason, GraceUntil: f.At.Add(f.Grace),
	})
	a.d.RequestCancel = a.InFlight()
	a.cancelChildren()
	a.touchAll()
	a.advance()
}

func (a *decider) endCompleted() {
	output := a.body.output()
	if a.def.Output != nil {
		v, err := a.def.Output.Eval(a.newScope(a.at, a.body))
		if err == nil {
			err = a.fits("output", v)
		}
		if err != nil {
			a.conclude(outcome{status: parley.RunFailed, err: asError(err)})
			return
		}
		output = v
	}
	a.conclude(outcome{status: parley.RunCompleted, output: output})
}

// cancelError says who has cancelled the run, and why.
func (a *decider) cancelError() *parley.Error {
	text := "The run was cancelled"
	if a.cancelledBy != "" {
		text += " by " + a.cancelledBy
	}
	if a.cancelReason != "" {
		text += ": " + a.cancelReason
	}
	return parley.Errorf(parley.CodeCancelled, "%s", text)
}
