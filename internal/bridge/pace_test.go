package bridge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// burst announces tasks of agent "fast" at once and gives the time until all are
// settled.
func (r *rig) burst(from, n int) time.Duration {
	begun := time.Now()
	for i := range n {
		r.announce(r.task("fast", from+i, nil))
	}
	for i := range n {
		r.settled(fmt.Sprintf("run-fast-%d.a.1", from+i), time.Hour)
	}
	return time.Since(begun)
}

// TestFastAgent: as many records wait for an agent as it does while they may
// (protocol.md §4.9): one whose speed is known keeps its slots busy through a
// burst, and nothing of it is put off.
func TestFastAgent(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "fast", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 50})
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, 10*time.Millisecond), nil
		}
		p := r.start("b", nil)
		r.burst(0, 1000)
		before := r.ledger.count("P3")
		if d := r.burst(1000, 5000); d > 1500*time.Millisecond {
			t.Errorf("%v for a second of work", d)
		}
		if n := r.ledger.count("P3") - before; n > 0 {
			t.Errorf("%d tasks were put off", n)
		}
		p.stop()
	})
}

// TestRecall: so do tasks of ours, which an executor announces again within a
// second.
func TestRecall(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "fast", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 10})
		each := 100 * time.Millisecond
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, each), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.QueuePerAgent = 100 })
		r.burst(0, 500)
		each = time.Millisecond
		if d := r.burst(1000, 1200); d > 3*time.Second {
			t.Errorf("%v for an eighth of a second of work", d)
		}
		p.stop()
	})
}
