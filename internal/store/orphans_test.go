package store

import (
	"slices"
	"testing"
)

// TestOrphansTakeTurns: orphans that nobody can take over now keep no others back,
// however many they are.
func TestOrphansTakeTurns(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		old := Claim{Worker: "b1", Inc: must(db.Register(ctx, "b1", epoch))(t), Token: "t"}
		var attempts []Attempt
		for n := 1; n <= 5; n++ {
			attempts = append(attempts, claimed(attempt("run-1", "a", n), old))
		}
		begin(t, db, "run-1", attempts...)
		must(db.Register(ctx, "b1", epoch))(t)
		inc := must(db.Register(ctx, "b2", epoch))(t)
		for range 2 {
			var seen []string
			for range 3 {
				for _, a := range must(db.Orphans(ctx, "b2", inc, 2))(t) {
					seen = append(seen, a.ID)
				}
			}
			slices.Sort(seen)
			diff(t, seen, []string{"run-1.a.1", "run-1.a.2", "run-1.a.3", "run-1.a.4", "run-1.a.5"})
		}
	})
}
