package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// worldSchedules keeps schedules in a list. Those whose workflow is defined stand in a
// definition.
type worldSchedules struct {
	*world
	list []parley.Schedule
}

func (f *worldSchedules) find(ref string) (*parley.Schedule, error) {
	i := slices.IndexFunc(f.list, func(s parley.Schedule) bool { return s.ID == ref || s.Name == ref && ref != "" })
	if i < 0 {
		return nil, parley.Errorf(parley.CodeNotFound, "there is no schedule %q", ref)
	}
	return &f.list[i], nil
}

func (f *worldSchedules) List(_ context.Context, q parley.ScheduleQuery) ([]parley.Schedule, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []parley.Schedule
	for _, s := range f.list {
		if (q.Workflow == "" || q.Workflow == s.Workflow) && (q.Status == "" || q.Status == s.Status) {
			list = append(list, s)
		}
	}
	return list, len(list), nil
}

func (f *worldSchedules) Get(_ context.Context, ref string) (parley.Schedule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.find(ref)
	if err != nil {
		return parley.Schedule{}, err
	}
	return *s, nil
}

func (f *worldSchedules) Firings(_ context.Context, ref string, _ parley.Page) ([]parley.ScheduleFiring, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.find(ref)
	if err != nil || s.Last == nil {
		return nil, 0, err
	}
	return []parley.ScheduleFiring{*s.Last, {ScheduledAt: epoch().Add(-time.Hour), DueAt: epoch(), State: parley.FiringMissed, Reason: "nobody was there", RecordedAt: epoch()}}, 2, nil
}

func (f *worldSchedules) Add(_ context.Context, req parley.ScheduleRequest) (parley.Schedule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if req.Cron == "" && req.Every == "" {
		return parley.Schedule{}, parley.Errorf(parley.CodeInvalid, "a schedule needs cron, five fields, or every, a duration")
	}
	if _, err := f.find(req.Name); err == nil {
		return parley.Schedule{}, parley.Errorf(parley.CodeConflict, "there is a schedule %q already", req.Name)
	}
	next := epoch().Add(time.Hour)
	s := parley.Schedule{
		ID: fmt.Sprintf("sch-%d", len(f.list)+1), Name: req.Name, Workflow: req.Workflow, Status: parley.ScheduleActive, ScheduleSpec: req.ScheduleSpec,
		NextAt: &next, DueAt: &next, CreatedAt: epoch(), UpdatedAt: epoch(), CreatedBy: req.By, UpdatedBy: req.By,
		Last: &parley.ScheduleFiring{ScheduledAt: epoch(), DueAt: epoch(), State: parley.FiringFired, Run: "run-7", RecordedAt: epoch()},
	}
	if req.Workflow == "defined" {
		s.Version = "3"
	}
	f.list = append(f.list, s)
	return s, nil
}

func (f *worldSchedules) Remove(_ context.Context, req parley.ScheduleChange) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.find(req.Ref)
	if err != nil {
		return err
	}
	if s.Version != "" {
		return parley.Errorf(parley.CodeConflict, "schedule %s stands in version %s of workflow %q", s.ID, s.Version, s.Workflow)
	}
	f.list = slices.DeleteFunc(f.list, func(x parley.Schedule) bool { return x.ID == s.ID })
	return nil
}

func (f *worldSchedules) Pause(_ context.Context, req parley.ScheduleChange) (parley.Schedule, error) {
	return f.change(req.Ref, func(s *parley.Schedule) {
		at := epoch()
		s.Status, s.PausedAt, s.PausedBy, s.NextAt, s.DueAt = parley.SchedulePaused, &at, req.By, nil, nil
	})
}

func (f *worldSchedules) Resume(_ context.Context, req parley.ScheduleChange) (parley.Schedule, error) {
	return f.change(req.Ref, func(s *parley.Schedule) {
		next := epoch().Add(time.Hour)
		s.Status, s.PausedAt, s.PausedBy, s.NextAt, s.DueAt = parley.ScheduleActive, nil, "", &next, &next
	})
}

func (f *worldSchedules) change(ref string, how func(*parley.Schedule)) (parley.Schedule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.find(ref)
	if err != nil {
		return parley.Schedule{}, err
	}
	how(s)
	return *s, nil
}

func (f *worldSchedules) Backfill(_ context.Context, req parley.BackfillRequest) (parley.BackfillReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.find(req.Ref); err != nil {
		return parley.BackfillReport{}, err
	}
	if req.To.Before(req.From) {
		return parley.BackfillReport{}, parley.Errorf(parley.CodeInvalid, "a backfill goes from one time to a later one; both are included")
	}
	return parley.BackfillReport{Firings: 1 + int(req.To.Sub(req.From)/time.Hour), Before: 1}, nil
}
