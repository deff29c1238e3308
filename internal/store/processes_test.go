package store

import (
	"testing"
	"time"
)

// TestProcesses: who is at work is known by its last word for 15 s, or until it says that
// it ends; a bus that is another one now is that.
func TestProcesses(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		at := func(d time.Duration) []Process { return must(db.Processes(ctx, epoch.Add(d)))(t) }
		a, b, c := Process{ID: "1", Name: "b", Bus: "x"}, Process{ID: "2", Name: "a", Bus: "x"}, Process{ID: "3", Name: "a", Bus: "y"}
		for _, p := range []Process{a, b, c} {
			check(t, db.NoteProcess(ctx, p, epoch))
		}
		diff(t, at(0), []Process{b, c, a})
		a.Bus = "y"
		check(t, db.NoteProcess(ctx, a, epoch.Add(15*time.Second)))
		diff(t, at(15*time.Second), []Process{b, c, a})
		diff(t, at(16*time.Second), []Process{a})
		check(t, db.NoteProcess(ctx, a, epoch.Add(20*time.Second)))
		diff(t, at(0), []Process{a}) // the others are forgotten
		check(t, db.ForgetProcess(ctx, a.ID))
		diff(t, at(0), []Process(nil))
	})
}
