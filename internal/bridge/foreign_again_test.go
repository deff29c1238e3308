package bridge_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
)

// TestForeignResultSame: a result that nobody has confirmed, and the answer to a record
// of no use, are published again as the same record, to the byte: the bus may have it
// in hand still, and knows it by that.
func TestForeignResultSame(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		var mu sync.Mutex
		tries := map[string][]string{}
		down := true
		r.acks.refuseIf(func(m bus.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if m.Subject == bus.SubjectResults && down {
				tries[m.Key] = append(tries[m.Key], string(m.Value))
				return errNoBus
			}
			return nil
		})
		r.agents.put(parley.Agent{Name: "waits", Protocol: parley.ProtocolSimpleA2A, Retry: parley.DefaultRetryConfig(), MaxConcurrent: 1})
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			switch task.Step {
			case "task-1":
				return answered(task, `{"text":"well"}`), nil
			case "refused":
				return notSent(), nil
			}
			return hang(ctx), nil
		}
		r.begin("b", func(cfg *bridge.Config, _ *process) {
			keep := cfg.DeadLetters
			cfg.DeadLetters = func(ctx context.Context, d bus.DeadLetter) error {
				time.Sleep(100 * time.Millisecond) // between a task's end and its result
				return keep(ctx, d)
			}
		})
		refused := !r.shared
		r.ledger.failing(func(op string) fault {
			if op == "P7" && !refused {
				refused = true
				return refusedConnection
			}
			return noFault
		})
		r.send(record("task-1", "one"))
		r.wait(time.Second)
		r.ledger.failing(nil)
		r.send(record("refused", "one"))
		r.send(record("task-0", "waits"))
		r.wait(time.Second)
		r.send(record("no-turn", "waits"))
		r.wait(280 * time.Second)
		r.put("r", []byte(`{"run_id":"r","task_id":"bad","correlation_id":"c"}`))
		r.wait(20 * time.Second)
		mu.Lock()
		down = false
		for key, list := range tries {
			if n := len(list); n < 2 || len(slices.Compact(list)) != 1 {
				r.t.Errorf("%s: %d tries have given different records, the first is %s", key, n, list[0])
			}
		}
		if len(tries) != 5 {
			r.t.Errorf("results of %d tasks, want 5", len(tries))
		}
		mu.Unlock()
		r.result("task-1", time.Minute)
		r.wantQuiet()
	})
}

// TestForeignResultInTheGrace: a bridge that stops has a grace for what its calls have
// brought beside that for the calls themselves. An answer is not given up before.
func TestForeignResultInTheGrace(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, 9*time.Second), nil
		}
		p := r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.DrainGrace = 10 * time.Second })
		r.send(record("task-1", "one"))
		r.wait(time.Second)
		r.acks.refuseIf(down(bus.SubjectResults))
		p.cancel()
		r.wait(14 * time.Second)
		r.acks.refuseIf(nil)
		p.stop()
		r.begin("c", nil)
		if got := r.result("task-1", time.Minute); got.Status != records.StatusSuccess {
			r.t.Errorf("%+v", got)
		}
		r.wantOne("task-1")
		r.wantQuiet()
		r.wantCalls(r.agent, "task-1", 1)
	})
}

// TestForeignUntold: a bridge that stops gives up what it cannot tell, the answer of a call
// and that a task had no turn. Without a store only the records know of these tasks: they
// are not acknowledged, and the tasks end with the next bridge.
func TestForeignUntold(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		begun := r.busy(272 * time.Second)
		p := r.begin("b", nil)
		r.send(record("task-1", "one"))
		r.send(record("task-2", "one"))
		r.acks.refuseIf(down(bus.SubjectResults))
		r.waitUntil(begun.Add(271 * time.Second))
		p.stop()
		if got := len(r.resultsOf("task-1")) + len(r.resultsOf("task-2")); got != 0 {
			r.t.Errorf("%d results", got)
		}
		if n := r.acks.unacked(); strings.HasSuffix(r.t.Name(), "/none") && n != 2 {
			r.t.Errorf("%d records are not acknowledged, want 2", n)
		}
		r.acks.refuseIf(nil)
		r.begin("c", nil)
		for _, id := range []string{"task-1", "task-2"} {
			r.result(id, 5*time.Minute)
			r.wantOne(id)
		}
		r.wantQuiet()
	})
}

// TestForeignEndedAgain: the record of an ended task comes again while its agent's
// circuit is open. Without a store such a record, and all behind it on its partition,
// would never be acknowledged if nobody saw that it is over.
func TestForeignEndedAgain(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.breakable(parley.OnOpenWait, time.Hour)
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if task.Step == "task-1" {
				return answered(task, `{"text":"well"}`), nil
			}
			return notSent(), nil
		}
		r.begin("b", nil)
		over := record("task-1", "one")
		r.send(over)
		r.result("task-1", 10*time.Second)
		r.send(record("task-2", "one")) // opens the circuit
		r.wait(20 * time.Second)
		r.send(over)
		r.wantFailure("task-2", "it waited too long for its turn")
		r.wantQuiet()
		r.wantOne("task-1")
		r.wantCalls(r.agent, "task-1", 1)
	})
}

// TestForeignMoved: the records of tasks that wait go to another bridge, as when it
// joins the group. Without a store nobody but the bus tells the first one: it begins
// none of them any more, nor does it answer them when their time is over, also those
// that wait for their agent's circuit or for another try. What it has called, it ends.
func TestForeignMoved(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		a, _ := r.agents.Lookup(r.t.Context(), "one")
		a.MaxConcurrent = 1
		a.Retry.InitialDelay = 5 * time.Second
		r.agents.put(a)
		r.agents.put(parley.Agent{Name: "sick", Protocol: parley.ProtocolSimpleA2A, Retry: a.Retry})
		joined := time.Time{}
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if task.Agent == "sick" && joined.IsZero() {
				return notSent(), nil
			}
			return takes(ctx, task, 6*time.Second), nil
		}
		r.begin("b", nil)
		tasks := []string{"task-0", "task-1", "task-2", "task-3", "again"}
		for _, id := range tasks[:4] {
			r.send(record(id, "one"))
			r.wait(10 * time.Millisecond)
		}
		r.send(record("again", "sick"))
		r.wait(2 * time.Second)
		joined = time.Now()
		r.begin("c", nil)
		r.wait(5 * time.Minute)
		for _, id := range tasks {
			if got := r.result(id, time.Second); got.Status != records.StatusSuccess {
				r.t.Errorf("%+v", got)
			}
			most := 1
			if id == "task-0" {
				most = 2 // it was under way
			}
			if n := r.agent.calls(id) + r.agent.calls(id+".2"); id != "again" && n > most || n > 2 {
				r.t.Errorf("%s was called %d times", id, n)
			}
			if n := len(r.resultsOf(id)); n > most {
				r.t.Errorf("%s has %d results", id, n)
			}
		}
		r.wantQuiet()
	})
}

// TestForeignMovedWhileHeld: the same for a task that waits for its agent's circuit, which
// is closed elsewhere.
func TestForeignMovedWhileHeld(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.breakable(parley.OnOpenWait, 30*time.Second)
		var well atomic.Bool
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if !well.Load() {
				return notSent(), nil
			}
			return answered(task, `{"text":"well"}`), nil
		}
		r.begin("b", nil)
		r.send(record("task-0", "one")) // opens the circuit
		r.wait(10 * time.Second)
		r.send(record("task-1", "one"))
		r.wait(5 * time.Second)
		well.Store(true)
		r.begin("c", nil)
		r.wait(2 * time.Minute)
		r.wantOne("task-1")
		r.wantQuiet()
		if n := r.agent.calls("task-1"); n != 1 {
			r.t.Errorf("task-1 was called %d times", n)
		}
	})
}

// TestForeignAgainWhileEnding: the record of a task that never had a turn comes again
// while the task is being answered, and while that waits for the ledger or the bus. It
// is the same task, also if its record does not say from when it is: it is answered
// once, and its agent is not called any more.
func TestForeignAgainWhileEnding(t *testing.T) {
	for name, again := range map[string]time.Duration{"before": -2 * time.Second, "meanwhile": 8 * time.Second, "late": 24 * time.Second} {
		t.Run(name, func(t *testing.T) {
			onLedgers(t, func(r *foreignRig) { r.againWhileEnding(again, false) })
		})
		t.Run(name+", without a timestamp", func(t *testing.T) {
			onLedgers(t, func(r *foreignRig) { r.againWhileEnding(again, true) })
		})
	}
}

func (r *foreignRig) againWhileEnding(again time.Duration, timeless bool) {
	r.busy(time.Hour) // for its limit of one call
	expires := time.Now().Add(271 * time.Second)
	r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		time.Sleep(time.Until(expires.Add(14 * time.Second))) // then there is a free slot
		return answered(task, `{}`), nil
	}
	r.begin("b", nil)
	r.send(record("task-0", "one"))
	r.wait(time.Second)
	m := message(r.t, record("task-1", "one"))
	if timeless {
		before, _, _ := strings.Cut(string(m.Value), `, "timestamp"`)
		m.Value = []byte(before + "}")
	}
	r.publish(m)
	r.waitUntil(expires.Add(-5 * time.Second))
	r.acks.refuseIf(func(m bus.Message) error {
		if m.Key == "corr-task-1" {
			return errNoBus
		}
		return nil
	})
	if r.shared {
		r.ledger.failing(func(op string) fault {
			if op == "P3" || op == "P7" || op == "P4" && !timeless { // else claims go through all the same
				return refusedConnection
			}
			return noFault
		})
	}
	r.waitUntil(expires.Add(again))
	r.publish(m)
	r.waitUntil(expires.Add(26 * time.Second))
	r.acks.refuseIf(nil)
	r.wait(10 * time.Second)
	r.ledger.failing(nil)
	r.wantFailure("task-1", "had no time")
	r.wait(5 * time.Minute)
	r.publish(m)
	r.wantOne("task-1")
	r.wantCalls(r.agent, "task-1", 0)
	r.wantQuiet()
}

// TestForeignEndedAgainLate: the record of an ended task comes again when the task's
// time is over and its agent has no free slot. It is not answered once more.
func TestForeignEndedAgainLate(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.begin("b", nil)
		over := record("task-1", "one")
		r.send(over)
		r.result("task-1", 10*time.Second)
		r.busy(time.Hour)
		r.wait(200 * time.Second)
		r.send(record("task-0", "one"))
		r.wait(80 * time.Second)
		r.send(over)
		r.wantOne("task-1")
		r.result("task-0", 5*time.Minute)
		r.wantQuiet()
		r.wantOne("task-1")
		r.wantCalls(r.agent, "task-1", 1)
	})
}
