package schedule

import (
	"context"
	"slices"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// triggeredBy is what runs of schedules were triggered by, and who cancels them.
const triggeredBy = "schedule"

// handle does what there is to do about one schedule.
func (s *Scheduler) handle(ctx context.Context, row store.Schedule) (err error) {
	t, problems := workflow.ParseSchedule(row.Spec)
	if t == nil {
		return parley.Errorf(parley.CodeInvalid, "schedule %s cannot be read by this version: %w", row.ID, problems)
	}
	for range visit {
		if !row.StartingAt.IsZero() {
			if row, err = s.finish(ctx, row, t); err != nil {
				return err
			}
			continue
		}
		sit, err := s.look(ctx, row, t.Schedule)
		if err != nil {
			return err
		}
		d := sit.decide()
		if d.changed {
			if row, err = s.move(ctx, d.row, d.firings); err != nil {
				return err
			}
		}
		if d.cancel {
			if err := s.cancel(ctx, row); err != nil {
				return err
			}
		}
		if !d.changed {
			return nil
		}
	}
	s.Wake() // there may be more, when others have had their turn
	return nil
}

// look gathers what a decision needs to know.
func (s *Scheduler) look(ctx context.Context, row store.Schedule, spec *workflow.ScheduleSpec) (sit situation, err error) {
	sit = situation{row: row, spec: spec, now: s.cfg.Now()}
	if row.Waiting > 0 {
		if sit.waiting, err = s.cfg.DB.WaitingFirings(ctx, row.ID, maxWaiting+1); err != nil {
			return sit, err
		}
		slices.SortFunc(sit.waiting, func(a, b parley.ScheduleFiring) int { return a.ScheduledAt.Compare(b.ScheduledAt) })
	}
	if row.Run == "" {
		return sit, nil
	}
	run, err := s.cfg.DB.RunRow(ctx, row.Run)
	switch {
	case parley.CodeOf(err) == parley.CodeNotFound:
		return sit, nil // it has ended and was removed
	case err != nil:
		return sit, err
	}
	sit.busy = !run.Status.Terminal()
	return sit, nil
}

// move writes the next state of a row and gives it.
func (s *Scheduler) move(ctx context.Context, row store.Schedule, firings []parley.ScheduleFiring) (store.Schedule, error) {
	err := s.cfg.DB.MoveSchedule(ctx, store.ScheduleMove{Schedule: row, Firings: firings})
	row.Seq++
	if err == nil {
		s.cfg.Metrics.settled(firings)
	}
	return row, err
}

// finish starts the run of the firing that was decided to start one.
func (s *Scheduler) finish(ctx context.Context, row store.Schedule, t *workflow.Trigger) (store.Schedule, error) {
	list, err := s.cfg.DB.FiringsBetween(ctx, row.ID, row.StartingAt, row.StartingAt)
	if err != nil {
		return row, err
	}
	f := parley.ScheduleFiring{ScheduledAt: row.StartingAt, DueAt: row.StartingAt}
	if len(list) == 1 {
		f = list[0]
	}
	run, err := s.start(ctx, row, t)
	f.RecordedAt = s.cfg.Now()
	switch code := parley.CodeOf(err); {
	case err == nil:
		f.State, f.Run, row.Run = parley.FiringFired, run, run
		s.cfg.Logger.Info("schedule has fired", "event", "schedule_fired", "schedule", row.ID, "workflow", row.Workflow, "scheduled_at", f.ScheduledAt, "run", run)
	case ctx.Err() != nil || code == parley.CodeUnavailable || code == parley.CodeInternal:
		return row, err // it is tried again
	default:
		f.State, f.Reason = parley.FiringFailed, string(code)+": "+err.Error()
		s.cfg.Logger.Warn("the run of a schedule was refused", "event", "schedule_failed", "schedule", row.ID, "workflow", row.Workflow,
			"scheduled_at", f.ScheduledAt, "code", code, "error", err)
	}
	row.StartingAt, row.UpdatedAt = time.Time{}, f.RecordedAt
	return s.move(ctx, row, []parley.ScheduleFiring{f})
}

// start gives the run of a firing: the one that there is, or a new one.
func (s *Scheduler) start(ctx context.Context, row store.Schedule, t *workflow.Trigger) (string, error) {
	at := row.StartingAt
	key := parley.ScheduleKey(row.ID, at)
	id, err := s.cfg.DB.RunByKey(ctx, row.Workflow, key)
	if parley.CodeOf(err) != parley.CodeNotFound {
		return id, err
	}
	def, ok, _, err := s.cfg.DB.CurrentVersion(ctx, row.Workflow)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", parley.Errorf(parley.CodeConflict, "no version of workflow %q takes new runs", row.Workflow)
	}
	input, err := t.InputOf(workflow.WorkflowName{ID: def.Workflow, Name: def.Name, Version: def.Version}, workflow.ScheduleEvent(at))
	if err != nil {
		return "", err
	}
	run, _, err := s.cfg.Start(ctx, parley.StartRequest{
		Workflow: def.Workflow, Version: def.Version, Input: input, TriggeredBy: triggeredBy, Schedule: row.ID, ScheduledAt: at,
	})
	if parley.CodeOf(err) == parley.CodeIdempotencyConflict {
		// Another process has started it meanwhile, on another version.
		return s.cfg.DB.RunByKey(ctx, row.Workflow, key)
	}
	return run.ID, err
}

// cancel asks, once, for the end of the run that a firing waits for.
func (s *Scheduler) cancel(ctx context.Context, row store.Schedule) error {
	s.mu.Lock()
	again := s.cancelled[row.ID] == row.Run
	s.cancelled[row.ID] = row.Run
	s.mu.Unlock()
	if again {
		return nil
	}
	_, err := s.cfg.Cancel(ctx, parley.CancelRequest{Run: row.Run, By: triggeredBy, Reason: "the next firing of schedule " + row.ID + " cancels it"})
	switch parley.CodeOf(err) {
	case parley.CodeConflict, parley.CodeNotFound:
		return nil // it has ended
	}
	if err != nil {
		s.mu.Lock()
		delete(s.cancelled, row.ID)
		s.mu.Unlock()
	}
	return err
}
