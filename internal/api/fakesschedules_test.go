package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// fakeSchedules keeps schedules in a list. Those whose workflow is defined stand in a
// definition.
type fakeSchedules struct {
	*world
	list []parley.Schedule
}

func (f *fakeSchedules) find(ref string) (*parley.Schedule, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	i := slices.IndexFunc(f.list, func(s parley.Schedule) bool { return s.ID == ref || s.Name == ref && ref != "" })
	if i < 0 {
		return nil, parley.Errorf(parley.CodeNotFound, "there is no schedule %q", ref)
	}
	return &f.list[i], nil
}

func (f *fakeSchedules) List(_ context.Context, q parley.ScheduleQuery) ([]parley.Schedule, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil, 0, f.broken
	}
	var list []parley.Schedule
	for _, s := range f.list {
		if (q.Workflow == "" || q.Workflow == s.Workflow) && (q.Status == "" || q.Status == s.Status) {
			list = append(list, s)
		}
	}
	return list, len(list), nil
}

func (f *fakeSchedules) Get(_ context.Context, ref string) (parley.Schedule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.find(ref)
	if err != nil {
		return parley.Schedule{}, err
	}
	return *s, nil
}

func (f *fakeSchedules) Firings(_ context.Context, ref string, _ parley.Page) ([]parley.ScheduleFiring, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.find(ref)
	if err != nil || s.Last == nil {
		return nil, 0, err
	}
	return []parley.ScheduleFiring{*s.Last, {ScheduledAt: f.now().Add(-time.Hour), DueAt: f.now(), State: parley.FiringMissed, Reason: "nobody was there", RecordedAt: f.now()}}, 2, nil
}

func (f *fakeSchedules) Add(_ context.Context, req parley.ScheduleRequest) (parley.Schedule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return parley.Schedule{}, f.broken
	}
	if req.Cron == "" && req.Every == "" {
		return parley.Schedule{}, parley.Errorf(parley.CodeInvalid, "a schedule needs cron, five fields, or every, a duration")
	}
	if _, err := f.find(req.Name); err == nil {
		return parley.Schedule{}, parley.Errorf(parley.CodeConflict, "there is a schedule %q already", req.Name)
	}
	next := f.now().Add(time.Hour)
	s := parley.Schedule{
		ID: fmt.Sprintf("sch-%d", len(f.list)+1), Name: req.Name, Workflow: req.Workflow, Status: parley.ScheduleActive, ScheduleSpec: req.ScheduleSpec,
		NextAt: &next, DueAt: &next, CreatedAt: f.now(), UpdatedAt: f.now(), CreatedBy: req.By, UpdatedBy: req.By,
		Last: &parley.ScheduleFiring{ScheduledAt: f.now(), DueAt: f.now(), State: parley.FiringFired, Run: "run-7", RecordedAt: f.now()},
	}
	if req.Workflow == "defined" {
		s.Version = "3"
	}
	f.list = append(f.list, s)
	return s, nil
}

func (f *fakeSchedules) Remove(_ context.Context, req parley.ScheduleChange) error {
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

func (f *fakeSchedules) Pause(_ context.Context, req parley.ScheduleChange) (parley.Schedule, error) {
	return f.change(req.Ref, func(s *parley.Schedule) {
		at := f.now()
		s.Status, s.PausedAt, s.PausedBy, s.NextAt, s.DueAt = parley.SchedulePaused, &at, req.By, nil, nil
	})
}

func (f *fakeSchedules) Resume(_ context.Context, req parley.ScheduleChange) (parley.Schedule, error) {
	return f.change(req.Ref, func(s *parley.Schedule) {
		next := f.now().Add(time.Hour)
		s.Status, s.PausedAt, s.PausedBy, s.NextAt, s.DueAt = parley.ScheduleActive, nil, "", &next, &next
	})
}

func (f *fakeSchedules) change(ref string, how func(*parley.Schedule)) (parley.Schedule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.find(ref)
	if err != nil {
		return parley.Schedule{}, err
	}
	how(s)
	return *s, nil
}

func (f *fakeSchedules) Backfill(_ context.Context, req parley.BackfillRequest) (parley.BackfillReport, error) {
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
