package bridge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/breaker"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// TestHalfOpenIsTried: three bridges have each a call that was lost and is to be sent
// again, and nothing else for their agent. Whoever of them may try it does so: else
// they could pass that on to each other for ever.
func TestHalfOpenIsTried(t *testing.T) {
	inBubble(t, func(r *rig) {
		circuits := &sharedCircuits{m: map[string]parley.BreakerState{}, fault: func() bool { return false }}
		set := parley.DefaultBreaker()
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, Breaker: &set})
		// When they look at the circuit, apart from each other.
		apart := []time.Duration{0, 16 * time.Second, 2 * time.Second}
		var tries atomic.Int64
		r.agent.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			if n == 1 {
				_ = takes(ctx, task, apart[tries.Add(1)-1])
				return lost(), nil
			}
			return answered(task, "2"), nil
		}
		var ids []string
		var running []*process
		for i := range apart {
			p := r.start(fmt.Sprint("b", i), func(cfg *bridge.Config, p *process) {
				cfg.Ledger = limitedLedger{processLedger{r.ledger, p}, circuits}
			})
			running = append(running, p)
			slot, ok := p.Reserve("one")
			if !ok {
				t.Fatal("no slot")
			}
			id := r.task("one", i, func(a *store.Attempt) {
				a.State, a.Claim, a.Policy.OutcomeUnknown = store.AttemptClaimed, slot.Claim, parley.OutcomeResend
			})
			ids = append(ids, id)
			slot.Start(r.ledger.row(id))
			r.wait(0)
		}
		opened := breaker.Trip(parley.BreakerState{Agent: "one"}, 10*time.Minute, "it is ill", time.Now())
		if ok, _ := circuits.ChangeBreaker(t.Context(), opened, nil); !ok {
			t.Fatal("not opened")
		}
		r.wait(time.Until(opened.Until) + 5*time.Minute)
		for _, id := range ids {
			if a := r.ledger.row(id); a.State != store.AttemptSettled || r.agent.calls(id) != 2 {
				t.Errorf("%s is %s after %d calls: %v", id, a.State, r.agent.calls(id), r.ledger.trace[id])
			}
		}
		for _, p := range running {
			p.stop()
		}
	})
}
