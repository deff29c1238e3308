package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/parley-project/parley"
)

// faults fails the statements of the write connection from the nth on.
type faults struct {
	// from counts down to the first failure; times is how many follow.
	from, times atomic.Int64
	// after executes the statement all the same: the reply is lost.
	after bool
	// only, if set, is the text that is counted.
	only string
	err  error
}

func (f *faults) arm(from, times int64) { f.times.Store(times); f.from.Store(from) }

func (f *faults) hit(text string) bool {
	if f.only != "" && f.only != text {
		return false
	}
	return f.from.Add(-1) < 0 && f.times.Add(-1) >= 0
}

type faultyConnector struct {
	driver.Connector
	f *faults
}

func (c faultyConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return faultyConn{conn, c.f}, err
}

type faultyConn struct {
	driver.Conn
	f *faults
}

func (c faultyConn) Prepare(text string) (driver.Stmt, error) {
	st, err := c.Conn.Prepare(text)
	return faultyStmt{st, c.f, text}, err
}

type faultyStmt struct {
	driver.Stmt
	f    *faults
	text string
}

func (s faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	hit := s.f.hit(s.text)
	if hit && !s.f.after {
		return nil, s.f.err
	}
	res, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	if hit {
		return nil, s.f.err
	}
	return res, err
}

func (s faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if s.f.hit(s.text) {
		return nil, s.f.err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// openFaulty opens a new database whose write connection has faults.
func openFaulty(t testing.TB, f *faults, change func(*dialect)) *DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "parley.db")
	check(t, reopen(t, path, Options{}).Close())
	return openFaultyAt(t, path, f, change)
}

// openFaultyAt is openFaulty for a database that is there.
func openFaultyAt(t testing.TB, path string, f *faults, change func(*dialect)) *DB {
	t.Helper()
	f.arm(1<<40, 0)
	d := sqliteDialect()
	connector := d.connector
	d.connector = func(path string, o Options, use use) (driver.Connector, error) {
		c, err := connector(path, o, use)
		if use == forWriting && err == nil {
			c = faultyConnector{c, f}
		}
		return c, err
	}
	if change != nil {
		change(&d)
	}
	db, err := open(t.Context(), d, path, Options{})
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// scenario is the life of a run of two steps, as calls that can be repeated.
func scenario(db *DB, c Claim) []func(context.Context) error {
	a, b := attempt("run-1", "a", 1), attempt("run-1", "b", 1)
	first := c
	first.Token = "t1"
	st := start("run-1", claimed(a, first))
	st.IdempotencyKey = "key"
	one := next(st.Run, 2)
	ans := answer(a.ID, `1`)
	one.Answer, one.Close, one.Insert = &ans, []Close{{TaskID: a.ID, Absorb: true}}, []Attempt{b}
	second := c
	second.Token = "t2"
	talk := replying(one.Run, b.ID, 1, "yes")
	talk.NewsSeen = []NewsSeen{{b.ID, 1}}
	two := next(talk.Run, 2)
	two.Close = []Close{{TaskID: b.ID, Absorb: true}}
	two.Run.Status, two.Run.EndedAt = parley.RunCompleted, epoch
	move := func(m Move) func(context.Context) error {
		m.At = epoch
		return func(ctx context.Context) error {
			ok, err := db.Move(ctx, m)
			if err == nil && !ok {
				err = errors.New("refused")
			}
			return err
		}
	}
	return []func(context.Context) error{
		func(ctx context.Context) error { _, err := db.StartRun(ctx, st); return err },
		func(ctx context.Context) error { return db.Decide(ctx, one) },
		func(ctx context.Context) error { _, err := db.Publish(ctx, epoch, 10); return err },
		func(ctx context.Context) error {
			list, err := db.Claim(ctx, c, []ClaimRequest{{TaskID: b.ID, Token: "t2"}}, epoch)
			if err == nil && len(list) != 1 {
				err = fmt.Errorf("%d attempts", len(list))
			}
			return err
		},
		move(Move{Kind: MoveFollow, TaskID: b.ID, From: second, AgentTaskID: "x"}),
		move(asking(b.ID, second, "one?")),
		func(ctx context.Context) error { return db.Decide(ctx, talk) },
		move(sending(b.ID, second, 1)),
		move(goesOn(b.ID, second)),
		func(ctx context.Context) error {
			ok, err := db.Answer(ctx, answer(b.ID, `2`))
			if err == nil && !ok {
				err = errors.New("refused")
			}
			return err
		},
		func(ctx context.Context) error { return db.Decide(ctx, two) },
	}
}

// checkEnded says that the scenario's run has ended as it has to.
func checkEnded(t *testing.T, db *DB) {
	t.Helper()
	h := must(db.History(t.Context(), "run-1"))(t)
	if h.Run.Status != parley.RunCompleted || len(h.Events) != 7 || len(h.Attempts) != 0 {
		t.Fatalf("%s with %d events, %d attempts left", h.Run.Status, len(h.Events), len(h.Attempts))
	}
	for i, e := range h.Events {
		diff(t, e.Seq, int64(i+1))
	}
	for _, a := range must(db.Attempts(t.Context(), "run-1"))(t) {
		if a.State != AttemptClosed || a.Result.Outcome != parley.OutcomeOK {
			t.Fatalf("%+v", a)
		}
	}
}

// Whatever statement fails, once or for good: a unit is written as a whole and
// reported so, or not at all and reported as failed, and can be repeated.
func TestEveryStatementFails(t *testing.T) {
	f := &faults{err: errors.New("fault")}
	template := newDB(t, Options{})
	check(t, template.Close())
	empty, err := os.ReadFile(template.path)
	check(t, err)
	for _, times := range []int64{1, 4} {
		for n := int64(0); ; n++ {
			path := filepath.Join(t.TempDir(), "parley.db")
			check(t, os.WriteFile(path, empty, 0o600))
			db := openFaultyAt(t, path, f, nil)
			c := bridge(t, db, "b1")
			f.arm(n, times)
			for i, call := range scenario(db, c) {
				// No call has as many statements: look only where a fault can hit.
				before := ""
				if f.times.Load() > 0 && f.from.Load() < 20 {
					before = dump(t, db)
				}
				err := call(t.Context())
				for tries := 0; err != nil; tries++ {
					if code := parley.CodeOf(err); code != parley.CodeInternal || tries > 5 {
						t.Fatalf("fault %d of %d, call %d: error %v", n, times, i, err)
					}
					diff(t, dump(t, db), before)
					err = call(t.Context())
				}
			}
			checkEnded(t, db)
			armed := f.times.Load() > 0
			f.arm(1<<40, 0)
			check(t, db.Close())
			if armed {
				break // all statements had their turn
			}
		}
	}
}

// After an error of the disk nothing is written any more, since what a sync
// that is repeated reports is not to be believed.
func TestFatal(t *testing.T) {
	f := &faults{err: errors.New("input/output error"), only: "COMMIT"}
	db := openFaulty(t, f, func(d *dialect) {
		d.classify = func(err error) errorClass {
			if errors.Is(err, f.err) {
				return classFatal
			}
			return sqliteClassify(err)
		}
	})
	begin(t, db, "run-1")
	before := dump(t, db)
	f.arm(0, 1)
	_, err := db.StartRun(t.Context(), start("run-2"))
	wantCode(t, err, parley.CodeUnavailable)
	<-db.Fatal()
	_, err = db.StartRun(t.Context(), start("run-3"))
	wantCode(t, err, parley.CodeUnavailable)
	diff(t, dump(t, db), before)
}

// A full disk fails what does not fit, and nothing else; for a while it counts as one that
// takes no writes.
func TestDiskFull(t *testing.T) {
	db := openFaulty(t, &faults{}, func(d *dialect) {
		d.connector = func(path string, _ Options, _ use) (driver.Connector, error) {
			return sqlite.NewConnector("file:" + path + "?_pragma=journal_mode(WAL)&_pragma=max_page_count(80)")
		}
	})
	big := start("run-2")
	big.Events[0].Data = fmt.Appendf(nil, `"%01000000d"`, 0)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	check(t, db.TakesWrites(t.Context()))
	release := stall(t, db)
	wg.Go(func() { _, errs[0] = db.StartRun(t.Context(), big) })
	queued(t, db, 1)
	wg.Go(func() { _, errs[1] = db.StartRun(t.Context(), start("run-1")) })
	queued(t, db, 2)
	release()
	wg.Wait()
	wantCode(t, errs[0], parley.CodeUnavailable)
	check(t, errs[1])
	if e, ok := errors.AsType[*sqlite.Error](errs[0]); !ok || db.dialect.classify(e) != classBusy {
		t.Errorf("error %v", errs[0])
	}
	if err := db.TakesWrites(t.Context()); parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("it takes writes: %v", err)
	}
	db.writes.full.Store(new(db.writes.full.Load().Add(-fullFor)))
	check(t, db.TakesWrites(t.Context()))
	check(t, db.Close())
	db = reopen(t, db.path, Options{})
	must(db.StartRun(t.Context(), big))(t)
	diff(t, len(must(db.Events(t.Context(), "run-2", 0, 1))(t)[0].Data), 1_000_002)
	_, total, err := db.Runs(t.Context(), parley.RunQuery{})
	check(t, err)
	diff(t, total, 2)
}

// Another process that writes is waited for.
func TestWriteLockIsAwaited(t *testing.T) {
	db := newDB(t, Options{})
	other := reopen(t, db.path, Options{})
	release := stall(t, other) // its transaction is open
	done := make(chan error)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _, err := db.Register(context.Background(), "b1", epoch); done <- err })
	select {
	case err := <-done:
		t.Errorf("registered under a foreign lock: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	check(t, <-done)
}
