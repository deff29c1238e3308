package bridge_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
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

// TestResentWithoutCredential: what was sent once and is to be sent again waits for a
// credential that cannot be had just then: nobody has said that it will not be back.
func TestResentWithoutCredential(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = hangsAtFirst
		former := r.start("a", nil)
		id := r.task("one", 1, policy(parley.OutcomeResend))
		r.wait(2 * time.Second)
		former.kill()
		r.ledger.declareDead("a")
		r.agents.lock(noCredential())
		p := r.start("b", nil)
		r.wait(5 * time.Second)
		if a := r.ledger.row(id); a.State != store.AttemptClaimed {
			t.Errorf("it is %s without the credential: %v", a.State, a.Result)
		}
		r.agents.lock(nil)
		if a := r.want(id, parley.OutcomeOK, ""); a.Orphanings != 1 {
			t.Errorf("%d orphanings", a.Orphanings)
		}
		p.stop()
	})
}

// TestFollowedWithoutCredential: that a task cannot be asked about, since there is no
// credential to ask with, is said in the log.
func TestFollowedWithoutCredential(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.long.call = accepts("working")
		var ends atomic.Bool
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			if ends.Load() {
				return answered(task, `"done"`), nil
			}
			return accepted(task, "working"), nil
		}
		former := r.start("a", nil)
		id := r.task("long", 1, nil)
		r.wait(2 * time.Second)
		former.kill()
		r.ledger.declareDead("a")
		r.agents.lock(noCredential())
		var log bytes.Buffer
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		r.wait(10 * time.Second)
		ends.Store(true)
		r.agents.lock(nil)
		r.want(id, parley.OutcomeOK, "")
		p.stop()
		if text := log.String(); !strings.Contains(text, "event=agent_poll") || !strings.Contains(text, "secret file:x does not exist") {
			t.Errorf("nothing of it in the log:\n%s", text)
		}
	})
}

// TestOrphanOfRemovedAgent: what a dead bridge has left of an agent that is gone ends all
// the same.
func TestOrphanOfRemovedAgent(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "gone", Protocol: parley.ProtocolSimpleA2A})
		r.agent.call = func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return hang(ctx), nil
		}
		former := r.start("a", nil)
		id := r.task("gone", 1, policy(parley.OutcomeResend))
		r.announce(id)
		r.wait(time.Second)
		former.kill()
		r.ledger.declareDead("a")
		r.agents.mu.Lock()
		delete(r.agents.m, "gone")
		r.agents.mu.Unlock()
		p := r.start("b", nil)
		r.want(id, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		r.wantCalls(r.agent, id, 1)
		p.stop()
	})
}

// TestOrphansAndSlots: what a dead bridge has left takes slots as if it were new. Tasks
// that are only followed need none, unless the record says what the agent can take.
func TestOrphansAndSlots(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "strict", Protocol: parley.ProtocolJSONRPC, MaxConcurrent: 3})
		r.long.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			switch {
			case task.Agent == "strict" || strings.HasSuffix(task.Run, "-followed"):
				return accepted(task, "working"), nil
			case n == 1:
				return hang(ctx), nil
			}
			return takes(ctx, task, 10*time.Second), nil
		}
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			return accepted(task, "working"), nil
		}
		former := r.start("a", nil)
		var called, followed, strict []string
		for i := range 3 {
			called = append(called, r.task("long", i, policy(parley.OutcomeResend)))
			followed = append(followed, r.task("long", 10+i, func(a *store.Attempt) {
				a.Run += "-followed"
				a.ID = a.Run + ".a.1"
			}))
			strict = append(strict, r.task("strict", i, nil))
		}
		r.wait(2 * time.Second)
		former.kill()
		r.ledger.declareDead("a")
		r.agents.put(parley.Agent{Name: "strict", Protocol: parley.ProtocolJSONRPC, MaxConcurrent: 2})
		r.long.most = 0
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.PerAgent = 1 })
		r.wait(5 * time.Second)
		if n := takenOver(r, called); n != 1 {
			t.Errorf("%d calls were taken over, there is one slot", n)
		}
		if n := takenOver(r, followed); n != 3 {
			t.Errorf("%d of 3 are followed, which needs no slot", n)
		}
		if n := takenOver(r, strict); n != 2 {
			t.Errorf("%d are followed, the record says 2", n)
		}
		for _, id := range called {
			r.want(id, parley.OutcomeOK, "")
		}
		if r.long.most != 1 {
			t.Errorf("%d calls at once", r.long.most)
		}
		p.stop()
	})
}

// takenOver is how many of the tasks bridge "b" has now.
func takenOver(r *rig, ids []string) (n int) {
	for _, id := range ids {
		if r.ledger.row(id).Claim.Worker == "b" {
			n++
		}
	}
	return n
}

// TestRemovedWhileUnread: a task was sent, then what knows its agent did not answer for
// a while, and then it says that the agent is gone. That ends the task; it is not tried
// again for ever.
func TestRemovedWhileUnread(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
			r.agents.answer(parley.Errorf(parley.CodeUnavailable, "the database cannot be reached"))
			return lost(), nil
		}
		p := r.start("b", nil)
		id := r.task("one", 1, policy(parley.OutcomeResend))
		r.announce(id)
		r.wait(5 * time.Second)
		if a := r.ledger.row(id); a.State != store.AttemptClaimed {
			t.Errorf("it is %s while nobody knows of its agent", a.State)
		}
		r.agents.answer(parley.Errorf(parley.CodeUnknownAgent, "there is no agent"))
		if a := r.settled(id, time.Minute); a.Result.Outcome != parley.OutcomeUnknown {
			t.Errorf("it is %s", a.Result.Outcome)
		}
		r.wantCalls(r.agent, id, 1)
		p.stop()
	})
}
