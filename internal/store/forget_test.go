package store

import (
	"fmt"
	"testing"
	"time"
)

// Each start of a process without a name of its own leaves a row. It goes when
// its bridge has been dead for a day and has nothing in hand, and no incarnation
// of its name comes again.
func TestForget(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		names := func(at time.Time) (names []string) {
			for _, w := range must(db.Sweep(ctx, nil, at))(t) {
				names = append(names, w.Name)
			}
			return names
		}
		a, b, done := attempt("run-1", "a", 1), attempt("run-1", "b", 1), attempt("run-1", "c", 1)
		begin(t, db, "run-1", a, b, done)
		var all []Worker
		for _, name := range []string{"alive", "gone", "holds", "claims", "young"} {
			c := bridge(t, db, name)
			all = append(all, Worker{Name: name, Inc: c.Inc})
			switch name {
			case "holds":
				follow(t, db, a.ID, claim(t, db, c, a.ID, "t1"))
			case "claims":
				claim(t, db, c, b.ID, "t2")
			case "gone": // what it had is done
				claim(t, db, c, done.ID, "t3")
				must(db.Answer(ctx, answer(done.ID, `1`)))(t)
			}
		}
		bridge(t, db, "gone")
		all[1].Inc = bridge(t, db, "gone").Inc
		must(db.Sweep(ctx, all[1:4], epoch))(t)
		must(db.Sweep(ctx, all[4:], epoch.Add(time.Hour)))(t)

		day := epoch.Add(24 * time.Hour)
		diff(t, names(day), []string{"alive", "claims", "gone", "holds", "young"})
		diff(t, names(day.Add(time.Millisecond)), []string{"alive", "claims", "holds", "young"})

		// A process that was stopped all the time is nobody, and is not taken for
		// one that has its name now.
		wantStale(t, db.Beat(ctx, "gone", 3))
		diff(t, bridge(t, db, "gone").Inc, int64(4))
		wantStale(t, db.Beat(ctx, "gone", 3))
		diff(t, bridge(t, db, "alive").Inc, int64(2))
		check(t, db.Beat(ctx, "gone", 4))

		// What it had in hand is somebody else's now.
		c := bridge(t, db, "alive")
		if !must(db.Move(ctx, Move{Kind: MoveTakeover, TaskID: b.ID, From: row(t, db, b.ID).Claim, To: Claim{"alive", c.Inc, "t4"}}))(t) {
			t.Fatal("not taken over")
		}
		if !must(db.Move(ctx, Move{Kind: MoveTakeover, TaskID: a.ID, From: row(t, db, a.ID).Claim, To: Claim{"alive", c.Inc, "t2"}, AgentTaskID: "at"}))(t) {
			t.Fatal("not taken over")
		}
		diff(t, names(day.Add(time.Minute)), []string{"alive", "gone", "young"})
		diff(t, names(day.Add(2*time.Hour)), []string{"alive", "gone"})
		diff(t, bridge(t, db, "next").Inc, int64(4)) // above all that were forgotten, and not only the last

		// One that lives again is not dead any more.
		must(db.Sweep(ctx, []Worker{{Name: "gone", Inc: 4, Beat: 1}}, day))(t)
		bridge(t, db, "gone")
		diff(t, names(day.Add(48*time.Hour)), []string{"alive", "gone", "next"})
		must(db.Sweep(ctx, []Worker{{Name: "gone", Inc: 5, Beat: 1}}, day))(t)
		diff(t, names(day.Add(48*time.Hour)), []string{"alive", "next"})
		diff(t, bridge(t, db, "another").Inc, int64(6))
	})
}

// Many rows go some at a time: no sweep takes long.
func TestForgetMany(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var dead []Worker
		for i := range forgetLimit + 50 {
			c := bridge(t, db, fmt.Sprint("b", i))
			dead = append(dead, Worker{Name: c.Worker, Inc: c.Inc})
		}
		diff(t, len(must(db.Sweep(t.Context(), dead, epoch))(t)), len(dead))
		late := epoch.Add(25 * time.Hour)
		diff(t, len(must(db.Sweep(t.Context(), nil, late))(t)), 50)
		diff(t, len(must(db.Sweep(t.Context(), nil, late))(t)), 0)
		diff(t, bridge(t, db, "b0").Inc, int64(2))
	})
}
