package server_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// judge holds a run to the invariants of protocol.md §5, by its history, its rows and
// the agent's log.
func (r *matrixRig) judge(id string) {
	r.t.Helper()
	h, err := r.db.History(r.ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	r.judgeHistory(h)
	rows, err := r.db.Attempts(r.ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range rows {
		if rows[i].State != store.AttemptClosed {
			r.t.Errorf("L1: %s is %s after the run's end", rows[i].ID, rows[i].State)
		}
		r.judgeCalls(&rows[i], h.Run.EndedAt)
		r.judgeAnswers(&rows[i])
		r.judgeStored(&rows[i])
	}
	r.judgeEnd(h)
}

// judgeHistory is I3 and I4: no gap, one end of the run and of each attempt.
func (r *matrixRig) judgeHistory(h store.History) {
	r.t.Helper()
	ends := map[string]int{}
	for i, e := range h.Events {
		if e.Seq != int64(i)+1 {
			r.t.Errorf("event %d stands at place %d", e.Seq, i+1)
		}
		switch e.Type {
		case parley.EventRunCompleted, parley.EventRunFailed, parley.EventRunCancelled:
			ends["the run"]++
		case parley.EventStepCompleted, parley.EventStepFailed:
			ends[fmt.Sprintf("step %s, attempt %d", e.Step, e.Attempt)]++
		default:
		}
	}
	if ends["the run"] != 1 {
		r.t.Errorf("I4: %d terminal events", ends["the run"])
	}
	for what, n := range ends {
		if n != 1 {
			r.t.Errorf("I3: %s has ended %d times", what, n)
		}
	}
}

// judgeCalls is I1 and I7.
func (r *matrixRig) judgeCalls(a *store.Attempt, end time.Time) {
	r.t.Helper()
	limit := 1
	if r.c.policy == "resend" {
		limit += a.Orphanings
	}
	calls := r.agent.executions(a.ID)
	if len(calls) > limit {
		r.t.Errorf("I1: %s was executed %d times with %d orphanings", a.ID, len(calls), a.Orphanings)
	}
	for _, e := range calls {
		if late := r.ran(end, e.at); late > 2*time.Second {
			r.t.Errorf("I7: %s was called %s after the run's end", a.ID, late)
		}
	}
	if a.Result != nil && a.Result.Outcome == parley.OutcomeOK && len(calls) == 0 {
		r.t.Errorf("%s has an answer without a call", a.ID)
	}
	if n := r.guarded(a); len(calls) > n {
		r.t.Errorf("guard: %s was executed %d times, not %d: it was stopped before the first byte", a.ID, len(calls), n)
	}
	if len(calls) > 1 && r.once() {
		r.t.Errorf("I2: %s was executed %d times, though nobody was in doubt about it", a.ID, len(calls))
	}
}

// judgeAnswers is I2: what an agent told a process that has lived on is not unknown,
// unless it came after the end; then it is kept as late.
func (r *matrixRig) judgeAnswers(a *store.Attempt) {
	r.t.Helper()
	given := slices.ContainsFunc(r.agent.executions(a.ID), func(e execution) bool { return e.answered && !e.life.isDead() })
	if !given || a.Result == nil || a.Result.Outcome != parley.OutcomeUnknown {
		return
	}
	for deadline := time.Now().Add(matrixWithin); ; time.Sleep(50 * time.Millisecond) {
		late, err := r.db.Late(r.ctx, a.ID)
		if err == nil && len(late) > 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Errorf("I2: the answer to %s was thrown away (%v)", a.ID, err)
			return
		}
	}
}

// judgeEnd holds the run's end to what may come of the fault.
func (r *matrixRig) judgeEnd(h store.History) {
	r.t.Helper()
	status, code := h.Run.Status, errorCode(h)
	switch {
	case r.s.ends == "" && status == parley.RunCompleted:
	case r.s.ends == parley.CodeCancelled && status == parley.RunCancelled:
	case r.s.ends != "" && status == parley.RunFailed && code == r.s.ends:
	case status == parley.RunFailed && code == parley.CodeOutcomeUnknown && r.mayBeUnknown():
	case r.s.ends == parley.CodeOutcomeUnknown && status == parley.RunCompleted:
		// An answer came in place of the unknown outcome.
	default:
		r.t.Errorf("the run is %s (%s)", status, h.Run.Error)
	}
}

func errorCode(h store.History) parley.Code {
	for _, code := range []parley.Code{parley.CodeOutcomeUnknown, parley.CodeTimeout, parley.CodeAgentUnavailable, parley.CodeCancelled} {
		if strings.Contains(string(h.Run.Error), `"code":"`+string(code)+`"`) {
			return code
		}
	}
	return ""
}

// mayBeUnknown reports whether nobody may know what became of an attempt: a bridge
// that had it in hand has died, or was taken for dead, and the policy is fail, or the
// agent, when asked, knows of no such task.
func (r *matrixRig) mayBeUnknown() bool {
	c := r.c
	if r.s.before != "" && c.policy == "fail" || r.s.workflow == "timeout" {
		return true // it has died before; or its own look at the clock was first
	}
	victim := r.own().caught().name
	if c.policy == "resend" || c.kind == faultLost || c.kind == faultDelayed || strings.Contains(victim, ".x") {
		return false
	}
	if r.before == nil {
		return true
	}
	claiming := r.own().caught().passes("P4.before") > r.own().caught().passes("P4.after")
	for id, a := range r.before {
		claimed := a.State == store.AttemptClaimed || claiming && a.State == store.AttemptOpen
		if claimed && (c.policy == "fail" || r.executed[id] == 0) {
			return true
		}
	}
	// What is not there yet was written as claimed by the one who started the run.
	return len(r.before) == 0 && !c.apart()
}

// guarded is how often an attempt may be executed whose bridge was stopped between
// its claim and the first byte: that one sends nothing any more.
func (r *matrixRig) guarded(a *store.Attempt) int {
	if r.c.kind != faultStop || !slices.Contains([]string{"P4.after", "claim.before-guard", "guard.before-send"}, r.c.point) {
		return 1 + a.Orphanings
	}
	if a.Result != nil && a.Result.Outcome == parley.OutcomeUnknown {
		return 0
	}
	return 1
}

// judgeStored is I2 for what was stored before the fault: it stays, and nobody is
// called for it again.
func (r *matrixRig) judgeStored(a *store.Attempt) {
	r.t.Helper()
	before, ok := r.before[a.ID]
	if !ok || before.Result == nil || before.Result.Outcome != parley.OutcomeOK {
		return
	}
	if a.Result == nil || a.Result.Outcome != parley.OutcomeOK {
		r.t.Errorf("I2: the answer to %s was stored, and is gone: %+v", a.ID, a.Result)
	}
	if n := len(r.agent.executions(a.ID)); n != r.executed[a.ID] {
		r.t.Errorf("I2: %s was called again after its answer was stored", a.ID)
	}
}

// once reports whether every task has to be executed once at most, whatever the
// policy: nobody who had a call in hand has died or was taken for dead.
func (r *matrixRig) once() bool {
	if r.s.before != "" || r.s.workflow == "cut" {
		return false
	}
	return r.c.kind == faultLost || r.c.kind == faultDelayed || strings.Contains(r.own().caught().name, ".x")
}

// judgeQuiet holds a run without a fault to what it has to be: completed, and each
// task executed once.
func (r *matrixRig) judgeQuiet(id string) {
	r.t.Helper()
	r.judgeCompleted(id)
	rows, err := r.db.Attempts(r.ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range rows {
		if n := len(r.agent.executions(rows[i].ID)); n != 1 {
			r.t.Errorf("%s was executed %d times after all was over", rows[i].ID, n)
		}
	}
}

func (r *matrixRig) judgeCompleted(id string) {
	r.t.Helper()
	row, err := r.db.RunRow(r.ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	if row.Status != parley.RunCompleted {
		r.t.Errorf("a run after all was over is %s: %s", row.Status, row.Error)
	}
}
