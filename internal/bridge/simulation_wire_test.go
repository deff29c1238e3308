package bridge_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
	"github.com/parley-project/parley/internal/bridge/simplea2a"
	"github.com/parley-project/parley/internal/store"
)

// TestSimulationWire is TestSimulation with the real adapters, and agents behind a
// network on which everything goes wrong: requests that never arrive, or late, half
// answers, refusals, slowness, streams that break, while bridges die, commits are in
// doubt, tasks are cancelled and people answer. Afterwards no message was executed more
// often than its policy allows, each task has one end, which is its own, and an agent
// does not work on for a task of which it is known that it was cancelled.
func TestSimulationWire(t *testing.T) {
	for seed := range *simulationSeeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			inBubble(t, func(r *rig) { simulateWire(r, uint64(seed)) })
		})
	}
}

// wireProcess is a bridge with adapters of its own.
type wireProcess struct {
	*process
	x     *bridge.Exchange
	speak *a2a.Adapter
}

func (p *wireProcess) close() {
	p.speak.Close()
	p.x.Close()
}

// onWire starts a bridge that speaks to the agents of w.
func (r *rig) onWire(name string, w *wireAgents) *wireProcess {
	r.t.Helper()
	x := bridge.NewExchange(bridge.ExchangeConfig{DialContext: w.dial, Jitter: func() float64 { return 0.5 }})
	speak := a2a.New(a2a.Options{Exchange: x})
	p := r.start(name, func(cfg *bridge.Config, _ *process) {
		cfg.DrainGrace = 50 * time.Millisecond
		cfg.Adapters = []bridge.Adapter{simplea2a.New(x, nil, nil), speak}
	})
	return &wireProcess{p, x, speak}
}

func simulateWire(r *rig, seed uint64) {
	c := &chance{rnd: rand.New(rand.NewPCG(seed, 17))}
	w := &wireAgents{r: r, c: c, works: time.Duration(1+c.n(30)) * time.Second, replies: map[string]int{}}
	r.ledger.fault = func(op, _ string) fault {
		if op == "P16" || !w.goesWrong(8) {
			return noFault
		}
		return fault(1 + c.n(3))
	}
	records := w.records()
	for _, a := range records {
		a.MaxConcurrent = c.n(6)
		if c.of(30) {
			set := parley.DefaultBreaker()
			set.FailureThreshold, set.HalfOpenCalls, set.OpenFor = 1+c.n(5), 1+c.n(3), time.Duration(1+c.n(20))*time.Second
			a.Breaker = &set
		}
		if c.of(30) {
			a.Limits.Rate, a.Limits.Burst = float64(1+c.n(8)), 1+c.n(4)
		}
		r.agents.put(a)
	}
	policies := []parley.OutcomePolicy{parley.OutcomeFail, parley.OutcomeLookup, parley.OutcomeResend}
	var ids []string
	for i := range 30 {
		ids = append(ids, r.task(records[c.n(len(records))].Name, i, func(a *store.Attempt) {
			a.Policy.OutcomeUnknown = policies[c.n(3)]
			a.Policy.Silence = 2 * time.Minute
			if c.of(20) {
				a.Policy.AttemptTimeout = time.Duration(2+c.n(30)) * time.Second
			}
		}))
	}
	w.storm(ids)
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	last := r.onWire("last", w)
	for _, name := range []string{"b", "c"} {
		r.ledger.declareDead(name)
	}
	for range 600 {
		r.people(c, ids)
		r.wait(time.Second)
	}
	for _, id := range ids {
		w.judge(r.settled(id, 30*time.Minute)) // L1
	}
	last.stop()
	last.close()
	w.wg.Wait()
}

// storm runs two bridges that die and come back for a minute.
func (w *wireAgents) storm(ids []string) {
	r, c := w.r, w.c
	running := map[string]*wireProcess{"b": r.onWire("b", w), "c": r.onWire("c", w)}
	for range 60 {
		r.wait(time.Duration(200+c.n(1600)) * time.Millisecond)
		r.people(c, ids)
		name, id := []string{"b", "c"}[c.n(2)], ids[c.n(len(ids))]
		switch c.n(8) {
		case 0:
			running[name].kill()
			running[name].close()
			running[name] = r.onWire(name, w)
		case 1:
			running[name].stop()
			running[name].close()
			running[name] = r.onWire(name, w)
		case 2:
			r.ledger.declareDead(name)
		case 3:
			r.ledger.requestCancel(id)
		case 4:
			r.announce(id)
			r.announce(id)
		case 5:
			r.ledger.timeOut(id)
		case 6, 7: // a push notification, whoever sent it
			r.hint(id)
		}
	}
	for _, p := range running {
		p.kill()
		p.close()
	}
}

// judge holds the end of an attempt against what its agent did.
func (w *wireAgents) judge(a store.Attempt) {
	w.r.t.Helper()
	begun := w.executions("msg-" + a.ID)
	fault := func(format string, args ...any) {
		w.r.t.Errorf("%s (agent %s, policy %s, %d orphanings): %s\n%+v %v\n%s", a.ID, a.Agent, a.Policy.OutcomeUnknown, a.Orphanings,
			fmt.Sprintf(format, args...), a.Result, a.Result.Err, strings.Join(w.r.ledger.trace[a.ID], "\n"))
	}
	limit := 1
	if a.Policy.OutcomeUnknown == parley.OutcomeResend {
		limit += a.Orphanings
	}
	if len(begun) > limit {
		fault("I1: executed %d times", len(begun))
	}
	switch a.Result.Outcome {
	case parley.OutcomeOK:
		if len(begun) == 0 || !strings.Contains(string(a.Result.Output), "done msg-"+a.ID) {
			fault("an answer that nobody gave: %s", a.Result.Output)
		}
	case parley.OutcomeError: // these agents do nothing before they say 429, 500 or 503
		if a.Result.Err.Code == parley.CodeAgentUnavailable && a.Orphanings == 0 && len(begun) > 0 {
			fault("nothing was executed, it says")
		}
	case parley.OutcomeCancelled:
		for _, k := range begun {
			if k.id == a.AgentTaskID && w.stateOf(k) != "canceled" && a.Result.Err != nil && !strings.Contains(a.Result.Err.Message, "it had been sent") {
				fault("cancelled, and the agent's task is %s", w.stateOf(k))
			}
		}
	}
}

// TestBatchOfCancelled: of calls that wait for one connection, to be sent together, one
// is cancelled. That one is not sent, and the others are: nothing of theirs has failed.
func TestBatchOfCancelled(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := &chance{rnd: rand.New(rand.NewPCG(1, 17))}
		w := &wireAgents{r: r, c: c, works: 5 * time.Second, dials: time.Second, calm: true, replies: map[string]int{}}
		for _, a := range w.records() {
			r.agents.put(a)
		}
		p := r.onWire("b", w)
		var ids []string
		var slots []bridge.Reservation
		for i := range 3 {
			slot, ok := p.Reserve("new-batch")
			if !ok {
				t.Fatal("no slot")
			}
			slots = append(slots, slot)
			ids = append(ids, r.task("new-batch", i, func(a *store.Attempt) { a.State, a.Claim = store.AttemptClaimed, slot.Claim }))
		}
		for i, id := range ids {
			slots[i].Start(r.ledger.row(id))
		}
		r.wait(500 * time.Millisecond)
		cancelWays["hint"](r, ids[0])
		r.want(ids[0], parley.OutcomeCancelled, parley.CodeCancelled)
		for _, id := range ids[1:] {
			r.want(id, parley.OutcomeOK, "")
		}
		for i, id := range ids {
			if n := len(w.executions("msg-" + id)); n != min(i, 1) {
				t.Errorf("%s was executed %d times", id, n)
			}
		}
		p.stop()
		p.close()
		w.wg.Wait()
	})
}
