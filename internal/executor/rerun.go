package executor

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Rerun starts a new run that does a step of an ended one again, and what depends
// on it; everything else is taken over without a call (rule C6). Dead letters of
// the old run that wait are replayed by it.
//
// The error has code conflict for a run that has not ended, for one that was
// compensated unless nothing would be taken over, and for a version that lacks
// what would be; not_found for a run, version or step that is not there;
// invalid_input for an input that does not fit, and invalid for one of a step that
// takes none.
func (x *Executor) Rerun(ctx context.Context, req parley.RerunRequest) (parley.Run, error) {
	run, _, err := x.rerun(ctx, req, once{})
	return run, err
}

func (x *Executor) rerun(ctx context.Context, req parley.RerunRequest, o once) (parley.Run, bool, error) {
	h, err := x.cfg.Store.History(ctx, req.Run)
	if err != nil {
		return parley.Run{}, false, err
	}
	v, f, err := x.rerunOf(ctx, h, req)
	if err == nil {
		x.cfg.Logger.Info("run is run again", "run", req.Run, "from", req.From, "version", v.row.Version, "by", req.By)
	}
	return x.beginAgain(ctx, h.Run, v, o.of(f, &store.Replay{By: req.By}), err)
}

// rerunOf gives what a rerun of a run begins with, and on which version.
func (x *Executor) rerunOf(ctx context.Context, h store.History, req parley.RerunRequest) (v *compiledVersion, f workflow.Start, err error) {
	if s := h.Run.Status; !s.Terminal() {
		return nil, f, parley.Errorf(parley.CodeConflict, "Cannot rerun run %s: it is %s; terminate or cancel it first", req.Run, s)
	}
	old, err := x.replay(ctx, h)
	if err != nil {
		return nil, f, err
	}
	if v, err = x.rerunOn(ctx, h.Run, req.Version); err != nil {
		return nil, f, err
	}
	taken, err := takenOver(old, h.Events, v.def, req)
	if err != nil {
		return nil, f, err
	}
	view := old.View()
	input, err := x.rerunInput(v.def, req, view.Input, v.def != old.Definition())
	if err != nil {
		return nil, f, err
	}
	return v, workflow.Start{
		Input: input, Labels: view.Labels, Trigger: "rerun", Priority: view.Priority, ScheduledAt: old.ScheduledAt(),
		RetriedFrom: req.Run, RerunFrom: req.From, Chain: old.Chain(), Copied: taken.Copied, Edits: taken.Edits,
		Trace: req.Trace.Or(old.Trace()), Timeout: old.Bound(),
	}, nil
}

// takenOver gives what the new run does not do again.
func takenOver(old *workflow.State, events []parley.Event, def *workflow.Definition, req parley.RerunRequest) (workflow.Rerun, error) {
	if req.From == "" {
		if req.Input != nil {
			return workflow.Rerun{}, parley.Errorf(parley.CodeInvalid, "input is that of the step from, which is not given; workflow_input is that of the workflow")
		}
		return workflow.Rerun{}, nil
	}
	r, err := old.Rerun(def, req.From, req.Input)
	if err == nil && len(r.Copied) > 0 && compensated(events) {
		err = parley.Errorf(parley.CodeConflict, "Cannot rerun run %s from step %s: what it had done was compensated, so it can only be run again from the start", req.Run, req.From).
			WithDetails(parley.ConflictDetails{Conflict: parley.ConflictCompensated})
	}
	return r, err
}

// rerunOn gives the version of a rerun: the named one, or that of a retry.
func (x *Executor) rerunOn(ctx context.Context, run store.Run, version string) (*compiledVersion, error) {
	if version == "" || version == run.Version {
		return x.retryOn(ctx, run)
	}
	v, err := x.defs.resolve(ctx, run.Workflow+"@"+version)
	if err == nil && v.row.Status != parley.AgentActive {
		err = parley.Errorf(parley.CodeConflict, "Workflow %q version %s is %s and takes no new runs", v.row.Name, v.row.Version, v.row.Status)
	}
	return v, err
}

// rerunInput gives the workflow's input: an edited one, or one that another
// version gets, has to fit.
func (x *Executor) rerunInput(def *workflow.Definition, req parley.RerunRequest, old json.RawMessage, other bool) (json.RawMessage, error) {
	switch {
	case req.WorkflowInput != nil:
		return x.input(def, req.WorkflowInput)
	case other:
		return x.input(def, old)
	}
	return old, nil
}

// compensated reports whether anything that a run had done was undone.
func compensated(events []parley.Event) bool {
	return slices.ContainsFunc(events, func(e parley.Event) bool {
		return e.Type == "step.compensating" || e.Type == "step.compensated"
	})
}
