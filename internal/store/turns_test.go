package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// startTurn gives a start that begins, or waits for its turn.
func startTurn(run string, limit int, when parley.WhenFull) Start {
	st := start(run)
	w := st.Run
	w.Status, w.StartedAt, w.Due = parley.RunPending, time.Time{}, time.Time{}
	st.Turn = &Turn{
		Key: "k", Limit: limit, WhenFull: when, MostWaiting: 1000, Run: w,
		Events: []parley.Event{event(run, 1, parley.EventRunQueued, "")},
	}
	return st
}

// enter starts a run and says whether it waits.
func enter(t *testing.T, db *DB, st Start) bool {
	t.Helper()
	existing, err := db.StartRun(t.Context(), st)
	check(t, err)
	if existing != "" {
		t.Fatalf("%s is %s", st.Run.ID, existing)
	}
	return st.Turn.Waits
}

// admission begins a run that waits, of which only the first event is there.
func admission(st Start) Decision {
	d := next(st.Turn.Run, 1)
	d.Run.Status, d.Run.StartedAt = parley.RunRunning, epoch
	d.Turn = &TurnMove{Workflow: st.Run.Workflow, Key: st.Turn.Key, Limit: st.Turn.Limit, Admit: true}
	return d
}

// exit ends a run as it is.
func exit(st Start, seen Run) Decision {
	d := next(seen, 1)
	d.Turn = &TurnMove{Workflow: st.Run.Workflow, Key: st.Turn.Key, Limit: st.Turn.Limit, End: true, Waiting: seen.Status == parley.RunPending}
	d.Run.Status, d.Run.EndedAt, d.Run.Due = parley.RunCompleted, epoch, time.Time{}
	return d
}

func nextTurn(t *testing.T, db *DB) string {
	t.Helper()
	return must(db.NextTurn(t.Context(), Lane{"greet", "k"}))(t)
}

// lanes gives what is counted, and checks that it is what there is.
func lanes(t *testing.T, db *DB) string {
	t.Helper()
	text := ""
	check(t, db.read(t.Context(), `SELECT lane_key, running, waiting,
 (SELECT count(*) FROM turn t JOIN run r ON r.id = t.run WHERE t.workflow = l.workflow AND t.lane_key = l.lane_key AND t.waits = 0 AND r.status = 'RUNNING'),
 (SELECT count(*) FROM turn t JOIN run r ON r.id = t.run WHERE t.workflow = l.workflow AND t.lane_key = l.lane_key AND t.waits = 1 AND r.status = 'PENDING')
 FROM lane l ORDER BY workflow, lane_key`, func(r *record) error {
		key, counted := r.str(), fmt.Sprint(r.int(), r.int())
		if found := fmt.Sprint(r.int(), r.int()); found != counted {
			t.Errorf("lane %s: counted %s, found %s", key, counted, found)
		}
		text += key + " " + counted + "\n"
		return nil
	}))
	return text
}

// TestConcurrency_CountsAtTheStart: runs begin until as many run as may, the others
// wait, are admitted in their order, and nobody passes by.
func TestConcurrency_CountsAtTheStart(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var starts []Start
		for i := range 5 {
			st := startTurn(fmt.Sprintf("r%d", i), 2, parley.WhenFullQueue)
			if waits := enter(t, db, st); waits != (i > 1) {
				t.Errorf("r%d waits: %v", i, waits)
			}
			starts = append(starts, st)
		}
		if got := lanes(t, db); got != "k 2 3\n" || nextTurn(t, db) != "" {
			t.Errorf("five started: %s, next %q", got, nextTurn(t, db))
		}
		if err := db.Decide(t.Context(), admission(starts[2])); !errors.Is(err, ErrStale) {
			t.Errorf("admitted while two run: %v", err)
		}
		check(t, db.Decide(t.Context(), exit(starts[3], starts[3].Turn.Run))) // cancelled before it began
		check(t, db.Decide(t.Context(), exit(starts[0], starts[0].Run)))
		if got := lanes(t, db); got != "k 1 2\n" || nextTurn(t, db) != "r2" {
			t.Errorf("one ended: %s, next %q", got, nextTurn(t, db))
		}
		late := startTurn("late", 9, parley.WhenFullQueue)
		if !enter(t, db, late) {
			t.Error("a run has passed by those that wait")
		}
		w := must(db.Wakeups(t.Context(), epoch, 10))(t)
		if !slices.Equal(w.Turns, []string{"r2"}) {
			t.Errorf("a sweep finds %q", w.Turns)
		}
		turn := must(db.Turn(t.Context(), "r4"))(t)
		if turn.Place != 2 || turn.Waiting != 3 || turn.RunningCount != 1 || !slices.Equal(turn.Running, []string{"r1"}) {
			t.Errorf("the place of r4 is %+v", turn)
		}
		check(t, db.Decide(t.Context(), admission(starts[2])))
		if turn := must(db.Turn(t.Context(), "r2"))(t); turn != nil {
			t.Errorf("r2 still has a place: %+v", turn)
		}
		admitted := starts[2].Turn.Run
		admitted.Seq++
		admitted.Status = parley.RunRunning
		for _, d := range []Decision{
			exit(starts[1], starts[1].Run), exit(starts[2], admitted), exit(starts[4], starts[4].Turn.Run), exit(late, late.Turn.Run),
		} {
			lanes(t, db)
			check(t, db.Decide(t.Context(), d))
		}
		if got := lanes(t, db); got != "" {
			t.Errorf("left behind: %s", got)
		}
	})
}

// TestConcurrency_OnePlaceForTwo: of two runs that are admitted at once, in one
// transaction, to the one place that there is, one begins.
func TestConcurrency_OnePlaceForTwo(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var starts []Start
		for i := range 3 {
			starts = append(starts, startTurn(fmt.Sprintf("r%d", i), 1, parley.WhenFullQueue))
			enter(t, db, starts[i])
		}
		check(t, db.Decide(t.Context(), exit(starts[0], starts[0].Run)))
		release := stall(t, db)
		errs := make([]error, 2)
		var both sync.WaitGroup
		for i := range errs {
			both.Go(func() { errs[i] = db.Decide(t.Context(), admission(starts[i+1])) })
			queued(t, db, i+1)
		}
		release()
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), ErrStale) {
			t.Errorf("%v and %v", errs[0], errs[1])
		}
		diff(t, lanes(t, db), "k 1 1\n")
	})
}

// TestConcurrency_LanesAreApart: runs with another key, and those of another workflow,
// count for nothing, and their places are not given away.
func TestConcurrency_LanesAreApart(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		list := []Lane{{"greet", "k"}, {"greet", "l"}, {"other", "k"}}
		starts := map[Lane][]Start{}
		for n := range 3 { // in turn, so that those of one lane are not one after another
			for i, l := range list {
				st := startTurn(fmt.Sprintf("r%d%d", i, n), 1, parley.WhenFullCancelOldest)
				st.Run.Workflow, st.Turn.Run.Workflow, st.Turn.Key = l.Workflow, l.Workflow, l.Key
				diff(t, enter(t, db, st), n > 0)
				starts[l] = append(starts[l], st)
			}
		}
		for _, run := range []string{"queued", "queued-too"} {
			st := startTurn(run, 1, parley.WhenFullQueue)
			st.Turn.Key = "m"
			enter(t, db, st)
		}
		diff(t, lanes(t, db), "k 1 2\nl 1 2\nm 1 1\nk 1 2\n")

		var crowded []Lane
		for range list {
			crowded = append(crowded, must(db.CrowdedLanes(ctx, 1))(t)...)
		}
		diff(t, crowded, list)
		for _, l := range list {
			first, second, third := starts[l][0].Run.ID, starts[l][1].Run.ID, starts[l][2].Run.ID
			diff(t, must(db.Crowding(ctx, l))(t), []string{first, second})
			turn := must(db.Turn(ctx, third))(t)
			diff(t, []any{turn.Place, turn.Waiting, turn.RunningCount, turn.Running}, []any{2, 2, 1, []string{first}})
			one := startTurn("more", 1, parley.WhenFullReject)
			one.Run.Workflow, one.Turn.Key = l.Workflow, l.Key
			_, err := db.StartRun(ctx, one)
			var full parley.FullDetails
			if e, ok := errors.AsType[*parley.Error](err); !ok || json.Unmarshal(e.Details, &full) != nil {
				t.Fatalf("one more: %v", err)
			}
			diff(t, full.Running, []string{first})
		}

		k, l := starts[list[0]], starts[list[1]]
		check(t, db.Decide(ctx, exit(k[0], k[0].Run)))
		check(t, db.Decide(ctx, exit(l[0], l[0].Run)))
		check(t, db.Decide(ctx, exit(l[1], l[1].Turn.Run))) // before it began
		diff(t, must(db.Turn(ctx, k[2].Run.ID))(t).RunningCount, 0)
		diff(t, must(db.Wakeups(ctx, epoch, 10))(t).Turns, []string{k[1].Run.ID, l[2].Run.ID})
		for i, want := range []string{k[1].Run.ID, l[2].Run.ID, ""} {
			diff(t, must(db.NextTurn(ctx, list[i]))(t), want)
		}
		check(t, db.Decide(ctx, admission(l[2])))
		diff(t, lanes(t, db), "k 0 2\nl 1 0\nm 1 1\nk 1 2\n")
	})
}

// TestConcurrency_RefusesOneMore: a start is refused with nothing written, and told
// who runs; so is one more that would wait than may.
func TestConcurrency_RefusesOneMore(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		enter(t, db, startTurn("r0", 1, parley.WhenFullReject))
		_, err := db.StartRun(t.Context(), startTurn("r1", 1, parley.WhenFullReject))
		var e *parley.Error
		var d parley.FullDetails
		if !errors.As(err, &e) || e.Code != parley.CodeConflict || json.Unmarshal(e.Details, &d) != nil {
			t.Fatalf("one more: %v", err)
		}
		if d.Conflict != parley.ConflictConcurrency || !slices.Equal(d.Running, []string{"r0"}) || d.RunningCount != 1 || d.Key != "k" {
			t.Errorf("details %+v", d)
		}
		few := startTurn("r2", 1, parley.WhenFullQueue)
		few.Turn.MostWaiting = 1
		enter(t, db, few)
		few = startTurn("r3", 1, parley.WhenFullQueue)
		few.Turn.MostWaiting = 1
		if _, err := db.StartRun(t.Context(), few); parley.CodeOf(err) != parley.CodeLimit {
			t.Errorf("two wait: %v", err)
		}
		if got := lanes(t, db); got != "k 1 1\n" {
			t.Errorf("counted %s", got)
		}
		for _, id := range []string{"r1", "r3"} {
			if _, err := db.RunRow(t.Context(), id); parley.CodeOf(err) != parley.CodeNotFound {
				t.Errorf("%s was written: %v", id, err)
			}
		}
	})
}

// TestConcurrency_IdempotencyKeyGoesFirst: the same start again gives the run that
// there is, whoever runs meanwhile, also if both are written together.
func TestConcurrency_IdempotencyKeyGoesFirst(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		for _, when := range []parley.WhenFull{parley.WhenFullQueue, parley.WhenFullReject} {
			var mu sync.Mutex
			got := map[string]int{}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					st := startTurn(fmt.Sprintf("%s%d", when, i), 1, when)
					st.Turn.Key, st.IdempotencyKey, st.InputDigest = string(when), "once-"+string(when), "d"
					st.Turn.Run.ID = st.Run.ID
					existing, err := db.StartRun(context.Background(), st)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if existing == "" {
						existing = st.Run.ID
					}
					got[existing]++
				})
			}
			all.Wait()
			if len(got) != 1 {
				t.Errorf("%s: the runs are %v", when, got)
			}
		}
		if got := lanes(t, db); got != "queue 1 0\nreject 1 0\n" {
			t.Errorf("counted %s", got)
		}
	})
}

// TestConcurrency_RunThatEndsAtOnce takes no place for longer than its own
// transaction, begun or admitted.
func TestConcurrency_RunThatEndsAtOnce(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		st := startTurn("r0", 1, parley.WhenFullQueue)
		st.Run.Status, st.Run.EndedAt, st.Run.Due = parley.RunCompleted, epoch, time.Time{}
		if enter(t, db, st) || lanes(t, db) != "" {
			t.Errorf("counted %s", lanes(t, db))
		}
		one, two := startTurn("r1", 1, parley.WhenFullQueue), startTurn("r2", 1, parley.WhenFullQueue)
		enter(t, db, one)
		enter(t, db, two)
		d := admission(two)
		d.Run.Status, d.Run.EndedAt, d.Run.Due, d.Turn.End = parley.RunCompleted, epoch, time.Time{}, true
		if err := db.Decide(t.Context(), d); !errors.Is(err, ErrStale) {
			t.Errorf("it ran beside another: %v", err)
		}
		check(t, db.Decide(t.Context(), exit(one, one.Run)))
		check(t, db.Decide(t.Context(), d))
		if got := lanes(t, db); got != "" {
			t.Errorf("left behind: %s", got)
		}
	})
}

// TestConcurrency_CrowdingNamesTheOldest: of those that are not being cancelled, as
// many as are too many for the newest that asks for a place.
func TestConcurrency_CrowdingNamesTheOldest(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		crowding := func(want ...string) {
			t.Helper()
			if got := must(db.Crowding(t.Context(), Lane{"greet", "k"}))(t); !slices.Equal(got, want) {
				t.Errorf("crowding: %q, want %q", got, want)
			}
			found := must(db.CrowdedLanes(t.Context(), 5))(t)
			if len(want) > 0 && !slices.Equal(found, []Lane{{"greet", "k"}}) {
				t.Errorf("lanes %v", found)
			}
		}
		a, b := startTurn("a", 2, parley.WhenFullCancelOldest), startTurn("b", 2, parley.WhenFullCancelOldest)
		enter(t, db, a)
		enter(t, db, b)
		crowding()
		enter(t, db, startTurn("c", 2, parley.WhenFullCancelOldest))
		crowding("a")
		enter(t, db, startTurn("d", 2, parley.WhenFullQueue))
		crowding("a")
		enter(t, db, startTurn("e", 2, parley.WhenFullCancelOldest))
		crowding("a", "b", "c")
		cancelling := next(a.Run, 1)
		cancelling.Run.Cancelling = true
		check(t, db.Decide(t.Context(), cancelling))
		crowding("b", "c")
	})
}

// TestConcurrency_RaceOfStarts: two processes start fifty runs, end those that run and
// admit those that wait: never more run than may, and all of them get their turn.
func TestConcurrency_RaceOfStarts(t *testing.T) {
	race := func(t *testing.T, stores []*DB) {
		const runs, limit = 50, 3
		var all sync.WaitGroup
		var ended atomic.Int64
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
		defer stop()
		finish := func(db *DB, st Start, seen Run) {
			if err := db.Decide(ctx, exit(st, seen)); err != nil {
				t.Errorf("%s does not end: %v", st.Run.ID, err)
			}
			ended.Add(1)
		}
		for i := range runs {
			db := stores[i%len(stores)]
			st := startTurn(fmt.Sprintf("r%02d", i), limit, parley.WhenFullQueue)
			all.Go(func() {
				if _, err := db.StartRun(ctx, st); err != nil {
					t.Error(err)
					return
				}
				if !st.Turn.Waits {
					finish(db, st, st.Run)
					return
				}
				for ctx.Err() == nil {
					head, err := db.NextTurn(ctx, Lane{"greet", "k"})
					if err != nil || head != st.Run.ID {
						time.Sleep(time.Millisecond)
						continue
					}
					d := admission(st)
					if err := db.Decide(ctx, d); err == nil {
						finish(db, st, d.Run)
						return
					} else if !errors.Is(err, ErrStale) {
						t.Error(err)
						return
					}
				}
				t.Errorf("%s has never had its turn", st.Run.ID)
			})
		}
		most := 0
		for ended.Load() < runs && ctx.Err() == nil {
			n := 0
			err := stores[0].read(ctx, `SELECT count(*) FROM run WHERE status = 'RUNNING'`, func(r *record) error { n = int(r.int()); return nil })
			if err == nil {
				most = max(most, n)
			}
		}
		all.Wait()
		if most > limit || ended.Load() != runs {
			t.Errorf("%d ran at the same time, %d have ended", most, ended.Load())
		}
		if got := lanes(t, stores[0]); got != "" {
			t.Errorf("left behind: %s", got)
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		db := newDB(t, Options{})
		race(t, []*DB{db, db})
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.Copy(t, migrated(t))
		race(t, []*DB{openedAt(t, url, Options{Writers: 3}), openedAt(t, url, Options{Writers: 3})})
	})
}
