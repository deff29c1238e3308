package store

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// handed is an attempt that is born handed to the bus.
func handed(a Attempt, token string) Attempt {
	a = claimed(a, BusClaim(token))
	a.HandOff = HandOffBus
	return a
}

func ids(list []Handed) []string {
	var out []string
	for _, h := range list {
		out = append(out, h.ID)
	}
	return out
}

// What is open, visible and not held is handed over once, whoever asks, and
// stays claimed whatever becomes of the bridges.
func TestHandOver(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		held, later := attempt("run-1", "b", 1), attempt("run-1", "c", 1)
		held.Held, later.VisibleAt = true, epoch.Add(time.Minute)
		begin(t, db, "run-1", attempt("run-1", "a", 1), held, later)

		list := must(db.HandOver(ctx, "t1", epoch, 10))(t)
		diff(t, ids(list), []string{task1})
		diff(t, []any{list[0].State, list[0].HandOff, list[0].Claim, list[0].ClaimedAt, list[0].Doubtful},
			[]any{AttemptClaimed, HandOffBus, BusClaim("t1"), epoch, false})
		diff(t, ids(must(db.HandedOver(ctx, "t1"))(t)), []string{task1})
		diff(t, ids(must(db.HandedOver(ctx, "t2"))(t)), []string(nil))
		before := dump(t, db)
		diff(t, ids(must(db.HandOver(ctx, "t2", epoch, 10))(t)), []string(nil))
		diff(t, len(must(db.Publish(ctx, epoch, 10))(t)), 0)
		diff(t, dump(t, db), before)

		c := bridge(t, db, "b1")
		diff(t, len(must(db.Claim(ctx, c, []ClaimRequest{{TaskID: task1, Token: "x"}}, epoch))(t)), 0)
		diff(t, len(must(db.Orphans(ctx, c.Worker, c.Inc, 10))(t)), 0)
		_, err := db.Sweep(ctx, nil, epoch.Add(time.Hour))
		check(t, err)
		diff(t, row(t, db, task1).State, AttemptClaimed)
		_, err = db.HandOver(ctx, "", epoch, 10)
		wantCode(t, err, parley.CodeInvalid)
		_, err = db.Register(ctx, "bus", epoch)
		wantCode(t, err, parley.CodeInvalid)
	})
}

// An attempt that bridges of ours may have been told of is claimed, but said
// to be in doubt.
func TestHandOverDoubtful(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		begin(t, db, "run-1", attempt("run-1", "a", 1))
		diff(t, len(must(db.Publish(t.Context(), epoch, 10))(t)), 1)
		list := must(db.HandOver(t.Context(), "t1", epoch.Add(publishAgain), 10))(t)
		diff(t, ids(list), []string{task1})
		diff(t, list[0].Doubtful, true)
		diff(t, must(db.HandedOver(t.Context(), "t1"))(t)[0].Doubtful, true)
	})
}

// What certainly was not published is as open as before, for bridges of ours, too.
func TestHandOverReleased(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		begin(t, db, "run-1", handed(attempt("run-1", "a", 1), "t1"))
		begin(t, db, "run-2", handed(attempt("run-2", "a", 1), "t1"))
		release := func(token string) bool {
			return must(db.Move(ctx, Move{Kind: MoveRelease, TaskID: task1, From: BusClaim(token), At: epoch}))(t)
		}
		diff(t, release("t1"), true)
		diff(t, []any{row(t, db, task1).State, row(t, db, task1).HandOff}, []any{AttemptOpen, HandOffStore})
		diff(t, row(t, db, "run-2.a.1").State, AttemptClaimed) // what went out with it
		list := must(db.HandOver(ctx, "t2", epoch, 10))(t)
		diff(t, ids(list), []string{task1})
		diff(t, list[0].Doubtful, false)
		diff(t, []bool{release("t1"), release("t2")}, []bool{false, true})
		c := bridge(t, db, "b1")
		diff(t, len(must(db.Claim(ctx, c, []ClaimRequest{{TaskID: task1, Token: "x"}}, epoch))(t)), 1)
		diff(t, len(must(db.Overdue(ctx, epoch.Add(24*time.Hour), 10))(t)), 1)
	})
}

// A start and a decision write attempts that are handed over at once, without
// any bridge in the table.
func TestHandedAtBirth(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		run := begin(t, db, "run-1", handed(attempt("run-1", "a", 1), "t1"))
		diff(t, []any{row(t, db, task1).State, row(t, db, task1).HandOff, row(t, db, task1).Claim},
			[]any{AttemptClaimed, HandOffBus, BusClaim("t1")})
		commits := db.SyncedCommits()
		d := next(run, 1)
		d.Answer, d.Close = new(answer(task1, `{}`)), []Close{{TaskID: task1, Absorb: true}}
		d.Insert = []Attempt{handed(attempt("run-1", "b", 1), "t2")}
		check(t, db.Decide(ctx, d))
		diff(t, db.SyncedCommits()-commits, int64(1))
		diff(t, row(t, db, "run-1.b.1").HandOff, HandOffBus)

		for name, bad := range map[string]Attempt{
			"bus without owner":   func() Attempt { a := handed(attempt("run-2", "a", 1), "t"); a.Claim.Worker = "b1"; return a }(),
			"bus without token":   handed(attempt("run-2", "a", 1), ""),
			"owner without a bus": claimed(attempt("run-2", "a", 1), BusClaim("t")),
			"open and handed":     func() Attempt { a := attempt("run-2", "a", 1); a.HandOff = HandOffBus; return a }(),
		} {
			_, err := db.StartRun(ctx, start("run-2", bad))
			if parley.CodeOf(err) != parley.CodeInvalid {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Rule T2 counts from the publication; whichever limit is shorter holds, and
// without one there is no end.
func TestOverdue(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		for i, p := range []Policy{
			{Silence: 5 * time.Minute},
			{Silence: 5 * time.Minute, AttemptTimeout: time.Minute},
			{Silence: time.Minute, AttemptTimeout: 5 * time.Minute},
			{AttemptTimeout: 2 * time.Minute},
			{},
		} {
			run := "run-" + strconv.Itoa(i)
			a := handed(attempt(run, "a", 1), "t"+run)
			a.Policy = p
			begin(t, db, run, a)
		}
		overdue := func(after time.Duration) string {
			var runs []string
			for _, a := range must(db.Overdue(t.Context(), epoch.Add(after), 10))(t) {
				runs = append(runs, strings.TrimPrefix(a.Run, "run-"))
			}
			return strings.Join(runs, " ")
		}
		diff(t, overdue(time.Minute-time.Microsecond), "")
		diff(t, overdue(2*time.Minute), "1 2 3")
		diff(t, overdue(365*24*time.Hour), "1 2 3 0")
		diff(t, must(db.Answer(t.Context(), answer("run-1.a.1", `{}`)))(t), true)
		diff(t, overdue(2*time.Minute), "2 3")
	})
}

// TestOverdueTakeTurns: attempts that nobody can end now keep no others back,
// however many they are, also if they went out together.
func TestOverdueTakeTurns(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var all []string
		for i := range 5 {
			a := handed(attempt("run-"+strconv.Itoa(i), "a", 1), "t")
			a.Policy.Silence, a.ClaimedAt = time.Minute, epoch.Add(time.Duration(i/2)*time.Second)
			begin(t, db, a.Run, a)
			all = append(all, a.ID)
		}
		for range 2 {
			var seen []string
			for range 3 {
				for _, a := range must(db.Overdue(t.Context(), epoch.Add(time.Hour), 2))(t) {
					seen = append(seen, a.ID)
				}
			}
			diff(t, seen, all)
		}
	})
}

// Once overdue an attempt goes out again under a new token or is given up, and
// only under the token that was seen.
func TestHandOffMoves(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a := handed(attempt("run-1", "a", 1), "t0")
		a.Policy.OutcomeUnknown = parley.OutcomeResend
		begin(t, db, "run-1", a)
		at := epoch.Add(time.Hour)
		again := func(from, to string) bool {
			return must(db.Move(ctx, Move{Kind: MoveAgain, TaskID: task1, From: BusClaim(from), To: BusClaim(to), At: at}))(t)
		}
		diff(t, again("other", "t1"), false)
		diff(t, again("t0", "t1"), true)
		diff(t, again("t0", "t1"), true) // its reply was lost
		diff(t, again("t0", "t9"), false)
		r := row(t, db, task1)
		diff(t, []any{r.State, r.HandOff, r.Claim, r.Orphanings, r.ClaimedAt}, []any{AttemptClaimed, HandOffBus, BusClaim("t1"), 1, at})
		diff(t, again("t1", "t2"), true)
		unknown := Move{Kind: MoveUnknown, TaskID: task1, From: BusClaim("t1"), At: at, Result: failed(task1, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)}
		diff(t, must(db.Move(ctx, unknown))(t), false)
		unknown.From = BusClaim("t2")
		diff(t, must(db.Move(ctx, unknown))(t), true)
		// An answer that comes all the same is taken in its place.
		diff(t, must(db.Answer(ctx, answer(task1, `{"n":1}`)))(t), true)
		diff(t, must(db.Wakeups(ctx, epoch, 10))(t), Wakeups{Settled: []string{"run-1"}})
		diff(t, string(row(t, db, task1).Result.Output), `{"n":1}`)
	})
}

// ForResult tells what a result record finds.
func TestForResult(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		run := begin(t, db, "run-1", handed(attempt("run-1", "a", 1), "t0"))
		_, _, ok, err := db.ForResult(ctx, "run-1.b.1")
		check(t, err)
		diff(t, ok, false)
		d := next(run, 1)
		d.Close = []Close{{TaskID: task1, Outcome: parley.OutcomeTimeout, CancelAgent: true}}
		check(t, db.Decide(ctx, d))
		diff(t, must(db.Answer(ctx, answer(task1, `{}`)))(t), false)
		second := answer(task1, `{}`)
		second.At = second.At.Add(time.Second)
		diff(t, must(db.Answer(ctx, second))(t), false)
		begin(t, db, "run-2", attempt("run-2", "a", 1))
		diff(t, must(db.Answer(ctx, answer("run-2.a.1", `1`)))(t), true)
		diff(t, must(db.Answer(ctx, answer("run-2.a.1", `2`)))(t), false)
		a, late, ok, err := db.ForResult(ctx, task1)
		check(t, err)
		diff(t, []any{a.State, a.Result.Outcome, late, ok}, []any{AttemptClosed, parley.OutcomeTimeout, 2, true})
		diff(t, []any{a.SettledAt, a.CancelRequested}, []any{d.Run.UpdatedAt, true})
	})
}

// Two executors, two processes, hand over at once: each attempt goes to one of
// them.
func TestHandOverRace(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string) {
		dbs := []*DB{reopen(t, target, Options{}), reopen(t, target, Options{})}
		const runs = 40
		for i := range runs {
			run := "run-" + strconv.Itoa(i)
			begin(t, dbs[0], run, attempt(run, "a", 1))
		}
		var mu sync.Mutex
		seen := make(map[string]int)
		var all sync.WaitGroup
		for x := range 4 {
			all.Go(func() {
				for i := range runs {
					list, err := dbs[x%2].HandOver(t.Context(), "t"+strconv.Itoa(x)+"-"+strconv.Itoa(i), epoch, 3)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					for _, h := range list {
						seen[h.ID]++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		diff(t, len(seen), runs)
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s was handed over %d times", id, n)
			}
		}
	})
}

// An answer and the end of the wait for it: one of them wins, and an answer is
// never lost.
func TestHandOffAnswerRace(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		for i := range 20 {
			run := "run-" + strconv.Itoa(i)
			task := run + ".a.1"
			a := handed(attempt(run, "a", 1), "t0")
			a.Policy.OutcomeUnknown = parley.OutcomeResend
			begin(t, db, run, a)
			var both sync.WaitGroup
			accepted, resent := false, false
			both.Go(func() { accepted, _ = db.Answer(t.Context(), answer(task, `{}`)) })
			both.Go(func() {
				resent, _ = db.Move(t.Context(), Move{Kind: MoveAgain, TaskID: task, From: BusClaim("t0"), To: BusClaim("t1"), At: epoch})
			})
			both.Wait()
			r := row(t, db, task)
			if !accepted || r.State != AttemptSettled || (r.Orphanings == 1) != resent {
				t.Fatalf("answer accepted: %t, sent again: %t, row %+v", accepted, resent, r)
			}
		}
	})
}
