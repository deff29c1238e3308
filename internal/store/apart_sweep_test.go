package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/values"
)

// late is when every object of a test is old enough to be removed.
func lateEnough() time.Time { return time.Now().Add(2 * time.Hour) }

// sweep looks at all objects and gives how many it removed.
func sweep(t *testing.T, db *DB, now time.Time) (removed int) {
	t.Helper()
	for next := ""; ; {
		n, to, err := db.SweepValues(t.Context(), next, now)
		check(t, err)
		if removed += n; to == "" {
			return removed
		}
		next = to
	}
}

func objects(t *testing.T, s *spy) []string {
	t.Helper()
	var names []string
	for _, o := range must(s.List(t.Context(), "", 1000))(t) {
		names = append(names, o.Name)
	}
	return names
}

// Objects that nobody refers to go after an hour; those of runs stay until the
// rows of their run are removed.
func TestApartSweep(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		diff(t, sweep(t, db, lateEnough()), 0)
		bigRun(t, db, "run-1")
		bigRun(t, db, "run-2")
		kept := objects(t, s)
		for i := range 5 {
			v := fmt.Appendf(nil, "nobody's %d", i)
			check(t, s.Store.Put(t.Context(), values.Name(digestOf(v), "00"), v))
		}
		diff(t, sweep(t, db, time.Now().Add(50*time.Minute)), 0)
		diff(t, len(objects(t, s)), 7)
		diff(t, sweep(t, db, lateEnough()), 5)
		diff(t, objects(t, s), kept)
		diff(t, sweep(t, db, lateEnough()), 0)
		must(db.History(t.Context(), "run-1"))(t)

		check(t, db.submit(t.Context(), synced, func(s *session) error { return dropReferences(s, "run-1") }))
		diff(t, sweep(t, db, lateEnough()), 1)
		_, err := db.History(t.Context(), "run-1")
		wantCode(t, err, parley.CodeInternal)
		must(db.History(t.Context(), "run-2"))(t)
		// What was removed is remembered for a day.
		all := `SELECT 1 FROM value_ref WHERE object <> ''`
		rows := 0
		count := func(*record) error { rows++; return nil }
		check(t, db.read(t.Context(), all, count))
		diff(t, rows, 7)
		v := []byte("nobody's today")
		check(t, s.Store.Put(t.Context(), values.Name(digestOf(v), "00"), v))
		diff(t, sweep(t, db, lateEnough().Add(25*time.Hour)), 1)
		rows = 0
		check(t, db.submit(t.Context(), synced, func(*session) error { return nil })) // carries what is lazy
		check(t, db.read(t.Context(), all, count))
		diff(t, rows, 2) // the value of run-2, and what was removed just now
	})
}

// A transaction that would refer to an object that was removed meanwhile, because
// it took so long, is refused; decided anew it writes the value once more.
func TestApartSweepAgainstSlowWrite(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		run := begin(t, db, "run-1", attempt("run-1", "a", 1))
		d := next(run, 1)
		d.Events[0].Data = large(1)
		slept := false
		db.options.Failpoint = func(name string) error {
			if name == "values.put" && !slept {
				slept = true
				diff(t, sweep(t, db, lateEnough()), 1)
			}
			return nil
		}
		if err := db.Decide(t.Context(), d); !errors.Is(err, ErrStale) {
			t.Fatalf("a reference to an object that is gone: %v", err)
		}
		check(t, db.Decide(t.Context(), d))
		diff(t, sweep(t, db, lateEnough()), 0)
		events := must(db.Events(t.Context(), "run-1", run.Seq, 0))(t)
		diff(t, string(events[0].Data), string(large(1)))
	})
}

// errDied is what a call gives whose process died.
var errDied = errors.New("died")

// A process that dies between the write of its values and the commit leaves
// objects that nobody refers to, and nothing else; one that dies after the commit,
// or in a sweep, leaves every reference with its object.
func TestApartCrash(t *testing.T) {
	for _, point := range []string{"values.put", "P1.before", "P1.after", "P7.before", "P7.after", "P11.before", "P11.after"} {
		t.Run(point, func(t *testing.T) {
			eachApart(t, func(t *testing.T, db *DB, s *spy) {
				c := bridge(t, db, "b1")
				crashes := map[string]bool{}
				stage := ""
				db.options.Failpoint = func(name string) error {
					if name == point && !crashes[stage+name] {
						crashes[stage+name] = true
						return errDied
					}
					return nil
				}
				again := func(name string, f func() error) {
					stage = name
					err := f()
					if errors.Is(err, errDied) {
						wholeOrGone(t, db, s)
						err = f()
					}
					if !errors.Is(err, ErrStale) && parley.CodeOf(err) != parley.CodeConflict {
						check(t, err)
					}
				}
				a := attempt("run-1", "a", 1)
				a.Input = large(1)
				st := start("run-1", a)
				st.Events[0].Data = withValue(`{"input":VALUE}`, large(1))
				again("start", func() error { _, err := db.StartRun(t.Context(), st); return err })
				claim(t, db, c, a.ID, "t1")
				ans := answer(a.ID, string(large(2)))
				again("answer", func() error { _, err := db.Answer(t.Context(), ans); return err })
				d := answered(st.Run)
				d.Events[0].Data = withValue(`{"output":VALUE}`, large(3))
				again("decide", func() error { return db.Decide(t.Context(), d) })
				db.options.Failpoint = nil
				wholeOrGone(t, db, s)
				diff(t, len(objects(t, s)), 3)
				h := must(db.History(t.Context(), "run-1"))(t)
				diff(t, string(h.Events[2].Data), string(withValue(`{"output":VALUE}`, large(3))))
				if len(crashes) == 0 {
					t.Error("nothing crashed")
				}
			})
		})
	}
}

// wholeOrGone sweeps, with a crash on the way, and finds an object for every
// reference and no others.
func wholeOrGone(t *testing.T, db *DB, s *spy) {
	t.Helper()
	die := db.options.Failpoint
	for _, point := range []string{"values.collect.before", "values.collect.after", ""} {
		db.options.Failpoint = func(name string) error {
			if name == point {
				return errDied
			}
			return nil
		}
		if _, _, err := db.SweepValues(t.Context(), "", lateEnough()); err != nil && !errors.Is(err, errDied) {
			t.Fatal(err)
		}
	}
	db.options.Failpoint = die
	var referred []string
	check(t, db.EachObject(t.Context(), func(name string, size int64) error {
		referred = append(referred, name)
		v, err := s.Store.Get(t.Context(), name, size)
		if err == nil && int64(len(v)) != size {
			err = fmt.Errorf("%s has %d bytes, not %d", name, len(v), size)
		}
		return err
	}))
	if !slices.Equal(referred, objects(t, s)) {
		t.Fatalf("referred to are %v, there are %v", referred, objects(t, s))
	}
}

// A sweep whose store does not answer goes on the next time.
func TestApartSweepGoesOn(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		v := []byte("nobody's")
		check(t, s.Store.Put(t.Context(), values.Name(digestOf(v), "00"), v))
		fails := &undeletable{Store: s}
		db.options.Values = fails
		if _, _, err := db.SweepValues(t.Context(), "", lateEnough()); err == nil {
			t.Error("no error")
		}
		db.options.Values = s
		diff(t, sweep(t, db, lateEnough()), 1)
		any := must(db.KeepsApart(t.Context()))(t)
		diff(t, any, true)
	})
}

// held is a store that does not remove one of its objects.
type held struct {
	values.Store
	name string
}

func (s held) Delete(ctx context.Context, name string) error {
	if name == s.name {
		return errors.New("held")
	}
	return s.Store.Delete(ctx, name)
}

// An object that cannot be removed keeps none behind it from being so.
func TestApartSweepPassesBy(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		for i := range 3 {
			v := fmt.Appendf(nil, "nobody's %d", i)
			check(t, s.Store.Put(t.Context(), values.Name(digestOf(v), "00"), v))
		}
		all := objects(t, s)
		db.options.Values = held{s, all[0]}
		for _, want := range []int{2, 0} {
			removed, next, err := db.SweepValues(t.Context(), "", lateEnough())
			if removed != want || next == "" || err == nil || !strings.Contains(err.Error(), all[0]) {
				t.Errorf("%d removed, %v, on to %q; want %d", removed, err, next, want)
			}
			diff(t, objects(t, s), all[:1])
		}
		db.options.Values = s
		diff(t, sweep(t, db, lateEnough()), 1)
	})
}

type undeletable struct{ values.Store }

func (undeletable) Delete(context.Context, string) error { return errors.New("away") }

// The step of the schema has no way back while values are kept apart, and gives
// values that look like references a frame.
func TestApartMigration(t *testing.T) {
	ctx := t.Context()
	eachTarget(t, func(t *testing.T, target string) {
		db := reopen(t, target, Options{})
		odd := []byte{0, 'r', '{', '}', 0xff}
		a := attempt("run-1", "a", 1)
		a.Input = odd
		begin(t, db, "run-1", a)
		c := bridge(t, db, "b1")
		claim(t, db, c, a.ID, "t1")
		must(db.Answer(ctx, answer(a.ID, "\x00")))(t)
		same := func() {
			t.Helper()
			got := whole(t, db, "run-1", a.ID)
			diff(t, []byte(got.Input), odd)
			diff(t, []byte(got.Result.Output), []byte{0})
		}
		same()
		check(t, db.MigrateDown(ctx, 24))
		var raw []byte
		check(t, db.read(ctx, `SELECT input FROM attempt`, func(r *record) error { raw = slices.Clone(r.bytes()); return nil }))
		diff(t, raw, odd)
		check(t, db.Migrate(ctx))
		same()

		check(t, db.submit(ctx, synced, func(s *session) error {
			return s.later(1, insertReference, "o", "run-1", "d", int64(1), int64(1))
		}))
		if err := db.MigrateDown(ctx, 24); err == nil {
			t.Error("the step was undone although a value is kept apart")
		}
		check(t, db.Migrate(ctx)) // the steps after it were undone
		same()
	})
}

// An object that a transaction refers to while a sweep has it in view stays.
func TestApartSweepAgainstCommit(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		run := begin(t, db, "run-1", attempt("run-1", "a", 1))
		d := next(run, 1)
		d.Events[0].Data = large(1)
		put, seen, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		db.options.Failpoint = func(name string) error {
			switch name {
			case "values.put":
				close(put)
				<-seen
			case "values.collect.before":
				close(seen)
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			return nil
		}
		go func() { done <- db.Decide(t.Context(), d) }()
		<-put
		diff(t, sweep(t, db, lateEnough()), 0)
		diff(t, len(objects(t, s)), 1)
		events := must(db.Events(t.Context(), "run-1", run.Seq, 0))(t)
		diff(t, string(events[0].Data), string(large(1)))
	})
}
