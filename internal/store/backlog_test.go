package store

import (
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestBacklog: what waits is counted where it stands, up to a bound, and how late
// it is; what has ended, is held or has its time before it is not late.
func TestBacklog(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		at := epoch.Add(time.Minute)
		diff(t, must(db.Backlog(ctx, at, 100))(t), Backlog{Runs: map[parley.RunStatus]int{}, Attempts: map[AttemptState]int{}})

		held := attempt("run-1", "a", 1)
		held.Held, held.VisibleAt = true, epoch.Add(-time.Hour)
		later := attempt("run-1", "b", 1)
		later.VisibleAt = at.Add(time.Second)
		begin(t, db, "run-1", held, later)
		b1 := bridge(t, db, "b1")
		b1.Token = "t1"
		begin(t, db, "run-2", claimed(attempt("run-2", "a", 1), b1), claimed(attempt("run-2", "b", 1), b1))
		must(db.Answer(ctx, answer("run-2.b.1", `{}`)))(t)
		want := Backlog{
			Runs:     map[parley.RunStatus]int{parley.RunRunning: 2},
			Attempts: map[AttemptState]int{AttemptOpen: 2, AttemptClaimed: 1, AttemptSettled: 1},
			Bridges:  1,
		}
		diff(t, must(db.Backlog(ctx, at, 100))(t), want)

		soon := attempt("run-3", "a", 1)
		soon.VisibleAt = at.Add(-4 * time.Second)
		begin(t, db, "run-3", soon, attempt("run-3", "b", 1)) // visible at epoch
		want.Runs[parley.RunRunning], want.Attempts[AttemptOpen], want.AttemptsLate = 3, 4, time.Minute
		diff(t, must(db.Backlog(ctx, at, 100))(t), want)
		want.AttemptsLate, want.RunsLate = 30*24*time.Hour+2*time.Second, 2*time.Second
		diff(t, must(db.Backlog(ctx, epoch.Add(30*24*time.Hour+2*time.Second), 100))(t), want)

		// What has ended waits for nothing.
		ended := next(start("run-1", held, later).Run, 1)
		ended.Run.Status, ended.Run.EndedAt, ended.Run.Due = parley.RunFailed, epoch, time.Time{}
		ended.Close = []Close{{TaskID: "run-1.a.1", Outcome: parley.OutcomeCancelled}, {TaskID: "run-1.b.1", Outcome: parley.OutcomeCancelled}}
		check(t, db.Decide(ctx, ended))
		want.Runs[parley.RunRunning], want.Attempts[AttemptOpen], want.AttemptsLate, want.RunsLate = 2, 2, time.Minute, 0
		diff(t, must(db.Backlog(ctx, at, 100))(t), want)
		want.Runs[parley.RunRunning], want.Attempts[AttemptOpen] = 1, 1
		diff(t, must(db.Backlog(ctx, at, 1))(t), want)

		must(db.Sweep(ctx, must(db.Sweep(ctx, nil, at))(t), at))(t)
		diff(t, must(db.Backlog(ctx, at, 100))(t).Bridges, 0)
	})
}
