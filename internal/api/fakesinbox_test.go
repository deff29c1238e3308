package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/parley-project/parley"
)

// fakeInbox remembers events by their ids, and has approvals of its own.
type fakeInbox struct{ *world }

func (f fakeInbox) Signal(_ context.Context, req parley.SignalRequest) (parley.SignalReceipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return parley.SignalReceipt{}, f.broken
	}
	if req.Run != "" {
		r, err := f.findRun(req.Run)
		if err != nil {
			return parley.SignalReceipt{}, err
		}
		if r.Status.Terminal() {
			return parley.SignalReceipt{}, parley.Errorf(parley.CodeConflict, "Cannot signal run %s: it is %s", r.ID, r.Status)
		}
	}
	e := req.Signal
	if e.ID == "" {
		e.ID = fmt.Sprintf("event-%d", len(f.signals)+1)
	}
	for _, was := range f.signals {
		if was.Signal.ID == e.ID {
			return parley.SignalReceipt{ID: e.ID, Time: was.Signal.Time, Repeated: true}, nil
		}
	}
	e.Time = f.now()
	req.Signal = e
	f.signals = append(f.signals, req)
	return parley.SignalReceipt{ID: e.ID, Time: e.Time}, nil
}

// Hook has one webhook, order: the header X-Signature holds its body's secret.
func (f fakeInbox) Hook(_ context.Context, req parley.HookRequest) (parley.HookReceipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.broken != nil:
		return parley.HookReceipt{}, f.broken
	case req.Workflow != "order":
		return parley.HookReceipt{}, parley.Errorf(parley.CodeNotFound, "there is no webhook %q", req.Workflow)
	case req.Header["X-Signature"] == nil:
		return parley.HookReceipt{}, parley.Errorf(parley.CodeUnauthorized, "the request is not signed as the webhook asks")
	}
	body, err := req.Body()
	if err != nil {
		return parley.HookReceipt{}, err
	}
	switch string(body) {
	case "again":
		return parley.HookReceipt{Status: parley.HookRepeated, Run: "run-1"}, nil
	case "nothing":
		return parley.HookReceipt{Status: parley.HookIgnored}, nil
	case "wrong":
		return parley.HookReceipt{}, parley.Errorf(parley.CodeInvalidInput, "the value does not fit").WithDetails([]map[string]string{{"pointer": "/id", "text": "missing"}})
	case "other":
		return parley.HookReceipt{}, parley.Errorf(parley.CodeIdempotencyConflict, "the idempotency key was used with another input")
	}
	return parley.HookReceipt{Status: parley.HookStarted, Run: "run-1"}, nil
}

func (f fakeInbox) Approvals(_ context.Context, q parley.ApprovalQuery) ([]parley.ApprovalItem, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil, 0, f.broken
	}
	var items []parley.ApprovalItem
	for _, a := range f.approvals {
		may := len(q.For) == 0 || slices.ContainsFunc(q.For, func(name string) bool { return slices.Contains(a.To, name) })
		if may && (q.Run == "" || q.Run == a.Run) && (q.Workflow == "" || q.Workflow == a.Workflow) {
			items = append(items, a)
		}
	}
	return items, len(items), nil
}

// asksIn reports whether an approval of the run waits.
func (f fakeRuns) asksIn(r *parley.Run) bool {
	return slices.ContainsFunc(f.approvals, func(a parley.ApprovalItem) bool { return a.Run == r.ID })
}

// vote answers one of the approvals. Its choice may be the text, or all data.
func (f fakeRuns) vote(r *parley.Run, req parley.AnswerRequest) (parley.Run, error) {
	i := slices.IndexFunc(f.approvals, func(a parley.ApprovalItem) bool {
		return a.Run == r.ID && (req.Step == "" || req.Step == a.Step)
	})
	if i < 0 {
		return parley.Run{}, parley.Errorf(parley.CodeConflict, "No step of run %s waits for an approval: it is %s", r.ID, r.Status)
	}
	a := f.approvals[i]
	if req.Choice == "" && (req.Reply.Data != nil || slices.Contains(a.Choices, req.Reply.Text)) {
		req.Choice, req.Reply.Text = a.Choices[0], "as text or data"
	}
	may := func(name string) bool { return slices.Contains(a.To, name) }
	switch {
	case !may(req.Reply.By) && !slices.ContainsFunc(req.Roles, may):
		return parley.Run{}, parley.Errorf(parley.CodeForbidden, "%q may not answer step %s", req.Reply.By, a.Step)
	case !slices.Contains(a.Choices, req.Choice):
		return parley.Run{}, parley.Errorf(parley.CodeInvalid, "choice: %q is none of %q", req.Choice, a.Choices)
	}
	f.approvals = slices.Delete(f.approvals, i, i+1)
	r.Labels = map[string]string{"choice": req.Choice, "by": req.Reply.By, "comment": req.Reply.Text, "data": string(req.Reply.Data)}
	return *r, nil
}
