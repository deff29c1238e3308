package retention_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/archive"
	"github.com/parley-project/parley/internal/retention"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/values"
	"github.com/parley-project/parley/internal/values/files"
)

var now = time.Date(2026, 11, 21, 10, 4, 5, 0, time.UTC)

func openDB(t testing.TB, o store.Options) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "parley.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}

// over adds a run that ended some days ago.
func over(t testing.TB, db *store.DB, id, workflow string, ago int) {
	t.Helper()
	overWith(t, db, id, workflow, ago, `{}`)
}

// overWith is over for a run whose end has data.
func overWith(t testing.TB, db *store.DB, id, workflow string, ago int, data string) {
	t.Helper()
	at := now.Add(-time.Duration(ago) * 24 * time.Hour)
	err := db.AddArchived(t.Context(), store.Archived{
		Run:    store.Run{ID: id, Workflow: workflow, Name: workflow, Seq: 1, Status: parley.RunCompleted, CreatedAt: at, UpdatedAt: at, EndedAt: at},
		Events: []parley.Event{{Seq: 1, At: at, Type: parley.EventRunCompleted, Run: id, Data: json.RawMessage(data)}},
	}, at)
	if err != nil {
		t.Fatal(err)
	}
}

func left(t testing.TB, db *store.DB) (ids []string) {
	t.Helper()
	runs, _, err := db.SearchRuns(t.Context(), parley.RunQuery{}, 500)
	if err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		ids = append(ids, runs[i].ID)
	}
	slices.Sort(ids)
	return ids
}

func config(db *store.DB) retention.Config {
	return retention.Config{
		DB: db, Now: func() time.Time { return now }, Clock: time.Now, Holder: "a", Rule: retention.Rule{Age: 30 * 24 * time.Hour},
		Workflows: map[string]retention.Rule{"kept": {}, "two": {Runs: 2}},
	}
}

// TestNone: a rule for one workflow is enough for there to be something to do.
func TestNone(t *testing.T) {
	for name, c := range map[string]struct {
		config retention.Config
		none   bool
	}{
		"no rule":            {retention.Config{Workflows: map[string]retention.Rule{"kept": {}}}, true},
		"one for all":        {retention.Config{Rule: retention.Rule{Runs: 1}}, false},
		"one for a workflow": {retention.Config{Workflows: map[string]retention.Rule{"kept": {}, "two": {Age: time.Hour}}}, false},
		"all but a workflow": {retention.Config{Rule: retention.Rule{Age: time.Hour}, Workflows: map[string]retention.Rule{"kept": {}}}, false},
	} {
		if got := c.config.None(); got != c.none {
			t.Errorf("%s: nothing is removed: %t, want %t", name, got, c.none)
		}
	}
}

// fill adds 120 runs of a workflow that go, and a few of others.
func fill(t testing.TB, db *store.DB) (stay []string) {
	t.Helper()
	for n := range 120 {
		over(t, db, fmt.Sprintf("any-%03d", n), "any", 31+n)
	}
	for n := range 4 {
		over(t, db, fmt.Sprintf("two-%d", n), "two", 10+n)
		over(t, db, fmt.Sprintf("kept-%d", n), "kept", 1000)
	}
	over(t, db, "young", "any", 29)
	return []string{"kept-0", "kept-1", "kept-2", "kept-3", "two-0", "two-1", "young"}
}

// TestC7_SweepRemovesByRule: each workflow by its own rule or by that for all; it says
// so in the log and in the numbers.
func TestC7_SweepRemovesByRule(t *testing.T) {
	db := openDB(t, store.Options{})
	stay := fill(t, db)
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	cfg := config(db)
	cfg.Logger, cfg.Metrics = slog.New(slog.NewTextHandler(&log, nil)), retention.NewMetrics(reg)
	s := retention.New(cfg)
	r, err := s.Sweep(t.Context())
	if err != nil || r.Removed != 122 || r.Archived != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if got := left(t, db); !slices.Equal(got, stay) {
		t.Errorf("left are %v, want %v", got, stay)
	}
	if !strings.Contains(log.String(), "removed=122 archived=0") || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("log: %s", &log)
	}
	if r, err := s.Sweep(t.Context()); err != nil || r.Removed != 0 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("the second sweep: %+v, %v, log %s", r, err, &log)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got = append(got, fmt.Sprintf("%s %s %v", f.GetName(), m.GetLabel()[0].GetValue(), m.GetCounter().GetValue()))
		}
	}
	want := []string{"parley_retention_runs_total archived 0", "parley_retention_runs_total removed 122", "parley_retention_sweeps_total done 2"}
	if !slices.Equal(got, want) {
		t.Errorf("the numbers are %q, want %q", got, want)
	}
}

// TestC7_SweepIsDoneByOne: while another process has its turn nothing is removed.
func TestC7_SweepIsDoneByOne(t *testing.T) {
	db := openDB(t, store.Options{})
	over(t, db, "old", "any", 31)
	if ok, err := db.TakeRetention(t.Context(), "b", now, now.Add(time.Minute)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	s := retention.New(config(db))
	if r, err := s.Sweep(t.Context()); err != nil || !r.Busy || len(left(t, db)) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := db.LeaveRetention(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Sweep(t.Context()); err != nil || r.Removed != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestC7_SweepLosesItsTurn: whoever was not heard of for so long that another process
// has begun goes on with nothing.
func TestC7_SweepLosesItsTurn(t *testing.T) {
	db := openDB(t, store.Options{})
	for n := range 60 {
		over(t, db, fmt.Sprintf("any-%03d", n), "any", 31+n)
	}
	cfg := config(db)
	at, calls := now, 0
	cfg.Now = func() time.Time { return at }
	cfg.Clock = func() time.Time {
		if calls++; calls == 4 { // behind the first batch
			at = now.Add(10 * time.Minute)
			if ok, err := db.TakeRetention(t.Context(), "b", at, at.Add(time.Minute)); !ok || err != nil {
				t.Error(ok, err)
			}
		}
		return now
	}
	r, err := retention.New(cfg).Sweep(t.Context())
	if err != nil || !r.Busy || r.Removed == 0 || r.Removed == 60 || len(left(t, db)) != 60-r.Removed {
		t.Errorf("%+v, %v, %d are left", r, err, len(left(t, db)))
	}
}

// archived gives the ids in the files of a folder, how often each.
func archived(t testing.TB, dir string) map[string]int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			a, err := archive.Decode(line)
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			ids[a.Run.ID]++
		}
	}
	return ids
}

// TestC7_SweepArchivesFirst: what was removed is in the archive, once.
func TestC7_SweepArchivesFirst(t *testing.T) {
	db := openDB(t, store.Options{})
	fill(t, db)
	dir := filepath.Join(t.TempDir(), "archive")
	cfg := config(db)
	cfg.Archive = &archive.Folder{Dir: dir}
	r, err := retention.New(cfg).Sweep(t.Context())
	ids := archived(t, dir)
	if err != nil || r.Removed != 122 || r.Archived != 122 || len(ids) != 122 || ids["any-000"] != 1 || ids["two-3"] != 1 {
		t.Errorf("%+v, %v, %d runs in the archive", r, err, len(ids))
	}
	if _, err := os.Stat(filepath.Join(dir, "runs-2026-11-21.ndjson")); err != nil {
		t.Error(err)
	}
}

// TestC7_SweepWithoutAnArchiveThatCanBeWritten: nothing is removed that was not
// written.
func TestC7_SweepWithoutAnArchiveThatCanBeWritten(t *testing.T) {
	db := openDB(t, store.Options{})
	over(t, db, "old", "any", 31)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config(db)
	cfg.Archive = &archive.Folder{Dir: file}
	if _, err := retention.New(cfg).Sweep(t.Context()); parley.CodeOf(err) != parley.CodeUnavailable || len(left(t, db)) != 1 {
		t.Errorf("%v, left are %v", err, left(t, db))
	}
}

// TestC7_SweepIsKilled: wherever a sweep is broken off, each run is in the database, in
// the archive, or in both, and the next sweep finishes it.
func TestC7_SweepIsKilled(t *testing.T) {
	for n := range 8 {
		db := openDB(t, store.Options{})
		for i := range 52 {
			over(t, db, fmt.Sprintf("any-%02d", i), "any", 31+i)
		}
		dir := filepath.Join(t.TempDir(), "archive")
		cfg := config(db)
		cfg.Archive = &archive.Folder{Dir: dir}
		ctx, cancel := context.WithCancelCause(t.Context())
		killed := errors.New("killed")
		calls := 0
		cfg.Clock = func() time.Time { // it is read before and after each transaction
			if calls++; calls > n {
				cancel(killed)
			}
			return now
		}
		if _, err := retention.New(cfg).Sweep(ctx); n < 6 && err == nil {
			t.Errorf("%d: not broken off", n)
		}
		cancel(nil)
		ids, there := archived(t, dir), left(t, db)
		for i := range 52 {
			id := fmt.Sprintf("any-%02d", i)
			if ids[id] == 0 && !slices.Contains(there, id) {
				t.Errorf("%d: run %s is lost", n, id)
			}
		}
		cfg.Clock = time.Now
		if _, err := retention.New(cfg).Sweep(t.Context()); err != nil || len(left(t, db)) != 0 || len(archived(t, dir)) != 52 {
			t.Errorf("%d: then %v, %d runs are left, %d archived", n, err, len(left(t, db)), len(archived(t, dir)))
		}
	}
}

// TestC7_SweepsGoOn: it sweeps at once and then from time to time, also after one that
// has failed.
func TestC7_SweepsGoOn(t *testing.T) {
	db := openDB(t, store.Options{})
	over(t, db, "old", "any", 31)
	cfg := config(db)
	cfg.Every = time.Millisecond
	file := filepath.Join(t.TempDir(), "dir")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Archive = &archive.Folder{Dir: file}
	failed := make(chan struct{})
	cfg.Logger = slog.New(slog.NewTextHandler(onWrite(func() {
		select {
		case <-failed:
		default:
			close(failed)
		}
	}), nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- retention.New(cfg).Run(ctx) }()
	<-failed
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for len(left(t, db)) > 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

// TestC7_DamagedRunKeepsNoOther: runs that cannot be archived stay, and are named;
// all others go.
func TestC7_DamagedRunKeepsNoOther(t *testing.T) {
	file := filepath.Join(t.TempDir(), "parley.db")
	db, err := store.Open(t.Context(), file, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	stay := append(fill(t, db), "any-119", "any-118")
	other, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	_, damaged := other.ExecContext(t.Context(), `UPDATE event SET data = CAST('[{"at":1,' AS BLOB) WHERE run IN ('any-119', 'any-118')`)
	if err := errors.Join(damaged, other.Close()); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cfg := config(db)
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	cfg.Archive = &archive.Folder{Dir: filepath.Join(t.TempDir(), "archive")}
	r, err := retention.New(cfg).Sweep(t.Context())
	if err != nil || r.Removed != 120 || r.Archived != 120 {
		t.Errorf("%+v, %v", r, err)
	}
	slices.Sort(stay)
	if got := left(t, db); !slices.Equal(got, stay) {
		t.Errorf("left are %v, want %v", got, stay)
	}
	if strings.Count(log.String(), "run=any-119") != 1 || !strings.Contains(log.String(), "runs=2") {
		t.Errorf("log: %s", &log)
	}
}

// failing is a store of values that gives none.
type failing struct {
	values.Store
	fails bool
}

func (s *failing) Get(ctx context.Context, name string, most int64) ([]byte, error) {
	if s.fails {
		return nil, errors.New("permission denied")
	}
	return s.Store.Get(ctx, name, most)
}

// TestC7_ValueThatIsAwayKeepsNoOther: a run stays while one of its values cannot be
// fetched, and the sweep has failed; all others go.
func TestC7_ValueThatIsAwayKeepsNoOther(t *testing.T) {
	s := &failing{Store: files.Open(filepath.Join(t.TempDir(), "values")), fails: true}
	db := openDB(t, store.Options{Values: s, ApartAbove: 1000})
	overWith(t, db, "any-large", "any", 1000, `{"output":"`+strings.Repeat("x", 5000)+`"}`)
	stay := append(fill(t, db), "any-large")
	dir := filepath.Join(t.TempDir(), "archive")
	var log bytes.Buffer
	cfg := config(db)
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	cfg.Archive = &archive.Folder{Dir: dir}
	sweeper := retention.New(cfg)
	r, err := sweeper.Sweep(t.Context())
	if parley.CodeOf(err) != parley.CodeUnavailable || r.Removed != 122 || r.Archived != 122 {
		t.Errorf("%+v, %v", r, err)
	}
	slices.Sort(stay)
	if got := left(t, db); !slices.Equal(got, stay) {
		t.Errorf("left are %v, want %v", got, stay)
	}
	if strings.Count(log.String(), "run=any-large") != 1 {
		t.Errorf("log: %s", &log)
	}
	s.fails = false
	if r, err := sweeper.Sweep(t.Context()); err != nil || r.Removed != 1 || archived(t, dir)["any-large"] != 1 {
		t.Errorf("when it can be fetched: %+v, %v", r, err)
	}
}

// TestC7_AnswerBetweenArchiveAndRemoval: an answer that comes too late for its attempt
// when its run was just archived keeps the run until it is archived with that; whoever
// takes the archive in, with the run in it twice, has the answer.
func TestC7_AnswerBetweenArchiveAndRemoval(t *testing.T) {
	db := openDB(t, store.Options{})
	ended := now.Add(-1000 * time.Hour)
	run := store.Archived{
		Run:    store.Run{ID: "run-1", Workflow: "any", Name: "any", Seq: 1, Status: parley.RunFailed, CreatedAt: ended, UpdatedAt: ended, EndedAt: ended},
		Events: []parley.Event{{Seq: 1, At: ended, Type: parley.EventRunFailed, Run: "run-1", Data: json.RawMessage(`{}`)}},
		Attempts: []store.ArchivedAttempt{{
			ID: "run-1.a.1", Step: "a", Number: 1, Agent: "x", Input: []byte(`{}`), Outcome: "unknown", ScheduledAt: ended,
		}},
	}
	if err := db.AddArchived(t.Context(), run, ended); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "archive")
	cfg := config(db)
	cfg.Archive = &archive.Folder{Dir: dir}
	late, times := 0, 0
	cfg.Clock = func() time.Time {
		if archived(t, dir)["run-1"] > late && late < 2 { // it is archived, and not removed
			late++
			ok, err := db.Answer(t.Context(), store.Answer{From: "b1", At: now.Add(time.Duration(late) * time.Second), Result: parley.Result{
				TaskID: "run-1.a.1", Outcome: parley.OutcomeOK, Output: json.RawMessage(`"paid for"`),
			}})
			if ok || err != nil {
				t.Error(ok, err)
			}
		}
		return now
	}
	for ; len(left(t, db)) > 0 && times < 10; times++ {
		if _, err := retention.New(cfg).Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if times != 3 {
		t.Errorf("%d sweeps", times)
	}
	into := openDB(t, store.Options{})
	k := archive.Keeper{DB: into, Check: func(context.Context, *store.Archived) error { return nil }, Now: time.Now}
	text, err := os.ReadFile(cfg.Archive.File(now))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(bytes.TrimSpace(text), []byte("\n"))
	var outcomes []string
	for _, line := range slices.Concat(lines, lines) {
		res, err := k.Add(t.Context(), line)
		if err != nil {
			t.Fatal(err)
		}
		outcomes = append(outcomes, string(res.Outcome))
	}
	if want := []string{"added", "same", "same", "same", "same", "same"}; !slices.Equal(outcomes, want) {
		t.Errorf("the lines are %q, want %q", outcomes, want)
	}
	if got, err := into.Late(t.Context(), "run-1.a.1"); err != nil || len(got) != 2 || string(got[1].Result.Output) != `"paid for"` {
		t.Errorf("late answers that were kept: %+v, %v", got, err)
	}
}
