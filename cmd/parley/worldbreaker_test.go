package main

import (
	"context"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/breaker"
)

// worldBreakers are a world's breakers: that of polisher is open.
type worldBreakers struct{ *world }

func (v worldBreakers) state(ref string) (parley.BreakerState, error) {
	g := (worldAgents{v.world}).at(ref)
	if g == nil {
		return parley.BreakerState{}, missing("agent", ref)
	}
	s := parley.BreakerState{Agent: g.Name, Circuit: parley.CircuitClosed}
	if set, ok := v.circuits[g.Name]; ok {
		return set, nil
	}
	if g.Name == "polisher" {
		v.turn(s, breaker.Trip(s, time.Minute, "5 calls in a row have failed", epoch()))
		return v.circuits[g.Name], nil
	}
	return s, nil
}

func (v worldBreakers) turn(from, to parley.BreakerState) {
	if v.circuits == nil {
		v.circuits, v.logs = map[string]parley.BreakerState{}, map[string][]parley.AgentEvent{}
	}
	v.circuits[to.Agent] = to
	if e, ok := breaker.Event(from, to, epoch()); ok {
		e.Seq = int64(len(v.logs[to.Agent]) + 1)
		v.logs[to.Agent] = append(v.logs[to.Agent], e)
	}
}

func (v worldBreakers) Breaker(_ context.Context, ref string) (parley.BreakerState, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state(ref)
}

func (v worldBreakers) Switch(_ context.Context, ref string, o parley.BreakerOrder) (parley.BreakerState, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	from, err := v.state(ref)
	if err != nil {
		return from, err
	}
	to, changed := breaker.ByHand(from, o, epoch())
	if changed {
		v.turn(from, to)
	}
	return to, nil
}

func (v worldBreakers) Log(_ context.Context, ref string, after int64, limit int, _ bool) ([]parley.AgentEvent, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, err := v.state(ref)
	all := v.logs[s.Agent]
	all = all[min(int(after), len(all)):]
	return all[:min(limit, len(all))], err
}
