package workflow

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// The parts of a run: its body, then, if it ends badly, what undoes it, then what is
// done in any case (rules C1, C4).
const (
	phaseBody         = "body"
	phaseCompensating = "compensating"
	phaseFinally      = "finally"
)

// outcome is how the body of a run has ended.
type outcome struct {
	status parley.RunStatus
	output json.RawMessage
	err    *parley.Error
}

// runPhase begins the part of a run that follows its body.
type runPhase struct {
	Phase   string           `json:"phase"`
	Outcome parley.RunStatus `json:"outcome"`
	Output  json.RawMessage  `json:"output,omitempty"`
	Error   *parley.Error    `json:"error,omitempty"`
	// Until ends the part (cleanup_timeout).
	Until time.Time `json:"until"`
}

type (
	stepCompensating struct {
		Kind Kind `json:"kind"`
	}
	stepCompensated struct {
		Kind  Kind          `json:"kind"`
		Error *parley.Error `json:"error,omitempty"`
	}
)

// undo is what is done to compensate a step.
type undo struct {
	region *region
	done   bool
	err    *parley.Error
}

// conclude ends the body of a run: what follows it, or the end of the run.
func (a *decider) conclude(o outcome) {
	a.stopUndoing(nil)
	if o.status != parley.RunCompleted && a.nextUndone(nil) != nil {
		a.enterPhase(phaseCompensating, o)
		return
	}
	a.enterFinally(o)
}

func (a *decider) enterPhase(phase string, o outcome) {
	a.recordAt(parley.EventRunPhase, "", 0, runPhase{
		Phase: phase, Outcome: o.status, Output: o.output, Error: recordable(o.err), Until: a.at.Add(a.def.CleanupTimeout),
	})
}

func (a *decider) enterFinally(o outcome) {
	if a.def.Finally == nil {
		a.end(o)
		return
	}
	a.enterPhase(phaseFinally, o)
}

// end is the last event of a run.
func (a *decider) end(o outcome) {
	switch o.status {
	case parley.RunCompleted:
		a.recordAt(parley.EventRunCompleted, "", 0, runCompleted{Output: o.output})
	case parley.RunCancelled:
		a.recordAt(parley.EventRunCancelled, "", 0, runEnded{Error: recordable(o.err)})
	default:
		a.recordAt(parley.EventRunFailed, "", 0, runEnded{Error: recordable(o.err)})
	}
}

// advanceCleanup goes on with what follows the body.
func (a *decider) advanceCleanup() {
	if a.phase == phaseCompensating {
		if a.compensate(nil) {
			a.enterFinally(a.compensated())
		}
		return
	}
	switch state := a.advanceRegion(a.finally); state {
	case regionOpen:
	case regionFailed:
		a.end(a.finallyFailed(a.finally.failure()))
	case regionPassed:
		a.end(a.outcome)
	}
}

// finallyFailed is rule C4.
func (a *decider) finallyFailed(err *parley.Error) outcome {
	o := a.outcome
	if o.status == parley.RunCompleted {
		failed := parley.Errorf(parley.CodeFinallyFailed, "The workflow has completed, and its finally failed: %s", err.Message)
		failed.Step, failed.Cause = err.Step, err
		return outcome{status: parley.RunFailed, err: failed}
	}
	if o.err != nil {
		o.err = withDetail(o.err, "finally_failed", err)
	}
	return o
}

// compensated is the outcome of the body with the steps that could not be undone
// (rule C2).
func (a *decider) compensated() outcome {
	o := a.outcome
	var failed []string
	for _, path := range a.order {
		if u := a.execs[path].undo; u != nil && u.err != nil {
			failed = append(failed, path)
		}
	}
	if len(failed) > 0 && o.err != nil {
		o.err = withDetail(o.err, "compensation_failed", failed)
	}
	return o
}

// cleanupOver ends what follows a run's body when the time for that is up: what is
// not undone by then stays so, and the run goes on behind it.
func (a *decider) cleanupOver() {
	err := parley.Errorf(parley.CodeTimeout, "The cleanup_timeout of %s is over", a.def.CleanupTimeout).WithDetails(map[string]string{"limit": "cleanup_timeout"})
	if a.phase == phaseFinally {
		a.cancelOpen(a.finally)
		a.end(a.finallyFailed(err))
		return
	}
	for x := a.nextUndone(nil); x != nil; x = a.nextUndone(nil) {
		if x.undo == nil {
			a.record(parley.EventStepCompensating, x, stepCompensating{Kind: x.step.Kind})
		}
		a.cancelOpen(x.undo.region)
		a.record(parley.EventStepCompensated, x, stepCompensated{Kind: x.step.Kind, Error: err})
	}
}

// compensate undoes, one after another, what has completed inside of a step, or of
// the run for nil, in reverse order of ending (rules C1, H1). done is set when there
// is nothing left.
func (a *decider) compensate(inside *execution) (done bool) {
	for {
		x := a.nextUndone(inside)
		if x == nil {
			return true
		}
		if x.undo == nil {
			a.record(parley.EventStepCompensating, x, stepCompensating{Kind: x.step.Kind})
		}
		state := a.advanceRegion(x.undo.region)
		switch {
		case a.over() || state == regionOpen:
			return false
		case state == regionFailed:
			a.record(parley.EventStepCompensated, x, stepCompensated{Kind: x.step.Kind, Error: x.undo.region.failure()})
		default:
			a.record(parley.EventStepCompensated, x, stepCompensated{Kind: x.step.Kind})
		}
	}
}

// nextUndone is the step to compensate next: the one under way, else the one that
// has ended last.
func (s *State) nextUndone(inside *execution) (next *execution) {
	for _, path := range s.order {
		x := s.execs[path]
		if !x.compensable() || inside != nil && !x.within(inside) {
			continue
		}
		if x.undo != nil {
			return x
		}
		if next == nil || x.endSeq > next.endSeq {
			next = x
		}
	}
	return next
}

// compensable reports whether x is to be undone and has not been.
func (e *execution) compensable() bool {
	if e.step.Compensate == nil || e.undo != nil && e.undo.done || !e.status.Terminal() || e.region.block.Role == roleFinally {
		return false
	}
	return e.status == parley.StepCompleted || e.step.CompensateStarted && e.called()
}

// called reports whether x has done anything that may have to be undone: an attempt
// that was given up before its agent was called, a run asked for or a list entered,
// since what that needs could not be evaluated, has not.
func (e *execution) called() bool {
	if e.calledBefore {
		return true
	}
	switch e.step.Kind {
	case KindAgent:
		return e.tried > 0
	case KindSubWorkflow:
		return e.child != nil
	case KindGroup, KindParallel, KindConditional, KindSwitch, KindForkJoin, KindLoop, KindPlan:
		return e.entered
	}
	return e.attempts > 0
}

// undoes reports whether a list compensates a step, or stands in one that does.
func (r *region) undoes() bool {
	for ; r != nil && r.owner != nil; r = r.around() {
		if r.block.Role == roleCompensate {
			return true
		}
	}
	return false
}

// within reports whether x stands in a list of the step, not in that of its handler.
func (e *execution) within(step *execution) bool {
	for r := e.region; r.owner != nil; r = r.around() {
		if r.owner == step {
			return step.handling == nil || r != step.handling.region
		}
	}
	return false
}

// hasUndone reports whether something was compensated.
func (s *State) hasUndone() bool {
	for _, path := range s.order {
		if s.execs[path].undo != nil {
			return true
		}
	}
	return false
}

func (s *State) evolvePhase(p runPhase) {
	s.phase, s.cleanupUntil, s.cancelling = p.Phase, p.Until, false
	s.earlier, s.earlierBytes = len(s.order), s.bytes
	s.outcome = outcome{status: p.Outcome, output: p.Output, err: p.Error}
	if p.Phase == phaseFinally {
		s.finally = newRegion(s.def.Finally, nil, 0, "")
		s.finally.base = s.body
	}
}

func (s *State) evolveCompensating(x *execution) {
	x.undo = &undo{region: newRegion(x.step.Compensate, x, 0, x.prefix()+"/")}
	s.undoing = append(s.undoing, x)
}

func (s *State) evolveCompensated(x *execution, p stepCompensated) {
	x.undo.done, x.undo.err = true, p.Error
	s.undoing = slices.DeleteFunc(s.undoing, func(u *execution) bool { return u == x })
	if len(s.undoing) == 0 {
		s.undoing = nil
	}
}

// stopUndoing gives up the compensations that are under way inside of a step, or of
// the run for nil: they are not begun again, since nobody knows how far they came.
// One that has done everything, in the grace of a cancel, is taken as it is.
func (a *decider) stopUndoing(inside *execution) {
	for _, x := range slices.Clone(a.undoing) {
		if inside != nil && !x.within(inside) {
			continue
		}
		if x.undo.region.state() == regionPassed {
			a.record(parley.EventStepCompensated, x, stepCompensated{Kind: x.step.Kind})
			continue
		}
		a.cancelOpen(x.undo.region)
		err := parley.Errorf(parley.CodeCancelled, "The compensation was cancelled before it ended")
		err.Step = x.path
		a.record(parley.EventStepCompensated, x, stepCompensated{Kind: x.step.Kind, Error: err})
	}
}
