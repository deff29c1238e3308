package workflow

import (
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// Terminate ends the run at once (rule C3): nothing is waited for, nothing is
// compensated, and finally does not run. It also ends a run that is being
// cancelled.
type Terminate struct {
	At         time.Time
	By, Reason string
}

// Pause stops new steps and attempts (rule C5). What runs, ends; clocks go on.
type Pause struct {
	At         time.Time
	By, Reason string
}

// Resume ends a pause: what was held back begins, and timers that became due
// meanwhile act with the next Tick.
type Resume struct {
	At time.Time
	By string
	// Jitter as in Settled.
	Jitter float64
}

func (Terminate) fact() {}
func (Pause) fact()     {}
func (Resume) fact()    {}

type (
	runPaused struct {
		By     string `json:"by,omitempty"`
		Reason string `json:"reason,omitempty"`
	}
	runResumed struct {
		By string `json:"by,omitempty"`
	}
)

// Paused reports whether no step and no attempt may start (rule C5).
func (s *State) Paused() bool { return s.paused }

// Phase says what a run that is RUNNING is at: its body, what it undoes, or finally.
func (s *State) Phase() string {
	if s.status != parley.RunRunning {
		return ""
	}
	return s.phase
}

// PausedBy gives who paused the run and why, while it is paused.
func (s *State) PausedBy() (by, reason string) { return s.pausedBy, s.pauseReason }

// PastCancel gives the phase of a run that takes no cancel any more (rule C4): its body
// has ended, and not since it was cancelled. It is "" for every other one.
func (s *State) PastCancel() string {
	if s.status.Terminal() || s.phase == phaseBody || s.outcome.status == parley.RunCancelled {
		return ""
	}
	return s.phase
}

// control applies the facts of this file.
func (a *decider) control(f Fact) {
	if a.status.Terminal() || a.seq == 0 {
		return
	}
	switch f := f.(type) {
	case Terminate:
		a.at = f.At
		a.terminate(f)
	case Pause:
		a.at = f.At
		if a.cancelling || a.paused {
			return
		}
		a.recordAt(parley.EventRunPaused, "", 0, runPaused{By: f.By, Reason: f.Reason})
		a.d.Hold = new(true)
	case Resume:
		a.at, a.jitter = f.At, f.Jitter
		if !a.paused {
			return
		}
		a.recordAt(parley.EventRunResumed, "", 0, runResumed{By: f.By})
		a.d.Hold = new(false)
		a.touchAll()
		a.advance()
	}
}

// terminate ends everything that is open, the innermost first, wherever in the
// workflow it stands.
func (a *decider) terminate(f Terminate) {
	for _, path := range slices.Backward(slices.Clone(a.order)) {
		x := a.execs[path]
		if x.status != parley.StepRunning {
			continue
		}
		for _, call := range x.flights {
			a.d.Close = append(a.d.Close, Close{TaskID: call.task, Outcome: parley.OutcomeCancelled})
		}
		a.terminateChild(x)
		a.record(parley.EventStepCancelled, x, stepEnded{Kind: x.step.Kind})
	}
	text := "The run was terminated"
	if f.By != "" {
		text += " by " + f.By
	}
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	a.recordAt(parley.EventRunCancelled, "", 0, runEnded{
		Error: parley.Errorf(parley.CodeCancelled, "%s", text), By: f.By, Reason: f.Reason, Terminated: true,
	})
}

// evolveControl is evolve for the events of this file; ok is false for others.
func (s *State) evolveControl(payload any) (ok bool) {
	switch p := payload.(type) {
	case runPaused:
		s.paused, s.pausedBy, s.pauseReason = true, p.By, p.Reason
	case runResumed:
		s.unpaused()
	default:
		return false
	}
	return true
}

// unpaused ends a pause, by whatever it is ended.
func (s *State) unpaused() { s.paused, s.pausedBy, s.pauseReason = false, "", "" }
