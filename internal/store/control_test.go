package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/parley-project/parley"
)

// atOnceDo runs two writers at the same time, and waits for both.
func atOnceDo(a, b func()) {
	var wg sync.WaitGroup
	wg.Go(a)
	wg.Go(b)
	wg.Wait()
}

// TestC5_PauseAgainstClaim: a claim that was before the pause stands; one after it,
// also of what was released, there is not until the run is resumed.
func TestC5_PauseAgainstClaim(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		for i := range 20 {
			k := fmt.Sprintf("run-%d", i)
			task, mine := k+".a.1", c
			mine.Token = "t" + k
			d := next(begin(t, db, k, attempt(k, "a", 1)), 1)
			d.Hold, d.Run.Paused = new(true), true
			got := 0
			atOnceDo(func() { check(t, db.Decide(t.Context(), d)) }, func() {
				got = len(must(db.Claim(t.Context(), c, []ClaimRequest{{TaskID: task, Token: mine.Token}}, epoch))(t))
			})
			if r := row(t, db, task); !r.Held || (r.State == AttemptClaimed) != (got == 1) {
				t.Fatalf("the attempt is %s, held %v, %d claims", r.State, r.Held, got)
			}
			if got == 1 && !must(db.Move(t.Context(), Move{Kind: MoveRelease, TaskID: task, From: mine, At: epoch}))(t) {
				t.Fatal("not released")
			}
			if list := must(db.Claim(t.Context(), c, []ClaimRequest{{TaskID: task, Token: "later" + k}}, epoch))(t); len(list) > 0 {
				t.Fatal("claimed while the run is paused")
			}
			d = next(d.Run, 1)
			d.Hold, d.Run.Paused = new(false), false
			check(t, db.Decide(t.Context(), d))
			claim(t, db, c, task, "at last"+k)
		}
	})
}

// TestC3_TerminateAgainstAnswer: whichever is first, the run ends, its attempts are
// closed, and an answer is the attempt's or is kept as late.
func TestC3_TerminateAgainstAnswer(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		for i := range 20 {
			k := fmt.Sprintf("run-%d", i)
			run := begin(t, db, k, attempt(k, "a", 1), attempt(k, "b", 1))
			claim(t, db, c, k+".a.1", "t"+k)
			d := next(run, 1)
			d.Run.Status, d.Run.EndedAt = parley.RunCancelled, epoch
			for _, step := range []string{"a", "b"} {
				d.Close = append(d.Close, Close{TaskID: k + "." + step + ".1", Outcome: parley.OutcomeCancelled, CancelAgent: true})
			}
			taken := false
			atOnceDo(func() { check(t, db.Decide(t.Context(), d)) }, func() {
				taken = must(db.Answer(t.Context(), answer(k+".a.1", `1`)))(t)
			})
			a, b := row(t, db, k+".a.1"), row(t, db, k+".b.1")
			want := map[bool]parley.Outcome{true: parley.OutcomeOK, false: parley.OutcomeCancelled}[taken]
			if a.State != AttemptClosed || b.State != AttemptClosed || a.Result.Outcome != want || !a.CancelRequested {
				t.Fatalf("closed as %s %v and %s, the answer was taken: %v", a.State, a.Result, b.State, taken)
			}
			if late := must(db.Late(t.Context(), k+".a.1"))(t); len(late) == 0 == !taken {
				t.Fatalf("%d late answers, the answer was taken: %v", len(late), taken)
			}
			if list := must(db.Claim(t.Context(), c, []ClaimRequest{{TaskID: k + ".b.1", Token: "later" + k}}, epoch))(t); len(list) > 0 {
				t.Fatal("claimed after the end")
			}
		}
	})
}
