package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/values"
	"github.com/parley-project/parley/internal/values/files"
)

// eachOwner runs a test on every database with the stores of values of a folder; other
// opens another database, which keeps its values in that folder, too.
func eachOwner(t *testing.T, f func(t *testing.T, db *DB, s *spy, other func() *DB)) {
	t.Helper()
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		f(t, db, s, func() *DB {
			return newDB(t, Options{Writers: 1, Values: &spy{Store: s.Store}, ApartAbove: apartLimit})
		})
	})
}

// Two databases that are pointed at one place do not remove the values of each other:
// the second one is refused, keeps its values to itself, and sweeps nothing.
func TestApartOneOwner(t *testing.T) {
	eachOwner(t, func(t *testing.T, db *DB, s *spy, other func() *DB) {
		check(t, db.OwnValues(t.Context()))
		check(t, db.OwnValues(t.Context()))
		bigRun(t, db, "run-1")
		kept := objects(t, s)
		second := other()
		err := second.OwnValues(t.Context())
		wantCode(t, err, parley.CodeConflict)
		for _, want := range []string{s.MarkedAt(), must(db.databaseID(t.Context()))(t), must(second.databaseID(t.Context()))(t), "values.dir"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
		bigRun(t, second, "run-2")
		must(second.History(t.Context(), "run-2"))(t)
		_, _, err = second.SweepValues(t.Context(), "", lateEnough())
		wantCode(t, err, parley.CodeConflict)
		diff(t, objects(t, s), kept)
		diff(t, sweep(t, db, lateEnough()), 0)
		must(db.History(t.Context(), "run-1"))(t)

		// Handed over by hand: the mark is removed, the first one is gone.
		check(t, os.Remove(s.MarkedAt()))
		check(t, second.OwnValues(t.Context()))
		diff(t, sweep(t, second, lateEnough()), 1)
	})
}

// The check at the start is not what it hangs on: whoever keeps a value apart, or sweeps,
// has seen the mark before; also when the place has come to be another's meanwhile.
func TestApartOwnerIsSeenBefore(t *testing.T) {
	eachOwner(t, func(t *testing.T, db *DB, s *spy, other func() *DB) {
		bigRun(t, db, "run-1")
		kept := objects(t, s)
		diff(t, len(kept), 1)
		second := other()
		bigRun(t, second, "run-2")
		diff(t, objects(t, s), kept)
		third := other()
		_, _, err := third.SweepValues(t.Context(), "", lateEnough())
		wantCode(t, err, parley.CodeConflict)

		check(t, os.Remove(s.MarkedAt()))
		check(t, third.OwnValues(t.Context()))
		v := []byte("of the third")
		check(t, s.Store.Put(t.Context(), values.Name(digestOf(v), "00"), v))
		_, _, err = db.SweepValues(t.Context(), "", lateEnough())
		wantCode(t, err, parley.CodeConflict)
		bigRun(t, db, "run-3")
		diff(t, len(objects(t, s)), 2)
	})
}

// Processes of one database that start at a time all have it; of several databases
// one has it.
func TestApartOwnersRace(t *testing.T) {
	eachOwner(t, func(t *testing.T, db *DB, s *spy, other func() *DB) {
		const each = 4
		same := must(Open(t.Context(), db.path, db.options))(t)
		defer func() { check(t, same.Close()) }()
		dbs := []*DB{db, same, other(), other()}
		errs := make([]error, each*len(dbs))
		var g sync.WaitGroup
		for i := range errs {
			g.Go(func() { errs[i] = dbs[i%len(dbs)].OwnValues(t.Context()) })
		}
		g.Wait()
		has := make(map[string]bool)
		for i, err := range errs {
			id := must(dbs[i%len(dbs)].databaseID(t.Context()))(t)
			if err == nil {
				has[id] = true
			} else {
				wantCode(t, err, parley.CodeConflict)
			}
		}
		diff(t, len(has), 1)
		diff(t, must(db.databaseID(t.Context()))(t), must(same.databaseID(t.Context()))(t))
	})
}

// A folder of before that has no mark goes on with one, and so does one that was put
// back from a copy of database and values.
func TestApartOwnerOfAFolderOfBefore(t *testing.T) {
	eachOwner(t, func(t *testing.T, db *DB, s *spy, _ func() *DB) {
		bigRun(t, db, "run-1")
		check(t, os.Remove(s.MarkedAt()))
		again := must(Open(t.Context(), db.path, db.options))(t)
		defer func() { check(t, again.Close()) }()
		check(t, again.OwnValues(t.Context()))
		diff(t, sweep(t, again, lateEnough()), 0)
		must(again.History(t.Context(), "run-1"))(t)
		if _, err := os.Stat(s.MarkedAt()); err != nil {
			t.Error(err)
		}
	})
}

// A mark that cannot be read is somebody's.
func TestApartOwnerUnreadable(t *testing.T) {
	eachOwner(t, func(t *testing.T, db *DB, s *spy, _ func() *DB) {
		check(t, os.MkdirAll(filepath.Dir(s.MarkedAt()), 0o700))
		for _, mark := range []string{"", "{}", `{"format":2,"database":"a"}`, strings.Repeat("x", values.MostMark+1)} {
			check(t, os.WriteFile(s.MarkedAt(), []byte(mark), 0o600))
			err := db.OwnValues(t.Context())
			wantCode(t, err, parley.CodeConflict)
			if !strings.Contains(err.Error(), "cannot read") {
				t.Errorf("%.20q: %v", mark, err)
			}
		}
	})
}

// A folder that is not mounted is not made, so that values that are away are not taken
// for gone; a store that is away is asked again before it is written to.
func TestApartOwnerIsAway(t *testing.T) {
	eachOwner(t, func(t *testing.T, db *DB, s *spy, _ func() *DB) {
		bigRun(t, db, "run-1")
		dir := filepath.Dir(s.MarkedAt())
		check(t, os.Rename(dir, dir+".away"))
		again := must(Open(t.Context(), db.path, db.options))(t)
		defer func() { check(t, again.Close()) }()
		if err := again.OwnValues(t.Context()); !errors.Is(err, ErrAway) {
			t.Errorf("a folder that is away: %v", err)
		}
		bigRun(t, again, "run-2") // it stays in the database
		must(again.History(t.Context(), "run-2"))(t)
		if _, err := again.History(t.Context(), "run-1"); !errors.Is(err, ErrAway) {
			t.Errorf("a value that is away: %v", err)
		}
		check(t, os.Rename(dir+".away", dir))
		s.set(errors.New("down"))
		if err := again.OwnValues(t.Context()); !errors.Is(err, ErrAway) {
			t.Errorf("a store that is away: %v", err)
		}
		s.set(nil)
		bigRun(t, again, "run-3")
		diff(t, len(objects(t, s)), 2)
		must(again.History(t.Context(), "run-1"))(t)
	})
}

// An id alone is no value: nothing is swept because of it.
func TestApartIDIsNoValue(t *testing.T) {
	eachOwner(t, func(t *testing.T, db *DB, _ *spy, _ func() *DB) {
		id := must(db.databaseID(t.Context()))(t)
		db.options.ApartAbove = 0
		diff(t, must(db.KeepsApart(t.Context()))(t), false)
		check(t, db.EachObject(t.Context(), func(name string, _ int64) error { return fmt.Errorf("%q is an object", name) }))
		check(t, db.forgetCollected(t.Context(), lateEnough().Add(1000*forgetObjectAfter)))
		check(t, db.submit(t.Context(), synced, func(*session) error { return nil })) // carries what is lazy
		diff(t, must(db.databaseID(t.Context()))(t), id)
	})
}

// A backup is the same database: with the values of it it goes on, beside the mark that
// was copied along or without one.
func TestApartOwnerOfABackup(t *testing.T) {
	s := &spy{Store: files.Open(filepath.Join(t.TempDir(), "values"))}
	o := Options{Writers: 1, Values: s, ApartAbove: apartLimit}
	db := newDB(t, o)
	bigRun(t, db, "run-1")
	file := filepath.Join(t.TempDir(), "copy.db")
	check(t, db.Backup(context.Background(), file))
	dir := t.TempDir()
	check(t, os.CopyFS(dir, os.DirFS(filepath.Dir(s.MarkedAt()))))
	for range 2 {
		o.Values = files.Open(dir)
		copied := must(Open(t.Context(), file, o))(t)
		check(t, copied.OwnValues(t.Context()))
		diff(t, sweep(t, copied, lateEnough()), 0)
		must(copied.History(t.Context(), "run-1"))(t)
		check(t, os.Remove(o.Values.MarkedAt()))
		check(t, copied.Close())
	}
}
