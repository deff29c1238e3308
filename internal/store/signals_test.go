package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

func signal(id, name, key string, after time.Duration) parley.Signal {
	return parley.Signal{ID: id, Name: name, Key: key, Data: json.RawMessage(`{ "n": 1.10 }`), Time: epoch.Add(after)}
}

// waits has a run begin to wait with a decision of n events.
func waits(t testing.TB, db *DB, run Run, w ...Waiter) Run {
	t.Helper()
	d := next(run, 1)
	d.Signals.Subscribe = w
	check(t, db.Decide(t.Context(), d))
	return d.Run
}

// candidates gives the ids of all events that a step may take.
func candidates(t testing.TB, db *DB, w Waiter) (ids []string) {
	t.Helper()
	for mark := (SignalMark{At: w.Since}); ; {
		list := must(db.SignalsFor(t.Context(), w, mark))(t)
		if len(list) == 0 {
			return ids
		}
		for _, e := range list {
			ids = append(ids, e.ID)
			mark = SignalMark{e.Time, e.ID}
		}
	}
}

func TestC8_ARepeatedIDIsIgnoredForADay(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx, w := t.Context(), Waiter{Run: "run-1", Name: "paid", Key: "7"}
		put := func(run string, e parley.Signal) (time.Duration, bool) {
			t.Helper()
			at, repeated, err := db.PutSignal(ctx, run, e, 0)
			check(t, err)
			return at.Sub(epoch), repeated
		}
		want := func(run string, e parley.Signal, at time.Duration, repeated bool) {
			t.Helper()
			if gotAt, got := put(run, e); gotAt != at || got != repeated {
				t.Errorf("%s at %s is of %s, repeated %t", e.ID, e.Time.Sub(epoch), gotAt, got)
			}
		}
		want("", signal("e1", "paid", "7", 0), 0, false)
		want("", signal("e1", "other", "9", time.Hour), 0, true)
		want("run-1", signal("e1", "paid", "7", time.Minute), time.Minute, false)
		want("", signal("e1", "paid", "7", 24*time.Hour), 0, true)
		got := must(db.SignalsFor(ctx, w, SignalMark{At: epoch}))(t)
		diff(t, got, []parley.Signal{signal("e1", "paid", "7", 0), signal("e1", "paid", "7", time.Minute)})
		want("", signal("e1", "other", "9", 24*time.Hour+time.Microsecond), 24*time.Hour+time.Microsecond, false)
		diff(t, candidates(t, db, w), []string{"e1"})

		purged := func(at time.Duration) int { return must(db.PurgeSignals(ctx, epoch.Add(at), 10))(t) }
		diff(t, []int{purged(24 * time.Hour), purged(24*time.Hour + time.Minute + time.Microsecond), purged(49 * time.Hour)}, []int{0, 1, 1})
		for _, e := range []parley.Signal{{Name: "x", Time: epoch}, {ID: "x", Time: epoch}, {ID: "x", Name: "x"}, {ID: "x", Name: "x", Time: epoch, Data: json.RawMessage("{")}} {
			_, _, err := db.PutSignal(ctx, "", e, 0)
			wantCode(t, err, parley.CodeInvalid)
		}
	})
}

func TestC8_ThoseWhoWaitAreTold(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		one := begin(t, db, "run-1")
		two := begin(t, db, "run-2")
		one = waits(t, db, one, Waiter{Step: "a", Name: "paid", Key: "7", Since: epoch}, Waiter{Step: "b", Name: "paid", Key: "8", Since: epoch})
		two = waits(t, db, two, Waiter{Step: "a", Name: "paid", Key: "7", Since: epoch.Add(time.Minute)})
		told := func(run string) (list []string) {
			for _, w := range must(db.Waiters(ctx, run))(t) {
				list = append(list, fmt.Sprintf("%s %d/%d", w.Step, w.Seen, w.News))
			}
			return list
		}
		// Who begins to wait has not looked yet.
		diff(t, told("run-1"), []string{"a 0/1", "b 0/1"})
		seen := func(run Run, list ...WaiterSeen) Run {
			t.Helper()
			d := Decision{Run: run, Seen: run.Seq, Prompt: true, Signals: Signals{Seen: list}}
			check(t, db.Decide(ctx, d))
			return d.Run
		}
		one, two = seen(one, WaiterSeen{"a", 1}, WaiterSeen{"b", 1}), seen(two, WaiterSeen{"a", 1})
		diff(t, must(db.Wakeups(ctx, epoch, 10))(t).Signals, []string(nil))

		spread := func() []string {
			runs, more, err := db.SpreadSignals(ctx, 10)
			check(t, err)
			if more {
				t.Error("there are more events")
			}
			slices.Sort(runs)
			return runs
		}
		for _, e := range []struct {
			run string
			e   parley.Signal
		}{
			{"", signal("e1", "paid", "7", time.Second)},
			{"run-1", signal("e2", "paid", "8", 0)},
			{"run-2", signal("e3", "paid", "8", 0)},
			{"", signal("e4", "paid", "", time.Hour)},
			{"", signal("e5", "Paid", "7", time.Hour)},
			{"", signal("e6", "paid", "8", -time.Second)},
		} {
			_, _, err := db.PutSignal(ctx, e.run, e.e, 0)
			check(t, err)
		}
		diff(t, spread(), []string{"run-1"})
		diff(t, spread(), []string(nil))
		diff(t, told("run-1"), []string{"a 1/2", "b 1/2"})
		diff(t, must(db.Wakeups(ctx, epoch, 10))(t).Signals, []string{"run-1"})
		diff(t, candidates(t, db, Waiter{Run: "run-1", Name: "paid", Key: "8", Since: epoch}), []string{"e2"})
		one = seen(one, WaiterSeen{"a", 2}, WaiterSeen{"b", 1})
		diff(t, told("run-1"), []string{"b 1/2"})

		// Who waits no more is not told.
		d := next(one, 1)
		d.Signals.Unsubscribe = []string{"a", "b"}
		check(t, db.Decide(ctx, d))
		_, _, err := db.PutSignal(ctx, "", signal("e7", "paid", "7", time.Hour), 0)
		check(t, err)
		diff(t, spread(), []string{"run-2"})
		diff(t, told("run-1"), []string(nil))

		// A decision that is refused changes nothing of it.
		before := dump(t, db, "signal", "waiter", "approval")
		stale := next(two, 1)
		stale.Seen, stale.Run.Seq = stale.Seen-1, stale.Run.Seq-1
		stale.Events[0].Seq--
		stale.Signals = Signals{
			Subscribe: []Waiter{{Step: "x", Name: "x", Since: epoch}}, Unsubscribe: []string{"a"}, Emit: []parley.Signal{signal("e9", "x", "", 0)},
			Taken: []string{"e7"}, Ask: []Approval{{Step: "a", CreatedAt: epoch}},
		}
		wantStale(t, db.Decide(ctx, stale))
		diff(t, dump(t, db, "signal", "waiter", "approval"), before)
	})
}

func TestC8_PagesOfEventsOfOneTimeAreWhole(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var want []string
		for i := range 2*maxSignalPage + 3 {
			e := signal(fmt.Sprintf("e%03d", i), "paid", "7", time.Duration(i/30)*time.Second)
			_, _, err := db.PutSignal(t.Context(), "", e, 0)
			check(t, err)
			want = append(want, e.ID)
		}
		diff(t, candidates(t, db, Waiter{Run: "run-1", Name: "paid", Key: "7", Since: epoch}), want)
	})
}

func TestLimits_WaitingEventsOfANameAndKey(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		put := func(e parley.Signal) error { _, _, err := db.PutSignal(ctx, "", e, 2); return err }
		check(t, put(signal("e1", "paid", "7", 0)))
		check(t, put(signal("e2", "paid", "7", 0)))
		err := put(signal("e3", "paid", "7", 0))
		wantCode(t, err, parley.CodeLimit)
		if full, ok := errors.AsType[*SignalsFullError](err); !ok || *full != (SignalsFullError{"paid", "7", 2}) {
			t.Errorf("error %v", err)
		}
		check(t, put(signal("e2", "paid", "7", time.Second))) // a repeated one is none more
		check(t, put(signal("e3", "paid", "8", 0)))

		run := begin(t, db, "run-1")
		d := next(run, 1)
		d.Signals = Signals{Emit: []parley.Signal{signal("own", "paid", "7", 0)}, Limit: 2}
		before := dump(t, db, "signal", "waiter", "approval")
		wantCode(t, db.Decide(ctx, d), parley.CodeLimit)
		st := start("run-2")
		st.Signals = d.Signals
		_, err = db.StartRun(ctx, st)
		wantCode(t, err, parley.CodeLimit)
		diff(t, dump(t, db, "signal", "waiter", "approval"), before)

		// All keys that have no room are said at once, each once.
		check(t, put(signal("e5", "paid", "9", 0)))
		check(t, put(signal("e6", "paid", "9", 0)))
		many := next(run, 1)
		many.Signals.Limit = 2
		for i, key := range []string{"9", "8", "7", "9"} {
			many.Signals.Emit = append(many.Signals.Emit, signal(fmt.Sprint("many", i), "paid", key, 0))
		}
		var keys []string
		full, _ := errors.AsType[SignalsFullErrors](db.Decide(ctx, many))
		for _, one := range full {
			keys = append(keys, one.Key)
		}
		diff(t, keys, []string{"9", "7"})

		// One that was taken waits no more.
		taken := next(run, 1)
		taken.Signals.Taken = []string{"e1", "e1", "nobody"}
		check(t, db.Decide(ctx, taken))
		again := next(taken.Run, 1)
		again.Signals = d.Signals
		check(t, db.Decide(ctx, again))
		wantCode(t, put(signal("e4", "paid", "7", 0)), parley.CodeLimit)
		diff(t, candidates(t, db, Waiter{Run: "run-9", Name: "paid", Key: "7", Since: epoch}), []string{"e1", "e2", "own"})
	})
}

// TestLimits_EventsForOneRunWaitUntilThatHasTakenThem: nor does one that another run
// has taken by its id.
func TestLimits_EventsForOneRunWaitUntilThatHasTakenThem(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		put := func(run, id string) error {
			_, _, err := db.PutSignal(t.Context(), run, signal(id, "paid", "7", 0), 1)
			return err
		}
		take := func(run Run) Run {
			d := next(run, 1)
			d.Signals.Taken = []string{"e1"}
			check(t, db.Decide(t.Context(), d))
			return d.Run
		}
		one, two := begin(t, db, "run-1"), begin(t, db, "run-2")
		check(t, put("run-1", "e1"))
		take(two)
		wantCode(t, put("run-1", "e2"), parley.CodeLimit)
		take(one)
		check(t, put("run-1", "e2"))
	})
}

// Whoever begins to wait while an event is published is either told of it, or
// finds it by the look that he has to take.
func TestC8_NoEventIsLostBetweenTwoWriters(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		var g sync.WaitGroup
		const n = 40
		runs := make([]Run, n)
		for i := range runs {
			runs[i] = begin(t, db, fmt.Sprintf("run-%d", i))
		}
		for i := range runs {
			g.Go(func() {
				d := next(runs[i], 1)
				d.Signals.Subscribe = []Waiter{{Step: "a", Name: "paid", Key: fmt.Sprint(i), Since: epoch}}
				if err := db.Decide(ctx, d); err != nil {
					t.Error(err)
					return
				}
				w := must(db.Waiters(ctx, runs[i].ID))(t)[0]
				found := candidates(t, db, w)
				seen := Decision{Run: d.Run, Seen: d.Run.Seq, Prompt: true, Signals: Signals{Seen: []WaiterSeen{{"a", w.News}}}}
				if err := db.Decide(ctx, seen); err != nil {
					t.Error(err)
				}
				runs[i].Paused = len(found) > 0
			})
			g.Go(func() {
				if _, _, err := db.PutSignal(ctx, "", signal(fmt.Sprint("e", i), "paid", fmt.Sprint(i), time.Second), 0); err != nil {
					t.Error(err)
				}
				if _, _, err := db.SpreadSignals(ctx, 5); err != nil {
					t.Error(err)
				}
			})
		}
		g.Wait()
		for more := true; more; {
			var err error
			_, more, err = db.SpreadSignals(ctx, 5)
			check(t, err)
		}
		for _, run := range runs {
			if !run.Paused && len(must(db.Waiters(ctx, run.ID))(t)) == 0 {
				t.Errorf("%s has not found its event and is not told of it", run.ID)
			}
		}
	})
}

func TestC9_ApprovalsAreListedByWhoMayAnswer(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		run := begin(t, db, "run-1")
		d := next(run, 1)
		open := func(step string, after time.Duration, to ...string) Approval {
			return Approval{
				Run: "run-1", Step: step, Workflow: "spend", CreatedAt: epoch.Add(after * time.Microsecond),
				Asked: parley.Approval{Title: "Pay " + step + "?", To: to, Choices: []string{"approve", "reject"}, Min: 1, Form: json.RawMessage(`{"type":"object"}`)},
			}
		}
		a, b, c := open("a", 0, "finance", "100%_b\\c"), open("b", 1, "Finance"), open("c", 2)
		d.Signals.Ask = []Approval{c, b, a}
		check(t, db.Decide(ctx, d))
		list := func(q parley.ApprovalQuery) (steps string) {
			t.Helper()
			items, total, err := db.Approvals(ctx, q)
			check(t, err)
			for _, i := range items {
				steps += i.Step
			}
			if q.Page == (parley.Page{}) && total != len(items) {
				t.Errorf("%d of %d", len(items), total)
			}
			return steps
		}
		got, _, err := db.Approvals(ctx, parley.ApprovalQuery{})
		check(t, err)
		diff(t, got, []Approval{a, b, c})
		for q, want := range map[string]string{"finance": "ac", "Finance": "bc", "fin": "c", "100%_b\\c": "ac", "%": "c"} {
			if got := list(parley.ApprovalQuery{For: []string{q}}); got != want {
				t.Errorf("for %s: %s, want %s", q, got, want)
			}
		}
		diff(t, []string{
			list(parley.ApprovalQuery{For: []string{"finance", "Finance"}}), list(parley.ApprovalQuery{Run: "run-2"}),
			list(parley.ApprovalQuery{Run: "run-1", Workflow: "spend"}), list(parley.ApprovalQuery{Workflow: "x"}),
			list(parley.ApprovalQuery{Page: parley.Page{Offset: 1, Limit: 1}}),
		}, []string{"abc", "", "abc", "", "b"})

		again := next(d.Run, 1)
		a.Asked.To = append(a.Asked.To, "cfo")
		again.Signals = Signals{Ask: []Approval{a}, Answered: []string{"b"}}
		check(t, db.Decide(ctx, again))
		diff(t, list(parley.ApprovalQuery{For: []string{"cfo", "Finance"}}), "ac")
	})
}
