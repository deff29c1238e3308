package store

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-project/parley/internal/pgtest"
)

// walk is a run whose decisions each absorb an answer and begin the next attempt.
type walk struct {
	db  *DB
	c   Claim
	run Run
	at  int
}

func walking(t *testing.T, db *DB, c Claim, id string) *walk {
	t.Helper()
	return &walk{db: db, c: c, run: begin(t, db, id, claimed(attempt(id, "a", 1), token(c, id+"-1"))), at: 1}
}

func token(c Claim, token string) Claim {
	c.Token = token
	return c
}

// step is the next decision.
func (w *walk) step() Decision {
	id := w.run.ID
	a := answer(attempt(id, "a", w.at).ID, `{"n":1}`)
	d := next(w.run, 1)
	d.Answer, d.Close = &a, []Close{{TaskID: a.Result.TaskID, Absorb: true, Outcome: a.Result.Outcome}}
	d.Insert = []Attempt{claimed(attempt(id, "a", w.at+1), token(w.c, id+"-"+string(rune('1'+w.at))))}
	return d
}

// take writes the next decision.
func (w *walk) take(t *testing.T) {
	t.Helper()
	d := w.step()
	check(t, w.db.Decide(t.Context(), d))
	w.run, w.at = d.Run, w.at+1
}

// TestUsualWritesAreTwoTrips: a start, and a decision, are one round trip and that of
// their COMMIT.
func TestUsualWritesAreTwoTrips(t *testing.T) {
	var trips atomic.Int64
	db := openedAt(t, pgtest.Copy(t, migrated(t)), counted(&trips))
	c := bridge(t, db, "b1")
	walking(t, db, c, "run-0").take(t) // the first ones prepare
	trips.Store(0)
	w := walking(t, db, c, "run-1")
	diff(t, trips.Swap(0), int64(2))
	w.take(t)
	diff(t, trips.Swap(0), int64(2))
}

// TestWrongGuess: who comes too late is refused, and nobody beside it; then nothing is
// guessed for a while.
func TestWrongGuess(t *testing.T) {
	var trips atomic.Int64
	db := openedAt(t, pgtest.Copy(t, migrated(t)), counted(&trips))
	c := bridge(t, db, "b1")
	late, good := walking(t, db, c, "run-1"), walking(t, db, c, "run-2")
	stale := late.step()
	late.take(t)
	decisions := []Decision{stale, good.step()}
	release := stall(t, db)
	errs := make([]error, len(decisions))
	var wg sync.WaitGroup
	for i := range decisions {
		wg.Go(func() { errs[i] = db.Decide(t.Context(), decisions[i]) })
		queued(t, db, i+1)
	}
	release()
	wg.Wait()
	wantStale(t, errs[0])
	check(t, errs[1])
	good.run, good.at = decisions[1].Run, good.at+1
	diff(t, row(t, db, "run-2.a.2").State, AttemptClaimed)

	trips.Store(0)
	good.take(t)
	diff(t, trips.Swap(0), int64(3))
	for range carefulFor {
		check(t, writeRow(t, db))
	}
	trips.Store(0)
	good.take(t)
	diff(t, trips.Swap(0), int64(2))

	before := dump(t, db)
	wantStale(t, db.Decide(t.Context(), stale))
	diff(t, dump(t, db), before)
}

// TestStartOfARunThatIsThere: what was guessed of a start is not left behind when its
// key was used before, and nothing is guessed when its neighbour has failed.
func TestStartOfARunThatIsThere(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		keyed := func(run string) Start {
			st := start(run, claimed(attempt(run, "a", 1), token(c, run)))
			st.IdempotencyKey, st.InputDigest = "key", "digest"
			return st
		}
		diff(t, must(db.StartRun(t.Context(), keyed("run-1")))(t), "")
		before := dump(t, db)
		diff(t, must(db.StartRun(t.Context(), keyed("run-2")))(t), "run-1")
		diff(t, dump(t, db), before)

		for range carefulFor {
			check(t, writeRow(t, db))
		}
		before = dump(t, db)
		release := stall(t, db)
		var existing string
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() { existing, errs[0] = db.StartRun(t.Context(), keyed("run-3")) })
		queued(t, db, 1)
		wg.Go(func() { errs[1] = db.submit(t.Context(), synced, func(*session) error { return errors.New("no") }) })
		queued(t, db, 2)
		release()
		wg.Wait()
		check(t, errs[0])
		diff(t, existing, "run-1")
		if errs[1] == nil {
			t.Error("what fails is written")
		}
		diff(t, dump(t, db), before)
	})
}
