package bridge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// atExpiry has a task expire in the queue of a bridge 270 s from now, behind one that
// its agent does not end, and runs f shortly before.
func atExpiry(t *testing.T, f func(r *foreignRig, expires time.Time, id string)) {
	t.Helper()
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return
		}
		r.busy(time.Hour)
		r.begin("b", nil)
		r.send(record("task-0", "one"))
		r.wait(time.Second)
		rec := record("task-1", "one")
		expires := time.Now().Add(270 * time.Second)
		r.send(rec)
		r.wait(time.Second)
		id := store.ForeignTaskID(rec.RunID, rec.TaskID, rec.CorrelationID, "")
		// The bridge has it in its queue, without a row, as with a fast agent.
		f(r, expires, id)
	})
}

// failsFrom lets the ledger fail, each write as kind says and each look.
func (r *foreignRig) failsFrom(kind fault) {
	r.ledger.failing(func(op string) fault {
		switch op {
		case "P3":
			return kind
		case "P4", "P7", "P23":
			return refusedConnection
		}
		return noFault
	})
}

func (r *foreignRig) waitUntil(at time.Time) { r.wait(time.Until(at)) }

// TestForeignExpiryInDoubt: the ledger does not say whether it has the row of a task
// whose time is over. The task is answered once, whether it was written or not, and
// also if it is answered before that is known, since nobody waits any longer.
func TestForeignExpiryInDoubt(t *testing.T) {
	for name, kind := range map[string]fault{"refused": refusedConnection, "reply lost": replyLost, "late": commitLater} {
		for until, away := range map[string]time.Duration{"back in time": 10 * time.Second, "back too late": 40 * time.Second} {
			t.Run(name+"/"+until, func(t *testing.T) {
				atExpiry(t, func(r *foreignRig, expires time.Time, id string) {
					r.waitUntil(expires.Add(-5 * time.Second))
					r.failsFrom(kind)
					r.waitUntil(expires.Add(8 * time.Second))
					if got := r.resultsOf("task-1"); len(got) != 0 {
						r.t.Errorf("answered in doubt: %+v", got)
					}
					r.waitUntil(expires.Add(min(away, 29*time.Second)))
					if away > 29*time.Second {
						if got := r.resultsOf("task-1"); len(got) != 1 {
							r.t.Errorf("%d results when the executor is about to give up", len(got))
						}
					}
					r.waitUntil(expires.Add(away))
					r.ledger.failing(nil)
					r.wantFailure("task-1", "had no time")
					r.wait(time.Minute)
					r.wantOne("task-1")
					r.wantCalls(r.agent, "task-1", 0)
					r.ledger.mu.Lock()
					if a := r.ledger.rows[id]; a == nil || a.State != store.AttemptClosed {
						r.t.Errorf("the row is %+v: %q", a, r.ledger.trace[id])
					}
					r.ledger.mu.Unlock()
					letters := 0
					for _, d := range r.letters() {
						if d.Task == "task-1" && strings.Contains(d.Reason, "had no time") {
							letters++
						}
					}
					if letters == 0 {
						r.t.Error("no dead letter")
					}
					r.wantQuiet()
				})
			})
		}
	}
}

// TestForeignExpiryElsewhere: while this bridge cannot reach the ledger another one
// calls the agent, and its answer is the one result.
func TestForeignExpiryElsewhere(t *testing.T) {
	atExpiry(t, func(r *foreignRig, expires time.Time, id string) {
		r.waitUntil(expires.Add(-5 * time.Second))
		inc, err := r.ledger.Register(r.t.Context(), "d", time.Now())
		if err != nil {
			r.t.Fatal(err)
		}
		rec := record("task-1", "one")
		row := store.Attempt{
			Task: parley.Task{
				ID: id, Run: rec.RunID, Step: rec.TaskID, Attempt: 1, Agent: "one", Input: rec.Input,
				CorrelationID: rec.CorrelationID, Deadline: expires,
			},
			State: store.AttemptClaimed, HandOff: store.HandOffForeign, Claim: store.Claim{Worker: "d", Inc: inc, Token: "d/1"},
		}
		if got, err := r.ledger.ClaimForeign(r.t.Context(), []store.Attempt{row}, time.Now()); err != nil || len(got) != 1 {
			r.t.Fatal(len(got), err)
		}
		r.failsFrom(refusedConnection)
		r.waitUntil(expires.Add(8 * time.Second))
		r.ledger.failing(nil)
		if ok, err := r.ledger.Answer(r.t.Context(), store.Answer{
			Result: parley.Result{TaskID: id, Outcome: parley.OutcomeOK, Output: []byte(`"elsewhere"`)}, At: time.Now(), From: "d",
		}); !ok || err != nil {
			r.t.Errorf("the answer: %t, %v", ok, err)
		}
		r.waitUntil(expires.Add(25 * time.Second))
		if got := r.resultsOf("task-1"); len(got) != 1 || got[0].Status != records.StatusSuccess {
			r.t.Errorf("%+v", got)
		}
		r.wantSuccess([]string{"task-1"})
		r.wantOne("task-1")
		r.wantQuiet()
	})
}
