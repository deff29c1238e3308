package bridge_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

var simulationSeeds = flag.Int("bridge.seeds", 40, "how many simulations TestSimulation runs")

// TestSimulation lets two bridges work on many tasks while everything that
// protocol.md §7 lists goes wrong at random: crashes, declarations of death,
// commits in doubt, lost connections, cancels, timers, repeated and lost records,
// calls that take long to prepare. Afterwards the agents' logs and the rows are judged
// by I1, I2, I7 and L1.
func TestSimulation(t *testing.T) {
	for seed := range *simulationSeeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			inBubble(t, func(r *rig) { simulate(r, uint64(seed)) })
		})
	}
}

// chance is a source of randomness for many goroutines.
type chance struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func (c *chance) of(percent int) bool { return c.n(100) < percent }

func (c *chance) n(limit int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(limit)
}

// witness remembers what an agent really answered.
type witness struct {
	mu    sync.Mutex
	given map[string]bool
}

func (w *witness) gave(task string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.given[task] = true
}

func simulate(r *rig, seed uint64) {
	c := &chance{rnd: rand.New(rand.NewPCG(seed, 7))}
	w := &witness{given: map[string]bool{}}
	calm := false
	r.ledger.fault = func(op, _ string) fault {
		if calm || op == "P16" || !c.of(8) {
			return noFault
		}
		return fault(1 + c.n(3))
	}
	r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1 + c.n(10)})
	r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		return erratic(ctx, task, c, w), nil
	}
	r.long.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		if c.of(70) {
			return accepted(task, "working"), nil
		}
		return erratic(ctx, task, c, w), nil
	}
	r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
		switch {
		case c.of(20):
			w.gave(task.ID)
			return answered(task, `"followed"`), nil
		case c.of(20):
			return lost(), nil
		}
		return accepted(task, "working"), nil
	}
	prepare := func() {
		if c.of(30) {
			time.Sleep(time.Duration(c.n(6000)) * time.Millisecond)
		}
	}
	r.agent.prepare, r.long.prepare = prepare, prepare
	policies := []parley.OutcomePolicy{parley.OutcomeFail, parley.OutcomeLookup, parley.OutcomeResend}
	var ids []string
	for i := range 30 {
		agent := []string{"one", "long"}[c.n(2)]
		ids = append(ids, r.task(agent, i, func(a *store.Attempt) {
			a.Policy.OutcomeUnknown = policies[c.n(3)]
			a.Policy.Silence = 2 * time.Minute
		}))
	}
	stormy(r, c, ids)
	calm = true
	last := r.start("last", nil)
	for _, name := range []string{"b", "c"} {
		r.ledger.declareDead(name)
	}
	for _, id := range ids {
		a := r.settled(id, 30*time.Minute) // L1
		w.mu.Lock()
		if o := a.Result.Outcome; o == parley.OutcomeOK && !w.given[id] {
			r.t.Errorf("%s: an answer that nobody gave", id)
		}
		w.mu.Unlock()
	}
	last.stop()
	r.judge(ids)
}

// erratic is an agent, or a connection to one, that does anything.
func erratic(ctx context.Context, task parley.Task, c *chance, w *witness) bridge.Outcome {
	switch c.n(6) {
	case 0:
		return lost()
	case 1:
		return notSent()
	case 2:
		return hang(ctx)
	}
	out := takes(ctx, task, time.Duration(c.n(4000))*time.Millisecond)
	if out.Disposition == bridge.Answered {
		w.gave(task.ID)
	}
	return out
}

// stormy runs two bridges that die and come back for a minute.
func stormy(r *rig, c *chance, ids []string) {
	running := map[string]*process{}
	begin := func(name string) {
		running[name] = r.start(name, func(cfg *bridge.Config, _ *process) {
			cfg.DrainGrace = 50 * time.Millisecond
			if r.staffed != nil {
				cfg.Adapters = []bridge.Adapter{r.agent, r.staffed}
			}
		})
	}
	begin("b")
	begin("c")
	for range 60 {
		r.wait(time.Duration(200+c.n(1600)) * time.Millisecond)
		r.people(c, ids)
		name := []string{"b", "c"}[c.n(2)]
		id := ids[c.n(len(ids))]
		switch c.n(6) {
		case 0:
			running[name].kill()
			begin(name)
		case 1:
			running[name].stop()
			begin(name)
		case 2:
			r.ledger.declareDead(name)
		case 3:
			r.ledger.requestCancel(id)
		case 4:
			r.announce(id)
			r.announce(id)
		case 5:
			r.ledger.timeOut(id)
		}
	}
	for _, p := range running {
		p.kill()
	}
}
