package store

import (
	"testing"
)

// TestAhead: who waits for the same agent goes before whom by time and priority.
func TestAhead(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		a, b, urgent, other, held := attempt("run-1", "a", 1), attempt("run-2", "a", 1), attempt("run-3", "a", 1), attempt("run-4", "a", 1), attempt("run-5", "a", 1)
		urgent.Urgency, other.Agent, held.Held = 1, "another", true
		begin(t, db, "run-1", a)
		begin(t, db, "run-2", b)
		begin(t, db, "run-3", urgent)
		begin(t, db, "run-4", other)
		begin(t, db, "run-5", held)
		c := bridge(t, db, "b1")
		for task, want := range map[string]int{a.ID: 1, b.ID: 2, urgent.ID: 0, "nothing": 0} {
			diff(t, must(db.Ahead(t.Context(), a.Agent, task))(t), want)
		}
		claim(t, db, c, urgent.ID, "t1")
		diff(t, must(db.Ahead(t.Context(), a.Agent, b.ID))(t), 1)
	})
}
