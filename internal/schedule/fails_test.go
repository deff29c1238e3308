package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/schedule"
	"github.com/parley-project/parley/internal/store"
)

// TestSchedulesBesideBadOnes: schedules that always fail, more than are read at a time,
// neither keep another from firing nor are they tried all the time.
func TestSchedulesBesideBadOnes(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		good := r.flow("{every: 10s}", "set: 1")
		const bad = 250
		for i := range bad {
			check(t, r.db.AddSchedule(t.Context(), store.ScheduleMove{Schedule: store.Schedule{
				ID: fmt.Sprintf("bad-%03d", i), Workflow: "other", Spec: []byte(`{`), NextAt: epoch().Add(time.Second), DueAt: epoch().Add(time.Second),
				CreatedAt: epoch(), UpdatedAt: epoch(),
			}}))
		}
		var told counter
		cfg := r.config()
		cfg.Logger = slog.New(&told)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- schedule.New(cfg).Run(ctx) }()
		r.until("25s")
		stop()
		check(t, <-ended)
		r.want(good.ID, "10s fired 10s-10s COMPLETED\n20s fired 20s-20s COMPLETED")
		if looks := told.Load() / bad; looks < 5 || looks > 25 {
			t.Errorf("what fails was tried %d times in 24 s", looks)
		}
	})
}

// counter is a log that counts the warnings about schedules.
type counter struct{ atomic.Int64 }

func (c *counter) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (c *counter) WithAttrs([]slog.Attr) slog.Handler               { return c }
func (c *counter) WithGroup(string) slog.Handler                    { return c }
func (c *counter) Handle(context.Context, slog.Record) error {
	c.Add(1)
	return nil
}

// TestScheduleOfOneWorkflowFails: a workflow whose schedules cannot be made to agree
// with its versions holds up no other, and is told of.
func TestScheduleOfOneWorkflowFails(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		fails := func(n int) {
			fault := func(point string) error {
				if point != "schedules.before" || n == 0 {
					return nil
				}
				n--
				return errors.New("its row is damaged")
			}
			r.fault.Store(&fault)
		}
		fails(1)
		r.apply("name: early\ntriggers: [{schedule: {every: 20s}}]\nsteps: [{id: a, set: 1}]\n")
		fails(1) // the first one, again
		r.version("10s", "one")
		r.listed("flow@1 10s active")
		fails(1)
		if err := r.book.Changed(t.Context()); err == nil || !strings.Contains(err.Error(), `"early"`) || strings.Contains(err.Error(), "more") {
			t.Errorf("the error is %v", err)
		}
		check(t, r.book.Changed(t.Context()))
		r.listed("early@1 20s active, flow@1 10s active")
	})
}

// TestScheduleListWithABadOne: one schedule that cannot be read keeps nobody from the
// list of the others. It is marked there.
func TestScheduleListWithABadOne(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.flow("{every: 10s}", "set: 1")
		check(t, r.db.AddSchedule(t.Context(), store.ScheduleMove{Schedule: store.Schedule{
			ID: "sch-bad", Name: "bad", Workflow: "flow", Spec: []byte(`{"every":`), CreatedAt: epoch(), UpdatedAt: epoch(),
		}}))
		list, total, err := r.book.List(t.Context(), parley.ScheduleQuery{})
		check(t, err)
		if total != 2 || len(list) != 2 {
			t.Fatalf("%d of %d", len(list), total)
		}
		for _, s := range list {
			if bad := s.ID == "sch-bad"; s.Unreadable != bad || (s.Every == "") != bad {
				t.Errorf("%+v", s)
			}
		}
		if _, err := r.book.Get(t.Context(), "bad"); parley.CodeOf(err) != parley.CodeInternal {
			t.Errorf("the schedule itself: %v", err)
		}
	})
}

// TestScheduleCancelsAgain: a run that could not be cancelled is cancelled with the next
// look; else the firing would wait for as long as that takes.
func TestScheduleCancelsAgain(t *testing.T) {
	onStore(t, func(r *rig) {
		s := r.flow("{every: 20s, overlap: cancel_previous}", "wait: 1h")
		cfg, cancel, asked := r.config(), r.x.Cancel, 0
		cfg.Cancel = func(ctx context.Context, req parley.CancelRequest) (parley.Run, error) {
			if asked++; asked == 1 {
				return parley.Run{}, parley.Errorf(parley.CodeUnavailable, "the database is away")
			}
			return cancel(ctx, req)
		}
		stop := r.begin(schedule.New(cfg).Run)
		r.until("50s")
		stop()
		r.want(s.ID, "20s fired 20s-40s CANCELLED\n40s fired 41s")
		if asked != 2 {
			r.t.Errorf("it was asked for the end %d times, want 2", asked)
		}
	})
}

// TestScheduleLooksAtAllFirst: what nobody has noted of a change is seen when a scheduler
// begins: the process that should have may have died.
func TestScheduleLooksAtAllFirst(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.version("10s", "one")
		row := store.Schedule{
			ID: "sch-left", Workflow: "flow", Version: "0", Spec: []byte(`{"every":"5s"}`), NextAt: epoch().Add(time.Hour), DueAt: epoch().Add(time.Hour),
			CreatedAt: epoch(), UpdatedAt: epoch(),
		}
		check(t, r.db.AddSchedule(t.Context(), store.ScheduleMove{Schedule: row}))
		check(t, r.book.Changed(t.Context()))
		r.listed("flow@1 10s active, flow@0 5s active")
		r.scheduler()
		r.until("1s")
		r.listed("flow@1 10s active")
	})
}
