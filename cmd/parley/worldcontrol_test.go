package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
func (w *world) Rerun(ctx context.Context, req parley.RerunRequest) (parley.Run, bool, error) {
	w.mu.Lock()
	old := w.at(req.Run)
	w.mu.Unlock()
	if old == nil {
		return parley.Run{}, false, missing("run", req.Run)
	}
	if !old.run.Status.Terminal() {
		return parley.Run{}, false, parley.Errorf(parley.CodeConflict, "Cannot rerun run %s: it is %s", req.Run, old.run.Status)
	}
	if req.Version == "other" && req.WorkflowInput == nil {
		return parley.Run{}, false, parley.Errorf(parley.CodeInvalidInput, `the input does not fit the workflow: misses "who"`)
	}
	input := fmt.Appendf(nil, `{"input":%s,"workflow_input":%s,"version":%q}`, orNull(req.Input), orNull(req.WorkflowInput), req.Version)
	run, existing, err := w.Start(ctx, parley.StartRequest{Workflow: "hello", IdempotencyKey: req.IdempotencyKey, Input: input, Trace: req.Trace})
	if err != nil {
		return parley.Run{}, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.at(run.ID).run
	r.RetriedFrom, r.RerunFrom = req.Run, req.From
	run.RetriedFrom, run.RerunFrom = req.Run, req.From
	return run, existing, nil
}

func orNull(v []byte) []byte {
	if v == nil {
		return []byte("null")
	}
	return v
}

// selected gives the runs that q selects, newest first. The caller holds the lock.
func (w *world) selected(q parley.RunQuery) (list []parley.Run) {
	for _, r := range slices.Backward(w.runs) {
		all := q.Parent == "" || r.run.Parent != nil && r.run.Parent.Run == q.Parent
		for name, value := range q.Labels {
			all = all && r.run.Labels[name] == value
		}
		text := strings.ToLower(r.run.ID + " " + r.run.Workflow)
		if e := r.run.Error; e != nil {
			text += " " + strings.ToLower(e.Error())
		}
		if all && (len(q.Status) == 0 || slices.Contains(q.Status, r.run.Status)) && (q.Workflow == "" || r.run.Workflow == q.Workflow) &&
			(q.Version == "" || r.run.Version == q.Version) && (!q.Paused || r.run.Paused) && (q.Hidden || !r.hidden) &&
			strings.Contains(text, strings.ToLower(q.Text)) && (q.CreatedBefore.IsZero() || r.run.CreatedAt.Before(q.CreatedBefore)) &&
			(q.CreatedAfter.IsZero() || r.run.CreatedAt.After(q.CreatedAfter)) {
			run := r.run
			run.Steps = nil
			list = append(list, run)
		}
	}
	return list
}

// Search gives the runs behind the one that is named.
func (w *world) Search(_ context.Context, q parley.RunQuery, limit int) (p parley.RunPage, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.Items = w.selected(q)
	if q.After != nil {
		p.Items = p.Items[slices.IndexFunc(p.Items, func(r parley.Run) bool { return r.ID == q.After.ID })+1:]
	}
	if len(p.Items) > limit {
		p.Items = p.Items[:limit]
		p.Next = &parley.RunMark{ID: p.Items[limit-1].ID, At: p.Items[limit-1].CreatedAt}
	}
	return p, nil
}

// Bulk does to each run what is done to one.
func (w *world) Bulk(ctx context.Context, req parley.BulkRequest) (parley.BulkReport, error) {
	r := parley.BulkReport{Action: req.Action, DryRun: req.DryRun, Results: []parley.BulkResult{}, Limit: req.Limit}
	q := req.Filter
	q.Paused = q.Paused || req.Action == parley.BulkResume
	w.mu.Lock()
	r.Selected = len(w.selected(q))
	w.mu.Unlock()
	p, err := w.Search(ctx, q, min(cmp.Or(req.Limit, parley.BulkDefaultLimit), 2))
	if err != nil || req.DryRun {
		for i := range p.Items {
			r.First = append(r.First, p.Items[i].ID)
		}
		return r, err
	}
	r.NextMark = p.Next
	for _, run := range p.Items {
		res, c := parley.BulkResult{Run: run.ID}, parley.ControlRequest{Run: run.ID, By: req.By, Reason: req.Reason}
		var err error
		switch req.Action {
		case parley.BulkCancel:
			run, err = w.Cancel(ctx, parley.CancelRequest{Run: run.ID, Reason: req.Reason})
		case parley.BulkTerminate:
			run, err = w.Terminate(ctx, c)
		case parley.BulkPause:
			run, err = w.Pause(ctx, c)
		case parley.BulkResume:
			run, err = w.Resume(ctx, c)
		case parley.BulkRetry:
			run, _, err = w.Retry(ctx, parley.RetryRequest{Run: run.ID, By: req.By})
			res.NewRun = run.ID
		}
		if res.Status = run.Status; err != nil {
			res.Status, res.Code, res.Detail = "", parley.CodeOf(err), strings.TrimPrefix(err.Error(), string(parley.CodeOf(err))+": ")
			r.Failed++
		} else {
			r.Done++
		}
		r.Results = append(r.Results, res)
	}
	return r, nil
}

// Explain has one step of each kind of waiting.
func (w *world) Explain(_ context.Context, id string) (parley.Explanation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.at(id)
	if r == nil {
		return parley.Explanation{}, missing("run", id)
	}
	e := parley.Explanation{Run: id, Status: r.run.Status, At: epoch(), Text: "The run has ended: it is " + string(r.run.Status), Steps: []parley.StepWait{}}
	if r.run.Status.Terminal() {
		return e, nil
	}
	if r.run.Turn != nil {
		e.Text, e.Turn = "The run waits for its turn: place 2 of 3, 1 of at most 1 run with the key \"ann\": run-0", r.run.Turn
		return e, nil
	}
	in := func(d time.Duration) *time.Time { t := epoch().Add(d); return &t }
	e.Text, e.Deadline = "The run has 5 open steps", in(30*24*time.Hour)
	e.Steps = []parley.StepWait{
		{Step: "greet", Kind: "agent", Status: parley.StepRunning, Reason: parley.WaitAgent, Text: "greeter works on it; it may be silent until 2026-11-21T12:05:00Z", Agent: "greeter", Attempt: 2, TaskID: id + ".greet.2", Heard: in(0), SilentUntil: in(5 * time.Minute), Unhealthy: "connection refused", LastError: parley.Errorf(parley.CodeAgentError, "HTTP 500")},
		{Step: "ask", Kind: "agent", Status: parley.StepRunning, Reason: parley.WaitQueue, Text: "for its turn at greeter: 3 before it, 2 of 2 calls under way", Agent: "greeter", Attempt: 1, Queue: &parley.QueuePlace{Ahead: 3, InFlight: 2, Slots: 2}},
		{Step: "nap", Kind: "wait", Status: parley.StepRunning, Reason: parley.WaitTimer, Text: "for its time at 2026-11-21T13:00:00Z", Until: in(time.Hour), Deadline: in(2 * time.Hour)},
		{Step: "sign", Kind: "approval", Status: parley.StepRunning, Reason: parley.WaitApproval, Text: "for people to decide", Deadline: in(48 * time.Hour)},
		{Step: "polish", Kind: "agent", Status: parley.StepPending, Reason: parley.WaitNeeds, Text: "for the end of ask, greet", Needs: []string{"ask", "greet"}},
	}
	return e, nil
}

// worldTurn is how the run of the workflow queued stands.
func worldTurn() *parley.Turn {
	return &parley.Turn{Key: "ann", Limit: 1, WhenFull: parley.WhenFullQueue, Place: 2, Waiting: 3, RunningCount: 1, Running: []string{"run-0"}}
}
