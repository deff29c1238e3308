package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// busyAgent is an agent that says 429 when it has too much to do.
type busyAgent struct {
	takes      time.Duration
	retryAfter time.Duration

	mu       sync.Mutex
	capacity int
	busy     int
	accepted []time.Time
	refused  []time.Time
}

func (a *busyAgent) call(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
	a.mu.Lock()
	if a.busy >= a.capacity {
		a.refused = append(a.refused, time.Now())
		a.mu.Unlock()
		time.Sleep(time.Millisecond)
		out := failed(bridge.NotSent, parley.CodeAgentUnavailable, "HTTP 429 Too Many Requests")
		out.Result.Err = out.Result.Err.WithDetails(map[string]int{"status": 429})
		out.Result.RetryAfter = a.retryAfter
		return out, nil
	}
	a.busy++
	a.accepted = append(a.accepted, time.Now())
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.busy--
		a.mu.Unlock()
	}()
	return takes(ctx, task, a.takes), nil
}

// most is how many of the times lie in any window of that length.
func most(times []time.Time, window time.Duration) int {
	n, from := 0, 0
	for i := range times {
		for times[i].Sub(times[from]) >= window {
			from++
		}
		n = max(n, i-from+1)
	}
	return n
}

// retried executes a task as an executor does: it is called again after a
// retryable failure, up to four times, after 1, 2 and 4 seconds.
func (r *rig) retried(agent string, n int) (attempts int, ok bool) {
	wait := time.Second
	for try := range 4 {
		id := r.task(agent, n+try*1_000_000, nil)
		r.announce(id)
		a := r.settledSoon(id)
		if a.Result.Outcome == parley.OutcomeOK {
			return try + 1, true
		}
		time.Sleep(wait)
		wait *= 2
	}
	return 4, false
}

// settledSoon waits for the end of an attempt beside other goroutines that do.
func (r *rig) settledSoon(id string) store.Attempt {
	for {
		if a := r.ledger.row(id); a.State == store.AttemptSettled {
			return a
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestAdaptiveAgent: an agent that takes four calls at a time and says 429 to
// more gets about four, is kept busy, and no task fails for it.
func TestAdaptiveAgent(t *testing.T) {
	inBubble(t, func(r *rig) {
		reg := prometheus.NewRegistry()
		a := &busyAgent{capacity: 4, takes: 200 * time.Millisecond}
		r.agent.call = a.call
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Metrics = bridge.NewMetrics(reg) })
		const tasks = 400
		var mu sync.Mutex
		var all sync.WaitGroup
		failures, begun := 0, time.Now()
		for i := range tasks {
			all.Go(func() {
				if _, ok := r.retried("one", i); !ok {
					mu.Lock()
					failures++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		took := time.Since(begun)
		if failures > 0 {
			t.Errorf("%d tasks failed", failures)
		}
		if ideal := tasks / 4 * a.takes; took > 2*ideal {
			t.Errorf("%v, the agent could do it in %v", took, ideal)
		}
		late := 0
		for _, at := range a.refused {
			if at.Sub(begun) > 2*time.Second {
				late++
			}
		}
		if late > tasks/4 {
			t.Errorf("%d calls were refused once the limit was found, of %d", late, tasks)
		}
		if limit := gathered(t, reg)["parley_agent_concurrency_limit agent_name=one"]; limit < 2 || limit > 8 {
			t.Errorf("the metrics tell of a limit of %v", limit)
		}
		p.stop()
	})
}

// TestAdaptiveOff: a limit that is fixed stays.
func TestAdaptiveOff(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 100, Limits: parley.AgentLimits{Fixed: true}})
		a := &busyAgent{capacity: 0, retryAfter: time.Minute}
		r.agent.call = a.call
		p := r.start("b", nil)
		for i := range 300 {
			r.announce(r.task("one", i, nil))
		}
		r.wait(time.Second)
		if n := len(a.refused); n != 300 {
			t.Errorf("%d calls", n)
		}
		p.stop()
	})
}

// TestRetryAfterHolds: what one call is told with 429 holds for all calls of the
// agent, and nobody else's.
func TestRetryAfterHolds(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "busy", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1})
		a := &busyAgent{capacity: 0, retryAfter: 5 * time.Second}
		r.agent.call = func(ctx context.Context, task parley.Task, n int, p bridge.Progress) (bridge.Outcome, error) {
			if task.Agent == "busy" {
				return a.call(ctx, task, n, p)
			}
			return answered(task, "1"), nil
		}
		p := r.start("b", nil)
		for i := range 100 {
			r.announce(r.task("busy", i, nil))
		}
		for i := range 20 {
			id := r.task("one", i, nil)
			r.announce(id)
			synctest.Wait()
			r.wantCalls(r.agent, id, 1)
		}
		r.wait(29 * time.Second)
		if n := len(a.refused); n < 5 || n > 6 {
			t.Errorf("%d calls in 29 s, one in 5 s is wanted", n)
		}
		p.stop()
	})
}

// TestRetryAfterHoldsWhatIsSentAgain: it holds calls whose outcome was lost before, too.
func TestRetryAfterHoldsWhatIsSentAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "busy", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 8})
		again := r.task("busy", 1, policy(parley.OutcomeResend))
		r.agent.call = func(_ context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			switch {
			case task.ID == again && n == 1:
				return lost(), nil
			case task.ID != again && n == 1:
				out := withStatus(bridge.NotSent, 429)
				out.Result.RetryAfter = 20 * time.Second
				return out, nil
			}
			return answered(task, "1"), nil
		}
		p := r.start("b", nil)
		r.announce(again)
		synctest.Wait()
		refused := r.task("busy", 2, nil)
		r.announce(refused)
		synctest.Wait()
		r.wantCalls(r.agent, again, 1)
		r.wantCalls(r.agent, refused, 1)
		held := time.Now().Add(20 * time.Second)
		r.want(again, parley.OutcomeOK, "")
		if at := r.agent.callsAt(again)[1]; at.Before(held) {
			t.Errorf("sent again at %v, the agent wanted no calls until %v", at, held)
		}
		p.stop()
	})
}

// TestRate: no window sees more calls than the rate and a burst, the whole rate
// is used, a task is put off until its turn and not again and again, and nobody
// else waits.
func TestRate(t *testing.T) {
	inBubble(t, func(r *rig) {
		reg := prometheus.NewRegistry()
		r.agents.put(parley.Agent{Name: "slow", Protocol: parley.ProtocolSimpleA2A, Limits: parley.AgentLimits{Rate: 10, Burst: 3}})
		var sent []time.Time
		var mu sync.Mutex
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if task.Agent == "slow" {
				mu.Lock()
				sent = append(sent, time.Now())
				mu.Unlock()
			}
			return answered(task, "1"), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Metrics = bridge.NewMetrics(reg) })
		const tasks = 500
		begun := time.Now()
		var ids []string
		for i := range tasks {
			ids = append(ids, r.task("slow", i, nil))
			r.announce(ids[i])
		}
		for i := range 20 {
			id := r.task("one", i, nil)
			r.announce(id)
			synctest.Wait()
			r.wantCalls(r.agent, id, 1)
		}
		for _, id := range ids {
			r.want(id, parley.OutcomeOK, "")
			r.wantCalls(r.agent, id, 1)
		}
		if d := time.Since(begun); d > 60*time.Second {
			t.Errorf("%v for 50 s of calls", d)
		}
		for _, window := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second} {
			if n, limit := most(sent, window), 3+int(10*window.Seconds()); n > limit+1 {
				t.Errorf("%d calls in %v, at most %d", n, window, limit)
			}
		}
		if n := r.ledger.count("P3"); n > 2*tasks {
			t.Errorf("%d tasks were put off %d times", tasks, n)
		}
		got := gathered(t, reg)
		if got["parley_agent_rate_waits_total agent_name=slow"] == 0 || got["parley_bridge_deferred_total reason=queue"] == 0 {
			t.Error(got)
		}
		p.stop()
	})
}

// TestRateChanged: tasks that wait for a rate learn that it was raised.
func TestRateChanged(t *testing.T) {
	inBubble(t, func(r *rig) {
		slow := parley.Agent{Name: "slow", Protocol: parley.ProtocolSimpleA2A, Limits: parley.AgentLimits{Rate: parley.MinRate}}
		r.agents.put(slow)
		p := r.start("b", nil)
		for i := range 5 {
			r.announce(r.task("slow", i, nil))
		}
		r.wait(10 * time.Second)
		if n := r.agent.count(r.agent.agents, "slow"); n != 1 {
			t.Errorf("%d calls, one in an hour is wanted", n)
		}
		slow.Limits.Rate = 100
		r.agents.put(slow)
		r.wait(2 * time.Second)
		if n := r.agent.count(r.agent.agents, "slow"); n != 5 {
			t.Errorf("%d calls after the change, want 5", n)
		}
		p.stop()
	})
}

// TestRateOfResends: what is sent once more because nobody knows what became of
// it is of the rate, too.
func TestRateOfResends(t *testing.T) {
	inBubble(t, func(r *rig) {
		// Some are late: between the claim, which keeps a call of the rate for them, and
		// the sending others take their turns, and the bucket holds no more than one.
		var looks atomic.Int64
		r.agents.slow = func() {
			if looks.Add(1)%3 == 0 {
				time.Sleep(700 * time.Millisecond)
			}
		}
		r.agents.put(parley.Agent{Name: "lossy", Protocol: parley.ProtocolSimpleA2A, Limits: parley.AgentLimits{Rate: 2, Burst: 1}})
		var sent []time.Time
		var mu sync.Mutex
		r.agent.call = func(_ context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			mu.Lock()
			sent = append(sent, time.Now())
			mu.Unlock()
			if n == 1 {
				return lost(), nil
			}
			return answered(task, "1"), nil
		}
		// And they meet directly before they are sent, where each is to see that another
		// has taken its turn.
		p := r.start("b", func(cfg *bridge.Config, _ *process) {
			cfg.Failpoint = func(name string) error {
				if name == "guard.before-send" {
					time.Sleep(300 * time.Millisecond)
				}
				return nil
			}
		})
		var ids []string
		for i := range 20 {
			ids = append(ids, r.task("lossy", i, policy(parley.OutcomeResend)))
			r.announce(ids[i])
		}
		for _, id := range ids {
			r.want(id, parley.OutcomeOK, "")
			r.wantCalls(r.agent, id, 2)
		}
		slices.SortFunc(sent, time.Time.Compare)
		for i := 1; i < len(sent); i++ {
			if d := sent[i].Sub(sent[i-1]); d < 499*time.Millisecond {
				t.Errorf("call %d came %v after the one before", i, d)
			}
		}
		p.stop()
	})
}

// TestRateRestart: what waits for its turn waits in the ledger, and outlives the
// bridge.
func TestRateRestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "slow", Protocol: parley.ProtocolSimpleA2A, Limits: parley.AgentLimits{Rate: 10}})
		p := r.start("b", nil)
		var ids []string
		for i := range 100 {
			ids = append(ids, r.task("slow", i, nil))
			r.announce(ids[i])
		}
		r.wait(2 * time.Second)
		p.stop()
		r.wait(time.Second)
		p = r.start("b", nil)
		r.wait(2 * time.Second)
		p.kill()
		p = r.start("c", nil)
		for _, id := range ids {
			r.want(id, parley.OutcomeOK, "")
			r.wantCalls(r.agent, id, 1)
		}
		p.stop()
	})
}

// large gives a task an input of so many bytes.
func large(bytes int) func(*store.Attempt) {
	return func(a *store.Attempt) {
		a.Input = json.RawMessage(`{"text":"` + strings.Repeat("x", bytes) + `"}`)
	}
}

// TestBytes: an agent's queue is bounded in bytes, and so is what the bridge has
// in hand; other agents have their calls all the same, and what is put off comes
// again.
func TestBytes(t *testing.T) {
	for _, c := range []struct {
		name   string
		reason string
		set    func(*bridge.Limits)
		least  int
	}{
		{"queue", "queue_bytes", func(l *bridge.Limits) { l.QueueBytes = 40 << 10 }, 85},
		{"global", "bytes", func(l *bridge.Limits) { l.GlobalBytes = 160 << 10 }, 75},
		{"agent", "queue_bytes", func(*bridge.Limits) {}, 85},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				reg := prometheus.NewRegistry()
				slow := parley.Agent{Name: "slow", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 2}
				if c.name == "agent" {
					slow.Limits.QueueBytes = 40 << 10
				}
				r.agents.put(slow)
				r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
					if task.Agent == "slow" {
						return takes(ctx, task, 2*time.Second), nil
					}
					return answered(task, "1"), nil
				}
				p := r.start("b", func(cfg *bridge.Config, _ *process) {
					c.set(&cfg.Limits)
					cfg.Metrics = bridge.NewMetrics(reg)
				})
				var ids []string
				for i := range 100 {
					ids = append(ids, r.task("slow", i, large(4<<10)))
					r.announce(ids[i])
				}
				r.wait(100 * time.Millisecond)
				if n := int(gathered(t, reg)["parley_bridge_deferred_total reason="+c.reason]); n < c.least {
					t.Errorf("%d tasks were put off, at least %d", n, c.least)
				}
				for i := range 20 {
					id := r.task("one", i, large(4<<10))
					r.announce(id)
					synctest.Wait()
					r.wantCalls(r.agent, id, 1)
				}
				for _, id := range ids {
					r.want(id, parley.OutcomeOK, "")
					r.wantCalls(r.agent, id, 1)
				}
				// Nothing is left of what was counted: one that is larger than all goes.
				r.want(r.task("slow", 1000, large(300<<10)), parley.OutcomeOK, "")
				p.stop()
			})
		})
	}
}

// TestPriorityOfAgents: agents that wait for the slots of a bridge have them by
// their priority, and all of them have some.
func TestPriorityOfAgents(t *testing.T) {
	inBubble(t, func(r *rig) {
		weights := map[string]int{"low": 1, "normal": 0, "high": 10}
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, 100*time.Millisecond), nil
		}
		for name, w := range weights {
			r.agents.put(parley.Agent{Name: name, Protocol: parley.ProtocolSimpleA2A, Priority: w, MaxConcurrent: 1000})
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) {
			cfg.Limits.Global, cfg.Limits.QueuePerAgent, cfg.Limits.QueueFor = 84, 16_384, time.Minute
		})
		for i := range 6000 {
			for name := range weights {
				r.announce(r.task(name, i, nil))
			}
		}
		r.wait(10 * time.Second)
		count := func(name string) float64 { return float64(r.agent.count(r.agent.agents, name)) }
		low, normal, high := count("low"), count("normal"), count("high")
		if low < 300 || normal/low < 4 || normal/low > 6 || high/normal < 1.7 || high/normal > 2.3 {
			t.Errorf("%v, %v and %v calls, want 1:5:10", low, normal, high)
		}
		id := r.task("one", 1, nil)
		r.announce(id)
		r.wait(10 * time.Millisecond)
		r.wantCalls(r.agent, id, 1)
		r.stopHanging(p)
	})
}

// TestForeignRate: tasks of other executors are held to the same rate, with and
// without a store.
func TestForeignRate(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		a, _ := r.agents.Lookup(r.t.Context(), "one")
		a.Limits = parley.AgentLimits{Rate: 5, Burst: 1}
		r.agents.put(a)
		var mu sync.Mutex
		var sent []time.Time
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, time.Now())
			return answered(task, "1"), nil
		}
		p := r.begin("b", nil)
		if d := r.burst(0, 100); d > 40*time.Second {
			r.t.Errorf("%v for 20 s of calls", d)
		}
		slices.SortFunc(sent, time.Time.Compare)
		for i := 1; i < len(sent); i++ {
			if d := sent[i].Sub(sent[i-1]); d < 199*time.Millisecond {
				r.t.Errorf("call %d came %v after the one before", i, d)
			}
		}
		r.wantQuiet()
		p.stop()
	})
}

// TestQueueOfRate: tasks that found room because their agent's rate says that they
// have their turn in time are not put off when it stands still for a moment.
func TestQueueOfRate(t *testing.T) {
	inBubble(t, func(r *rig) {
		reg := prometheus.NewRegistry()
		r.agents.put(parley.Agent{Name: "rated", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1, Limits: parley.AgentLimits{Rate: 100, Burst: 1}})
		r.agent.call = stumbles(400 * time.Millisecond)
		p := r.start("b", func(cfg *bridge.Config, _ *process) {
			cfg.Metrics, cfg.Limits.QueueFor = bridge.NewMetrics(reg), 2*time.Second
		})
		for i := range 200 {
			r.announce(r.task("rated", i, nil))
		}
		r.wait(3 * time.Second)
		if n := r.agent.count(r.agent.agents, "rated"); n < 199 {
			t.Errorf("%d calls", n)
		}
		if n := gathered(t, reg)["parley_bridge_deferred_total reason=waited"]; n > 0 {
			t.Errorf("%v tasks were put off while they waited", n)
		}
		p.stop()
	})
}

// TestForeignQueueOfRate is the same for tasks of other executors, which may wait
// for longer; without a store they wait in any case.
func TestForeignQueueOfRate(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		reg := prometheus.NewRegistry()
		a, _ := r.agents.Lookup(r.t.Context(), "one")
		a.MaxConcurrent, a.Limits = 1, parley.AgentLimits{Rate: 100, Burst: 1}
		r.agents.put(a)
		r.agent.call = stumbles(2 * time.Second)
		p := r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Metrics = bridge.NewMetrics(reg) })
		tasks := 990
		if _, none := r.make(nil).(*bridge.MemoryLedger); none {
			tasks = 2000
		}
		r.burst(0, tasks)
		if n := gathered(r.t, reg)["parley_bridge_deferred_total reason=waited"]; n > 0 {
			r.t.Errorf("%v tasks were put off while they waited", n)
		}
		r.wantQuiet()
		p.stop()
	})
}

// stumbles is an agent that answers at once, but for the first task.
func stumbles(first time.Duration) func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
	var once sync.Once
	return func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		once.Do(func() { takes(ctx, task, first) })
		return answered(task, "1"), nil
	}
}

// TestForeignBytes: large tasks of other executors that find no room wait in the
// ledger, and are called.
func TestForeignBytes(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.paced(1, 200*time.Millisecond)
		p := r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.QueueBytes, cfg.Limits.GlobalBytes = 64<<10, 200<<10 })
		const tasks = 30
		for i := range tasks {
			rec := record(fmt.Sprintf("task-%d", i), "one")
			rec.Input = json.RawMessage(`{"text":"` + strings.Repeat("x", 30<<10) + `"}`)
			r.send(rec)
		}
		for i := range tasks {
			r.result(fmt.Sprintf("task-%d", i), 2*time.Minute)
		}
		r.wantQuiet()
		p.stop()
	})
}
