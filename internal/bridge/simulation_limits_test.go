package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// TestSimulationLimits is TestSimulation with agents that have limits and a
// breaker, and that refuse, have too much to do and are away for a while, while
// their records change, or cannot be read, and bridges die. Of no bridge does an
// agent get more than its record and its Retry-After allow, and when all is well
// again no circuit stays open and nothing waits for ever.
func TestSimulationLimits(t *testing.T) {
	for seed := range *simulationSeeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			inBubble(t, func(r *rig) { simulateLimits(r, uint64(seed)) })
		})
	}
}

// sharedCircuits are the circuits that two bridges share, with commits in doubt.
type sharedCircuits struct {
	mu    sync.Mutex
	m     map[string]parley.BreakerState
	fault func() bool
}

func (s *sharedCircuits) Breakers(context.Context) ([]parley.BreakerState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []parley.BreakerState
	for _, name := range slices.Sorted(maps.Keys(s.m)) {
		if s.m[name].Circuit != parley.CircuitClosed {
			open = append(open, s.m[name])
		}
	}
	return open, nil
}

func (s *sharedCircuits) Breaker(_ context.Context, agent string) (parley.BreakerState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state, ok := s.m[agent]; ok {
		return state, nil
	}
	return parley.BreakerState{Agent: agent, Circuit: parley.CircuitClosed}, nil
}

func (s *sharedCircuits) ChangeBreaker(_ context.Context, to parley.BreakerState, _ *parley.AgentEvent) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.fault()
	if lost && s.fault() {
		return false, errDoubt
	}
	ok := s.m[to.Agent].Version == to.Version-1
	if ok {
		s.m[to.Agent] = to
	}
	if lost {
		return false, errDoubt
	}
	return ok, nil
}

// limitedLedger is the ledger of one process, with the circuits.
type limitedLedger struct {
	processLedger
	circuits *sharedCircuits
}

func (l limitedLedger) Breakers(ctx context.Context) ([]parley.BreakerState, error) {
	if err := l.alive(ctx); err != nil {
		return nil, err
	}
	return l.circuits.Breakers(ctx)
}

func (l limitedLedger) Breaker(ctx context.Context, agent string) (parley.BreakerState, error) {
	if err := l.alive(ctx); err != nil {
		return parley.BreakerState{}, err
	}
	return l.circuits.Breaker(ctx, agent)
}

func (l limitedLedger) ChangeBreaker(ctx context.Context, to parley.BreakerState, e *parley.AgentEvent) (bool, error) {
	if err := l.alive(ctx); err != nil {
		return false, err
	}
	return l.circuits.ChangeBreaker(ctx, to, e)
}

// crowd is what one bridge asks of the agents, held to their limits.
type crowd struct {
	*scripted
	w  *crowdWorld
	mu sync.Mutex
	// by agent: the calls that are under way, when each was sent, and until when
	// the agent wants none, since when.
	busy  map[string]int
	sent  map[string][]time.Time
	held  map[string]time.Time
	since map[string]time.Time
}

// crowdWorld is what is so of the agents.
type crowdWorld struct {
	r *rig
	c *chance
	// records are the limits that no record of an agent goes beyond.
	records map[string]parley.Agent
	mu      sync.Mutex
	away    map[string]bool
	calm    bool
}

func (s *crowd) Call(ctx context.Context, task parley.Task, agent parley.Agent, p bridge.Progress) (bridge.Outcome, error) {
	if e, ok := errors.AsType[*bridge.ExchangeError](bridge.Guarded(ctx, task, agent)); ok {
		return e.Outcome(task.ID), nil
	}
	s.begins(task)
	out, err := s.scripted.Call(ctx, task, agent, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[task.Agent]--
	if d := out.Result.RetryAfter; d > 0 && !s.w.records[task.Agent].Limits.Fixed {
		if until := time.Now().Add(min(d, time.Minute)); until.After(s.held[task.Agent]) {
			s.held[task.Agent], s.since[task.Agent] = until, time.Now()
		}
	}
	return out, err
}

// begins holds a call to the limits of its agent.
func (s *crowd) begins(task parley.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, now := task.Agent, time.Now()
	record := s.w.records[name]
	if s.busy[name]++; s.busy[name] > record.MaxConcurrent {
		s.w.r.t.Errorf("%s got %d calls at once, its limit is %d", name, s.busy[name], record.MaxConcurrent)
	}
	if until := s.held[name]; now.Before(until) && now.After(s.since[name]) {
		s.w.r.t.Errorf("%s was called for %s at %v, it wants no calls until %v", name, task.ID, now, until)
	}
	s.sent[name] = append(s.sent[name], now)
	if record.Limits.Rate == 0 {
		return
	}
	for i, at := range s.sent[name] {
		may := float64(record.Limits.Burst) + now.Sub(at).Seconds()*record.Limits.Rate
		if n := len(s.sent[name]) - i; float64(n) > may+1e-6 {
			s.w.r.t.Errorf("%s got %d calls in %v, its rate is %v", name, n, now.Sub(at), record.Limits)
			return
		}
	}
}

// answers is what an agent does with a call.
func (w *crowdWorld) answers(ctx context.Context, task parley.Task) bridge.Outcome {
	w.mu.Lock()
	away, calm := w.away[task.Agent], w.calm
	w.mu.Unlock()
	n := w.c.n(10)
	switch {
	case calm:
	case away && n < 5:
		return notSent()
	case away && n < 7:
		return withStatus(bridge.Answered, 500)
	case away && n < 9:
		return lost()
	case n == 0:
		return lost()
	case n == 1, n == 2:
		out := withStatus(bridge.NotSent, []int{429, 503}[w.c.n(2)])
		out.Result.RetryAfter = time.Duration(w.c.n(20)) * time.Second
		return out
	}
	return takes(ctx, task, time.Duration(w.c.n(3000))*time.Millisecond)
}

// changes gives an agent another record, within its limits, or takes or gives it
// its breaker.
func (w *crowdWorld) changes(name string) {
	a := w.records[name]
	a.MaxConcurrent = 1 + w.c.n(a.MaxConcurrent)
	if w.c.of(30) {
		a.Breaker = nil
	}
	w.r.agents.put(a)
}

func simulateLimits(r *rig, seed uint64) {
	c := &chance{rnd: rand.New(rand.NewPCG(seed, 13))}
	w := &crowdWorld{r: r, c: c, records: map[string]parley.Agent{}, away: map[string]bool{}}
	isCalm := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.calm
	}
	r.ledger.fault = func(op, _ string) fault {
		if isCalm() || op == "P16" || !c.of(6) {
			return noFault
		}
		return fault(1 + c.n(3))
	}
	r.agents.unread = func() error {
		if isCalm() || !c.of(15) {
			return nil
		}
		return parley.Errorf(parley.CodeUnavailable, "the agents cannot be read now")
	}
	circuits := &sharedCircuits{m: map[string]parley.BreakerState{}, fault: func() bool { return !isCalm() && c.of(10) }}
	names := []string{"x", "y", "z"}
	for _, name := range names {
		set := parley.DefaultBreaker()
		set.FailureThreshold, set.HalfOpenCalls, set.OpenFor = 1+c.n(5), 1+c.n(3), time.Duration(1+c.n(20))*time.Second
		if c.of(30) {
			set.OnOpen = parley.OnOpenFail
		}
		a := parley.Agent{Name: name, Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1 + c.n(6), Breaker: &set, Limits: parley.AgentLimits{Fixed: c.of(30)}}
		if c.of(50) {
			a.Limits.Rate, a.Limits.Burst = float64(1+c.n(8)), 1+c.n(4)
		}
		w.records[name] = a
		r.agents.put(a)
	}
	r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		return w.answers(ctx, task), nil
	}
	begin := func(name string) *process {
		return r.start(name, func(cfg *bridge.Config, p *process) {
			cfg.DrainGrace = 50 * time.Millisecond
			cfg.Ledger = limitedLedger{processLedger{r.ledger, p}, circuits}
			cfg.Adapters = []bridge.Adapter{&crowd{
				scripted: r.agent, w: w, busy: map[string]int{}, sent: map[string][]time.Time{}, held: map[string]time.Time{},
				since: map[string]time.Time{},
			}}
		})
	}
	running := map[string]*process{"b": begin("b"), "c": begin("c"), "d": begin("d")}
	policies := []parley.OutcomePolicy{parley.OutcomeFail, parley.OutcomeResend, parley.OutcomeResend}
	var ids []string
	for i := range 80 {
		ids = append(ids, r.task(names[c.n(3)], i, func(a *store.Attempt) {
			a.Policy.OutcomeUnknown = policies[c.n(3)]
			if c.of(30) {
				a.Policy.OnOpen = parley.OnOpenFail
			}
		}))
		r.wait(time.Duration(c.n(800)) * time.Millisecond)
		name, agent := []string{"b", "c", "d"}[c.n(3)], names[c.n(3)]
		switch c.n(14) {
		case 0:
			running[name].kill()
			running[name] = begin(name)
		case 1:
			running[name].stop()
			running[name] = begin(name)
		case 2:
			r.ledger.declareDead(name)
		case 3, 4:
			w.mu.Lock()
			w.away[agent] = !w.away[agent]
			w.mu.Unlock()
		case 5:
			w.changes(agent)
		case 6:
			r.ledger.requestCancel(ids[c.n(len(ids))])
		case 7:
			r.announce(ids[c.n(len(ids))])
		}
	}
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	for _, name := range names {
		r.agents.put(w.records[name])
	}
	for _, id := range ids {
		r.settled(id, 30*time.Minute) // L1
	}
	r.judge(ids)
	r.wait(time.Minute)
	for i, name := range names {
		r.want(r.task(name, 1000+i, nil), parley.OutcomeOK, "")
	}
	for _, p := range running {
		p.stop()
	}
}
