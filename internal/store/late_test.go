package store

import (
	"testing"
	"time"
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
