package bridge_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// urgent is an attempt of a run that many levels above the default priority.
func urgent(levels int) func(*store.Attempt) {
	return func(a *store.Attempt) { a.Urgency, a.ScheduledAt = levels, time.Now() }
}

// narrow makes agent "one" take one call at a time, each that long, and gives the
// order in which tasks are called.
func (r *rig) narrow(each time.Duration, limits parley.AgentLimits) func() []string {
	r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1, Limits: limits})
	var mu sync.Mutex
	var order []string
	r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		mu.Lock()
		order = append(order, task.ID)
		mu.Unlock()
		return takes(ctx, task, each), nil
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(order)
	}
}

// TestRunPriority: of the tasks that wait for an agent those of the highest
// priority go first, and of one priority those that wait longest.
func TestRunPriority(t *testing.T) {
	inBubble(t, func(r *rig) {
		order := r.narrow(50*time.Millisecond, parley.AgentLimits{})
		p := r.start("b", nil)
		var want []string
		r.announce(r.task("one", 0, urgent(0)))
		r.wait(time.Millisecond)
		ids := map[int][]string{}
		for i := range 12 {
			levels := []int{0, -4, 5, 1}[i%4]
			id := r.task("one", i+1, urgent(levels))
			ids[levels] = append(ids[levels], id)
			r.announce(id)
			r.wait(time.Millisecond)
		}
		want = append(want, "run-one-0.a.1")
		for _, levels := range []int{5, 1, 0, -4} {
			want = append(want, ids[levels]...)
		}
		for _, id := range want {
			r.want(id, parley.OutcomeOK, "")
		}
		if got := order(); !slices.Equal(got, want) {
			t.Errorf("called in the order %v, want %v", got, want)
		}
		p.stop()
	})
}

// TestPriorityOfFullQueue: a task of high priority takes the place of the last one
// in a full queue, which waits in the ledger; and its priority counts still when it
// comes back from there.
func TestPriorityOfFullQueue(t *testing.T) {
	inBubble(t, func(r *rig) {
		order := r.narrow(300*time.Millisecond, parley.AgentLimits{Queue: 10})
		p := r.start("b", nil)
		var low, high []string
		for i := range 40 {
			low = append(low, r.task("one", i, urgent(-2)))
			r.announce(low[i])
		}
		r.wait(100 * time.Millisecond)
		for i := range 20 { // twice as many as may wait
			high = append(high, r.task("one", 100+i, urgent(3)))
			r.announce(high[i])
		}
		for _, id := range append(slices.Clone(low), high...) {
			r.want(id, parley.OutcomeOK, "")
			r.wantCalls(r.agent, id, 1)
		}
		got := order()
		for i, id := range got[1:11] { // the first was under way
			if !slices.Contains(high, id) {
				t.Errorf("call %d was %s", i+1, id)
			}
		}
		// The others come back after some seconds, and overtake what waits then.
		worst := 0
		for _, id := range high {
			worst = max(worst, slices.Index(got, id))
		}
		if worst > 45 {
			t.Errorf("the last of high priority was the %d-th call of 60", worst)
		}
		p.stop()
	})
}

// TestPriorityStarvesNobody: a task of the lowest priority is called though there
// are always others of the highest, after at most nine times what a level is worth.
func TestPriorityStarvesNobody(t *testing.T) {
	inBubble(t, func(r *rig) {
		order := r.narrow(900*time.Millisecond, parley.AgentLimits{Queue: 10})
		p := r.start("b", nil)
		r.announce(r.task("one", 0, urgent(5)))
		r.wait(time.Millisecond)
		begun := time.Now()
		low := r.task("one", 1, urgent(-4))
		for i := 2; r.agent.calls(low) == 0; i++ {
			r.announce(r.task("one", i, urgent(5)))
			r.wait(800 * time.Millisecond) // more come than the agent does
			if i > 1000 {
				t.Fatalf("no call in %v", time.Since(begun))
			}
		}
		if d := time.Since(begun); d < 30*time.Second || d > 9*parley.PriorityWait+time.Minute {
			t.Errorf("called after %v", d)
		}
		if got := order(); len(got) < 30 {
			t.Error(fmt.Sprint(len(got), " calls"))
		}
		r.stopHanging(p)
	})
}
