package main

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/parley-project/parley"
)

// worldInbox takes every event, and has the approvals of the runs.
type worldInbox struct{ *world }

func (v worldInbox) Signal(_ context.Context, req parley.SignalRequest) (parley.SignalReceipt, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if req.Run != "" && v.at(req.Run) == nil {
		return parley.SignalReceipt{}, missing("run", req.Run)
	}
	e := req.Signal
	id := e.Name + "/" + e.Key + "/" + string(e.Data)
	if e.ID != "" {
		id = e.ID
	}
	if !e.Trace.IsZero() {
		id += " of " + e.Trace.ID()
	}
	repeated := v.keys["event "+id] != ""
	v.keys["event "+id] = id
	return parley.SignalReceipt{ID: id, Time: epoch(), Repeated: repeated}, nil
}

func (v worldInbox) Approvals(_ context.Context, q parley.ApprovalQuery) ([]parley.ApprovalItem, int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var items []parley.ApprovalItem
	for _, r := range v.runs {
		for _, s := range r.run.Steps {
			if s.Approval == nil || len(q.For) > 0 && !slices.ContainsFunc(q.For, func(n string) bool { return slices.Contains(s.Approval.To, n) }) {
				continue
			}
			items = append(items, parley.ApprovalItem{Run: r.run.ID, Step: s.ID, Workflow: r.run.Workflow, CreatedAt: epoch(), Approval: *s.Approval})
		}
	}
	return window(items, q.Page), len(items), nil
}

// wait has a run wait for an approval and for an event.
func (r *worldRun) wait() {
	at := r.say(parley.EventStepScheduled, "ask", 1, `{"kind":"approval"}`)
	r.say(parley.EventStepWaiting, "ask", 1, `{"approval":{"title":"Pay it?","to":["finance"],"choices":["approve","reject"]}}`)
	r.say(parley.EventStepScheduled, "paid", 1, `{"kind":"wait_for_event"}`)
	r.say(parley.EventStepWaiting, "paid", 1, `{"event":{"name":"payment.settled","key":"7"}}`)
	r.run.Steps = []parley.Step{
		{ID: "ask", Kind: "approval", Status: parley.StepRunning, Phase: parley.PhaseWaiting, Attempts: 1, ScheduledAt: &at, Approval: &parley.Approval{
			Title: "Pay it?\x1b[31m", To: []string{"finance", "the cfo"}, Choices: []string{"approve", "reject"}, Min: 2, Form: json.RawMessage(`{"type":"object"}`),
			Answers: []parley.ApprovalAnswer{{Choice: "approve", By: "ann", At: at, Comment: "as agreed"}},
		}},
		{ID: "paid", Kind: "wait_for_event", Status: parley.StepRunning, Phase: parley.PhaseWaiting, Attempts: 1, ScheduledAt: &at, Event: &parley.AwaitedSignal{Name: "payment.settled", Key: "7", Since: at}},
	}
}

// parent has a run wait for the second one, and for one that has not begun.
func (r *worldRun) parent() {
	at := r.say(parley.EventStepScheduled, "regions[0]/one", 1, `{"kind":"sub_workflow","child":{"task_id":"run-1.regions[0]/one.1","workflow":"report"}}`)
	r.say(parley.EventChildStarted, "regions[0]/one", 1, `{"task_id":"run-1.regions[0]/one.1","run":"run-2","workflow":"report","version":"3"}`)
	r.say(parley.EventStepScheduled, "late", 1, `{"kind":"sub_workflow","child":{"task_id":"run-1.late.1","workflow":"audit"}}`)
	r.run.Steps = []parley.Step{
		{ID: "regions[0]/one", Kind: "sub_workflow", Status: parley.StepRunning, Phase: parley.PhaseWaiting, Attempts: 1, ScheduledAt: &at, Child: &parley.ChildRun{Run: "run-2", Workflow: "report", Version: "3"}},
		{ID: "late", Kind: "sub_workflow", Status: parley.StepRunning, Phase: parley.PhaseWaiting, Attempts: 1, ScheduledAt: &at, Child: &parley.ChildRun{Workflow: "audit"}},
	}
}

// vote answers the approval of a run.
func (r *worldRun) vote(req parley.AnswerRequest) (parley.Run, error) {
	if len(r.run.Steps) == 0 || r.run.Steps[0].Approval == nil {
		return parley.Run{}, parley.Errorf(parley.CodeConflict, "No step of run %s waits for an approval: it is %s", req.Run, r.run.Status)
	}
	q := r.run.Steps[0].Approval
	if !slices.ContainsFunc(append(req.Roles, req.Reply.By), func(n string) bool { return slices.Contains(q.To, n) }) {
		return parley.Run{}, parley.Errorf(parley.CodeForbidden, "%q may not answer step ask", req.Reply.By)
	}
	if req.Choice == "" && req.Reply.Data == nil && !slices.Contains(q.Choices, req.Reply.Text) {
		return parley.Run{}, parley.Errorf(parley.CodeInvalid, "the answer needs a choice")
	}
	req.Choice = cmp.Or(req.Choice, q.Choices[0])
	r.run.Steps = nil
	r.step("ask", "", `{}`)
	r.run.Output, _ = json.Marshal(map[string]any{"choice": req.Choice, "by": req.Reply.By, "comment": req.Reply.Text, "data": req.Reply.Data})
	r.end(parley.EventRunCompleted, parley.RunCompleted, `{"output":null}`)
	return r.run, nil
}

// Hook is what no command calls: senders of webhooks have no key.
func (v worldInbox) Hook(_ context.Context, req parley.HookRequest) (parley.HookReceipt, error) {
	return parley.HookReceipt{}, missing("webhook", req.Workflow)
}
