package schedule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

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
func reconcile(ctx context.Context, cfg Config) error {
	for {
		list, err := cfg.DB.WorkflowChanges(ctx, batch)
		if err != nil || len(list) == 0 {
			return err
		}
		if err := reconcileAll(ctx, cfg, list); err != nil {
			return err
		}
	}
}

func reconcileAll(ctx context.Context, cfg Config, list []store.WorkflowChange) error {
	for _, change := range list {
		d, err := defined(ctx, cfg, change)
		if err == nil {
			err = cfg.DB.SetDefined(ctx, d)
		}
		if err != nil && !errors.Is(err, store.ErrStale) {
			return err
		}
	}
	return nil
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
