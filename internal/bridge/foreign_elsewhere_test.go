package bridge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// busy has the agent "one" take one task at a time, and not end any before late has
// passed; then it does in no time.
func (r *foreignRig) busy(late time.Duration) (begun time.Time) {
	begun = time.Now()
	a, _ := r.agents.Lookup(r.t.Context(), "one")
	a.MaxConcurrent = 1
	r.agents.put(a)
	r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		if time.Since(begun) < late-10*time.Second {
			return hang(ctx), nil
		}
		return takes(ctx, task, time.Until(begun.Add(late))), nil
	}
	return begun
}

// wantSuccess wants one result of each task, a success, and no dead letter of any.
func (r *foreignRig) wantSuccess(tasks []string) {
	r.t.Helper()
	if len(tasks) == 0 {
		r.t.Error("no tasks")
	}
	for _, name := range tasks {
		if got := r.resultsOf(name); len(got) != 1 || got[0].Status != records.StatusSuccess {
			r.t.Errorf("%s: %+v", name, got)
		}
		for _, d := range r.letters() {
			if d.Task == name {
				r.t.Errorf("%s is a dead letter: %s", name, d.Reason)
			}
		}
	}
}

// A task whose turn did not come in time here may be another bridge's meanwhile, which
// calls its agent or has its answer: that is what its executor hears, and nothing else.
func TestForeignElsewhere(t *testing.T) {
	const tasks = 8
	inTurn := func(t *testing.T, f func(r *foreignRig)) {
		onLedgers(t, func(r *foreignRig) {
			if r.shared {
				f(r)
			}
		})
	}
	// waiting gives the tasks that nobody has in hand, though they have their rows.
	waiting := func(r *foreignRig) (names, ids []string) {
		for i := range tasks {
			name := fmt.Sprintf("task-%d", i)
			if id := store.ForeignTaskID("run-"+name, name, "corr-"+name, ""); r.ledger.waits(id) {
				names, ids = append(names, name), append(ids, id)
			}
		}
		return names, ids
	}
	// uncalled gives the tasks whose agent was not called; which comes first is chance.
	uncalled := func(r *foreignRig) (names []string) {
		for i := range tasks {
			name := fmt.Sprintf("task-%d", i)
			if r.agent.calls(name) == 0 {
				names = append(names, name)
			}
		}
		return names
	}
	send := func(r *foreignRig) {
		for i := range tasks {
			r.send(record(fmt.Sprintf("task-%d", i), "one"))
		}
		r.wait(time.Second)
	}
	until := func(r *foreignRig, begun time.Time, d time.Duration) { r.wait(time.Until(begun.Add(d))) }

	// The tasks have their rows, and wait here; d has them in hand, and answers.
	for name, answered := range map[string]time.Duration{"answered": 268 * time.Second, "called": 271 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inTurn(t, func(r *foreignRig) {
				begun := r.busy(time.Hour)
				first := r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.QueuePerAgent = 1 })
				send(r)
				first.kill()
				r.begin("c", nil)
				until(r, begun, 265*time.Second)
				names, ids := waiting(r)
				inc, err := r.ledger.Register(r.t.Context(), "d", time.Now())
				if err != nil {
					r.t.Fatal(err)
				}
				var rows []store.Attempt
				for i, id := range ids {
					row := r.ledger.row(id)
					row.State, row.Claim = store.AttemptClaimed, store.Claim{Worker: "d", Inc: inc, Token: fmt.Sprint("d/", i)}
					rows = append(rows, row)
				}
				if got, err := r.ledger.ClaimForeign(r.t.Context(), rows, time.Now()); err != nil || len(got) != len(ids) {
					r.t.Fatal(len(got), err)
				}
				until(r, begun, answered)
				for _, id := range ids {
					ok, err := r.ledger.Answer(r.t.Context(), store.Answer{
						Result: parley.Result{TaskID: id, Outcome: parley.OutcomeOK, Output: []byte(`"elsewhere"`)}, At: time.Now(), From: "d",
					})
					if !ok || err != nil {
						r.t.Errorf("the answer to %s: %t, %v", id, ok, err)
					}
				}
				until(r, begun, 285*time.Second)
				r.wantSuccess(names)
			})
		})
	}
	t.Run("its record moved", func(t *testing.T) {
		inTurn(t, func(r *foreignRig) {
			begun := r.busy(265 * time.Second)
			r.begin("c", nil)
			send(r)
			until(r, begun, 262*time.Second)
			names := uncalled(r)
			if len(names) != tasks-1 {
				r.t.Errorf("%d of %d tasks wait, all but the one that c has called are to", len(names), tasks)
			}
			r.begin("d", nil)
			until(r, begun, 285*time.Second)
			r.wantSuccess(names)
			r.wantQuiet()
		})
	})
}
