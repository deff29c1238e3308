package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parley-project/parley/internal/values"
)

const (
	// unreferencedFor is how old an object is that nobody refers to before it is
	// removed: until then a write may be under way that will. One that takes longer
	// is refused.
	unreferencedFor = time.Hour
	// forgetObjectAfter is how long it is remembered that an object was removed.
	forgetObjectAfter = 24 * time.Hour
	// sweptAtOnce bounds the objects that one [DB.SweepValues] looks at.
	sweptAtOnce = 1000
)

const (
	selectReferences = `SELECT object FROM value_ref WHERE object > ? AND object <= ? AND run <> '' ORDER BY object`
	// Whoever would refer to the object from now on is refused; whoever has done so
	// meanwhile has a row, and it stays.
	markCollected    = `INSERT INTO value_ref (object, run, digest, size, at) VALUES (?, '', '', 0, ?) ON CONFLICT DO NOTHING`
	selectCollected  = `SELECT object FROM value_ref WHERE object > ? AND object <= ? AND run = ''`
	anyCollected     = `SELECT 1 FROM value_ref WHERE run = '' AND digest = '' AND at < ? LIMIT 1`
	forgetCollected  = `DELETE FROM value_ref WHERE run = '' AND digest = '' AND at < ?`
	selectAnyApart   = `SELECT 1 FROM value_ref WHERE object <> '' LIMIT 1`
	selectAllObjects = `SELECT object, size FROM value_ref WHERE run <> '' AND object > ? ORDER BY object LIMIT ?`
)

// SweepValues looks at the objects of the store of values that come after a name,
// some at a time, and removes those that nobody refers to and that are older than
// an hour at now. It gives how many it removed, and where to go on; "" is the end. One
// that cannot be removed is tried again by the next look at all of them; the error says
// so, and the others are gone.
func (db *DB) SweepValues(ctx context.Context, after string, now time.Time) (removed int, next string, err error) {
	if db.options.Values == nil {
		return 0, "", nil
	}
	list, err := db.options.Values.List(ctx, after, sweptAtOnce)
	if err != nil || len(list) == 0 {
		return 0, "", err
	}
	last := list[len(list)-1].Name
	referred := make(map[string]bool)
	err = db.read(ctx, selectReferences, func(r *record) error { referred[r.str()] = true; return nil }, after, last)
	if err != nil {
		return 0, "", err
	}
	var garbage []values.Object
	for _, o := range list {
		if !referred[o.Name] && now.Sub(o.At) > unreferencedFor {
			garbage = append(garbage, o)
		}
	}
	if len(garbage) == 0 {
		return 0, last, db.forgetCollected(ctx, now)
	}
	if err := db.OwnValues(ctx); err != nil {
		return 0, "", err
	}
	if err := db.collect(ctx, garbage, now); err != nil {
		return 0, "", err
	}
	// What a transaction has referred to meanwhile was not marked.
	marked := make(map[string]bool)
	err = db.read(ctx, selectCollected, func(r *record) error { marked[r.str()] = true; return nil }, after, last)
	if err != nil {
		return 0, "", err
	}
	var stuck error
	for _, o := range garbage {
		if !marked[o.Name] {
			continue
		}
		if err := db.options.Values.Delete(ctx, o.Name); err != nil {
			stuck = fmt.Errorf("object %s: %w", o.Name, err) // marked as it is, it is removed the next time
			continue
		}
		removed++
	}
	return removed, last, errors.Join(stuck, db.forgetCollected(ctx, now))
}

// collect marks objects so that nobody can refer to them any more. Synced: what
// is removed must stay marked.
func (db *DB) collect(ctx context.Context, garbage []values.Object, now time.Time) error {
	return db.transition(ctx, synced, point("values.collect"), func(s *session) error {
		for _, o := range garbage {
			s.at(o.Name)
			if err := s.later(-1, markCollected, o.Name, now.UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (db *DB) forgetCollected(ctx context.Context, now time.Time) error {
	before, any := now.Add(-forgetObjectAfter).UnixMicro(), false
	err := db.read(ctx, anyCollected, func(*record) error { any = true; return nil }, before)
	if err != nil || !any {
		return err
	}
	return db.transition(ctx, lazy, point("values.forget"), func(s *session) error {
		s.at("")
		return s.later(-1, forgetCollected, before)
	})
}

// KeepsApart reports whether values are kept apart, or any were: then there is
// something to sweep.
func (db *DB) KeepsApart(ctx context.Context) (bool, error) {
	if db.options.Values == nil {
		return false, nil
	}
	if db.options.ApartAbove > 0 {
		return true, nil
	}
	any := false
	err := db.read(ctx, selectAnyApart, func(*record) error { any = true; return nil })
	return any, err
}

// EachObject calls each with the objects that runs refer to, in the order of
// their names.
func (db *DB) EachObject(ctx context.Context, each func(name string, size int64) error) error {
	type object struct {
		name string
		size int64
	}
	for after := ""; ; {
		var page []object
		err := db.read(ctx, selectAllObjects, func(r *record) error {
			page = append(page, object{r.str(), r.int()})
			return nil
		}, after, int64(sweptAtOnce))
		if err != nil || len(page) == 0 {
			return err
		}
		for _, o := range page {
			if err := each(o.name, o.size); err != nil {
				return err
			}
			after = o.name
		}
	}
}
