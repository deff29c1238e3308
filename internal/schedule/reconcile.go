package schedule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// definedID is the id of a schedule that stands in a definition. It is the same in
// all versions in which the schedule is the same.
func definedID(of string, spec *workflow.ScheduleSpec) string {
	return idOf(of, spec.Text())
}

// idOf is a short id for what a schedule is known by.
func idOf(of string, spec []byte) string {
	sum := sha256.Sum256(append([]byte(of+"\x00"), spec...))
	return "sch-" + hex.EncodeToString(sum[:8])
}

// reconcile makes the schedules of definitions agree with the versions that plain
// starts run, wherever something has changed.
// Whose schedules cannot be made to agree holds up no others; it is tried again with
// the next look. The error is that of the first of them.
func reconcile(ctx context.Context, cfg Config) error {
	var first error
	failed := 0
	for after := ""; ; {
		list, err := cfg.DB.WorkflowChanges(ctx, after, batch)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			break
		}
		for _, change := range list {
			after = change.Workflow
			err := reconcileOne(ctx, cfg, change)
			switch {
			case err == nil:
				continue
			case ctx.Err() != nil || parley.CodeOf(err) == parley.CodeUnavailable:
				return err // there is no database to try the others on
			case first == nil:
				first = fmt.Errorf("the schedules of workflow %q: %w", change.Workflow, err)
			}
			failed++
		}
	}
	if failed > 1 {
		first = fmt.Errorf("%w (and those of %d more)", first, failed-1)
	}
	return first
}

// reconcileOne does it for one workflow, anew while others change it.
func reconcileOne(ctx context.Context, cfg Config, change store.WorkflowChange) error {
	for range tries {
		d, err := defined(ctx, cfg, change)
		if err == nil {
			err = cfg.DB.SetDefined(ctx, d)
		}
		if !errors.Is(err, store.ErrStale) {
			return err
		}
		list, err := cfg.DB.WorkflowChanged(ctx, change.Workflow)
		if err != nil || len(list) == 0 {
			return err
		}
		change = list[0]
	}
	return nil // the next look finds it
}

// defined gives the schedules of the version that a plain start of a workflow runs.
func defined(ctx context.Context, cfg Config, change store.WorkflowChange) (d store.Defined, err error) {
	d.WorkflowChange = change
	row, ok, deleted, err := cfg.DB.CurrentVersion(ctx, change.Workflow)
	d.Deleted = deleted
	if err != nil || !ok {
		return d, err
	}
	def, _ := workflow.ParseStored(row.Name, row.Version, row.Source)
	if def == nil {
		return d, nil // it cannot be run by this version, nor fire
	}
	now := cfg.Now()
	for _, t := range def.Triggers {
		if t.Schedule == nil {
			continue
		}
		s := store.Schedule{
			ID: definedID(change.Workflow, t.Schedule), Workflow: change.Workflow, Version: row.Version, Spec: t.Schedule.Text(),
			CreatedAt: now, UpdatedAt: now, CreatedBy: row.CreatedBy, UpdatedBy: row.UpdatedBy,
		}
		advance(&s, t.Schedule, now)
		d.Schedules = append(d.Schedules, s)
	}
	return d, nil
}
