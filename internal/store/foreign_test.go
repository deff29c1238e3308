package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// foreign is a task of an executor of the existing platform.
func foreign(task string) Attempt {
	return Attempt{
		Task: parley.Task{
			ID: ForeignTaskID("run-old", task, "corr-"+task, ""), Run: "run-old", Step: task, Attempt: 1, Agent: "one",
			Input: json.RawMessage(`{"text": "a\u0000b"}`), CorrelationID: "corr-" + task, Deadline: epoch.Add(5 * time.Minute),
		},
		Policy: Policy{OutcomeUnknown: parley.OutcomeFail}, State: AttemptOpen, HandOff: HandOffForeign, VisibleAt: epoch,
	}
}

func foreignClaim(task string, c Claim) Attempt {
	a := foreign(task)
	a.State, a.Claim, a.ClaimedAt = AttemptClaimed, c, epoch
	return a
}

func attemptIDs(list []Attempt) []string {
	var out []string
	for i := range list {
		out = append(out, list[i].ID)
	}
	return out
}

// The claim inserts the row; the same task again is nobody's, also when it has
// ended, and no sweep for runs sees any of it.
func TestForeignClaim(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		c := bridge(t, db, "b1")
		c.Token = "t1"
		a := foreignClaim("a", c)
		got := must(db.ClaimForeign(ctx, []Attempt{a}, epoch))(t)
		a.Held = true
		diff(t, got, []Attempt{a})
		stored := row(t, db, a.ID)
		diff(t, stored, a)

		again := foreignClaim("a", Claim{c.Worker, c.Inc, "t2"})
		before := dump(t, db)
		diff(t, len(must(db.ClaimForeign(ctx, []Attempt{again}, epoch))(t)), 0)
		diff(t, dump(t, db), before)

		r := parley.Result{TaskID: a.ID, Outcome: parley.OutcomeOK, Output: json.RawMessage(`{"a":1}`)}
		diff(t, must(db.Answer(ctx, Answer{Result: r, At: epoch, From: "b1"}))(t), true)
		w := must(db.Wakeups(ctx, epoch.Add(time.Hour), 10))(t)
		diff(t, w, Wakeups{})
		diff(t, len(must(db.Publish(ctx, epoch.Add(time.Hour), 10))(t)), 0)
		diff(t, len(must(db.HandOver(ctx, "x", epoch.Add(time.Hour), 10))(t)), 0)
		diff(t, len(must(db.ClaimForeign(ctx, []Attempt{again}, epoch))(t)), 0)

		check(t, db.CloseForeign(ctx, []string{a.ID, "foreign:none"}))
		diff(t, row(t, db, a.ID).State, AttemptClosed)
		diff(t, len(must(db.Foreign(ctx, epoch.Add(time.Hour), 10))(t)), 0)
		diff(t, len(must(db.ClaimForeign(ctx, []Attempt{again}, epoch))(t)), 0)
	})
}

// A bridge that was replaced claims and inserts nothing.
func TestForeignClaimFenced(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		c := bridge(t, db, "b1")
		c.Token = "t1"
		bridge(t, db, "b1")
		before := dump(t, db)
		if _, err := db.ClaimForeign(ctx, []Attempt{foreignClaim("a", c)}, epoch); !errors.Is(err, ErrStale) {
			t.Errorf("a claim of a bridge that was replaced: %v", err)
		}
		diff(t, dump(t, db), before)

		for _, bad := range []Attempt{foreign("a"), foreignClaim("a", Claim{}), claimed(attempt("run-1", "a", 1), c)} {
			_, err := db.ClaimForeign(ctx, []Attempt{bad}, epoch)
			wantCode(t, err, parley.CodeInvalid)
		}
		wantCode(t, db.DeferForeign(ctx, []Attempt{foreignClaim("a", c)}, epoch), parley.CodeInvalid)
	})
}

// Of several who claim the same task one gets it.
func TestForeignClaimRace(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := map[string]int{}
		for _, name := range []string{"b1", "b2", "b3"} {
			c := bridge(t, db, name)
			wg.Go(func() {
				for _, task := range []string{"a", "b", "c", "d"} {
					c.Token = name + task
					list, err := db.ClaimForeign(t.Context(), []Attempt{foreignClaim(task, c)}, epoch)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					won[task] += len(list)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		diff(t, won, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}

// Deferred and retried tasks are given when their time has come, settled ones
// when nobody has published their result, each to one bridge at a time.
func TestForeignSweep(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		c := bridge(t, db, "b1")
		late := foreign("later")
		late.VisibleAt = epoch.Add(time.Minute)
		check(t, db.DeferForeign(ctx, []Attempt{late, foreign("now")}, epoch))
		diff(t, attemptIDs(must(db.Foreign(ctx, epoch, 10))(t)), []string{foreign("now").ID})
		diff(t, len(must(db.Foreign(ctx, epoch, 10))(t)), 0)
		check(t, db.DeferForeign(ctx, []Attempt{foreign("later")}, epoch)) // changes nothing
		diff(t, len(must(db.Foreign(ctx, epoch, 10))(t)), 0)

		c.Token = "t1"
		got := must(db.ClaimForeign(ctx, []Attempt{foreignClaim("now", c)}, epoch))(t)
		diff(t, got[0].Claim, c)
		follow(t, db, got[0].ID, c)
		failed := Source{DeadLetterSource: parley.DeadLetterSource{Subject: "tasks", Topic: "t", Offset: 7}, FailedAt: epoch.Add(time.Millisecond)}
		retry := Move{Kind: MoveRetry, TaskID: got[0].ID, From: c, At: epoch.Add(time.Second), Source: &failed}
		wrong := retry
		wrong.From.Token = "t0"
		before := dump(t, db)
		diff(t, must(db.Move(ctx, wrong))(t), false)
		diff(t, dump(t, db), before)
		diff(t, must(db.Move(ctx, retry))(t), true)
		a := row(t, db, got[0].ID)
		want := foreign("now")
		want.Attempt, want.Held, want.VisibleAt = 2, true, epoch.Add(time.Second)
		diff(t, a, want) // no trace of the first try

		diff(t, must(db.Source(ctx, a.ID))(t), &failed)

		// Who still knows the first try does not make the second one.
		diff(t, len(must(db.ClaimForeign(ctx, []Attempt{foreignClaim("now", c)}, epoch))(t)), 0)
		diff(t, row(t, db, a.ID).State, AttemptOpen)

		r := parley.Result{TaskID: a.ID, Outcome: parley.OutcomeError, Err: parley.Errorf(parley.CodeTimeout, "over")}
		diff(t, must(db.Answer(ctx, Answer{Result: r, At: epoch.Add(2 * time.Second), From: "b1"}))(t), true)
		diff(t, len(must(db.Foreign(ctx, epoch.Add(3*time.Second), 10))(t)), 0)
		diff(t, attemptIDs(must(db.Foreign(ctx, epoch.Add(8*time.Second), 10))(t)), []string{a.ID})
		diff(t, len(must(db.Foreign(ctx, epoch.Add(9*time.Second), 10))(t)), 0)
		diff(t, attemptIDs(must(db.Foreign(ctx, epoch.Add(14*time.Second), 10))(t)), []string{a.ID})

		c.Token = "t2"
		other := must(db.ClaimForeign(ctx, []Attempt{foreignClaim("other", c)}, epoch))(t)[0].ID
		diff(t, must(db.Answer(ctx, Answer{Result: okResult(other, `1`), At: epoch.Add(time.Hour), From: "b1"}))(t), true)
		diff(t, must(db.PurgeForeign(ctx, epoch.Add(time.Hour), 10))(t), 0) // nobody has its result
		check(t, db.CloseForeign(ctx, []string{a.ID}))
		diff(t, row(t, db, other).State, AttemptSettled)
		check(t, db.CloseForeign(ctx, []string{other}))
		diff(t, must(db.PurgeForeign(ctx, epoch, 10))(t), 0)
		diff(t, must(db.PurgeForeign(ctx, epoch.Add(time.Hour), 10))(t), 1)
		_, there, err := db.Attempt(ctx, a.ID)
		check(t, err)
		diff(t, there, false)
		diff(t, []AttemptState{row(t, db, late.ID).State, row(t, db, other).State}, []AttemptState{AttemptOpen, AttemptClosed})
	})
}

// An attempt of a run is not retried in its row, nor closed as a foreign one.
func TestForeignOnly(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		c.Token = "t1"
		begin(t, db, "run-1", attempt("run-1", "a", 1))
		diff(t, len(must(db.Claim(t.Context(), c, []ClaimRequest{{TaskID: task1, Token: "t1"}}, epoch))(t)), 1)
		before := dump(t, db)
		diff(t, must(db.Move(t.Context(), Move{Kind: MoveRetry, TaskID: task1, From: c, At: epoch}))(t), false)
		check(t, db.CloseForeign(t.Context(), []string{task1}))
		diff(t, dump(t, db), before)

		// Nor is a foreign one that may have been sent more than once.
		a := foreignClaim("task-1", c)
		a.Policy.OutcomeUnknown = parley.OutcomeResend
		must(db.ClaimForeign(t.Context(), []Attempt{a}, epoch))(t)
		again := Claim{c.Worker, c.Inc, "t2"}
		moved(t, db, Move{Kind: MoveAgain, TaskID: a.ID, From: c, To: again})
		refusedMove(t, db, Move{Kind: MoveRetry, TaskID: a.ID, From: again})
	})
}

func TestForeignTaskID(t *testing.T) {
	seen := map[string]bool{}
	for _, x := range [][3]string{{"r", "t", "c"}, {"rt", "", "c"}, {"r", "tc", ""}, {"", "rt", "c"}, {"r", "t", "d"}} {
		id := ForeignTaskID(x[0], x[1], x[2], "")
		if seen[id] || !strings.HasPrefix(id, "foreign:") || len(id) != 48 {
			t.Errorf("%v gives %q", x, id)
		}
		seen[id] = true
	}
	// Rows of before have these.
	diff(t, ForeignTaskID("run", "task", "corr", ""), "foreign:6de2c54b64e0e5aa96f94e82269df52aa9bc6a0f")
	diff(t, ForeignTaskID("run", "task", "corr", "r1"), "foreign:again:01ecc7c0ef0a3096202b5f823b78148f44099a7b")
	diff(t, ForeignTaskID("run", "task", strings.Repeat("corr", 100), ""), "foreign:25ac857e828176d8b65882deaded351c13641145")
}

// Each answer of a group stands for itself: taken, repeated, or too late.
func TestForeignAnswers(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		c := bridge(t, db, "b1")
		var list []Attempt
		var answers []Answer
		for n := range 100 { // more than one statement
			c.Token = fmt.Sprintf("t%d", n)
			list = append(list, foreignClaim(fmt.Sprintf("task-%d", n), c))
			answers = append(answers, Answer{
				Result: parley.Result{TaskID: list[n].ID, Outcome: parley.OutcomeOK, Output: json.RawMessage(fmt.Sprint(n))}, At: epoch.Add(time.Duration(n)), From: "b1",
			})
		}
		diff(t, len(must(db.ClaimForeign(ctx, list, epoch))(t)), 100)
		early := answers[1]
		early.Result.Output = json.RawMessage(`"early"`)
		diff(t, must(db.Answer(ctx, early))(t), true)
		failed := parley.Result{TaskID: list[2].ID, Outcome: parley.OutcomeError, Err: parley.Errorf(parley.CodeAgentError, "no")}
		answers[2].Result = failed

		got := must(db.AnswerForeign(ctx, answers))(t)
		for n := range answers {
			diff(t, got[n], n != 1)
			a := row(t, db, list[n].ID)
			diff(t, a.State, AttemptSettled)
			if n > 2 {
				diff(t, string(a.Result.Output), fmt.Sprint(n))
			}
		}
		diff(t, row(t, db, list[2].ID).Result.Err.Message, "no")
		diff(t, len(must(db.Late(ctx, list[1].ID))(t)), 1)
		diff(t, must(db.AnswerForeign(ctx, answers[2:]))(t), slices.Repeat([]bool{true}, 98)) // the reply was lost
		diff(t, len(must(db.Late(ctx, list[3].ID))(t)), 0)

		before := dump(t, db)
		_, err := db.AnswerForeign(ctx, []Answer{answers[5], {Result: parley.Result{TaskID: list[6].ID}}})
		diff(t, parley.CodeOf(err), parley.CodeInvalid)
		diff(t, len(must(db.AnswerForeign(ctx, nil))(t)), 0)
		diff(t, dump(t, db), before)
	})
}

// What has its row already is claimed beside what is inserted.
func TestForeignClaimMixed(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		c := bridge(t, db, "b1")
		list := make([]Attempt, 5)
		for n := range list {
			c.Token = fmt.Sprintf("t%d", n)
			list[n] = foreignClaim(fmt.Sprintf("task-%d", n), c)
		}
		check(t, db.DeferForeign(ctx, []Attempt{foreign("task-1"), foreign("task-3")}, epoch))
		got := must(db.ClaimForeign(ctx, list, epoch))(t)
		diff(t, len(got), 5)
		for _, a := range got {
			diff(t, row(t, db, a.ID), a)
			diff(t, a.ClaimedAt, epoch)
		}
		diff(t, len(must(db.ClaimForeign(ctx, list, epoch))(t)), 0)
	})
}
