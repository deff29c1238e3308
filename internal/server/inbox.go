package server

import (
	"context"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// inbox is the API's view of what comes from outside, and of what waits for
// people.
type inbox struct {
	executor *executor.Executor
	db       *store.DB
	// admit is an error while nothing new is taken.
	admit func() error
}

// Signal publishes an event.
func (i inbox) Signal(ctx context.Context, req parley.SignalRequest) (parley.SignalReceipt, error) {
	if err := i.admit(); err != nil {
		return parley.SignalReceipt{}, err
	}
	return i.executor.Signal(ctx, req)
}

// Hook takes a delivery to a webhook.
func (i inbox) Hook(ctx context.Context, req parley.HookRequest) (parley.HookReceipt, error) {
	if err := i.admit(); err != nil {
		return parley.HookReceipt{}, err
	}
	return i.executor.Hook(ctx, req)
}

// Approvals gives one page of the approvals that wait, and how many there are in
// all.
func (i inbox) Approvals(ctx context.Context, q parley.ApprovalQuery) ([]parley.ApprovalItem, int, error) {
	rows, total, err := i.db.Approvals(ctx, q)
	items := make([]parley.ApprovalItem, len(rows))
	for n, a := range rows {
		items[n] = parley.ApprovalItem{Run: a.Run, Step: a.Step, Workflow: a.Workflow, CreatedAt: a.CreatedAt, Approval: a.Asked, Unreadable: a.Unreadable}
	}
	return items, total, err
}
