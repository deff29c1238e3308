package store

import "testing"

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
