package api

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/parley-project/parley"
)

// steered gives a run that may be steered. The caller holds the lock.
func (f fakeRuns) steered(req parley.ControlRequest, verb string) (*parley.Run, error) {
	r, err := f.findRun(req.Run)
	if err == nil && r.Status.Terminal() {
		err = parley.Errorf(parley.CodeConflict, "Cannot %s run %s: it is %s", verb, r.ID, r.Status)
	}
	return r, err
}

func (f fakeRuns) Terminate(_ context.Context, req parley.ControlRequest) (parley.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.steered(req, "terminate")
	if err != nil {
		return parley.Run{}, err
	}
	r.CancelledBy, r.CancelReason, r.Paused = req.By, req.Reason, false
	f.end(r, parley.RunCancelled, parley.Errorf(parley.CodeCancelled, "The run was terminated by %s: %s", req.By, req.Reason))
	return *r, nil
}

func (f fakeRuns) Pause(_ context.Context, req parley.ControlRequest) (parley.Run, error) {
	return f.hold(req, "pause", true)
}

func (f fakeRuns) Resume(_ context.Context, req parley.ControlRequest) (parley.Run, error) {
	return f.hold(req, "resume", false)
}

func (f fakeRuns) hold(req parley.ControlRequest, verb string, on bool) (parley.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.steered(req, verb)
	if err != nil {
		return parley.Run{}, err
	}
	if r.Paused != on {
		r.Paused = on
		kind := parley.EventRunResumed
		if on {
			kind = parley.EventRunPaused
		}
		f.appendEvent(r, parley.Event{Type: kind, Data: json.RawMessage(fmt.Sprintf(`{"by":%q}`, req.By))})
	}
	return *r, nil
}

func (f fakeRuns) Rerun(_ context.Context, req parley.RerunRequest) (run parley.Run, existing bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, err := f.findRun(req.Run)
	if err != nil {
		return parley.Run{}, false, err
	}
	if !old.Status.Terminal() {
		return parley.Run{}, false, parley.Errorf(parley.CodeConflict, "Cannot rerun run %s: it is %s", old.ID, old.Status)
	}
	if run, existing, err = f.once(req.IdempotencyKey, "rerun "+req.Run+" "+req.From); err != nil || existing {
		return run, existing, err
	}
	r := *old
	r.ID, r.Status, r.RetriedFrom, r.RerunFrom, r.TriggeredBy = fmt.Sprintf("run-%d", len(f.runs)+1), parley.RunPending, old.ID, req.From, "rerun"
	r.Error, r.EndedAt, r.CancelledBy, r.CancelReason, r.Seq, r.Output = nil, nil, "", "", 0, nil
	r.CreatedAt, r.UpdatedAt = f.now(), f.now()
	r.Traceparent, r.Tracestate = req.Trace.Parent, req.Trace.State
	if req.WorkflowInput != nil {
		r.Input = req.WorkflowInput
	}
	if req.Version != "" {
		r.Version = req.Version
	}
	r.Steps = []parley.Step{{ID: req.From, Kind: "agent", Status: parley.StepPending, Agent: "A", Input: req.Input}}
	f.runs = append(f.runs, &r)
	f.appendEvent(&r, parley.Event{Type: parley.EventRunStarted})
	return r, false, nil
}

// Bulk cancels every run that is selected, but the first.
func (f fakeRuns) Bulk(_ context.Context, req parley.BulkRequest) (parley.BulkReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries = append(f.queries, req.Filter)
	r := parley.BulkReport{Action: req.Action, DryRun: req.DryRun, Results: []parley.BulkResult{}, Limit: req.Limit}
	if r.Limit == 0 {
		r.Limit = parley.BulkDefaultLimit
	}
	if f.broken != nil {
		return r, f.broken
	}
	all := f.selected(req.Filter)
	if req.DryRun {
		r.Selected = len(all)
		for i := range all {
			r.First = append(r.First, all[i].ID)
		}
		return r, nil
	}
	for i := range all[:min(len(all), r.Limit)] {
		res := parley.BulkResult{Run: all[i].ID, Status: parley.RunCancelled}
		if r.Done++; all[i].ID == "run-1" {
			res = parley.BulkResult{Run: all[i].ID, Code: parley.CodeConflict, Detail: "Cannot " + string(req.Action) + " run run-1"}
			r.Done, r.Failed = r.Done-1, r.Failed+1
		}
		r.Results = append(r.Results, res)
	}
	if len(all) > r.Limit {
		r.NextMark = &parley.RunMark{ID: all[r.Limit-1].ID, At: all[r.Limit-1].CreatedAt}
	}
	return r, nil
}

// Explain says of each step that has not ended that its agent works.
func (f fakeRuns) Explain(_ context.Context, id string) (parley.Explanation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.findRun(id)
	if err != nil {
		return parley.Explanation{}, err
	}
	at := f.now().UTC()
	e := parley.Explanation{Run: id, Status: r.Status, At: at, Text: "The run has open steps", Paused: r.Paused, Steps: []parley.StepWait{}}
	for _, s := range r.Steps {
		switch s.Status {
		case parley.StepRunning:
			e.Steps = append(e.Steps, parley.StepWait{
				Step: s.ID, Kind: s.Kind, Status: s.Status, Reason: parley.WaitQueue, Text: "for its turn at A", Agent: s.Agent, Attempt: 1, TaskID: r.ID + "." + s.ID + ".1",
				Queue: &parley.QueuePlace{Ahead: 3, InFlight: 2, Slots: 2}, Until: &at,
			})
		case parley.StepPending:
			e.Steps = append(e.Steps, parley.StepWait{
				Step: s.ID, Kind: s.Kind, Status: s.Status, Reason: parley.WaitNeeds, Text: "for the end of s", Needs: []string{"s"},
			})
		}
	}
	return e, nil
}
