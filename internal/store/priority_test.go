package store

import (
	"testing"
	"time"
)

// TestUrgency: the priority of a run is with its attempts whenever they are
// announced, and who announces them learns since when they wait.
func TestUrgency(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		high, low := attempt("run-1", "high", 1), attempt("run-1", "low", 1)
		high.Urgency, low.Urgency = 5, -4
		begin(t, db, "run-1", high, low, attempt("run-1", "usual", 1))
		want := map[string]int{"run-1.high.1": 5, "run-1.low.1": -4, "run-1.usual.1": 0}
		for _, at := range []time.Duration{0, 10 * time.Second, 2 * time.Hour} {
			got := map[string]int{}
			for _, a := range must(db.Publish(t.Context(), epoch.Add(at), 10))(t) {
				got[a.ID] = a.Urgency
				diff(t, a.ScheduledAt, epoch)
			}
			diff(t, got, want)
			check(t, db.Defer(t.Context(), []Deferral{{TaskID: "run-1.high.1", At: epoch.Add(time.Hour)}}))
			if at == 0 {
				delete(want, "run-1.high.1") // put off
			} else {
				want["run-1.high.1"] = 5
			}
		}
		row, ok, err := db.Attempt(t.Context(), "run-1.low.1")
		check(t, err)
		diff(t, ok, true)
		diff(t, row.Urgency, -4)
	})
}
