package executor

import (
	"context"
	"errors"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Get gives a run with its steps as the store has it. The error has code
// not_found for an unknown id.
func (x *Executor) Get(ctx context.Context, id string) (parley.Run, error) {
	h, err := x.cfg.Store.History(ctx, id)
	if err != nil {
		return parley.Run{}, err
	}
	state, err := x.replay(ctx, h)
	if err != nil {
		return parley.Run{}, err
	}
	return x.shown(ctx, state, h)
}

// shown is a run as callers see it: its view with what only the rows of its attempts
// know of those that have not ended, or were given up.
func (x *Executor) shown(ctx context.Context, s *workflow.State, h store.History) (parley.Run, error) {
	run, err := x.withTurn(ctx, x.view(ctx, s, h.Run))
	if err != nil {
		return parley.Run{}, err
	}
	open := make(map[string]store.Attempt, len(h.Attempts))
	for _, a := range h.Attempts {
		// Of several (hedged agents) one that works says more than one that waits.
		if was, ok := open[a.Step]; !ok || was.State == store.AttemptOpen {
			open[a.Step] = a
		}
	}
	now := x.now()
	var lacking []*parley.Step
	for i := range run.Steps {
		step := &run.Steps[i]
		a, ok := open[step.ID]
		if ok && step.Status == parley.StepRunning {
			if at := s.RetryAt(step.ID); !at.IsZero() && (a.State != store.AttemptOpen || !a.Held && !at.After(now)) {
				step.Attempts++ // what it waited for has come
				if step.Phase == parley.PhaseBackoff {
					step.Phase = parley.PhaseQueued
				}
			}
			underWay(step, a)
		}
		waits := step.Phase == parley.PhaseBackoff // for an attempt after one that may have begun
		if step.Kind == string(workflow.KindAgent) && step.StartedAt == nil && (step.Attempts > 1 || step.Attempts == 1 && (waits || !ok)) {
			lacking = append(lacking, step) // one of its attempts may have begun
		}
	}
	return run, x.addBegun(ctx, run.ID, lacking)
}

// underWay adds what an attempt that has not ended says of its step.
func underWay(step *parley.Step, a store.Attempt) {
	step.AgentTaskID = a.AgentTaskID
	if a.State == store.AttemptOpen {
		return
	}
	switch step.Phase {
	case parley.PhaseQueued:
		step.Phase, step.StartedAt = parley.PhaseWorking, timePtr(a.ClaimedAt)
	case parley.PhaseInputRequired, parley.PhaseCancelling:
		step.StartedAt = timePtr(a.ClaimedAt)
	}
}

// addBegun adds to steps when the last of their attempts that was claimed has begun,
// and to those that have ended the agent's own name for it.
func (x *Executor) addBegun(ctx context.Context, run string, steps []*parley.Step) error {
	if len(steps) == 0 {
		return nil
	}
	list, err := x.cfg.Store.Begun(ctx, run)
	if err != nil {
		return err
	}
	last := make(map[string]*store.Attempt, len(list))
	for i := range list {
		last[list[i].Step] = &list[i]
	}
	for _, step := range steps {
		a := last[step.ID]
		if a == nil {
			continue
		}
		step.StartedAt = timePtr(a.ClaimedAt)
		if step.AgentTaskID == "" && step.Status.Terminal() {
			step.AgentTaskID = a.AgentTaskID
		}
	}
	return nil
}

// view completes a state's view by what only the row and the registry know.
func (x *Executor) view(ctx context.Context, s *workflow.State, row store.Run) parley.Run {
	run := s.View()
	run.DefinitionID, run.UpdatedAt = row.DefinitionID, row.UpdatedAt
	for i := range run.Steps {
		if name := run.Steps[i].Agent; name != "" && run.Steps[i].Status != parley.StepPending {
			if info, ok := x.cfg.Agent(ctx, name); ok {
				run.Steps[i].Protocol = info.Protocol
			}
		}
	}
	return run
}

// errPastCancel says why a run that has not ended takes no cancel: it ends without one.
var errPastCancel = errors.New("its body has ended")

// Cancel asks for the end of a run (rule C3): no step starts any more, agents
// in flight get the grace period. It is accepted once; again gives the same
// answer. The error has code conflict for a run that has ended, and for one whose
// body has: what follows that can only be terminated (rule C4).
func (x *Executor) Cancel(ctx context.Context, req parley.CancelRequest) (parley.Run, error) {
	l := x.lock(req.Run)
	defer x.unlock(req.Run, l)
	for range maxStale {
		h, err := x.load(ctx, req.Run, l)
		if err != nil {
			return parley.Run{}, err
		}
		if s := l.state.Status(); s.Terminal() {
			return parley.Run{}, parley.Errorf(parley.CodeConflict, "Cannot cancel run %s: it is %s", req.Run, s)
		}
		if phase := l.state.PastCancel(); phase != "" {
			return parley.Run{}, parley.Errorf(parley.CodeConflict, "Cannot cancel run %s: %w, and its phase is %s; to end it at once: parley run terminate %s",
				req.Run, errPastCancel, phase, req.Run).WithDetails(parley.ConflictDetails{Conflict: parley.ConflictEnding})
		}
		d := l.state.Apply(workflow.Cancel{At: x.now(), By: req.By, Reason: req.Reason, Grace: x.cfg.CancelGrace})
		if len(d.Events) == 0 {
			return x.shown(ctx, l.state, h)
		}
		if err := x.commit(ctx, l, d, nil); errors.Is(err, store.ErrStale) {
			continue
		} else if err != nil {
			return parley.Run{}, err
		}
		// Attempts that nobody had claimed are settled by the cancel itself.
		if _, err := x.catchUp(ctx, req.Run, l, false); err != nil && !errors.Is(err, store.ErrStale) {
			return parley.Run{}, err
		}
		return x.Get(ctx, req.Run)
	}
	return parley.Run{}, parley.Errorf(parley.CodeConflict, "run %s changes too fast to be cancelled; try again", req.Run)
}

// Retry starts a new run of the same version that takes over the completed
// steps of a run without calling their agents again (rule C6). Dead letters of
// the run that wait are replayed by it. The error has code conflict unless the
// run is FAILED or CANCELLED.
func (x *Executor) Retry(ctx context.Context, id, by string) (parley.Run, error) {
	run, _, err := x.retry(ctx, parley.RetryRequest{Run: id}, store.Replay{By: by}, once{})
	return run, err
}

// Replay is Retry for the run of a dead letter. The error has code conflict if
// the dead letter does not wait any more and force is not asked for, or somebody
// else was faster, and not_found if the run or the dead letter is gone.
func (x *Executor) Replay(ctx context.Context, id string, req parley.ReplayRequest) (parley.Run, error) {
	run, _, err := x.retry(ctx, parley.RetryRequest{Run: id, Trace: req.Trace}, store.Replay{ID: req.ID, Force: req.Force, By: req.By}, once{})
	if errors.Is(err, store.ErrStale) {
		err = parley.Errorf(parley.CodeConflict, "dead letter %s has changed just now: look at it, then replay it if it still waits", req.ID)
	}
	return run, err
}

func (x *Executor) retry(ctx context.Context, req parley.RetryRequest, r store.Replay, o once) (parley.Run, bool, error) {
	h, err := x.cfg.Store.History(ctx, req.Run)
	if err != nil {
		return parley.Run{}, false, err
	}
	v, f, err := x.retryOf(ctx, h)
	if err == nil {
		f.Trace = req.Trace.Or(f.Trace)
		x.cfg.Logger.Info("run is retried", "run", req.Run, "by", r.By, "dead_letter", r.ID)
	}
	return x.beginAgain(ctx, h.Run, v, o.of(f, &r), err)
}

// retryOf gives what a retry of a run begins with, and on which version.
func (x *Executor) retryOf(ctx context.Context, h store.History) (v *compiledVersion, f workflow.Start, err error) {
	id := h.Run.ID
	if s := h.Run.Status; s != parley.RunFailed && s != parley.RunCancelled {
		return nil, f, parley.Errorf(parley.CodeConflict, "Cannot retry run %s: it is %s", id, s)
	}
	old, err := x.replay(ctx, h)
	if err != nil {
		return nil, f, err
	}
	if compensated(h.Events) {
		return nil, f, parley.Errorf(parley.CodeConflict, "Cannot retry run %s: what it had done was compensated; run it again from the start: parley run rerun %s", id, id).
			WithDetails(parley.ConflictDetails{Conflict: parley.ConflictCompensated})
	}
	v, err = x.retryOn(ctx, h.Run)
	if err != nil {
		return nil, f, err
	}
	view := old.View()
	return v, workflow.Start{
		Input: view.Input, Labels: view.Labels, Trigger: "retry", RetriedFrom: id, Copied: old.Copies(), Edits: old.Edits(), Priority: view.Priority,
		ScheduledAt: old.ScheduledAt(), Chain: old.Chain(), Trace: old.Trace(), Timeout: old.Bound(),
	}, nil
}

// retryOn gives the version that a retry of a run stays on: the run's own. A run
// that was taken over from elsewhere does not say which one it was on: it is
// retried on what its definition is now, as its platform does.
func (x *Executor) retryOn(ctx context.Context, run store.Run) (*compiledVersion, error) {
	if !run.Imported() {
		return x.defs.of(ctx, run)
	}
	if run.DefinitionID == "" {
		return nil, parley.Errorf(parley.CodeConflict,
			"Cannot retry run %s: it was imported, and its workflow is not known here; deploy it and start a new run with this input", run.ID)
	}
	return x.defs.resolve(ctx, run.DefinitionID)
}
