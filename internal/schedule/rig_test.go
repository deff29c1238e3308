package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/schedule"
	"github.com/parley-project/parley/internal/store"
)

// rig is a store, an executor and the catalog of its workflows, in virtual time
// that begins on 2000-01-01.
type rig struct {
	t       *testing.T
	db      *store.DB
	x       *executor.Executor
	catalog *executor.Catalog
	book    *schedule.Book
	ids     atomic.Int64

	registry *prometheus.Registry
	metrics  *schedule.Metrics
	// fault, if set, is asked before and after each write.
	fault atomic.Pointer[func(point string) error]

	// rest ends the executor: what it is asked for it still does.
	rest func()

	mu      sync.Mutex // protects ongoing
	ongoing []func()
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// onStore runs a test on an SQLite store in virtual time.
func onStore(t *testing.T, f func(r *rig)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "parley.db")
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, registry: prometheus.NewRegistry()}
		r.metrics = schedule.NewMetrics(r.registry)
		var err error
		r.db, err = store.Open(t.Context(), file, store.Options{Failpoint: func(point string) error {
			if f := r.fault.Load(); f != nil {
				return (*f)(point)
			}
			return nil
		}})
		check(t, err)
		check(t, r.db.Migrate(t.Context()))
		bus := memory.New(memory.Options{})
		r.x = executor.New(executor.Config{
			Store: r.db, Signals: r.db, Take: r.db.Publish, Bus: bus, Now: time.Now, Jitter: func() float64 { return 0.5 },
			NewID: func() string { return r.id("run") }, CancelGrace: time.Second,
		})
		r.book = schedule.NewBook(r.config(), nil)
		r.catalog = executor.NewCatalog(executor.CatalogConfig{
			DB: r.db, Executor: r.x, Now: time.Now, NewID: func() string { return r.id("definition") },
			KnownAgent: func(context.Context, string) bool { return true },
			Changed:    func(ctx context.Context) { _ = r.book.Changed(ctx) },
		})
		r.rest = r.begin(r.x.Run)
		defer func() {
			for _, end := range r.ongoing {
				end()
			}
			r.rest()
			check(t, errors.Join(bus.Close(), r.db.Close()))
		}()
		synctest.Wait()
		f(r)
	})
}

func (r *rig) id(kind string) string { return fmt.Sprintf("%s-%d", kind, r.ids.Add(1)) }

func (r *rig) config() schedule.Config {
	return schedule.Config{
		DB: r.db, Now: time.Now, NewID: func() string { return r.id("id") }, Start: r.x.Start, Cancel: r.x.Cancel, Metrics: r.metrics,
	}
}

// begin runs something until it is stopped.
func (r *rig) begin(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	return func() { cancel(); running.Wait() }
}

// scheduler runs a scheduler until it is stopped or the test ends.
func (r *rig) scheduler() (stop func()) {
	stop = r.begin(schedule.New(r.config()).Run)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ongoing = append(r.ongoing, stop)
	return stop
}

// until lets time pass, up to so long after midnight.
func (r *rig) until(clock string) {
	r.t.Helper()
	d, err := time.ParseDuration(clock)
	check(r.t, err)
	time.Sleep(time.Until(epoch().Add(d)) + 100*time.Millisecond)
	synctest.Wait()
}

func epoch() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// flow deploys a workflow of one step with a schedule, and gives the schedule.
func (r *rig) flow(spec, step string) parley.Schedule {
	r.t.Helper()
	r.apply("name: flow\ntriggers: [{schedule: " + spec + "}]\nsteps: [{id: a, " + step + "}]\n")
	list, _, err := r.book.List(r.t.Context(), parley.ScheduleQuery{})
	check(r.t, err)
	if len(list) != 1 {
		r.t.Fatalf("%d schedules", len(list))
	}
	return list[0]
}

func (r *rig) apply(source string) parley.WorkflowVersion {
	r.t.Helper()
	v, _, err := r.catalog.Apply(r.t.Context(), parley.ApplyRequest{File: "flow.yaml", Source: []byte(source), By: "ann"})
	check(r.t, err)
	return v
}

// firings gives what is recorded of a schedule, the earliest first: the time of
// each, its state, and the time its run was created and ended.
func (r *rig) firings(id string) string {
	r.t.Helper()
	list, _, err := r.book.Firings(r.t.Context(), id, parley.Page{Limit: 1000})
	check(r.t, err)
	var lines []string
	for _, f := range list {
		line := clock(f.ScheduledAt) + " " + string(f.State)
		if f.Run != "" {
			row, err := r.db.RunRow(r.t.Context(), f.Run)
			check(r.t, err)
			line += " " + clock(row.CreatedAt)
			if !row.EndedAt.IsZero() {
				line += "-" + clock(row.EndedAt) + " " + string(row.Status)
			}
		}
		lines = append([]string{line}, lines...)
	}
	return strings.Join(lines, "\n")
}

// clock is a time since midnight, in whole seconds.
func clock(t time.Time) string {
	return t.Truncate(time.Second).Sub(epoch()).String()
}

// want compares the firings of a schedule. That a run has ended is seen by looking,
// so the one behind it may begin somewhat later than is said here.
func (r *rig) want(id, firings string) {
	r.t.Helper()
	var want [][]string
	for line := range strings.Lines(firings) {
		if fields := strings.Fields(line); len(fields) > 0 {
			want = append(want, fields)
		}
	}
	got := r.firings(id)
	lines := strings.Split(got, "\n")
	if !slices.EqualFunc(lines, want, func(line string, want []string) bool { return alike(strings.Fields(line), want) }) {
		r.t.Errorf("the firings are\n%s\nwant\n%s", got, firings)
	}
	r.counted(got)
}

// counted compares the metrics with the firings of the only schedule, a line each.
func (r *rig) counted(firings string) {
	r.t.Helper()
	want := map[string]float64{}
	for line := range strings.Lines(firings) {
		if state := strings.Fields(line)[1]; state != "waiting" && state != "starting" {
			want[state]++
		}
	}
	families, err := r.registry.Gather()
	check(r.t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	if !maps.Equal(got, want) {
		r.t.Errorf("the metrics count %v, want %v", got, want)
	}
}

// seenWithin is how much later than at once a scheduler may see that runs have ended,
// one after another.
const seenWithin = 3 * time.Second

// alike compares two lines of firings.
func alike(got, want []string) bool {
	return len(got) > 0 && got[0] == want[0] && slices.EqualFunc(got, want, func(got, want string) bool {
		if got == want {
			return true
		}
		from, to, ended := strings.Cut(got, "-")
		begin, end, ends := strings.Cut(want, "-")
		return ended == ends && later(from, begin) && (!ended || later(to, end))
	})
}

// later reports whether a time is another, or hardly later.
func later(got, want string) bool {
	g, err := time.ParseDuration(got)
	w, wrong := time.ParseDuration(want)
	return err == nil && wrong == nil && (g-w).Abs() <= seenWithin
}
