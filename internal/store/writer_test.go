package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
)

// stall occupies the writer until release is called, so that everything that
// is submitted meanwhile goes into one group.
func stall(t testing.TB, db *DB) (release func()) {
	t.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := db.submit(context.Background(), prompt, func(*session) error {
			close(begun)
			<-end
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-begun
	return func() { close(end); wg.Wait() }
}

// queued waits until n units wait for the writer.
func queued(t testing.TB, db *DB, n int) {
	t.Helper()
	for range 60_000 {
		if len(db.queue) == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%d units are queued, not %d", len(db.queue), n)
}

// insert is a unit that writes one row and then returns err.
func insert(attempt string, err error) func(*session) error {
	return func(s *session) error {
		if _, err := s.exec(`INSERT INTO late (attempt, at, source, outcome) VALUES (?, 1, '', 'ok')`, attempt); err != nil {
			return err
		}
		return err
	}
}

// together submits units that share a group, and gives their errors.
func together(t *testing.T, db *DB, d durability, units ...func(*session) error) []error {
	t.Helper()
	release := stall(t, db)
	errs := make([]error, len(units))
	var wg sync.WaitGroup
	for i, u := range units {
		wg.Go(func() { errs[i] = db.submit(t.Context(), d, u) })
		queued(t, db, i+1)
	}
	release()
	wg.Wait()
	return errs
}

func lateRows(t testing.TB, db *DB) (list []string) {
	t.Helper()
	check(t, db.read(t.Context(), `SELECT attempt FROM late ORDER BY attempt`, func(r *record) error {
		list = append(list, r.str())
		return nil
	}))
	return list
}

// The units of a group stand for themselves: neither a refusal, nor one after
// a write, nor an error of one of them is the concern of the others.
func TestGroupIsolation(t *testing.T) {
	refused := func(*session) error { return ErrStale }
	broken := func(s *session) error {
		if _, err := s.exec(`INSERT INTO late (attempt, at, source, outcome) VALUES ('broken', 1, '', 'ok')`); err != nil {
			return err
		}
		_, err := s.exec(`INSERT INTO late (id, attempt, at, source, outcome) VALUES (1, NULL, 1, '', 'ok')`)
		return err
	}
	for name, c := range map[string]struct {
		guilty  func(*session) error
		check   func(error) bool
		commits int64
	}{
		"refused":            {refused, func(err error) bool { return errors.Is(err, ErrStale) }, 1},
		"refused with words": {func(*session) error { return noRun("x") }, func(err error) bool { return parley.CodeOf(err) == parley.CodeNotFound }, 1},
		"refused late":       {insert("late", errLate), func(err error) bool { return err == ErrStale }, 4},
		"constraint":         {broken, func(err error) bool { return parley.CodeOf(err) == parley.CodeConflict }, 4},
		"error":              {insert("odd", errors.New("odd")), func(err error) bool { return parley.CodeOf(err) == parley.CodeInternal }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			eachDB(t, func(t *testing.T, db *DB) {
				before := db.SyncedCommits()
				errs := together(t, db, synced, insert("a", nil), insert("b", nil), c.guilty, insert("c", nil), insert("d", nil))
				for i, err := range errs {
					if i == 2 && !c.check(err) || i != 2 && err != nil {
						t.Errorf("unit %d: %v", i, err)
					}
				}
				diff(t, lateRows(t, db), []string{"a", "b", "c", "d"})
				diff(t, db.SyncedCommits()-before, c.commits)
			})
		})
	}
}

// A decision is refused before it has written, so that the group goes on.
func TestRefusalsDoNotBreakTheGroup(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		run := begin(t, db, "run-1", attempt("run-1", "a", 1), attempt("run-1", "b", 1), attempt("run-1", "c", 1))
		must(db.Answer(t.Context(), answer("run-1.a.1", `1`)))(t)
		decision := func(change func(*Decision)) func(*session) error {
			d := next(run, 1)
			change(&d)
			c := must(checkDecision(&d))(t)
			return func(s *session) error { return decide(s, c) }
		}
		late := func(task string) *Answer { a := answer(task, `2`); return &a }
		units := []func(*session) error{
			decision(func(d *Decision) { d.Answer, d.Close = late("run-1.a.1"), []Close{{TaskID: "run-1.a.1", Absorb: true}} }),
			decision(func(d *Decision) { d.Answer = late("run-1.a.1") }),
			decision(func(d *Decision) { d.Close = []Close{{TaskID: "run-1.b.1", Absorb: true}} }),
			decision(func(d *Decision) { d.Close = []Close{{TaskID: "run-1.x.1", Absorb: true}} }),
			decision(func(d *Decision) { d.Close = []Close{{TaskID: "run-1.a.1", Outcome: parley.OutcomeTimeout}} }),
			decision(func(d *Decision) {
				d.Close = []Close{{TaskID: "run-1.b.1", Outcome: parley.OutcomeTimeout}, {TaskID: "run-1.c.1", Absorb: true}}
			}),
			decision(func(d *Decision) { d.Insert = []Attempt{claimed(attempt("run-1", "d", 1), Claim{"b9", 1, "t"})} }),
			decision(func(d *Decision) { d.Replies = replying(run, "run-1.b.1", 1, "x").Replies }),
			decision(func(d *Decision) {
				d.Close = []Close{{TaskID: "run-1.a.1", Absorb: true}}
				d.Replies = replying(run, "run-1.b.1", 1, "x").Replies
			}),
			insert("neighbour 1", nil),
			insert("neighbour 2", nil),
		}
		before, rows := db.SyncedCommits(), rowsOf(t, db, "run-1")
		errs := together(t, db, synced, units...)
		for i, err := range errs[:len(errs)-2] {
			if !errors.Is(err, ErrStale) {
				t.Errorf("unit %d: %v", i, err)
			}
		}
		check(t, errors.Join(errs[len(errs)-2:]...))
		diff(t, db.SyncedCommits()-before, int64(1))
		diff(t, rowsOf(t, db, "run-1"), rows)
		diff(t, lateRows(t, db), []string{"neighbour 1", "neighbour 2"})
	})
}

// A run of k steps in one process is k + 1 synced commits (protocol.md §6).
func TestSyncedCommitsOfARun(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		before := db.SyncedCommits()
		const k = 5
		step := func(i int) Attempt {
			c.Token = fmt.Sprint("t", i)
			return claimed(attempt("run-1", fmt.Sprint("s", i), 1), c)
		}
		run := begin(t, db, "run-1", step(1))
		for i := 1; i <= k; i++ {
			d := next(run, 1)
			ans := answer(fmt.Sprintf("run-1.s%d.1", i), `1`)
			d.Answer, d.Close = &ans, []Close{{TaskID: ans.Result.TaskID, Absorb: true}}
			if i < k {
				d.Insert = []Attempt{step(i + 1)}
			} else {
				d.Run.Status, d.Run.EndedAt = parley.RunCompleted, epoch
			}
			check(t, db.Decide(t.Context(), d))
			run = d.Run
		}
		diff(t, db.SyncedCommits()-before, int64(k+1))

		// Apart: 3k + 1. What is refused or lazy adds none.
		before = db.SyncedCommits()
		run = begin(t, db, "run-2", attempt("run-2", "s1", 1))
		for i := 1; i <= k; i++ {
			task := fmt.Sprintf("run-2.s%d.1", i)
			must(db.Publish(t.Context(), epoch, 10))(t)
			check(t, db.Beat(t.Context(), "b1", c.Inc))
			check(t, db.Defer(t.Context(), []Deferral{{TaskID: task, At: epoch}}))
			claim(t, db, c, task, "u"+task)
			must(db.Claim(t.Context(), c, []ClaimRequest{{TaskID: task, Token: "other"}}, epoch))(t)
			must(db.Move(t.Context(), Move{Kind: MoveRelease, TaskID: task, From: c, At: epoch}))(t)
			must(db.Answer(t.Context(), answer(task, `1`)))(t)
			d := next(run, 1)
			d.Close = []Close{{TaskID: task, Absorb: true}}
			if i < k {
				d.Insert = []Attempt{attempt("run-2", fmt.Sprint("s", i+1), 1)}
			} else {
				d.Run.Status, d.Run.EndedAt = parley.RunCompleted, epoch
			}
			check(t, db.Decide(t.Context(), d))
			run = d.Run
		}
		diff(t, db.SyncedCommits()-before, int64(3*k+1))
	})
}

func TestGroupSharesACommit(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		before := db.SyncedCommits()
		var units []func(*session) error
		for i := range 50 {
			units = append(units, insert(fmt.Sprintf("%02d", i), nil))
		}
		for _, err := range together(t, db, synced, units...) {
			check(t, err)
		}
		diff(t, db.SyncedCommits()-before, int64(1))
		diff(t, len(lateRows(t, db)), 50)
	})
}

// Lazy writes wait for company, or for the flush interval, and cost no sync.
func TestLazyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(t.Context(), filepath.Join(t.TempDir(), "parley.db"), Options{Flush: time.Minute})
		check(t, err)
		defer func() { check(t, db.Close()) }()
		check(t, db.Migrate(t.Context()))
		level := func(d durability) (got int64, took time.Duration) {
			begun := time.Now()
			check(t, db.submit(t.Context(), d, func(s *session) error {
				return s.query(`PRAGMA synchronous`, func(r *record) error { got = r.int(); return nil })
			}))
			return got, time.Since(begun)
		}
		const full, normal = 2, 1
		for range 2 {
			if got, took := level(synced); got != full || took != 0 {
				t.Errorf("synced: level %d after %v", got, took)
			}
			if got, took := level(prompt); got != normal || took != 0 {
				t.Errorf("prompt: level %d after %v", got, took)
			}
			if got, took := level(lazy); got != normal || took != time.Minute {
				t.Errorf("lazy: level %d after %v", got, took)
			}
		}
		// In company it is carried at once.
		before := db.SyncedCommits()
		begun := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { check(t, db.submit(t.Context(), lazy, insert("lazy", nil))) })
		synctest.Wait()
		check(t, db.submit(t.Context(), synced, insert("synced", nil)))
		wg.Wait()
		if time.Since(begun) != 0 || db.SyncedCommits() != before+1 {
			t.Errorf("after %v, %d commits", time.Since(begun), db.SyncedCommits()-before)
		}
		// Close does not lose it.
		wg.Go(func() { check(t, db.submit(t.Context(), lazy, insert("last", nil))) })
		synctest.Wait()
		check(t, db.Close())
		wg.Wait()
		again := reopen(t, db.path, Options{})
		diff(t, lateRows(t, again), []string{"last", "lazy", "synced"})
		check(t, again.Close())
	})
}

// What a caller gives up before the writer begins it is never executed.
func TestGivingUp(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		release := stall(t, db)
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := make(chan error)
		var wg sync.WaitGroup
		wg.Go(func() { errs <- db.submit(ctx, synced, insert("given up", nil)) })
		queued(t, db, 1)
		cause := errors.New("no time")
		cancel(cause)
		if err := <-errs; !errors.Is(err, cause) {
			t.Errorf("error %v", err)
		}
		release()
		wg.Wait()
		check(t, db.submit(t.Context(), synced, insert("kept", nil)))
		if err := db.submit(ctx, synced, insert("too late", nil)); !errors.Is(err, cause) {
			t.Errorf("error %v", err)
		}
		diff(t, lateRows(t, db), []string{"kept"})

		// What was begun is waited for.
		ctx, cancel = context.WithCancelCause(t.Context())
		check(t, db.submit(ctx, synced, func(s *session) error {
			cancel(cause)
			return insert("begun", nil)(s)
		}))
		diff(t, lateRows(t, db), []string{"begun", "kept"})
	})
}

func TestQueueIsBounded(t *testing.T) {
	db := newDB(t, Options{Queue: 2})
	release := stall(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _ = db.submit(ctx, synced, insert("x", nil)) })
	}
	queued(t, db, 2)
	full, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if err := db.submit(full, synced, insert("y", nil)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	cancel()
	wg.Wait() // both have given up before the writer goes on
	release()
	diff(t, lateRows(t, db), []string(nil))
}

func TestFailpoints(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	fail := ""
	boom := errors.New("boom")
	db := newDB(t, Options{Failpoint: func(name string) error {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, name)
		if name == fail {
			return boom
		}
		return nil
	}})
	c := bridge(t, db, "b1")
	b2 := bridge(t, db, "b2")
	c.Token = "t1"
	run := begin(t, db, "run-1", claimed(attempt("run-1", "a", 1), c))
	merged := func() Decision {
		d := next(run, 1)
		ans := answer("run-1.a.1", `1`)
		d.Answer, d.Close = &ans, []Close{{TaskID: "run-1.a.1", Absorb: true}}
		c.Token = "t2"
		d.Insert = []Attempt{claimed(attempt("run-1", "b", 1), c)}
		return d
	}
	one := begin(t, db, "run-2", attempt("run-2", "a", 1), attempt("run-2", "b", 1), attempt("run-2", "c", 1))
	lost := claimed(attempt("run-5", "a", 1), Claim{"b2", 1, "t10"})
	lost.Policy.OutcomeUnknown = parley.OutcomeFail
	begin(t, db, "run-5", lost)
	late := begin(t, db, "run-6", attempt("run-6", "a", 1), attempt("run-6", "b", 1))
	on := true
	asked, asker := followed(t, db, "run-7", "b4")
	for _, x := range []struct {
		points []string
		do     func() error
	}{
		{[]string{"P1"}, func() error { _, err := db.StartRun(t.Context(), start("run-3", attempt("run-3", "a", 1))); return err }},
		{[]string{"P1", "P4"}, func() error {
			c.Token = "t4"
			_, err := db.StartRun(t.Context(), start("run-4", claimed(attempt("run-4", "a", 1), c)))
			return err
		}},
		{[]string{"P7", "P11", "P4"}, func() error { return db.Decide(t.Context(), merged()) }},
		{[]string{"P2"}, func() error { _, err := db.Publish(t.Context(), epoch, 10); return err }},
		{[]string{"P3"}, func() error {
			return db.Defer(t.Context(), []Deferral{{TaskID: "run-2.a.1", At: epoch.Add(time.Hour)}})
		}},
		{[]string{"P4"}, func() error {
			_, err := db.Claim(t.Context(), b2, []ClaimRequest{{TaskID: "run-2.a.1", Token: "t5"}, {TaskID: "run-2.b.1", Token: "t6"}, {TaskID: "run-2.c.1", Token: "t7"}}, epoch)
			return err
		}},
		{[]string{"P5"}, func() error {
			_, err := db.Move(t.Context(), Move{Kind: MoveRelease, TaskID: "run-2.a.1", From: Claim{"b2", 1, "t5"}, At: epoch})
			return err
		}},
		{[]string{"P6"}, func() error {
			_, err := db.Move(t.Context(), Move{Kind: MoveFollow, TaskID: "run-2.b.1", From: Claim{"b2", 1, "t6"}, AgentTaskID: "x"})
			return err
		}},
		{[]string{"P8"}, func() error {
			_, err := db.Move(t.Context(), Move{Kind: MoveAgain, TaskID: "run-2.c.1", From: Claim{"b2", 1, "t7"}, To: Claim{"b2", 1, "t8"}, At: epoch})
			return err
		}},
		{[]string{"P7"}, func() error { _, err := db.Answer(t.Context(), answer("run-2.a.1", `1`)); return err }},
		{[]string{"P15"}, func() error { d := next(one, 1); d.Hold = &on; return db.Decide(t.Context(), d) }},
		{[]string{"P13"}, func() error {
			d := next(one, 1)
			d.Seen++
			d.Run.Seq++
			d.Events[0].Seq++
			d.Run.Cancelling, d.RequestCancel = true, []string{"run-2.b.1"}
			return db.Decide(t.Context(), d)
		}},
		{[]string{"P16"}, func() error { _, err := db.Register(t.Context(), "b3", epoch); return err }},
		{[]string{"beat"}, func() error { return db.Beat(t.Context(), "b3", 1) }},
		{[]string{"P17"}, func() error { _, err := db.Sweep(t.Context(), []Worker{{Name: "b2", Inc: 1}}, epoch); return err }},
		{[]string{"P10"}, func() error { _, err := db.Sweep(t.Context(), nil, epoch); return err }},
		{[]string{"P12"}, func() error {
			d := next(late, 1)
			d.Close = []Close{{TaskID: "run-6.a.1", Outcome: parley.OutcomeTimeout}}
			return db.Decide(t.Context(), d)
		}},
		{[]string{"P14"}, func() error {
			d := next(late, 1)
			d.Seen++
			d.Run.Seq++
			d.Events[0].Seq++
			d.Run.Status, d.Run.EndedAt = parley.RunCancelled, epoch
			d.Close = []Close{{TaskID: "run-6.b.1", Outcome: parley.OutcomeCancelled}}
			return db.Decide(t.Context(), d)
		}},
		{[]string{"P18"}, func() error { _, err := db.Move(t.Context(), asking("run-7.a.1", asker, "one?")); return err }},
		{[]string{"P19"}, func() error { return db.Decide(t.Context(), replying(asked, "run-7.a.1", 1, "1")) }},
		{[]string{"P20"}, func() error { _, err := db.Move(t.Context(), sending("run-7.a.1", asker, 1)); return err }},
		{[]string{"P9"}, func() error {
			_, err := db.Move(t.Context(), Move{Kind: MoveTakeover, TaskID: "run-2.c.1", From: Claim{"b2", 1, "t8"}, To: Claim{"b3", 1, "t9"}, At: epoch})
			return err
		}},
	} {
		before := dump(t, db)
		calls, fail = nil, x.points[0]+".before"
		if err := x.do(); !errors.Is(err, boom) {
			t.Fatalf("%v: error %v before", x.points, err)
		}
		diff(t, calls, []string{fail})
		diff(t, dump(t, db), before)
		last := x.points[len(x.points)-1]
		calls, fail = nil, last+".after"
		if err := x.do(); !errors.Is(err, boom) {
			t.Fatalf("%v: error %v after", x.points, err)
		}
		var want []string
		for _, when := range []string{".before", ".after"} {
			for _, p := range x.points {
				want = append(want, p+when)
			}
		}
		diff(t, calls, want)
		if dump(t, db) == before {
			t.Errorf("%v: nothing was written", x.points)
		}
		fail = ""
	}
	// A refusal is no commit: nothing comes after it.
	calls = nil
	wantStale(t, db.Decide(t.Context(), merged()))
	diff(t, calls, []string{"P7.before", "P11.before", "P4.before"})
}

// A slow commit is told to operators.
func TestSlowCommitIsLogged(t *testing.T) {
	var out bytes.Buffer
	var mu sync.Mutex
	now := epoch
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(2 * time.Second)
		return now
	}
	db := newDB(t, Options{Now: clock, Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	bridge(t, db, "b1")
	check(t, db.Close())
	if !bytes.Contains(out.Bytes(), []byte("a commit was slow")) {
		t.Errorf("log %q", out.String())
	}
}

// That a bridge is alive is looked up once per transaction, and again after
// another unit of the same transaction has replaced it or declared it dead.
func TestAliveWithinAGroup(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, db *DB, c Claim) error{
		"replaced": func(t *testing.T, db *DB, c Claim) error {
			_, err := db.Register(t.Context(), c.Worker, time.Unix(1000, 0))
			return err
		},
		"dead": func(t *testing.T, db *DB, c Claim) error {
			_, err := db.Sweep(t.Context(), []Worker{{Name: c.Worker, Inc: c.Inc}}, time.Unix(1000, 0))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachDB(t, func(t *testing.T, db *DB) {
				c := bridge(t, db, "b")
				startClaimed := func(run string) error {
					c := Claim{c.Worker, c.Inc, "token-" + run}
					_, err := db.StartRun(t.Context(), start(run, claimed(attempt(run, "a", 1), c)))
					return err
				}
				before := db.SyncedCommits()
				release := stall(t, db)
				var errs [3]error
				var wg sync.WaitGroup
				wg.Go(func() { errs[0] = startClaimed("run-1") })
				queued(t, db, 1)
				wg.Go(func() { errs[1] = end(t, db, c) })
				queued(t, db, 2)
				wg.Go(func() { errs[2] = startClaimed("run-2") })
				queued(t, db, 3)
				release()
				wg.Wait()
				check(t, errs[0])
				check(t, errs[1])
				wantStale(t, errs[2])
				if !db.dialect.guesses {
					diff(t, db.SyncedCommits()-before, int64(1))
				}
			})
		})
	}
}
