package bridge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
)

// paced lets agent "one" have that many calls at once, of that length.
func (r *foreignRig) paced(calls int, each time.Duration) {
	a, _ := r.agents.Lookup(r.t.Context(), "one")
	a.MaxConcurrent = calls
	r.agents.put(a)
	r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		return takes(ctx, task, each), nil
	}
}

// burst sends records at once and gives the time until all have results.
func (r *foreignRig) burst(from, n int) time.Duration {
	begun := time.Now()
	for i := range n {
		r.send(record(fmt.Sprintf("task-%d", from+i), "one"))
	}
	for i := range n {
		r.result(fmt.Sprintf("task-%d", from+i), time.Hour)
	}
	return time.Since(begun)
}

// TestForeignBurst: the records of an agent whose speed is known wait for it
// unclaimed for longer than those of ours, since nobody publishes them again
// meanwhile; without a store all do.
func TestForeignBurst(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		_, none := r.make(nil).(*bridge.MemoryLedger)
		if !r.shared && !none {
			return
		}
		r.paced(10, 10*time.Millisecond)
		var deferred atomic.Int64
		r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.QueuePerAgent = 100 })
		n := 12_000 // a task takes a millisecond of the agent
		if !none {
			n = 5000
			r.burst(0, 1000)
			r.countDeferrals(&deferred)
		}
		if d, work := r.burst(1000, n), time.Duration(n)*time.Millisecond; d > work+work/10 {
			r.t.Errorf("%v for %v of work", d, work)
		}
		if n := deferred.Load(); n > 0 {
			r.t.Errorf("tasks were put off %d times", n)
		}
	})
}

// TestForeignBurstAfterSlowness: what slows the tasks of an agent down for a moment
// does not count like its speed, since the process itself may be what was slow.
func TestForeignBurstAfterSlowness(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return
		}
		r.paced(10, 10*time.Millisecond)
		var slow atomic.Bool
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if slow.Load() {
				return takes(ctx, task, 100*time.Millisecond), nil
			}
			return takes(ctx, task, 10*time.Millisecond), nil
		}
		r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.QueuePerAgent = 100 })
		r.burst(0, 1000)
		slow.Store(true)
		r.burst(1000, 100)
		slow.Store(false)
		var deferred atomic.Int64
		r.countDeferrals(&deferred)
		r.burst(1100, 5000)
		if n := deferred.Load(); n > 0 {
			r.t.Errorf("tasks were put off %d times", n)
		}
		slow.Store(true)
		r.burst(6100, 900) // for nine seconds the agent does 100 a second
		for i := range 6000 {
			r.send(record(fmt.Sprintf("late-%d", i), "one"))
		}
		r.wait(time.Second)
		if n := deferred.Load(); n == 0 {
			r.t.Error("what an agent did long ago counts in full")
		}
	})
}

// countDeferrals counts the writes by which tasks are put off.
func (r *foreignRig) countDeferrals(n *atomic.Int64) {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.ledger.fault = func(op, _ string) fault {
		if op == "P3" {
			n.Add(1)
		}
		return noFault
	}
}

// TestForeignStuck: records do not wait unacknowledged for an agent that was fast
// once and hangs.
func TestForeignStuck(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if _, none := r.make(nil).(*bridge.MemoryLedger); none {
			return // there is nowhere else to wait
		}
		r.paced(10, 10*time.Millisecond)
		r.begin("b", nil)
		r.burst(0, 1000)
		r.agent.call = func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return hang(ctx), nil
		}
		for i := range 1000 {
			r.send(record(fmt.Sprintf("stuck-%d", i), "one"))
		}
		r.wait(12 * time.Second)
		if n := r.acks.unacked(); n > 8 {
			r.t.Errorf("%d records are not acknowledged", n)
		}
	})
}

// TestForeignTellsBeside: an agent has its next task while the result of the last
// one is being published; but a bus that takes no results stops the calls.
func TestForeignTellsBeside(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if _, none := r.make(nil).(*bridge.MemoryLedger); !none && !r.shared {
			return
		}
		r.paced(1, time.Millisecond)
		var called atomic.Int64
		call := r.agent.call
		r.agent.call = func(ctx context.Context, task parley.Task, n int, p bridge.Progress) (bridge.Outcome, error) {
			called.Add(1)
			return call(ctx, task, n, p)
		}
		open := make(chan struct{})
		r.acks.refuseIf(func(m bus.Message) error {
			if m.Subject == bus.SubjectResults {
				<-open
			}
			return nil
		})
		r.begin("b", nil)
		for i := range 1100 {
			r.send(record(fmt.Sprintf("task-%d", i), "one"))
		}
		r.wait(3 * time.Second)
		if n := called.Load(); n != 1024 {
			r.t.Errorf("%d calls were made while no result was published, want 1024", n)
		}
		close(open)
		for i := range 1100 {
			// One that was put off, and found no place when it was looked at, is looked at
			// again after 5 s.
			r.result(fmt.Sprintf("task-%d", i), 10*time.Second)
		}
		r.wantQuiet()
		if n := called.Load(); n != 1100 {
			r.t.Errorf("%d calls", n)
		}
	})
}

// TestForeignRecall: tasks that were put off while their agent was slow come back
// when it is fast: its slots are not idle until then.
func TestForeignRecall(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if _, none := r.make(nil).(*bridge.MemoryLedger); none {
			return // nothing is put off
		}
		r.paced(10, 100*time.Millisecond)
		r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.QueuePerAgent = 100 })
		r.burst(0, 500)
		r.paced(10, time.Millisecond)
		if d := r.burst(1000, 5000); d > 5*time.Second {
			r.t.Errorf("%v for half a second of work", d)
		}
	})
}

// stuckBook is what knows the agents, and is asked about one of them in vain while stuck.
type stuckBook struct {
	*agentBook
	agent string
	stuck atomic.Bool
	asked atomic.Int64
}

func (b *stuckBook) Lookup(ctx context.Context, name string) (parley.Agent, error) {
	if name == b.agent && b.stuck.Load() {
		b.asked.Add(1)
		pause := time.NewTimer(30 * time.Second)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	return b.agentBook.Lookup(ctx, name)
}

// TestForeignRecordLookedAtForLong: the record of an agent whose tasks wait for its rate is
// looked at again and again. What knows it may take half a minute for that: the tasks of
// others do not wait.
func TestForeignRecordLookedAtForLong(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		one, _ := r.agents.Lookup(r.t.Context(), "one")
		one.Limits.Rate = 1
		r.agents.put(one)
		book := &stuckBook{agentBook: r.agents, agent: "one"}
		r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Agents = book })
		const tasks = 5
		for i := range tasks {
			r.send(record(fmt.Sprintf("paced-%d", i), "one"))
		}
		r.wait(1500 * time.Millisecond)
		book.stuck.Store(true)
		r.wait(time.Second)
		if book.asked.Load() == 0 {
			r.t.Fatal("the record is not looked at")
		}
		r.send(record("other", "long"))
		r.result("other", 2*time.Second)
		book.stuck.Store(false)
		for i := range tasks {
			r.result(fmt.Sprintf("paced-%d", i), 2*time.Minute)
		}
		r.wantQuiet()
	})
}
