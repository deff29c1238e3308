package workflow

import (
	"encoding/json"
	"slices"
	"time"

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
	a := &decider{State: s}
	switch f := f.(type) {
	case Start:
		a.at = f.At
		a.start(f)
	case Settled:
		a.at, a.jitter = f.At, f.Jitter
		a.settled(f)
	case Asked:
		a.at = f.At
		a.asked(f)
	case Replied:
		a.at = f.At
		a.replied(f)
	case Tick:
		a.at, a.jitter = f.At, f.Jitter
		a.tick()
	case Cancel:
		a.at = f.At
		a.cancel(f)
	}
	a.d.dropUnsent()
	return a.d
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
	a.recordAt(parley.EventRunStarted, "", 0, runStarted{
		Workflow: a.def.ID, Version: a.def.Version, Input: f.Input, Labels: f.Labels,
		Trigger: f.Trigger, Deadline: f.At.Add(timeout), Priority: f.Priority,
		RetriedFrom: f.RetriedFrom, Copied: f.Copied,
	})
	a.advance()
}

// settled takes the result of an attempt.
func (a *decider) settled(f Settled) {
	path, ok := a.inFlight[f.TaskID]
	if !ok || a.status.Terminal() {
		return
	}
	a.d.Close = append(a.d.Close, Close{TaskID: f.TaskID, Absorb: true})
	x := a.execs[path]
	call := x.flight(f.TaskID)
	switch {
	case f.Result.Outcome == parley.OutcomeOK:
		a.finishAgentStep(x, call, f)
	case f.Result.Outcome == parley.OutcomeCancelled && a.cancelling && !a.goesOn(x):
		a.record(parley.EventStepCancelled, x, stepEnded{Kind: x.step.Kind})
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

// tick fires every timer that is due.
func (a *decider) tick() {
	if a.status.Terminal() || a.seq == 0 {
		return
	}
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(a.at) }
	switch {
	case a.cancelling:
		if due(a.graceUntil) {
			a.cancelOpen(a.body())
		}
	case due(a.deadline):
		err := parley.Errorf(parley.CodeTimeout, "The run's timeout of %s is over", a.deadline.Sub(a.createdAt)).
			WithDetails(map[string]string{"limit": "run"})
		a.cancelOpen(a.body())
		a.endFailed(err)
		return
	default:
		a.stepTimers(due)
	}
	a.advance()
}

func (a *decider) stepTimers(due func(time.Time) bool) {
	// Firing one timer may end other executions, so each is looked at anew.
	for i := 0; i < len(a.order); i++ {
		x := a.execs[a.order[i]]
		if x.status != parley.StepRunning {
			continue
		}
		switch {
		case due(x.wakeAt) && (x.deadline.IsZero() || !x.deadline.Before(x.wakeAt)):
			a.wake(x)
		case due(x.deadline):
			a.timeOut(x)
		case len(x.flights) == 0 && due(x.retryAt):
			a.begin(x)
		case due(x.hedgeAt):
			a.hedgeDue(x)
		}
	}
}

// timeOut ends a step whose time is up (rule T1): no retry, whatever policy.
func (a *decider) timeOut(x *execution) {
	err := parley.Errorf(parley.CodeTimeout, "The step's timeout of %s is over", x.step.Timeout).
		WithDetails(map[string]string{"limit": "timeout"})
	err.Step, err.Agent = x.path, x.agent
	a.abandon(x, parley.OutcomeTimeout)
	a.failFinally(x, err, attemptEnd{})
}

// abandon closes what is in flight in and below x without waiting for it.
func (a *decider) abandon(x *execution, outcome parley.Outcome) {
	for _, call := range x.flights {
		a.d.Close = append(a.d.Close, Close{TaskID: call.task, Outcome: outcome})
	}
	a.landed(x)
	if x.block() != nil {
		a.cancelOpen(x.inside())
	}
}

// cancelOpen cancels what runs in a scope (rule S3). Steps that never started
// become CANCELLED by the end of the scope, without an event of their own.
func (a *decider) cancelOpen(sc scope) {
	for _, step := range sc.block.Steps {
		x := a.child(sc, step)
		if x == nil || x.status.Terminal() {
			continue
		}
		a.abandon(x, parley.OutcomeCancelled)
		a.record(parley.EventStepCancelled, x, stepEnded{Kind: x.step.Kind})
	}
}

// cancel accepts a cancel once (rule C3).
func (a *decider) cancel(f Cancel) {
	if a.status.Terminal() || a.cancelling || a.seq == 0 {
		return
	}
	a.recordAt(parley.EventRunCancelling, "", 0, runCancelling{
		By: f.By, Reason: f.Reason, GraceUntil: f.At.Add(f.Grace),
	})
	a.d.RequestCancel = a.InFlight()
	a.advance()
}

// advance starts every step that is ready and ends every scope that is done,
// until nothing changes.
func (a *decider) advance() {
	if a.status.Terminal() {
		return
	}
	done, failed := a.advanceScope(a.body())
	switch {
	case a.status.Terminal(): // a finish step has ended the run
	case a.cancelling:
		if len(a.inFlight) == 0 {
			a.cancelOpen(a.body())
			a.endCancelled()
		}
	case failed != nil:
		a.endFailed(failed)
	case done:
		a.endCompleted()
	}
}

// advanceScope starts what is ready in a scope and reports whether every step of
// it has ended well, or the error with which the scope fails (rules S1, S3, S4).
func (a *decider) advanceScope(sc scope) (done bool, failed *parley.Error) {
	for started := true; started; {
		if started = a.startReady(sc); a.status.Terminal() {
			return false, nil
		}
	}
	done = true
	var first *execution
	for _, step := range sc.block.Steps {
		x := a.child(sc, step)
		if x == nil || !x.passed() {
			done = false
		}
		if x != nil && x.lost() && (first == nil || x.endedAt.Before(first.endedAt)) {
			first = x
		}
	}
	if first == nil || a.cancelling || sc.block.Wait && a.running(sc) > 0 {
		return done, nil
	}
	a.cancelOpen(sc)
	return false, first.err
}

// startReady starts every step of a scope that is ready and finds room, in list
// order (rule S5), and goes on with what is inside of those that run. It reports
// whether a step was started: then others may have become ready.
func (a *decider) startReady(sc scope) (started bool) {
	room := sc.block.MaxParallel
	if room > 0 {
		room -= a.running(sc)
	}
	for _, step := range sc.block.Steps {
		x := a.child(sc, step)
		fresh := x == nil && !a.cancelling && (room > 0 || sc.block.MaxParallel == 0) && a.ready(sc, step)
		if fresh {
			x, started = a.consider(sc, step), true
		}
		if x == nil {
			continue
		}
		was := !fresh && x.status == parley.StepRunning
		if x.status == parley.StepRunning && x.block() != nil && x.retryAt.IsZero() && !a.status.Terminal() {
			a.advanceComposite(x)
		}
		switch is := x.status == parley.StepRunning; {
		case a.status.Terminal():
			return false // a finish step has ended the run
		case x.lost() && !sc.block.Wait:
			return false // what waits never starts (rule S3)
		case is && !was:
			room--
		case was && !is:
			room++
		}
	}
	return started
}

// running counts the steps of a scope that run.
func (a *decider) running(sc scope) (n int) {
	for _, step := range sc.block.Steps {
		if x := a.child(sc, step); x != nil && x.status == parley.StepRunning {
			n++
		}
	}
	return n
}

func (a *decider) ready(sc scope, step *Step) bool {
	for _, i := range step.Needs {
		before := a.child(sc, sc.block.Steps[i])
		if before == nil || !before.passed() {
			return false
		}
	}
	return true
}

// advanceComposite runs the block of a group and ends the group with it.
func (a *decider) advanceComposite(x *execution) {
	done, failed := a.advanceScope(x.inside())
	switch {
	case a.status.Terminal():
	case failed != nil:
		a.fail(x, failed, attemptEnd{started: x.scheduledAt})
	case done:
		a.complete(x, a.compositeOutput(x), completion{attemptEnd: attemptEnd{started: x.scheduledAt}})
	case a.cancelling && !a.anyInFlight(x.inside()):
		a.record(parley.EventStepCancelled, x, stepEnded{Kind: x.step.Kind})
	}
}

func (a *decider) anyInFlight(sc scope) bool {
	for _, step := range sc.block.Steps {
		x := a.child(sc, step)
		if x == nil || x.status.Terminal() {
			continue
		}
		if len(x.flights) > 0 || (x.block() != nil && a.anyInFlight(x.inside())) {
			return true
		}
	}
	return false
}

// blockOutput is rule S6: the output of the last step in list order that is
// COMPLETED or handled.
func (a *decider) blockOutput(sc scope) json.RawMessage {
	for _, step := range slices.Backward(sc.block.Steps) {
		x := a.child(sc, step)
		if x != nil && (x.status == parley.StepCompleted || x.handled) {
			return orNull(x.output)
		}
	}
	return json.RawMessage("null")
}

func (a *decider) endCompleted() {
	output := a.blockOutput(a.body())
	if a.def.Output != nil {
		v, err := a.def.Output.Eval(a.newScope(a.at, nil))
		if err == nil {
			err = a.fits("output", v)
		}
		if err != nil {
			a.endFailed(asError(err))
			return
		}
		output = v
	}
	a.recordAt(parley.EventRunCompleted, "", 0, runCompleted{Output: output})
}

func (a *decider) endFailed(err *parley.Error) {
	a.recordAt(parley.EventRunFailed, "", 0, runEnded{Error: recordable(err)})
}

func (a *decider) endCancelled() {
	text := "The run was cancelled"
	if a.cancelledBy != "" {
		text += " by " + a.cancelledBy
	}
	if a.cancelReason != "" {
		text += ": " + a.cancelReason
	}
	a.recordAt(parley.EventRunCancelled, "", 0, runEnded{Error: parley.Errorf(parley.CodeCancelled, "%s", text)})
}
