package bridge_test

import (
	"context"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// noCredential is the error of an agent whose record is known and whose secret cannot
// be read at present.
func noCredential() error {
	e := parley.Errorf(parley.CodeAgentUnavailable, "agent 'x' cannot be called without its credential: secret file:x does not exist")
	e.Retryable = true
	return e
}

// TestLimitWithoutCredential: what dead bridges have left counts against the agent's
// own limit, also while the credential to call it with cannot be had.
func TestLimitWithoutCredential(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "strict", Protocol: parley.ProtocolJSONRPC, MaxConcurrent: 2})
		r.long.call = accepts("working")
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			return accepted(task, "working"), nil
		}
		former := r.start("a", nil)
		r.task("strict", 1, nil)
		r.task("strict", 2, nil)
		r.wait(2 * time.Second)
		former.kill()
		r.ledger.declareDead("a")
		r.agents.lock(noCredential())
		p := r.start("b", nil)
		r.wait(3 * time.Second)
		r.agents.lock(nil)
		r.task("strict", 3, nil)
		r.wait(time.Minute)
		if n := r.long.count(r.long.agents, "strict"); n != 2 {
			t.Errorf("the agent, which takes two tasks at once, has got %d", n)
		}
		p.stop()
	})
}
