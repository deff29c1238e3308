package bridge_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// TestSentAgainByTheNextLife: a call waits to be sent again while its bridge is
// declared dead and begins another life. The guard no longer lets it send under its
// claim: it gives way, and the bridge, the only one there is, takes the task over.
func TestSentAgainByTheNextLife(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1})
		var well atomic.Bool
		r.agent.call = func(_ context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			switch {
			case n == 1:
				return lost(), nil
			case !well.Load():
				return notSent(), nil
			}
			return answered(task, "1"), nil
		}
		p := r.start("b", nil)
		id := r.task("one", 1, policy(parley.OutcomeResend))
		r.announce(id)
		r.wait(9 * time.Second) // it comes again 16 s after its first call
		r.ledger.declareDead("b")
		well.Store(true)
		r.want(id, parley.OutcomeOK, "")
		p.stop()
	})
}
