package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

const (
	// maxName bounds the name of a schedule, in characters.
	maxName = 64
	// tries bounds how often a change is made anew that somebody else was faster
	// than.
	tries = 20
)

// Book adds, shows and changes schedules. Its methods may be called concurrently.
type Book struct {
	cfg Config
	// changed is called when a scheduler has something to look at.
	changed func()
}

// NewBook gives the book of a store. changed is called when a scheduler has
// something to look at; nil is nothing.
func NewBook(cfg Config, changed func()) *Book {
	if changed == nil {
		changed = func() {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxInput == 0 {
		cfg.MaxInput = workflow.DefaultRunLimits().Value
	}
	return &Book{cfg: cfg, changed: changed}
}

// Changed makes the schedules of definitions agree, after something was deployed
// here. Where that fails, schedulers do it later.
func (b *Book) Changed(ctx context.Context) error {
	err := reconcile(ctx, b.cfg)
	b.changed()
	return err
}

// List gives one page of schedules, and how many there are in all.
func (b *Book) List(ctx context.Context, q parley.ScheduleQuery) ([]parley.Schedule, int, error) {
	rows, total, err := b.cfg.DB.Schedules(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	list, err := b.show(ctx, rows...)
	return list, total, err
}

// Get gives the schedule of that id or name. The error has code not_found if there
// is none.
func (b *Book) Get(ctx context.Context, ref string) (parley.Schedule, error) {
	row, err := b.cfg.DB.Schedule(ctx, ref)
	if err != nil {
		return parley.Schedule{}, err
	}
	return b.one(ctx, row)
}

// Firings gives one page of what is recorded of a schedule's firings, the latest
// first, and how many there are in all.
func (b *Book) Firings(ctx context.Context, ref string, page parley.Page) ([]parley.ScheduleFiring, int, error) {
	row, err := b.cfg.DB.Schedule(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	return b.cfg.DB.Firings(ctx, row.ID, page)
}

func (b *Book) one(ctx context.Context, row store.Schedule) (parley.Schedule, error) {
	list, err := b.show(ctx, row)
	if err != nil {
		return parley.Schedule{}, err
	}
	if list[0].Unreadable {
		return parley.Schedule{}, parley.Errorf(parley.CodeInternal, "schedule %s cannot be read; the log says why", row.ID)
	}
	return list[0], nil
}

// show gives rows as they are shown.
func (b *Book) show(ctx context.Context, rows ...store.Schedule) ([]parley.Schedule, error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	last, err := b.cfg.DB.LastFirings(ctx, ids...)
	if err != nil {
		return nil, err
	}
	list := make([]parley.Schedule, len(rows))
	for i, row := range rows {
		s := parley.Schedule{
			ID: row.ID, Name: row.Name, Workflow: row.Workflow, Version: row.Version, Status: parley.ScheduleActive,
			NextAt: given(row.NextAt), DueAt: given(row.DueAt), Waiting: row.Waiting, PausedAt: given(row.PausedAt), PausedBy: row.PausedBy,
			CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt, CreatedBy: row.CreatedBy, UpdatedBy: row.UpdatedBy,
		}
		if err := json.Unmarshal(row.Spec, &s.ScheduleSpec); err != nil {
			s.ScheduleSpec, s.Unreadable = parley.ScheduleSpec{}, true
			b.cfg.Logger.Error("a schedule cannot be read", "schedule", row.ID, "error", err)
		}
		if f, ok := last[row.ID]; ok {
			s.Last = &f
		}
		if s.PausedAt != nil {
			s.Status, s.NextAt, s.DueAt = parley.SchedulePaused, nil, nil
		}
		list[i] = s
	}
	return list, nil
}

func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Add adds a schedule to a workflow. It fires what a plain start runs at that time.
// The error has code invalid or invalid_input for what could never start a run,
// not_found for an unknown workflow, conflict for one that takes no runs or a name
// that is taken.
func (b *Book) Add(ctx context.Context, req parley.ScheduleRequest) (parley.Schedule, error) {
	if !usableName(req.Name) {
		return parley.Schedule{}, parley.Errorf(parley.CodeInvalid, "name: at most %d characters, no control characters or slashes, not sch- first, and not . or ..", maxName)
	}
	t, err := read(req.ScheduleSpec)
	if err != nil {
		return parley.Schedule{}, err
	}
	row, err := b.cfg.DB.Newest(ctx, req.Workflow)
	if err != nil {
		return parley.Schedule{}, err
	}
	now := b.cfg.Now().Truncate(time.Microsecond) // as it is stored
	s := store.Schedule{
		ID: idOf(b.cfg.NewID(), nil), Workflow: row.Workflow, Name: req.Name, Spec: t.Schedule.Text(),
		CreatedAt: now, UpdatedAt: now, CreatedBy: req.By, UpdatedBy: req.By,
	}
	advance(&s, t.Schedule, now)
	if err := b.starts(ctx, s, t); err != nil {
		return parley.Schedule{}, err
	}
	err = b.cfg.DB.AddSchedule(ctx, store.ScheduleMove{
		Schedule: s, Audit: b.audit(s, "create", req.By), Changes: map[string]any{"workflow": s.Workflow, "name": s.Name, "schedule": json.RawMessage(s.Spec)},
	})
	if err != nil {
		return parley.Schedule{}, err
	}
	b.changed()
	return b.one(ctx, s)
}

// usableName reports whether a name, "" is none, can stand for the id in a path.
func usableName(name string) bool {
	return name != "." && name != ".." && !strings.HasPrefix(name, "sch-") &&
		utf8.RuneCountInString(name) <= maxName && !strings.ContainsFunc(name, unprintable)
}

func unprintable(c rune) bool { return c < ' ' || c == 0x7f || c == '/' }

// read compiles what a schedule says.
func read(spec parley.ScheduleSpec) (*workflow.Trigger, error) {
	source, err := json.Marshal(spec)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the schedule is no JSON: %w", err)
	}
	t, problems := workflow.ParseSchedule(source)
	if t != nil {
		return t, nil
	}
	var texts []string
	for _, p := range problems {
		if p.Severity == parley.SeverityWarning {
			continue
		}
		text := p.Text
		if p.Path != "" && p.Code != "required" {
			text = p.Path + ": " + text
		}
		if p.Suggestion != "" {
			text += " (" + p.Suggestion + ")"
		}
		texts = append(texts, text)
	}
	return nil, parley.Errorf(parley.CodeInvalid, "%s", strings.Join(texts, "; "))
}

// starts refuses a schedule whose next firing could not start a run.
func (b *Book) starts(ctx context.Context, s store.Schedule, t *workflow.Trigger) error {
	row, ok, _, err := b.cfg.DB.CurrentVersion(ctx, s.Workflow)
	if err != nil {
		return err
	}
	if !ok {
		return parley.Errorf(parley.CodeConflict, "no version of workflow %q takes new runs", s.Workflow)
	}
	def, problems := workflow.ParseStored(row.Name, row.Version, row.Source)
	if def == nil {
		return parley.Errorf(parley.CodeInvalid, "workflow %s version %s cannot be run by this version: %w", row.Workflow, row.Version, problems)
	}
	input, err := t.InputOf(workflow.WorkflowName{ID: row.Workflow, Name: row.Name, Version: row.Version}, workflow.ScheduleEvent(s.NextAt))
	if err != nil {
		return err
	}
	_, err = def.CheckInput(input, b.cfg.MaxInput)
	return err
}

func (b *Book) audit(s store.Schedule, action, by string) *store.Audit {
	return &store.Audit{ID: b.cfg.NewID(), At: b.cfg.Now(), EntityType: "schedule", EntityID: s.ID, Action: action, By: by}
}

// change makes a change of a schedule: f gives what to write, false is nothing.
func (b *Book) change(ctx context.Context, ref string, f func(store.Schedule) (store.ScheduleMove, bool, error)) (parley.Schedule, error) {
	for range tries {
		row, err := b.cfg.DB.Schedule(ctx, ref)
		if err != nil {
			return parley.Schedule{}, err
		}
		m, ok, err := f(row)
		if err != nil {
			return parley.Schedule{}, err
		}
		if !ok {
			return b.one(ctx, row)
		}
		err = b.cfg.DB.MoveSchedule(ctx, m)
		if errors.Is(err, store.ErrStale) {
			continue
		}
		if err != nil {
			return parley.Schedule{}, err
		}
		b.changed()
		return b.one(ctx, m.Schedule)
	}
	return parley.Schedule{}, parley.Errorf(parley.CodeUnavailable, "schedule %q changes all the time; try again", ref)
}

// Pause lets a schedule fire no more; again is no error. What it has started goes
// on, and its firings meanwhile are not made up for.
func (b *Book) Pause(ctx context.Context, req parley.ScheduleChange) (parley.Schedule, error) {
	return b.change(ctx, req.Ref, func(row store.Schedule) (m store.ScheduleMove, ok bool, err error) {
		if !row.PausedAt.IsZero() {
			return m, false, nil
		}
		row.PausedAt, row.PausedBy = b.cfg.Now(), req.By
		row.UpdatedAt, row.UpdatedBy = row.PausedAt, req.By
		return store.ScheduleMove{Schedule: row, Audit: b.audit(row, "pause", req.By)}, true, nil
	})
}

// Resume lets a schedule fire again, from its next firing on; again is no error.
func (b *Book) Resume(ctx context.Context, req parley.ScheduleChange) (parley.Schedule, error) {
	return b.change(ctx, req.Ref, func(row store.Schedule) (m store.ScheduleMove, ok bool, err error) {
		if row.PausedAt.IsZero() {
			return m, false, nil
		}
		t, problems := workflow.ParseSchedule(row.Spec)
		if t == nil {
			return m, false, parley.Errorf(parley.CodeInternal, "schedule %s cannot be read: %w", row.ID, problems)
		}
		now := b.cfg.Now()
		row.PausedAt, row.PausedBy, row.DueAt = time.Time{}, "", time.Time{}
		row.UpdatedAt, row.UpdatedBy = now, req.By
		if !row.NextAt.IsZero() { // else it has none any more, or stands in no version
			advance(&row, t.Schedule, now)
		}
		return store.ScheduleMove{Schedule: row, Audit: b.audit(row, "resume", req.By)}, true, nil
	})
}

// Remove removes a schedule that was added. The error has code conflict for one
// that stands in a definition.
func (b *Book) Remove(ctx context.Context, req parley.ScheduleChange) error {
	for range tries {
		row, err := b.cfg.DB.Schedule(ctx, req.Ref)
		if err != nil {
			return err
		}
		if row.Version != "" {
			return parley.Errorf(parley.CodeConflict,
				"schedule %s stands in version %s of workflow %q: take it out of triggers there and apply that, or pause it: parley schedule pause %s",
				row.ID, row.Version, row.Workflow, row.ID)
		}
		err = b.cfg.DB.RemoveSchedule(ctx, store.ScheduleMove{
			Schedule: row, Audit: b.audit(row, "delete", req.By), Changes: map[string]any{"workflow": row.Workflow, "name": row.Name},
		})
		if !errors.Is(err, store.ErrStale) {
			return err
		}
	}
	return parley.Errorf(parley.CodeUnavailable, "schedule %q changes all the time; try again", req.Ref)
}

// Backfill asks for the firings of a time that has passed, both ends included.
// Those that have started a run, or are about to, are left alone; the others start
// in order under overlap, where skip lets them wait as queue does. The error has
// code invalid for a time that has not passed, limit for more than
// [parley.MaxBackfill] firings.
func (b *Book) Backfill(ctx context.Context, req parley.BackfillRequest) (report parley.BackfillReport, err error) {
	now := b.cfg.Now()
	switch {
	case req.From.IsZero() || req.To.IsZero() || req.To.Before(req.From):
		return report, parley.Errorf(parley.CodeInvalid, "a backfill goes from one time to a later one; both are included")
	case req.To.After(now):
		return report, parley.Errorf(parley.CodeInvalid, "to: %s has not come yet", req.To.UTC().Format(time.RFC3339))
	}
	_, err = b.change(ctx, req.Ref, func(row store.Schedule) (store.ScheduleMove, bool, error) {
		times, err := between(row, req.From, req.To)
		if err != nil {
			return store.ScheduleMove{}, false, err
		}
		report = parley.BackfillReport{Firings: len(times)}
		there, err := b.cfg.DB.FiringsBetween(ctx, row.ID, req.From, req.To)
		if err != nil {
			return store.ScheduleMove{}, false, err
		}
		taken := make(map[int64]bool, len(there))
		for _, f := range there {
			taken[f.ScheduledAt.UnixMicro()] = f.State == parley.FiringFired || f.State == parley.FiringStarting || f.State == parley.FiringWaiting
		}
		m := store.ScheduleMove{Schedule: row, Audit: b.audit(row, "backfill", req.By), Changes: map[string]any{
			"from": req.From.UTC(), "to": req.To.UTC(), "firings": len(times),
		}}
		for _, at := range times {
			if taken[at.UnixMicro()] || row.PausedAt.IsZero() && !row.NextAt.IsZero() && !at.Before(row.NextAt) {
				report.Before++
				continue
			}
			m.Firings = append(m.Firings, parley.ScheduleFiring{ScheduledAt: at, DueAt: at, State: parley.FiringWaiting, Backfill: true, RecordedAt: now})
		}
		m.Waiting += len(m.Firings)
		m.UpdatedAt, m.UpdatedBy = now, req.By
		if m.Waiting > parley.MaxBackfill {
			return m, false, parley.Errorf(parley.CodeLimit, "%d firings would wait, the limit `backfill` is %d: ask for a shorter time", m.Waiting, parley.MaxBackfill)
		}
		return m, len(m.Firings) > 0, nil
	})
	return report, err
}

// between gives the firings of a schedule from one time to another, both included.
func between(row store.Schedule, from, to time.Time) (times []time.Time, err error) {
	t, problems := workflow.ParseSchedule(row.Spec)
	if t == nil {
		return nil, parley.Errorf(parley.CodeInternal, "schedule %s cannot be read: %w", row.ID, problems)
	}
	for at, ok := t.Schedule.Next(from.Add(-1)); ok && !at.After(to); at, ok = t.Schedule.Next(at) {
		if len(times) == parley.MaxBackfill {
			return nil, parley.Errorf(parley.CodeLimit, "there are more than %d firings, the limit `backfill`: ask for a shorter time", parley.MaxBackfill)
		}
		times = append(times, at)
	}
	return times, nil
}
