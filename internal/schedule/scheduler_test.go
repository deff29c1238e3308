package schedule_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/schedule"
)

// TestScheduleOverlap has a firing every ten seconds, and runs that take 14.
func TestScheduleOverlap(t *testing.T) {
	for overlap, want := range map[string]string{
		"skip": `
			10s fired 10s-24s COMPLETED
			20s skipped
			30s fired 30s-44s COMPLETED
			40s skipped
			50s fired 50s`,
		"queue": `
			10s fired 10s-24s COMPLETED
			20s fired 24s-38s COMPLETED
			30s fired 39s-53s COMPLETED
			40s fired 53s
			50s waiting`,
		"cancel_previous": `
			10s fired 10s-20s CANCELLED
			20s fired 20s-30s CANCELLED
			30s fired 30s-40s CANCELLED
			40s fired 40s-50s CANCELLED
			50s fired 50s`,
		"allow": `
			10s fired 10s-24s COMPLETED
			20s fired 20s-34s COMPLETED
			30s fired 30s-44s COMPLETED
			40s fired 40s-54s COMPLETED
			50s fired 50s`,
	} {
		t.Run(overlap, func(t *testing.T) {
			onStore(t, func(r *rig) {
				s := r.flow("{every: 10s, overlap: "+overlap+"}", "wait: 14s")
				r.scheduler()
				r.until("55s")
				r.want(s.ID, want)
			})
		})
	}
}

// TestScheduleInput: the run gets the input of the schedule, knows its firing and
// what started it, and the event is the input where nothing is said.
func TestScheduleInput(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(`
name: flow
triggers:
  - schedule: {every: 10s, input: {at: "${event.scheduled_at}", of: "${workflow.id}@${workflow.version}"}}
  - schedule: {cron: "1 0 * * *"}
steps: [{id: a, set: ["${workflow.input}", "${run.trigger}", "${run.scheduled_at}"]}]`)
		r.scheduler()
		r.until("61s")
		runs, _, err := r.db.Runs(t.Context(), parley.RunQuery{Page: parley.Page{Limit: 100}, Ascending: true})
		check(t, err)
		var got []string
		for _, row := range []int{0, 5, 6} {
			run, err := r.x.Get(t.Context(), runs[row].ID)
			check(t, err)
			got = append(got, string(run.Output))
		}
		slices.Sort(got)
		want := []string{
			`[{"at":"2000-01-01T00:00:10Z","of":"flow@1"},"schedule","2000-01-01T00:00:10Z"]`,
			`[{"at":"2000-01-01T00:01:00Z","of":"flow@1"},"schedule","2000-01-01T00:01:00Z"]`,
			`[{"scheduled_at":"2000-01-01T00:01:00Z"},"schedule","2000-01-01T00:01:00Z"]`,
		}
		slices.Sort(want)
		if len(runs) != 7 || !slices.Equal(got, want) {
			t.Errorf("%d runs: %q", len(runs), got)
		}
	})
}

// TestScheduleCatchUp: after a time without a scheduler, firings that are not older
// than catch_up start in order under overlap, and older ones are missed.
func TestScheduleCatchUp(t *testing.T) {
	onStore(t, func(r *rig) {
		s := r.flow("{every: 1m, overlap: queue, catch_up: 155s}", "wait: 12s")
		stop := r.scheduler()
		r.until("1m")
		stop()
		r.until("5m30s")
		r.scheduler()
		r.until("6m10s")
		r.want(s.ID, `
			1m0s fired 1m0s-1m12s COMPLETED
			2m0s missed
			3m0s fired 5m30s-5m42s COMPLETED
			4m0s fired 5m42s-5m54s COMPLETED
			5m0s fired 5m55s-6m7s COMPLETED
			6m0s fired 6m7s`)
	})
}

// TestScheduleLongDowntime: what is recorded of many missed firings is bounded, and
// the next one comes in its time.
func TestScheduleLongDowntime(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		s := r.flow("{every: 1s, catch_up: 0s}", "set: 1")
		r.rest()
		time.Sleep(48 * time.Hour)
		r.scheduler()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		list, total, err := r.book.Firings(t.Context(), s.ID, parley.Page{Limit: 200})
		check(t, err)
		states := map[parley.FiringState]int{}
		for _, f := range list {
			states[f.State]++
		}
		if total != 100 || states[parley.FiringFired] < 5 || states[parley.FiringFired]+states[parley.FiringMissed] != 100 || list[0].State != parley.FiringFired {
			t.Errorf("%d firings: %v", total, states)
		}
	})
}

// TestScheduleJitter: each firing is late by a time of its own, which is recorded
// and is the same for whoever draws it; firings keep their order.
func TestScheduleJitter(t *testing.T) {
	record := func() (lines []string) {
		onStore(t, func(r *rig) {
			s := r.flow("{cron: '* * * * *', jitter: 90s, overlap: allow}", "set: 1")
			r.rest()
			r.scheduler()
			r.until("20m")
			list, _, err := r.book.Firings(r.t.Context(), s.ID, parley.Page{Limit: 100})
			check(r.t, err)
			slices.Reverse(list)
			last := time.Time{}
			for _, f := range list {
				row, err := r.db.RunRow(r.t.Context(), f.Run)
				check(r.t, err)
				if f.DueAt.Before(f.ScheduledAt) || f.DueAt.Before(last) || row.CreatedAt.Before(f.DueAt) || row.CreatedAt.Sub(f.DueAt) > 50*time.Millisecond {
					r.t.Errorf("the firing of %s is due at %s after %s, and began at %s", f.ScheduledAt, f.DueAt, last, row.CreatedAt)
				}
				last = f.DueAt
				lines = append(lines, fmt.Sprint(f.ScheduledAt, f.DueAt))
			}
		})
		return lines
	}
	first := record()
	if len(first) < 15 || !slices.Equal(first, record()) {
		t.Errorf("%d firings: %v", len(first), first)
	}
}

// TestScheduleFailed: a run that is refused is recorded with its reason, and the
// schedule goes on.
func TestScheduleFailed(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		s := r.flow("{every: 10s, input: {n: '${1 / (event.scheduled_at == \"2000-01-01T00:00:10Z\" ? 0 : 1)}'}}", "set: 1")
		r.scheduler()
		r.until("25s")
		list, _, err := r.book.Firings(t.Context(), s.ID, parley.Page{Limit: 10})
		check(t, err)
		if len(list) != 2 || list[1].State != parley.FiringFailed || !strings.HasPrefix(list[1].Reason, "expression: ") || list[0].State != parley.FiringFired {
			t.Errorf("%+v", list)
		}
	})
}

// TestC7_EachFiringOnce has three schedulers share a store in which writes go wrong,
// before and after they are written, and schedulers come and go. Whatever happens,
// each firing starts one run, and none while another is under way unless overlap
// allows it.
func TestC7_EachFiringOnce(t *testing.T) {
	for i, overlap := range []string{"skip", "queue", "cancel_previous", "allow"} {
		t.Run(overlap, func(t *testing.T) {
			onStore(t, func(r *rig) { eachFiringOnce(r, overlap, uint64(i)) })
		})
	}
}

func eachFiringOnce(r *rig, overlap string, seed uint64) {
	t := r.t
	s := r.flow("{every: 5s, catch_up: 1h, overlap: "+overlap+"}", "wait: 7s")
	random := rand.New(rand.NewPCG(seed, 7))
	var mu sync.Mutex
	faults := 0
	fault := func(point string) error {
		mu.Lock()
		defer mu.Unlock()
		if (strings.HasPrefix(point, "schedule.") || strings.HasPrefix(point, "P1.")) && random.IntN(4) == 0 {
			faults++
			return parley.Errorf(parley.CodeUnavailable, "fault at %s", point)
		}
		return nil
	}
	r.fault.Store(&fault)
	stops := make([]func(), 3)
	for i := range stops {
		stops[i] = r.scheduler()
	}
	for range 12 {
		mu.Lock()
		i, pause := random.IntN(3), time.Duration(random.IntN(20_000))*time.Millisecond
		mu.Unlock()
		time.Sleep(pause)
		stops[i]()
		stops[i] = r.scheduler()
	}
	r.fault.Store(nil)
	time.Sleep(time.Minute)
	synctest.Wait()
	if faults < 20 {
		t.Errorf("%d faults", faults)
	}
	checkFirings(r, s, overlap)
}

func checkFirings(r *rig, s parley.Schedule, overlap string) {
	t := r.t
	firings, _, err := r.book.Firings(t.Context(), s.ID, parley.Page{Limit: 1000})
	check(t, err)
	runs, total, err := r.db.Runs(t.Context(), parley.RunQuery{Page: parley.Page{Limit: 1000}, Ascending: true})
	check(t, err)
	fired := map[string]bool{}
	slices.Reverse(firings)
	for i, f := range firings {
		if i > 0 && f.ScheduledAt.Sub(firings[i-1].ScheduledAt) != 5*time.Second {
			t.Errorf("%s comes after %s", f.ScheduledAt, firings[i-1].ScheduledAt)
		}
		switch f.State {
		case parley.FiringFired:
			if fired[f.Run] {
				t.Errorf("run %s is that of two firings", f.Run)
			}
			fired[f.Run] = true
		case parley.FiringMissed, parley.FiringFailed:
			t.Errorf("%s: %s %s", f.ScheduledAt, f.State, f.Reason)
		case parley.FiringSkipped, parley.FiringWaiting, parley.FiringStarting:
		}
	}
	if len(fired) != total || len(fired) < 8 {
		t.Errorf("%d runs, and %d firings that have started one", total, len(fired))
	}
	for i, run := range runs {
		if !fired[run.ID] {
			t.Errorf("nobody knows of run %s", run.ID)
		}
		if overlap != "allow" && i > 0 && runs[i-1].EndedAt.After(run.CreatedAt) {
			t.Errorf("run %s begins at %s, before the end of the one before at %s", run.ID, run.CreatedAt, runs[i-1].EndedAt)
		}
	}
}

// TestC7_RunOfAFiringThatIsKnown: a firing whose run was started before takes that,
// also if the input has become another.
func TestC7_RunOfAFiringThatIsKnown(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		s := r.flow("{every: 10s}", "set: 1")
		run, _, err := r.x.Start(t.Context(), parley.StartRequest{
			Workflow: "flow", Input: []byte(`{"other":true}`), Schedule: s.ID, ScheduledAt: epoch().Add(10 * time.Second),
		})
		check(t, err)
		r.scheduler()
		r.until("15s")
		list, _, err := r.book.Firings(t.Context(), s.ID, parley.Page{Limit: 10})
		check(t, err)
		if len(list) != 1 || list[0].Run != run.ID {
			t.Errorf("%+v, want run %s", list, run.ID)
		}
	})
}

// TestSchedulerSleeps: a scheduler that has nothing to do asks for little, and one
// that is woken looks at once.
func TestSchedulerSleeps(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		s := schedule.New(r.config())
		defer r.begin(s.Run)()
		synctest.Wait()
		r.apply("name: flow\nsteps: [{id: a, set: 1}]\n")
		_, err := r.book.Add(t.Context(), parley.ScheduleRequest{Workflow: "flow", ScheduleSpec: parley.ScheduleSpec{Every: "1s"}, By: "ann"})
		check(t, err)
		s.Wake()
		r.until("1s")
		list, _, err := r.book.List(t.Context(), parley.ScheduleQuery{})
		check(t, err)
		if len(list) != 1 || list[0].Last == nil || list[0].Last.State != parley.FiringFired {
			t.Errorf("%+v", list)
		}
	})
}

// TestScheduleUnavailable: a run that cannot be started now is started later.
func TestScheduleUnavailable(t *testing.T) {
	onStore(t, func(r *rig) {
		s := r.flow("{every: 1m}", "set: 1")
		broken := func(point string) error {
			if point == "P1.before" {
				return errors.New("no disk")
			}
			return nil
		}
		r.fault.Store(&broken)
		r.scheduler()
		r.until("65s")
		r.want(s.ID, "1m0s starting")
		r.fault.Store(nil)
		r.until("70s")
		r.want(s.ID, "1m0s fired 1m5s-1m5s COMPLETED")
	})
}
