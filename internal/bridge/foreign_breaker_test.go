package bridge_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/records"
)

// breakable gives agent "one" a breaker that two failures open for a minute.
func (r *foreignRig) breakable(onOpen parley.OnOpen, openFor time.Duration) {
	set := parley.DefaultBreaker()
	set.FailureThreshold, set.OnOpen, set.OpenFor = 2, onOpen, openFor
	r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, Retry: parley.DefaultRetryConfig(), Breaker: &set})
}

const isOpen = "Circuit breaker is OPEN for agent 'one'"

// TestForeignBreakerFails: a task of an executor of the existing platform is
// answered in that platform's words while its agent's circuit is open, without a
// call, also in the middle of its tries (formats.md). Without a store that is so
// unless the record says wait.
func TestForeignBreakerFails(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		onOpen := parley.OnOpenFail
		if strings.HasSuffix(r.t.Name(), "/none") {
			onOpen = ""
		}
		r.breakable(onOpen, time.Minute)
		var sick atomic.Bool
		sick.Store(true)
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if sick.Load() {
				return notSent(), nil
			}
			return answered(task, `{"text":"well"}`), nil
		}
		p := r.begin("b", nil)
		r.send(record("task-1", "one"))
		r.wantFailure("task-1", isOpen)
		r.wantCalls(r.agent, "task-1", 1)
		r.wantCalls(r.agent, "task-1.2", 1)
		r.wantCalls(r.agent, "task-1.3", 0)
		begun := time.Now()
		r.send(record("task-2", "one"))
		if got := r.result("task-2", 5*time.Second); got.Error != isOpen {
			r.t.Errorf("%+v after %v", got, time.Since(begun))
		}
		r.wantCalls(r.agent, "task-2", 0)
		sick.Store(false)
		r.wait(time.Minute)
		r.send(record("task-3", "one"))
		if got := r.result("task-3", 5*time.Second); got.Status != records.StatusSuccess {
			r.t.Errorf("%+v", got)
		}
		r.wantQuiet()
		p.stop()
	})
}

// TestForeignBreakerWaits: with on_open wait such a task waits in the ledger,
// at most until its executor waits no more.
func TestForeignBreakerWaits(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.breakable(parley.OnOpenWait, 4*time.Minute)
		var sick atomic.Bool
		sick.Store(true)
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if sick.Load() {
				return notSent(), nil
			}
			return answered(task, `{"text":"well"}`), nil
		}
		p := r.begin("b", nil)
		r.send(record("task-1", "one"))
		r.wait(10 * time.Second)
		r.send(record("task-2", "one"))
		r.wait(2 * time.Minute)
		sick.Store(false)
		for _, id := range []string{"task-1", "task-2"} {
			if got := r.result(id, 3*time.Minute); got.Status != records.StatusSuccess {
				r.t.Errorf("%+v", got)
			}
		}
		r.wantCalls(r.agent, "task-1.3", 1)
		r.wantCalls(r.agent, "task-2", 1)

		r.breakable(parley.OnOpenWait, time.Hour)
		sick.Store(true)
		r.wait(10 * time.Second)
		r.send(record("task-3", "one"))
		r.wantFailure("task-3", "it waited too long for its turn")
		if n := r.agent.calls("task-3") + r.agent.calls("task-3.2") + r.agent.calls("task-3.3"); n != 2 {
			r.t.Errorf("%d calls", n)
		}
		r.wantQuiet()
		p.stop()
	})
}
