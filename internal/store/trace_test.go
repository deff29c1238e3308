package store

import (
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestTrace: an attempt keeps its trace through all of its states, that of a run and
// that of a foreign task, and takes no room without one; an event keeps that of the
// runs which it starts, and only that.
func TestTrace(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		trace := parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "congo=t61rcWkgMzE, rojo=1"}
		alone := parley.Trace{Parent: trace.Parent}
		a, b, none := attempt("run-1", "a", 1), attempt("run-1", "b", 1), attempt("run-1", "c", 1)
		a.Trace, b.Trace = trace, alone
		begin(t, db, "run-1", a, b, none)
		c := bridge(t, db, "b1")
		got := must(db.Claim(ctx, c, []ClaimRequest{{TaskID: a.ID, Token: "t1"}}, epoch))(t)
		diff(t, got[0].Trace, trace)
		f := foreignClaim("f", Claim{c.Worker, c.Inc, "t2"})
		f.Trace = trace
		diff(t, must(db.ClaimForeign(ctx, []Attempt{f}, epoch))(t)[0].Trace, trace)
		for id, want := range map[string]parley.Trace{a.ID: trace, b.ID: alone, none.ID: {}, f.ID: trace} {
			diff(t, row(t, db, id).Trace, want)
		}
		nulls := 0
		check(t, db.read(ctx, `SELECT id FROM attempt WHERE trace IS NULL`, func(r *record) error { nulls++; diff(t, r.str(), none.ID); return nil }))
		diff(t, nulls, 1)

		deployTriggered(t, db, "w", "1", 0, Trigger{TriggerEvent, "paid"})
		started := func(at time.Duration) []parley.Trace {
			t.Helper()
			var list []parley.Trace
			for _, e := range must(db.TakeEventStarts(ctx, epoch.Add(at), 10))(t) {
				list = append(list, e.Trace)
				check(t, db.EndEventStart(ctx, e.Signal, true))
			}
			return list
		}
		for day, want := range []parley.Trace{trace, {}, alone} { // the same id is another event's each time
			e := signal("e1", "paid", "7", time.Duration(day)*48*time.Hour)
			e.Trace = want
			_, _, err := db.PutSignal(ctx, "", e, 0)
			check(t, err)
			diff(t, started(time.Duration(day)*48*time.Hour+time.Hour), []parley.Trace{want})
		}
		e := signal("e2", "paid", "7", 0)
		e.Trace = trace
		_, _, err := db.PutSignal(ctx, "run-1", e, 0)
		check(t, err)
		check(t, db.read(ctx, `SELECT trace FROM signal WHERE id = 'e2'`, func(r *record) error { diff(t, r.str(), ""); return nil }))
	})
}
