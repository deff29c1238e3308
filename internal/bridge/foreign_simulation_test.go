package bridge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// TestForeignSimulation lets two bridges work for an executor of the existing
// platform while processes die, commits are in doubt, connections break and
// records come again. Afterwards every task has a result within the executor's
// patience, no answer is lost, and no agent was called more often than its
// policy and its retry_config allow.
func TestForeignSimulation(t *testing.T) {
	for seed := range *simulationSeeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newForeignRig(t)
				r.make, r.shared = func(p *process) bridge.Ledger { return foreignProcess{processLedger{r.ledger, p}} }, true
				defer r.end()
				simulateForeign(r, uint64(seed), true)
			})
		})
	}
}

// TestMemoryLedgerSimulation is the same without a store: then a task that a
// dead bridge had in hand is called again.
func TestMemoryLedgerSimulation(t *testing.T) {
	for seed := range *simulationSeeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newForeignRig(t)
				r.make = func(*process) bridge.Ledger { return bridge.NewMemoryLedger() }
				defer r.end()
				simulateForeign(r, uint64(seed), false)
			})
		})
	}
}

// foreignWorld is what really happened in one simulation.
type foreignWorld struct {
	mu     sync.Mutex
	policy map[string]parley.OutcomePolicy // by agent
	tries  map[string]int                  // executions by the id that the agent saw
	given  map[string]string               // the first answer that an agent gave and nobody lost
	sent   map[string]time.Time
}

func simulateForeign(r *foreignRig, seed uint64, durable bool) {
	c := &chance{rnd: rand.New(rand.NewPCG(seed, 11))}
	var calm atomic.Bool
	r.ledger.fault = func(op, _ string) fault {
		if calm.Load() || op == "P16" || !c.of(8) {
			return noFault
		}
		return fault(1 + c.n(3))
	}
	r.acks.refuseIf(func(m bus.Message) error {
		if m.Subject == bus.SubjectResults && !calm.Load() && c.of(10) {
			return errNoBus
		}
		return nil
	})
	w := &foreignWorld{policy: map[string]parley.OutcomePolicy{}, tries: map[string]int{}, given: map[string]string{}, sent: map[string]time.Time{}}
	for _, p := range []parley.OutcomePolicy{parley.OutcomeFail, parley.OutcomeResend} {
		name := string(p)
		w.policy[name] = p
		r.agents.put(parley.Agent{Name: name, Protocol: parley.ProtocolSimpleA2A, OutcomeUnknown: p, Retry: parley.DefaultRetryConfig(), MaxConcurrent: 1 + c.n(6)})
	}
	r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		return w.call(ctx, task, c), nil
	}
	var tasks []records.AgentTask
	running := map[string]*process{}
	begin := func(name string) {
		running[name] = r.begin(name, func(cfg *bridge.Config, _ *process) { cfg.DrainGrace = 50 * time.Millisecond })
	}
	begin("b")
	begin("c")
	for i := range 40 {
		rec := record(fmt.Sprintf("task-%d", i), []string{"fail", "resend"}[c.n(2)])
		tasks = append(tasks, rec)
		w.sent[rec.TaskID] = time.Now()
		r.send(rec)
		if c.of(40) {
			r.send(rec)
		}
		if c.of(20) {
			r.send(tasks[c.n(len(tasks))])
		}
		r.wait(time.Duration(c.n(1500)) * time.Millisecond)
		name := []string{"b", "c"}[c.n(2)]
		switch c.n(12) {
		case 0:
			running[name].kill()
			begin(name)
		case 1:
			running[name].stop()
			begin(name)
		case 2:
			if durable {
				r.ledger.declareDead(name)
			}
		}
	}
	calm.Store(true)
	r.wait(310 * time.Second)
	for _, rec := range tasks {
		w.judge(r, rec, durable)
	}
	if n := r.acks.unacked(); n != 0 {
		r.t.Errorf("%d records are not acknowledged", n)
	}
	if !durable {
		return
	}
	for _, rec := range tasks {
		id := store.ForeignTaskID(rec.RunID, rec.TaskID, rec.CorrelationID, "")
		r.ledger.mu.Lock()
		if a := r.ledger.rows[id]; a == nil || a.State != store.AttemptClosed {
			r.t.Errorf("%s is %+v: %q", rec.TaskID, a, r.ledger.trace[id])
		}
		r.ledger.mu.Unlock()
	}
}

// call is an agent that does anything.
func (w *foreignWorld) call(ctx context.Context, task parley.Task, c *chance) bridge.Outcome {
	switch c.n(8) {
	case 0:
		return notSent()
	case 1:
		w.executed(task.ID)
		return withStatus(bridge.Answered, 500)
	case 2:
		w.executed(task.ID)
		return lost()
	}
	w.executed(task.ID)
	out := takes(ctx, task, time.Duration(c.n(4000))*time.Millisecond)
	if out.Disposition == bridge.Answered {
		w.mu.Lock()
		w.given[task.Step] = string(out.Result.Output)
		w.mu.Unlock()
	}
	return out
}

func (w *foreignWorld) executed(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[id]++
}

func (w *foreignWorld) judge(r *foreignRig, rec records.AgentTask, durable bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := r.resultsOf(rec.TaskID)
	if len(got) == 0 {
		r.t.Errorf("%s has no result", rec.TaskID)
		return
	}
	first := got[0]
	if d := first.At.Sub(w.sent[rec.TaskID]); d > 300*time.Second {
		r.t.Errorf("%s: the result came after %v", rec.TaskID, d)
	}
	if first.Status == records.StatusSuccess && w.given[rec.TaskID] == "" {
		r.t.Errorf("%s: an answer that nobody gave", rec.TaskID)
	}
	if w.tries[rec.TaskID+".4"] > 0 {
		r.t.Errorf("%s was tried more than 3 times", rec.TaskID)
	}
	if !durable {
		return
	}
	for _, id := range []string{rec.TaskID, rec.TaskID + ".2", rec.TaskID + ".3"} {
		limit := 1
		if rec.AgentName == "resend" {
			limit = 3
		}
		if n := w.tries[id]; n > limit {
			r.t.Errorf("%s: agent %s got it %d times", id, rec.AgentName, n)
		}
	}
}
