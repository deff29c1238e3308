package workflow

import (
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// tick fires every timer that is due.
func (a *decider) tick(hurry bool) {
	if a.status.Terminal() || a.seq == 0 {
		return
	}
	// While the run is being cancelled nothing begins, so that answers come to an end.
	spare := a.cancelling || !hurry
	switch {
	case !a.cancelling:
		a.fire()
	case a.due(a.graceUntil):
		a.graceOver()
	}
	a.advance()
	for i := range a.d.Close {
		c := &a.d.Close[i]
		c.Unanswered = spare && !c.Absorb
	}
}

// due reports whether a time has come.
func (a *decider) due(t time.Time) bool { return reached(t, a.at) }

func reached(t, at time.Time) bool { return !t.IsZero() && !t.After(at) }

// fire lets what is due act in the order of its times, as it would have if somebody had
// looked in time: a wait that was over before the time of what stands around it was up
// ends, and the steps behind it have their turn. What is due at one time acts together.
func (a *decider) fire() {
	phase := a.phase
	for list := a.dueTimers(); len(list) > 0 && a.phase == phase && !a.status.Terminal(); {
		at := list[0].at
		if reached(a.phaseEnd(), at) {
			break
		}
		for len(list) > 0 && list[0].at.Equal(at) {
			a.stepTimer(list[0].of, at)
			list = list[1:]
		}
		a.advance()
	}
	if a.phase == phase && !a.status.Terminal() && a.due(a.phaseEnd()) {
		a.phaseOver()
	}
}

// dueTimer is a time of an execution that has come.
type dueTimer struct {
	at time.Time
	of *execution
}

// dueTimers gives what is due by its times, and the executions of one time in the order
// in which they began, each once.
func (a *decider) dueTimers() (list []dueTimer) {
	for x := range a.open.all() {
		for t := range x.timers {
			if a.due(t) {
				list = append(list, dueTimer{t, x})
			}
		}
	}
	slices.SortStableFunc(list, func(x, y dueTimer) int { return x.at.Compare(y.at) })
	return slices.CompactFunc(list, func(x, y dueTimer) bool { return x.of == y.of && x.at.Equal(y.at) })
}

// timers gives the times at which something becomes of an execution by itself.
func (e *execution) timers(yield func(time.Time) bool) {
	for _, t := range [...]time.Time{e.deadline, e.wakeAt, e.retryAt, e.hedgeAt} {
		if !yield(t) {
			return
		}
	}
	for r := range e.begun {
		if !yield(r.deadline) {
			return
		}
	}
}

// phaseEnd is when the time of the body, or of what comes after it, is up.
func (a *decider) phaseEnd() time.Time {
	if a.phase == phaseBody {
		return a.deadline
	}
	return a.cleanupUntil
}

func (a *decider) phaseOver() {
	if a.phase != phaseBody {
		a.cleanupOver()
		return
	}
	err := parley.Errorf(parley.CodeTimeout, "The run's timeout of %s is over", a.deadline.Sub(a.startedAt)).
		WithDetails(map[string]string{"limit": "run"})
	a.cancelOpen(a.body)
	a.conclude(outcome{status: parley.RunFailed, err: err})
}

// stepTimer fires what has become due of an execution by a time.
func (a *decider) stepTimer(x *execution, at time.Time) {
	if x.status != parley.StepRunning {
		return // another timer has ended it
	}
	due := func(t time.Time) bool { return reached(t, at) }
	a.branchTimers(x, due)
	switch {
	case a.paused: // timers act at resume, timeouts at once (rule C5)
		if due(x.deadline) {
			a.timeOut(x)
		}
	case due(x.wakeAt) && (x.deadline.IsZero() || !x.deadline.Before(x.wakeAt)):
		a.wake(x)
	case due(x.deadline):
		a.timeOut(x)
	case a.due(a.until(x)): // nothing is begun again of which the time is up (rule T1)
	case len(x.flights) == 0 && due(x.retryAt):
		a.again = x
		a.begin(x)
		a.again = nil
	case due(x.hedgeAt):
		a.hedgeDue(x)
	}
}
