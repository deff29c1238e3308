package bridge

import (
	"cmp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// memoryRig is a MemoryLedger with what is asked of it.
type memoryRig struct {
	*MemoryLedger
	t   *testing.T
	now time.Time
}

func newMemoryRig(t *testing.T) *memoryRig {
	return &memoryRig{NewMemoryLedger(), t, time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)}
}

func (r *memoryRig) claimOf(id string) store.Claim {
	return store.Claim{Worker: "b", Inc: 1, Token: "of " + id}
}

// row is a task as its record makes it, and claimed one that is about to be claimed.
func (r *memoryRig) row(id string, adjust func(*store.Attempt)) store.Attempt {
	a := store.Attempt{Task: parley.Task{ID: id, Attempt: 1}, State: store.AttemptOpen, HandOff: store.HandOffForeign, VisibleAt: r.now}
	if adjust != nil {
		adjust(&a)
	}
	return a
}

func (r *memoryRig) claimed(id string, adjust func(*store.Attempt)) store.Attempt {
	a := r.row(id, adjust)
	a.State, a.Claim = store.AttemptClaimed, r.claimOf(id)
	return a
}

// claim claims tasks by their ids, and gives those that are the caller's.
func (r *memoryRig) claim(list ...store.Attempt) []string {
	got, _ := r.ClaimForeign(r.t.Context(), list, r.now)
	return idsOf(got)
}

// given are the tasks that the ledger gives then.
func (r *memoryRig) given(at time.Time, limit int) []string {
	got, _ := r.Foreign(r.t.Context(), at, limit)
	return idsOf(got)
}

func idsOf(list []store.Attempt) (ids []string) {
	for _, a := range list {
		ids = append(ids, a.ID)
	}
	return ids
}

func (r *memoryRig) want(what string, got []string, want ...string) {
	r.t.Helper()
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (r *memoryRig) putOff(id string, after time.Duration) {
	_ = r.DeferForeign(r.t.Context(), []store.Attempt{r.row(id, func(a *store.Attempt) { a.VisibleAt = r.now.Add(after) })}, r.now)
}

func (r *memoryRig) answer(id string, o parley.Outcome) bool {
	ok, _ := r.Answer(r.t.Context(), store.Answer{Result: parley.Result{TaskID: id, Outcome: o}})
	return ok
}

func (r *memoryRig) move(m store.Move) bool {
	if m.From == (store.Claim{}) {
		m.From = r.claimOf(m.TaskID)
	}
	ok, _ := r.Move(r.t.Context(), m)
	return ok
}

// TestMemoryLedgerClaims: a task is one caller's until it is open again, also when its
// record comes once more.
func TestMemoryLedgerClaims(t *testing.T) {
	r := newMemoryRig(t)
	r.want("new ones", r.claim(r.claimed("a", nil), r.claimed("b", nil)), "a", "b")
	r.want("one that is claimed, and a new one", r.claim(r.claimed("a", nil), r.claimed("c", nil)), "c")
	reqs := []store.ClaimRequest{{TaskID: "a", Token: "of a"}, {TaskID: "b", Token: "of another"}, {TaskID: "x", Token: "of x"}}
	again, _ := r.Claim(t.Context(), store.Claim{}, reqs, r.now)
	r.want("under the same token", idsOf(again), "a")
	if !r.move(store.Move{Kind: store.MoveRelease, TaskID: "a", At: r.now.Add(time.Second)}) {
		t.Error("not released")
	}
	again, _ = r.Claim(t.Context(), store.Claim{}, reqs, r.now)
	r.want("that was released", idsOf(again))
	r.want("for another try than it has", r.claim(r.claimed("a", func(a *store.Attempt) { a.Attempt = 2 })))
	r.want("open ones", r.claim(r.claimed("a", nil)), "a")
	r.want("claimed ones that wait", r.given(r.now.Add(time.Hour), 9))
}

// TestMemoryLedgerWaits: what waits is given when its time has come, the first ones
// first, and again a while later if nobody has claimed it.
func TestMemoryLedgerWaits(t *testing.T) {
	r := newMemoryRig(t)
	for i, id := range []string{"c", "a", "b", "late"} {
		r.putOff(id, time.Duration([]int{3, 1, 2, 90}[i])*time.Second)
	}
	r.putOff("c", time.Hour) // it waits already
	r.want("before its time", r.given(r.now.Add(999*time.Millisecond), 9))
	at := r.now.Add(3 * time.Second)
	r.want("two", r.given(at, 2), "a", "b")
	soon := at.Add(time.Millisecond)
	r.want("the rest", r.given(soon, 9), "c")
	r.want("given already", r.given(soon, 9))
	r.want("claimed", r.claim(r.claimed("b", nil)), "b")
	r.want("given again", r.given(at.Add(deferFirst), 1), "a")
	r.forget("a")
	r.forget("b") // which is claimed
	r.forget("nobody")
	if r.rows["a"] != nil {
		t.Error("what was forgotten is there")
	}
	r.want("what others do is forgotten", r.given(at.Add(2*deferFirst), 9), "c")
	r.want("what was forgotten is new", r.claim(r.claimed("a", nil), r.claimed("b", nil)), "a")
}

// TestMemoryLedgerAnswers: the first answer wins, but that the outcome is unknown is none.
func TestMemoryLedgerAnswers(t *testing.T) {
	r := newMemoryRig(t)
	r.claim(r.claimed("a", nil), r.claimed("b", nil))
	r.putOff("c", time.Second)
	unknown := &parley.Result{TaskID: "b", Outcome: parley.OutcomeUnknown}
	if !r.answer("a", parley.OutcomeOK) || !r.move(store.Move{Kind: store.MoveUnknown, TaskID: "b", Result: unknown}) ||
		!r.answer("b", parley.OutcomeOK) || !r.answer("c", parley.OutcomeError) {
		t.Error("an answer is refused")
	}
	r.claim(r.claimed("d", nil))
	several, _ := r.AnswerForeign(t.Context(), []store.Answer{
		{Result: parley.Result{TaskID: "b", Outcome: parley.OutcomeError}},
		{Result: parley.Result{TaskID: "d", Outcome: parley.OutcomeError}},
		{Result: parley.Result{TaskID: "a", Outcome: parley.OutcomeOK}},
	})
	if !slices.Equal(several, []bool{false, true, false}) || r.answer("nobody", parley.OutcomeOK) {
		t.Errorf("of a second answer, a first and a second are taken: %t", several)
	}
	r.want("settled ones that wait", r.given(r.now.Add(time.Hour), 9))
}

// TestMemoryLedgerRemembers: a record that comes again after its task's end is no new
// task, for so many tasks that have ended since.
func TestMemoryLedgerRemembers(t *testing.T) {
	r := newMemoryRig(t)
	end := func(id string) { _ = r.CloseForeign(t.Context(), []string{id}) }
	r.claim(r.claimed("first", nil))
	r.putOff("second", time.Second)
	end("first")
	end("second")
	end("first") // which changes nothing
	r.want("ended ones", r.claim(r.claimed("first", nil), r.claimed("second", nil)))
	r.putOff("first", time.Second)
	r.want("ended ones that wait", r.given(r.now.Add(time.Hour), 9))
	if len(r.rows) != 0 || !r.over("first") || r.over("third") {
		t.Errorf("%d rows, the first is over: %t, the third: %t", len(r.rows), r.over("first"), r.over("third"))
	}
	for i := range maxEnded - 1 {
		end(strconv.Itoa(i))
	}
	if r.over("first") || !r.over("second") || len(r.ended) != maxEnded {
		t.Errorf("of %d that are remembered is the first: %t, the second: %t", len(r.ended), r.over("first"), r.over("second"))
	}
	for i := range maxEnded {
		end("again " + strconv.Itoa(i))
	}
	if r.over("second") || !r.over("again 0") || len(r.ended) != maxEnded || len(r.ring) != maxEnded {
		t.Errorf("%d are remembered in %d places", len(r.ended), len(r.ring))
	}
	r.want("one that is not remembered", r.claim(r.claimed("first", nil)), "first")
}

// TestMemoryLedgerMoves has the conditions of the transitions (protocol.md §3).
func TestMemoryLedgerMoves(t *testing.T) {
	failed := &parley.Result{Outcome: parley.OutcomeError}
	lost := func(a *store.Attempt) { a.Orphanings = 1 }
	policy := func(p parley.OutcomePolicy, orphanings int) func(*store.Attempt) {
		return func(a *store.Attempt) { a.Policy.OutcomeUnknown, a.Orphanings = p, orphanings }
	}
	to := store.Claim{Worker: "b", Inc: 1, Token: "another"}
	for _, c := range []struct {
		name    string
		adjust  func(*store.Attempt)
		follows bool
		move    store.Move
		want    bool
		state   store.AttemptState
	}{
		{"release", nil, false, store.Move{Kind: store.MoveRelease}, true, store.AttemptOpen},
		{"release, sent before", lost, false, store.Move{Kind: store.MoveRelease}, false, store.AttemptClaimed},
		{"release, followed", nil, true, store.Move{Kind: store.MoveRelease}, false, store.AttemptFollowing},
		{"release, another's", nil, false, store.Move{Kind: store.MoveRelease, From: to}, false, store.AttemptClaimed},
		{"retry", nil, false, store.Move{Kind: store.MoveRetry}, true, store.AttemptOpen},
		{"retry, from a dead letter", nil, false, store.Move{Kind: store.MoveRetry, Source: &store.Source{}}, true, store.AttemptOpen},
		{"retry, followed", nil, true, store.Move{Kind: store.MoveRetry}, true, store.AttemptOpen},
		{"retry, sent before", lost, false, store.Move{Kind: store.MoveRetry}, false, store.AttemptClaimed},
		{"fail", nil, false, store.Move{Kind: store.MoveFail, Result: failed}, true, store.AttemptSettled},
		{"fail, followed", lost, true, store.Move{Kind: store.MoveFail, Result: failed}, true, store.AttemptSettled},
		{"fail, sent before", lost, false, store.Move{Kind: store.MoveFail, Result: failed}, false, store.AttemptClaimed},
		{"unknown", lost, false, store.Move{Kind: store.MoveUnknown, Result: failed}, true, store.AttemptSettled},
		{"cancelled", lost, true, store.Move{Kind: store.MoveCancelled, Result: failed}, true, store.AttemptSettled},
		{"again", policy(parley.OutcomeResend, 1), false, store.Move{Kind: store.MoveAgain, To: to}, true, store.AttemptClaimed},
		{"again, followed", policy(parley.OutcomeLookup, 0), true, store.Move{Kind: store.MoveAgain, To: to}, true, store.AttemptClaimed},
		{"again, too often", policy(parley.OutcomeResend, 2), false, store.Move{Kind: store.MoveAgain, To: to}, false, store.AttemptClaimed},
		{"again, under fail", policy(parley.OutcomeFail, 0), false, store.Move{Kind: store.MoveAgain, To: to}, false, store.AttemptClaimed},
		{"takeover", nil, false, store.Move{Kind: store.MoveTakeover, To: to}, false, store.AttemptClaimed},
	} {
		r := newMemoryRig(t)
		r.claim(r.claimed("a", c.adjust))
		if c.follows && !r.move(store.Move{Kind: store.MoveFollow, TaskID: "a", AgentTaskID: "x", AgentContextID: "y", AgentEndpoint: "e", AgentVersion: "v"}) {
			t.Errorf("%s: not followed", c.name)
		}
		before := *r.rows["a"]
		c.move.TaskID, c.move.At = "a", r.now.Add(time.Minute)
		if got, a := r.move(c.move), r.rows["a"]; got != c.want || a.State != c.state {
			t.Errorf("%s: %t, and it is %s", c.name, got, a.State)
		}
		checkMoved(t, c.name, c.move, c.want, before, *r.rows["a"])
		waits := c.state == store.AttemptOpen
		if got := r.given(r.now.Add(time.Minute), 1); len(got) == 1 != waits || len(r.given(r.now.Add(time.Hour), 1)) == 1 != waits {
			t.Errorf("%s: it waits: %t", c.name, !waits)
		}
	}
}

// checkMoved looks at what a move has written besides the state.
func checkMoved(t *testing.T, name string, m store.Move, moved bool, before, a store.Attempt) {
	t.Helper()
	want := before
	want.State, want.Result = a.State, a.Result
	switch {
	case !moved:
	case m.Kind == store.MoveRelease, m.Kind == store.MoveRetry:
		want.Claim, want.VisibleAt, want.AgentTaskID, want.AgentContextID = store.Claim{}, m.At, "", ""
		if m.Kind == store.MoveRetry {
			want.Attempt++
			want.Source = cmp.Or(m.Source, before.Source)
		}
	case m.Kind == store.MoveAgain:
		want.Claim, want.AgentTaskID, want.AgentContextID = m.To, "", ""
		want.Orphanings++
	}
	if (a.State == store.AttemptSettled) != (a.Result != nil) || a.Claim != want.Claim || !a.VisibleAt.Equal(want.VisibleAt) ||
		a.AgentTaskID != want.AgentTaskID || a.AgentContextID != want.AgentContextID || a.AgentEndpoint != before.AgentEndpoint ||
		a.Attempt != want.Attempt || a.Source != want.Source || a.Orphanings != want.Orphanings {
		t.Errorf("%s: %+v, want %+v", name, a, want)
	}
	if before.State == store.AttemptFollowing && (before.AgentTaskID != "x" || before.AgentContextID != "y" || before.AgentEndpoint != "e" || before.AgentVersion != "v") {
		t.Errorf("%s: followed as %+v", name, before)
	}
}
