package store

import (
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestAnnounced: an attempt that whoever inserts it puts on the bus is given by
// Publish 5 s later, in case that process has died, and may have been published.
func TestAnnounced(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		announced := func(step string) Attempt {
			a := attempt("run-1", step, 1)
			a.Announced = true
			return a
		}
		run := begin(t, db, "run-1", announced("a"), attempt("run-1", "b", 1))
		d := next(run, 1)
		d.Insert = []Attempt{announced("c"), attempt("run-1", "d", 1)}
		check(t, db.Decide(t.Context(), d))
		given := func(at time.Duration) (list []string) {
			for _, a := range must(db.Publish(t.Context(), epoch.Add(at), 10))(t) {
				list = append(list, a.Step)
			}
			return list
		}
		diff(t, given(publishAgain-time.Microsecond), []string{"b", "d"})
		diff(t, given(publishAgain), []string{"a"})
		list := must(db.HandOver(t.Context(), "t1", epoch.Add(time.Second+publishAgain), 10))(t)
		diff(t, ids(list), []string{"run-1.c.1"})
		diff(t, list[0].Doubtful, true)
	})
}

// TestAnnouncedRefused: what is claimed or held is on no bus.
func TestAnnouncedRefused(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		held, owned := attempt("run-1", "a", 1), claimed(attempt("run-1", "a", 1), bridge(t, db, "b1"))
		held.Held, held.Announced, owned.Announced = true, true, true
		owned.Claim.Token = "t1"
		for _, a := range []Attempt{held, owned} {
			if _, err := db.StartRun(t.Context(), start("run-1", a)); parley.CodeOf(err) != parley.CodeInvalid {
				t.Errorf("%s, held: %t: %v", a.State, a.Held, err)
			}
		}
	})
}

// TestDeferredAttempt: an attempt that was opened for another try since it was put
// off is left alone.
func TestDeferredAttempt(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		begin(t, db, "run-1", attempt("run-1", "a", 1), attempt("run-1", "a", 2))
		later := epoch.Add(time.Hour)
		check(t, db.Defer(t.Context(), []Deferral{{TaskID: "run-1.a.1", At: later, Attempt: 1}, {TaskID: "run-1.a.2", At: later, Attempt: 1}}))
		diff(t, row(t, db, "run-1.a.1").VisibleAt, later)
		diff(t, row(t, db, "run-1.a.2").VisibleAt, epoch)
	})
}
