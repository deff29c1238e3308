package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// TestLateWithLongNames: of a late answer whose names are too long to be kept, the
// names are left out.
func TestLateWithLongNames(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		begin(t, db, "run-1", attempt("run-1", "a", 1))
		if !must(db.Answer(ctx, answer("run-1.a.1", `1`)))(t) {
			t.Fatal("refused")
		}
		late := answer("run-1.a.1", `2`)
		late.Result.ContextID = string(make([]byte, lateLimit))
		if must(db.Answer(ctx, late))(t) {
			t.Fatal("accepted")
		}
		late.Result.ContextID = ""
		diff(t, must(db.Late(ctx, "run-1.a.1"))(t), []LateAnswer{{TaskID: "run-1.a.1", At: late.At, From: late.From, Result: late.Result}})
	})
}

// TestNoLateAnswerOfWhatIsGone: an answer to a task of a run that was removed, or to
// a foreign one that is forgotten, is not kept: nobody could see it, and nothing
// would ever remove it.
func TestNoLateAnswerOfWhatIsGone(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		over(t, db, "gone", "greet", days(1), func(*Start) {})
		diff(t, removed(t, db, Past{Workflow: "greet", Age: time.Second}), 1)
		task := foreignClaim("task-1", bridge(t, db, "b1"))
		diff(t, must(db.AnswerForeign(ctx, []Answer{answer("gone.a.1", `1`), answer(task.ID, `2`)}))(t), []bool{false, false})
		diff(t, must(db.Answer(ctx, answer("gone.a.1", `3`)))(t), false)
		diff(t, lateRows(t, db), []string(nil))
	})
}

// TestNoLateAnswerOfWhatIsBeingRemoved: nor is one that comes while a run is removed left
// behind, as news of a run that is not there. It may be written after it was found out what
// there is to remove, or be written and not yet committed.
func TestNoLateAnswerOfWhatIsBeingRemoved(t *testing.T) {
	remove := func(db *DB) <-chan error {
		done := make(chan error, 1)
		go func() { _, err := db.PurgeRemoved(t.Context()); done <- err }()
		return done
	}
	gone := func(t *testing.T, db *DB) {
		t.Helper()
		over(t, db, "gone", "greet", days(1))
		p := Past{Workflow: "greet", Age: time.Second, Now: days(100)}
		diff(t, must(db.RemoveRuns(t.Context(), p, []string{"gone"}))(t), 1)
	}
	late := answer("gone.a.1", `1`)
	eachDB(t, func(t *testing.T, db *DB) {
		gone(t, db)
		release := stall(t, db)
		answered := make(chan error, 1)
		go func() { _, err := db.Answer(t.Context(), late); answered <- err }()
		queued(t, db, 1)
		done := remove(db)
		queued(t, db, 2)
		release()
		check(t, <-answered)
		check(t, <-done)
		diff(t, lateRows(t, db), []string(nil))
	})
	t.Run("transactions", func(t *testing.T) {
		target := pgtest.Copy(t, migrated(t))
		db, other := openedAt(t, target, Options{}), openedAt(t, target, Options{})
		gone(t, db)
		end := halfway(t, other, func(s *session) error { return recordLate(s, &late, nil) })
		done := remove(db)
		blocked(t, db, done)
		end()
		check(t, <-done)
		diff(t, lateRows(t, db), []string(nil))
	})
}

// TestLateNews: a late answer is news for its run, once, until that has taken
// notice of it in a decision, or has ended; a repeated one is no other answer.
func TestLateNews(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		runs := func() []string { return must(db.Wakeups(ctx, epoch, 10))(t).Late }
		run := begin(t, db, "run-1", attempt("run-1", "a", 1), attempt("run-1", "b", 2))
		begin(t, db, "run-2", attempt("run-2", "a", 1))
		for _, id := range []string{"run-1.a.1", "run-1.b.2", "run-2.a.1"} {
			if !must(db.Answer(ctx, answer(id, `1`)))(t) {
				t.Fatal("refused")
			}
		}
		diff(t, runs(), []string(nil))
		first := answer("run-1.a.1", `"late"`)
		first.From, first.At = "b2", epoch.Add(time.Minute)
		second := Answer{Result: *failed("run-1.b.2", parley.OutcomeError, parley.CodeAgentError), At: epoch, From: "b3"}
		for _, late := range []Answer{first, first, second, answer("run-2.a.1", `2`)} {
			if must(db.Answer(ctx, late))(t) {
				t.Fatal("accepted")
			}
		}
		diff(t, runs(), []string{"run-1", "run-2"})
		diff(t, []int{must(db.LateCount(ctx, "run-1"))(t), must(db.LateCount(ctx, "run-2"))(t), must(db.LateCount(ctx, "run-3"))(t)}, []int{2, 1, 0})
		news := must(db.LateNews(ctx, "run-1", 10))(t)
		diff(t, len(news), 2)
		first.Result.Output = nil
		diff(t, news, []LateNews{
			{ID: news[0].ID, TaskID: "run-1.a.1", Step: "a", Number: 1, At: first.At, From: "b2", Bytes: 6, Result: first.Result},
			{ID: news[1].ID, TaskID: "run-1.b.2", Step: "b", Number: 2, At: epoch, From: "b3", Result: second.Result},
		})
		diff(t, len(must(db.LateNews(ctx, "run-1", 1))(t)), 1)

		other, d := next(run, 1), next(run, 1)
		d.LateSeen, d.Prompt = []int64{news[0].ID}, true
		check(t, db.Decide(ctx, d))
		diff(t, must(db.LateNews(ctx, "run-1", 10))(t), news[1:])
		other.LateSeen = []int64{news[1].ID}
		diff(t, errors.Is(db.Decide(ctx, other), ErrStale), true)
		diff(t, must(db.LateNews(ctx, "run-1", 10))(t), news[1:])
		check(t, db.SawLate(ctx, []int64{news[1].ID}))
		diff(t, runs(), []string{"run-2"})
		diff(t, len(must(db.Late(ctx, "run-1.a.1"))(t)), 1)
	})
}

// TestForeignLateAnswersAreNoNews: their runs are somebody else's.
func TestForeignLateAnswersAreNoNews(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		c := bridge(t, db, "b1")
		c.Token = "t1"
		task := foreignClaim("task-1", c)
		diff(t, len(must(db.ClaimForeign(ctx, []Attempt{task}, epoch))(t)), 1)
		late := answer(task.ID, `2`)
		late.From = "b2"
		diff(t, must(db.AnswerForeign(ctx, []Answer{answer(task.ID, `1`), late}))(t), []bool{true, false})
		late.From = "b3"
		diff(t, must(db.Answer(ctx, late))(t), false) // what a bridge tries when a group has failed
		diff(t, lateRows(t, db), []string{task.ID, task.ID})
		diff(t, must(db.Wakeups(ctx, epoch, 10))(t).Late, []string(nil))
	})
}

// TestAttemptLogShowsLateAnswers: with its attempt, what is no JSON because it was
// cut as text, and beyond 4 MiB a page by its size alone.
func TestAttemptLogShowsLateAnswers(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		var attempts []Attempt
		for n := range 8 {
			attempts = append(attempts, attempt("run-1", fmt.Sprintf("s%d", n), 1))
		}
		begin(t, db, "run-1", attempts...)
		begin(t, db, "run-2", attempt("run-2", "s0", 1))
		long := `"` + strings.Repeat("€", lateLimit) + `"`
		for _, a := range attempts {
			if !must(db.Answer(ctx, answer(a.ID, `1`)))(t) {
				t.Fatal("refused")
			}
			for n := range 11 {
				late := answer(a.ID, long)
				late.From, late.At = "b2", epoch.Add(time.Duration(n)*time.Second)
				if a.Step == "s0" && n == 0 {
					late.Result.Output = json.RawMessage(`{"n":1}`)
					late.Result.Status, late.Result.AgentTaskID = 200, "at-1"
				}
				must(db.Answer(ctx, late))(t)
			}
		}
		items, _, err := db.AttemptLog(ctx, parley.AttemptQuery{Run: "run-1"})
		check(t, err)
		diff(t, items[0].Late[0], parley.LateAnswer{
			At: epoch, From: "b2", Outcome: parley.OutcomeOK, Status: 200, Response: json.RawMessage(`{"n":1}`), ResponseBytes: 7, AgentTaskID: "at-1",
		})
		diff(t, items[0].Late[1], parley.LateAnswer{
			At: epoch.Add(time.Second), From: "b2", Outcome: parley.OutcomeOK, ResponseBytes: lateLimit,
			ResponseStart: `"` + strings.Repeat("€", (lateLimit-1)/3), // no half character
		})
		shown, size := 0, 0
		for _, a := range items {
			diff(t, len(a.Late), lateShown)
			for _, l := range a.Late {
				diff(t, l.ResponseBytes > 0, true)
				if len(l.Response)+len(l.ResponseStart) > 0 {
					shown++
					size += int(l.ResponseBytes)
				}
			}
		}
		if shown != 64 || size > lateOfPage {
			t.Errorf("%d of 80 with their output, %d bytes", shown, size)
		}
	})
}

// TestLateAnswersAreBounded: who goes on answering for an attempt that has ended fills
// neither the database nor the history of the run. Those of other attempts are kept.
func TestLateAnswersAreBounded(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		begin(t, db, "run-1", attempt("run-1", "a", 1), attempt("run-1", "b", 1))
		for _, id := range []string{"run-1.a.1", "run-1.b.1"} {
			if !must(db.Answer(ctx, answer(id, `1`)))(t) {
				t.Fatal("refused")
			}
		}
		release := stall(t, db)
		const many = 3 * lateKept / 2
		done := make(chan error, many)
		for i := range many { // in as few transactions as there may be
			late := answer("run-1.a.1", `"late"`)
			late.At = epoch.Add(time.Duration(i+1) * time.Second)
			go func() {
				accepted, err := db.Answer(ctx, late)
				if accepted {
					err = errors.Join(err, errors.New("accepted"))
				}
				done <- err
			}()
		}
		queued(t, db, many)
		release()
		for range many {
			check(t, <-done)
		}
		diff(t, must(db.LateCount(ctx, "run-1"))(t), lateKept)
		must(db.Answer(ctx, answer("run-1.b.1", `"late"`)))(t)
		diff(t, must(db.LateCount(ctx, "run-1"))(t), lateKept+1)
	})
}
