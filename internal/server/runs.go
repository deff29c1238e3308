package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/store"
)

// runs is the API's view of runs: decisions go to the executor, lists and
// histories come from the store.
type runs struct {
	*executor.Executor
	db *store.DB
	// admit is an error while no new runs are taken.
	admit func() error
	log   *slog.Logger
	// agents is who knows agents, slots how many calls an agent may have in flight
	// that names no number.
	agents *registry.Registry
	slots  int
}

// Start refuses before anything is written: the caller sends the request again.
func (r runs) Start(ctx context.Context, req parley.StartRequest) (parley.Run, bool, error) {
	if err := r.admit(); err != nil {
		return parley.Run{}, false, err
	}
	return r.Executor.Start(ctx, req)
}

// Retry makes a new run as Start does.
func (r runs) Retry(ctx context.Context, req parley.RetryRequest) (parley.Run, bool, error) {
	if err := r.admit(); err != nil {
		return parley.Run{}, false, err
	}
	return r.RetryOnce(ctx, req)
}

// Rerun makes a new run as Start does.
func (r runs) Rerun(ctx context.Context, req parley.RerunRequest) (parley.Run, bool, error) {
	if err := r.admit(); err != nil {
		return parley.Run{}, false, err
	}
	return r.RerunOnce(ctx, req)
}

// Run gives a run with its steps.
func (r runs) Run(ctx context.Context, id string) (parley.Run, error) { return r.Get(ctx, id) }

// List gives one page of runs, without steps, and how many there are in all.
func (r runs) List(ctx context.Context, q parley.RunQuery) ([]parley.Run, int, error) {
	rows, total, err := r.db.Runs(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	items, err := r.summaries(ctx, rows)
	return items, total, err
}

func (r runs) summaries(ctx context.Context, rows []store.Run) (items []parley.Run, err error) {
	// Inputs and outputs stand in the first and the last events. Those that are kept
	// apart are left out, with their size.
	members := make([]store.EventMember, 0, 2*len(rows))
	for _, row := range rows {
		members = append(members, store.EventMember{Run: row.ID, Seq: 1, Member: "input"})
	}
	for _, row := range rows {
		if row.Status == parley.RunCompleted {
			members = append(members, store.EventMember{Run: row.ID, Seq: row.Seq, Member: "output"})
		}
	}
	values, err := r.db.EventValues(ctx, members)
	if err != nil {
		return nil, err
	}
	items = make([]parley.Run, len(rows))
	outputs := values[len(rows):]
	for i, row := range rows {
		unread := errors.Join(row.Unread, values[i].Err)
		if items[i], err = r.summary(ctx, row); err != nil {
			return nil, err
		}
		if len(row.Error) > 0 {
			failure := new(parley.Error)
			if err := json.Unmarshal(row.Error, failure); err != nil {
				unread = errors.Join(unread, fmt.Errorf("its error: %w", err))
				failure = nil
			}
			items[i].Error = failure
		}
		items[i].Input, items[i].InputBytes = values[i].Value, values[i].Apart
		if row.Status == parley.RunCompleted {
			items[i].Output, items[i].OutputBytes = outputs[0].Value, outputs[0].Apart
			unread = errors.Join(unread, outputs[0].Err)
			outputs = outputs[1:]
		}
		if items[i].Unreadable = unread != nil; unread != nil {
			r.log.Error("a run in a list cannot be read", "run", row.ID, "error", unread)
		}
	}
	return items, nil
}

// Search gives one page of runs, without steps, and where the next one begins.
func (r runs) Search(ctx context.Context, q parley.RunQuery, limit int) (parley.RunPage, error) {
	rows, next, err := r.db.SearchRuns(ctx, q, limit)
	if err != nil {
		return parley.RunPage{}, err
	}
	items, err := r.summaries(ctx, rows)
	return parley.RunPage{Items: items, Next: next}, err
}

// Attempts gives one page of a run's attempts, and how many there are in all.
func (r runs) Attempts(ctx context.Context, q parley.AttemptQuery) ([]parley.Attempt, int, error) {
	items, total, err := r.db.AttemptLog(ctx, q)
	if err == nil && total == 0 {
		_, err = r.db.RunRow(ctx, q.Run)
	}
	return items, total, err
}

// summary gives a run without its input, output and error.
func (r runs) summary(ctx context.Context, row store.Run) (parley.Run, error) {
	run := parley.Run{
		ID: row.ID, Workflow: row.Workflow, WorkflowName: row.Name, Version: row.Version, DefinitionID: row.DefinitionID,
		Status: row.Status, Phase: row.Phase, Paused: row.Paused, Labels: row.Labels, RetriedFrom: row.RetriedFrom, Parent: parentOf(&row),
		TriggeredBy: row.TriggeredBy, Seq: row.Seq, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
		StartedAt: timePtr(row.StartedAt), EndedAt: timePtr(row.EndedAt),
		CancelledBy: row.CancelledBy, CancelReason: row.CancelReason,
	}
	if row.Status == parley.RunPending {
		var err error
		if run.Turn, err = r.db.Turn(ctx, row.ID); err != nil {
			return run, err
		}
	}
	return run, nil
}

// Events gives at most limit events after the given number. With wait it
// blocks until there is one, ctx ends, or the run has ended and all its events
// were given (then there are none).
func (r runs) Events(ctx context.Context, id string, after int64, limit int, wait bool) (events []parley.Event, err error) {
	look := func() (bool, error) {
		if events, err = r.db.Events(ctx, id, after, limit); err != nil || len(events) > 0 {
			return true, err
		}
		row, err := r.db.RunRow(ctx, id)
		return row.Status.Terminal() && row.Seq <= after, err
	}
	if wait {
		err = r.Await(ctx, id, look)
	} else {
		_, err = look()
	}
	return events, err
}

func timePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// parentOf names the step that has started a run; nil if none did.
func parentOf(row *store.Run) *parley.RunParent {
	if row.ParentRun == "" {
		return nil
	}
	return &parley.RunParent{Run: row.ParentRun, Step: row.ParentStep}
}
