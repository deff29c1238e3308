package store

import (
	"sync"

	"github.com/parley-project/parley"
)

// damagedTold bounds the rows that are remembered as told of.
const damagedTold = 1000

// damagedRows remembers which rows were told of: they are found again and again.
type damagedRows struct {
	mu   sync.Mutex // protects told
	told map[string]bool
}

// first reports whether a row was not told of before.
func (d *damagedRows) first(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told[id] {
		return false
	}
	if d.told == nil || len(d.told) >= damagedTold {
		d.told = make(map[string]bool)
	}
	d.told[id] = true
	return true
}

// damaged tells of a row among those of many runs that cannot be read: somebody has
// changed it, or a newer program has written it. It keeps nobody from the others.
func (db *DB) damaged(what, id string, err error) {
	if db.damagedRows.first(what + " " + id) {
		db.options.Logger.Error(what+" cannot be read, and nobody goes on with it", "task", id, "error", err)
	}
}

func unreadAttempt(id string) Attempt { return Attempt{Task: parley.Task{ID: id}} }

// readable is readAttempt for one of the attempts of many runs. Of one that is damaged
// there is only the id, and ok is false.
func (db *DB) readable(r *record) (a Attempt, ok bool, err error) {
	a, err = readAttempt(r)
	if err != nil && r.err == nil {
		db.damaged("an attempt", a.ID, err)
		return a, false, nil
	}
	return a, err == nil, err
}

// readableList is attemptList for those of many runs, without what is damaged.
func (db *DB) readableList(list *[]Attempt) func(*record) error {
	return func(r *record) error {
		a, ok, err := db.readable(r)
		if ok {
			*list = append(*list, a)
		}
		return err
	}
}

// readableChildren is childList for those of many runs, without what is damaged.
func (db *DB) readableChildren(list *[]Child) func(*record) error {
	return func(r *record) error {
		var one []Child
		err := childList(&one)(r)
		if err != nil && r.err == nil {
			db.damaged("what a step asks for", one[0].Task, err)
			return nil
		}
		*list = append(*list, one...)
		return err
	}
}
