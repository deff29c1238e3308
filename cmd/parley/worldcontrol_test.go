package main

import (
	"context"
	"fmt"

	"github.com/parley-project/parley"
)

// steered gives a run that may be steered. The caller holds the lock.
func (w *world) steered(req parley.ControlRequest, verb string) (*worldRun, error) {
	r := w.at(req.Run)
	if r == nil {
		return nil, missing("run", req.Run)
	}
	if r.run.Status.Terminal() {
		return nil, parley.Errorf(parley.CodeConflict, "Cannot %s run %s: it is %s", verb, req.Run, r.run.Status)
	}
	return r, nil
}

func (w *world) Terminate(_ context.Context, req parley.ControlRequest) (parley.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, err := w.steered(req, "terminate")
	if err != nil {
		return parley.Run{}, err
	}
	r.run.Error = parley.Errorf(parley.CodeCancelled, "The run was terminated by %s: %s", req.By, req.Reason)
	r.run.Paused = false
	r.end(parley.EventRunCancelled, parley.RunCancelled, `{}`)
	return r.run, nil
}

func (w *world) Pause(_ context.Context, req parley.ControlRequest) (parley.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, err := w.steered(req, "pause")
	if err != nil {
		return parley.Run{}, err
	}
	r.run.Paused = true
	r.say(parley.EventRunPaused, "", 0, fmt.Sprintf(`{"by":%q,"reason":%q}`, req.By, req.Reason))
	return r.run, nil
}

func (w *world) Resume(_ context.Context, req parley.ControlRequest) (parley.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, err := w.steered(req, "resume")
	if err != nil {
		return parley.Run{}, err
	}
	r.run.Paused = false
	r.say(parley.EventRunResumed, "", 0, `{}`)
	return r.run, nil
}

// Rerun makes a new run; what it was asked for is its input.
func (w *world) Rerun(ctx context.Context, req parley.RerunRequest) (parley.Run, error) {
	w.mu.Lock()
	old := w.at(req.Run)
	w.mu.Unlock()
	if old == nil {
		return parley.Run{}, missing("run", req.Run)
	}
	if !old.run.Status.Terminal() {
		return parley.Run{}, parley.Errorf(parley.CodeConflict, "Cannot rerun run %s: it is %s", req.Run, old.run.Status)
	}
	input := fmt.Appendf(nil, `{"input":%s,"workflow_input":%s,"version":%q}`, orNull(req.Input), orNull(req.WorkflowInput), req.Version)
	run, _, err := w.Start(ctx, parley.StartRequest{Workflow: "hello", Input: input})
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.at(run.ID).run
	r.RetriedFrom, r.RerunFrom = req.Run, req.From
	run.RetriedFrom, run.RerunFrom = req.Run, req.From
	return run, err
}

func orNull(v []byte) []byte {
	if v == nil {
		return []byte("null")
	}
	return v
}
