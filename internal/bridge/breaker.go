package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/breaker"
)

// Breakers is a [Ledger] that also keeps the circuits of agents, for all bridges
// that share it; *store.DB implements it. With another ledger each bridge has
// its own.
type Breakers interface {
	// Breakers gives the states of all circuits that are not closed.
	Breakers(ctx context.Context) ([]parley.BreakerState, error)
	// Breaker gives the state of one; that of an agent whose circuit was never
	// open is closed, in version 0.
	Breaker(ctx context.Context, agent string) (parley.BreakerState, error)
	// ChangeBreaker replaces a state by its next version, and logs e if it is not
	// nil; ok is false if it is not the next.
	ChangeBreaker(ctx context.Context, to parley.BreakerState, e *parley.AgentEvent) (ok bool, err error)
}

const (
	// holdSpacing spreads the tasks that wait for a circuit, so that they do not
	// all come back at once; after holdSpread it begins anew.
	holdSpacing = 2 * time.Millisecond
	holdSpread  = 2 * time.Minute
	// holdManual is how long tasks wait before they look at a circuit again that
	// was opened by hand, holdProbed at one that another bridge tries.
	holdManual = 30 * time.Second
	holdProbed = 2 * time.Second
	// breakerSpacing is the shortest time between two looks at what is to be
	// written.
	breakerSpacing = 10 * time.Millisecond
)

// circuit is the breaker of an agent. It is protected by the bridge's mu.
type circuit struct {
	*breaker.Circuit
	// next is when the next task that is put off is to come again, from first on.
	next, first time.Time
}

// circuitLocked gives the circuit of an agent, and makes it known to its lane.
func (b *Bridge) circuitLocked(agent string) *circuit {
	c := b.circuits[agent]
	if c == nil {
		c = &circuit{Circuit: breaker.New(agent, b.cfg.Worker)}
		b.circuits[agent] = c
	}
	if l := b.lanes[agent]; l != nil {
		l.circuit.Store(c)
	}
	return c
}

// configureLocked notes the breaker of an agent's record.
func (b *Bridge) configureLocked(agent parley.Agent) {
	set := agent.Breaker
	if set == nil {
		set = b.cfg.Breaker
	}
	if b.circuits[agent.Name] == nil && (set == nil || !set.Enabled) {
		return
	}
	if set != nil && set.OnOpen == "" && b.volatile {
		to := *set
		to.OnOpen = parley.OnOpenFail // as the bridge of the existing platform does
		set = &to
	}
	b.circuitLocked(agent.Name).Configure(set)
}

// breakerRoomLocked is how many more calls of a lane its breaker lets begin, at
// most limit.
func (b *Bridge) breakerRoomLocked(l *lane, limit int) int {
	c := l.circuit.Load()
	if c == nil {
		return limit
	}
	room := min(limit, c.Room(b.now()))
	if c.Wanted() {
		nudge(b.breaking)
	}
	return room
}

// heldLocked reports whether the tasks of a lane wait in the ledger until its
// circuit may be tried.
func (b *Bridge) heldLocked(l *lane) bool {
	c := l.circuit.Load()
	return c != nil && c.Held(b.now()) == breaker.Hold
}

// reserveLocked keeps one of the agent's rate for a call, and notes that this one
// will try the agent, if it is tried; dropPermitLocked that the call did not try
// it.
func (l *lane) reserveLocked(token string, now time.Time) {
	l.gate.Reserve(now)
	if c := l.circuit.Load(); c != nil {
		c.Reserve(token)
	}
}

func (l *lane) dropPermitLocked(token string) {
	if c := l.circuit.Load(); c != nil {
		c.Drop(token)
	}
}

// looks is when a task may look at the circuit again that is not closed.
func (c *circuit) looks(now time.Time) time.Time {
	s := c.State()
	switch {
	case s.Manual:
		return now.Add(holdManual)
	case s.Circuit == parley.CircuitHalfOpen || !s.Until.After(now):
		return now.Add(holdProbed)
	}
	return s.Until
}

// holdUntilLocked is when the next task that waits for the circuit of a lane is
// to come again.
func (b *Bridge) holdUntilLocked(l *lane) time.Time {
	c := l.circuit.Load()
	first := c.looks(b.now())
	if c.next.Before(first) || c.next.Sub(c.first) >= holdSpread {
		c.first, c.next = first, first
	}
	at := c.next
	c.next = at.Add(holdSpacing)
	return at.Add(time.Duration(b.cfg.Jitter() * float64(holdSpacing*100))).Truncate(time.Microsecond)
}

// turnedLocked acts upon a change of a circuit: what waits for an agent that is
// not to be called waits in the ledger.
func (b *Bridge) turnedLocked(agent string) {
	l := b.lanes[agent]
	if l == nil {
		return
	}
	if b.heldLocked(l) {
		for n := l.queue.Len(); n > 0; n-- {
			q := l.popLocked(b)
			if q.moves {
				b.turnDownLocked(l, q)
				continue
			}
			b.cfg.Metrics.putOff(whyCircuit, 1)
			b.backLocked(l, q)
		}
	}
	nudge(b.dispatch)
}

// serveBreakers keeps the circuits and their states in the ledger alike.
func (b *Bridge) serveBreakers(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			err = b.readBreakers(ctx)
		case <-b.breaking:
		}
		if err == nil {
			err = b.writeBreakers(ctx)
		}
		wait := breakerSpacing
		if err != nil && ctx.Err() == nil {
			b.log.Warn("circuits of agents not read or not written; it is tried again", "event", "bridge_breaker", "error", err)
			wait = watchEvery
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// readBreakers takes over what others have changed.
func (b *Bridge) readBreakers(ctx context.Context) error {
	list, err := b.breakers.Breakers(ctx)
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(list))
	for _, s := range list {
		there[s.Agent] = true
		b.adoptBreaker(s)
	}
	b.mu.Lock()
	var missing, open []string
	for agent, c := range b.circuits {
		switch {
		case !c.Idle():
			open = append(open, agent)
			if !there[agent] {
				missing = append(missing, agent)
			}
		case len(b.circuits) > idleLanes && b.lanes[agent] == nil:
			delete(b.circuits, agent)
		}
	}
	b.mu.Unlock()
	for _, agent := range missing {
		s, err := b.breakers.Breaker(ctx, agent)
		if err != nil {
			return err
		}
		b.adoptBreaker(s)
	}
	// Nobody else looks at the record of an agent that is not called.
	for _, name := range open {
		if agent, err := b.cfg.Agents.Lookup(ctx, name); err == nil {
			agent.Name = name
			b.mu.Lock()
			b.configureLocked(agent)
			b.mu.Unlock()
		}
	}
	return nil
}

func (b *Bridge) adoptBreaker(s parley.BreakerState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.circuitLocked(s.Agent).Adopt(s) {
		b.turnedLocked(s.Agent)
	}
	b.cfg.Metrics.circuit(s.Agent, b.circuits[s.Agent].State().Circuit)
}

// writeBreakers writes what this bridge has changed, or wants to try.
func (b *Bridge) writeBreakers(ctx context.Context) error {
	type change struct{ from, to parley.BreakerState }
	var changes []change
	b.mu.Lock()
	for _, c := range b.circuits {
		if from, to, ok := c.Next(b.now()); ok {
			changes = append(changes, change{from, to})
		}
	}
	b.mu.Unlock()
	for _, ch := range changes {
		if err := b.writeBreaker(ctx, ch.from, ch.to); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bridge) writeBreaker(ctx context.Context, from, to parley.BreakerState) error {
	var entry *parley.AgentEvent
	e, ok := breaker.Event(from, to, b.now())
	if ok {
		entry = &e
	}
	written, err := b.breakers.ChangeBreaker(ctx, to, entry)
	if err != nil {
		return err
	}
	if !written {
		s, err := b.breakers.Breaker(ctx, to.Agent)
		if err == nil {
			b.adoptBreaker(s)
		}
		return err
	}
	b.mu.Lock()
	c := b.circuitLocked(to.Agent)
	c.Stored(to)
	b.turnedLocked(to.Agent)
	state := c.State().Circuit
	b.mu.Unlock()
	b.cfg.Metrics.circuit(to.Agent, state)
	if !ok {
		return nil
	}
	if to.Circuit == parley.CircuitOpen {
		b.cfg.Metrics.opened(to.Agent)
	}
	b.log.Warn("the circuit of an agent has changed", "event", "breaker_"+string(to.Circuit), "agent", to.Agent, "reason", to.Reason, "until", to.Until)
	return nil
}

// privateBreakers keeps the circuits of one bridge. Its errors are always nil.
type privateBreakers struct {
	mu sync.Mutex // protects m
	m  map[string]parley.BreakerState
}

// Breakers implements [Breakers].
func (p *privateBreakers) Breakers(context.Context) ([]parley.BreakerState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []parley.BreakerState
	for _, s := range p.m {
		list = append(list, s)
	}
	return list, nil
}

// Breaker implements [Breakers].
func (p *privateBreakers) Breaker(_ context.Context, agent string) (parley.BreakerState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.m[agent]
	if !ok {
		s = parley.BreakerState{Agent: agent, Circuit: parley.CircuitClosed}
	}
	return s, nil
}

// ChangeBreaker implements [Breakers]; there is no log.
func (p *privateBreakers) ChangeBreaker(_ context.Context, to parley.BreakerState, _ *parley.AgentEvent) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m[to.Agent].Version != to.Version-1 {
		return false, nil
	}
	p.m[to.Agent] = to
	return true, nil
}
