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
