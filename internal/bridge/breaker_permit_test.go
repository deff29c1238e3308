package bridge_test

import (
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestBreakerPermitGivenBack: a call that may try an agent whose circuit is half-open,
// and ends before it is sent, leaves its permit to the next one. Else nobody could try
// the agent any more, and its tasks would wait for ever.
func TestBreakerPermitGivenBack(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(func(b *parley.Breaker) { b.HalfOpenCalls = 1 })
		p := r.life("b1")
		defer p.stop()
		r.trip()
		f.healthy.Store(true)
		gone := parley.Errorf(parley.CodeAgentUnavailable, "its secret cannot be read")
		gone.Retryable = true
		r.agents.answer(gone)
		r.expect(r.begin("frail", 1, nil), parley.OutcomeError, parley.CodeAgentUnavailable)
		r.agents.answer(nil)

		id := r.begin("frail", 2, nil)
		r.wait(time.Minute)
		if a := r.attempt(id); a.Result == nil || a.Result.Outcome != parley.OutcomeOK {
			t.Errorf("after a minute the task is %s", a.State)
		}
		if s := r.circuit(); s.Circuit != parley.CircuitClosed {
			t.Errorf("the circuit is %s", s.Circuit)
		}
	})
}
