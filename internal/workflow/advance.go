package workflow

import (
	"encoding/json"
	"slices"

	"github.com/parley-project/parley"
)

// advance starts every step that is ready and ends every list that is done, until
// nothing changes. It looks only at what has been touched since the last time.
func (a *decider) advance() {
	for again := true; again && !a.status.Terminal(); again = a.phase != a.pass {
		a.pass = a.phase
		a.advancePhase()
	}
}

// over reports whether the phase that advance is in has ended.
func (a *decider) over() bool { return a.status.Terminal() || a.phase != a.pass }

func (a *decider) advancePhase() {
	if a.phase != phaseBody {
		a.advanceCleanup()
		return
	}
	state := a.advanceRegion(a.body)
	switch {
	case a.over(): // a finish step has ended the run
	case a.cancelling:
		if len(a.inFlight)+len(a.children) == 0 {
			a.cancelOpen(a.body)
			a.conclude(outcome{status: parley.RunCancelled, err: a.cancelError()})
		}
	case state == regionFailed:
		a.conclude(outcome{status: parley.RunFailed, err: a.body.failure()})
	case state == regionPassed:
		a.endCompleted()
	}
}

// advanceRegion starts what is ready in a list and ends what is left if it fails
// (rules S1, S3, S4). While the run is cancelled nothing fails by what is in it.
func (a *decider) advanceRegion(r *region) regionState {
	for r.dirty || r.begun.IsZero() {
		r.dirty = false
		if r.state() != regionFailed || r.block.Wait {
			a.startReady(r)
		}
		if a.over() {
			return regionOpen
		}
		if r.begun.IsZero() {
			break // nothing of it may start
		}
	}
	state := r.state()
	if state == regionFailed {
		waits := a.paused && r.block.Wait && slices.Contains(r.steps, nil)
		if (a.cancelling || waits) && r.err == nil {
			return regionOpen
		}
		a.cancelOpen(r)
		r.dirty = false
	}
	return state
}

// startReady goes on with what is inside of the steps of a list that have changed,
// and starts every step that is ready and finds room, in list order (rule S5).
func (a *decider) startReady(r *region) {
	changed := r.changed
	r.changed = nil
	slices.SortFunc(changed, func(x, y *execution) int { return x.step.Index - y.step.Index })
	for _, x := range changed {
		a.advanceComposite(x)
		if a.over() || r.lost != nil && !r.block.Wait {
			return // what waits never starts (rule S3)
		}
	}
	for len(r.ready) > 0 && !a.cancelling && !a.paused && r.room() {
		a.advanceComposite(a.consider(r, r.block.Steps[r.ready[0]]))
		if a.over() || r.lost != nil && !r.block.Wait {
			return
		}
	}
}

// room reports whether one more step of a list may run (rule S5).
func (r *region) room() bool {
	return r.block.MaxParallel == 0 || r.running < r.block.MaxParallel
}

// advanceComposite goes on with what is inside of a step that runs, and ends the
// step with it.
func (a *decider) advanceComposite(x *execution) {
	for x.dirty && x.status == parley.StepRunning && x.holds() && x.retryAt.IsZero() && !a.over() {
		x.dirty = false
		switch {
		case x.handling != nil:
			a.advanceHandling(x)
		case x.step.Fork != nil:
			a.advanceFork(x)
		case x.step.Loop != nil && x.step.Loop.Over != nil:
			a.advanceForEach(x)
		case x.step.Loop != nil:
			a.advanceRepeat(x)
		default:
			a.advanceBlock(x)
		}
		if a.cancelling && !a.over() && x.status == parley.StepRunning && !a.anyInFlight(x) {
			for r := range x.regions {
				a.cancelOpen(r) // what waits in it for a time, an event or a person
			}
			a.record(parley.EventStepCancelled, x, stepEnded{Kind: x.step.Kind})
		}
	}
}

// advanceBlock goes on with the one list of a step.
func (a *decider) advanceBlock(x *execution) {
	r := x.inside()
	switch state := a.advanceRegion(r); {
	case a.over():
	case state == regionFailed:
		a.fail(x, r.failure(), attemptEnd{started: x.scheduledAt})
	case state == regionPassed:
		a.complete(x, a.compositeOutput(x), completion{attemptEnd: attemptEnd{started: x.scheduledAt}})
	}
}

// anyInFlight reports whether an agent is still called for a step inside of x, or to
// undo one of them.
func (a *decider) anyInFlight(x *execution) bool {
	for r := range x.regions {
		if a.anyInFlightIn(r) {
			return true
		}
	}
	return slices.ContainsFunc(a.undoing, func(u *execution) bool { return u.within(x) && a.anyInFlightIn(u.undo.region) })
}

func (a *decider) anyInFlightIn(r *region) bool {
	return r.running > 0 && slices.ContainsFunc(r.steps, func(child *execution) bool {
		return child != nil && !child.status.Terminal() && (len(child.flights) > 0 || child.waitsForChild() || a.anyInFlight(child))
	})
}

// output is rule S6: the output of the last step in list order that is COMPLETED
// or handled.
func (r *region) output() json.RawMessage {
	for _, x := range slices.Backward(r.steps) {
		if x != nil && x.hasOutput() {
			return orNull(x.output)
		}
	}
	return json.RawMessage("null")
}

// hasOutput reports whether others may use what a step gave.
func (e *execution) hasOutput() bool { return e.status == parley.StepCompleted || e.handled }
