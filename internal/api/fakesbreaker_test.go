package api

import (
	"context"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/breaker"
)

// fakeBreakers is the view of breakers.
type fakeBreakers struct{ w *world }

// trip has the agent of that name fail. The caller holds the lock.
func (w *world) trip(agent string) {
	from := w.circuit(agent)
	w.turn(from, breaker.Trip(from, time.Minute, "5 calls in a row have failed", w.now()))
}

func (w *world) circuit(agent string) parley.BreakerState {
	if s, ok := w.circuits[agent]; ok {
		return s
	}
	return parley.BreakerState{Agent: agent, Circuit: parley.CircuitClosed}
}

func (w *world) turn(from, to parley.BreakerState) {
	w.circuits[to.Agent] = to
	if e, ok := breaker.Event(from, to, w.now()); ok {
		e.Seq = int64(len(w.logs[to.Agent]) + 1)
		w.logs[to.Agent] = append(w.logs[to.Agent], e)
	}
}

func (f fakeBreakers) name(ref string) (string, error) {
	if f.w.broken != nil {
		return "", f.w.broken
	}
	for _, a := range f.w.agents {
		if a.ID == ref || a.Name == ref {
			return a.Name, nil
		}
	}
	return "", parley.Errorf(parley.CodeNotFound, "there is no agent %q", ref)
}

func (f fakeBreakers) Breaker(_ context.Context, ref string) (parley.BreakerState, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	name, err := f.name(ref)
	return f.w.circuit(name), err
}

func (f fakeBreakers) Switch(_ context.Context, ref string, o parley.BreakerOrder) (parley.BreakerState, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	name, err := f.name(ref)
	if err != nil {
		return parley.BreakerState{}, err
	}
	from := f.w.circuit(name)
	to, changed := breaker.ByHand(from, o, f.w.now())
	if changed {
		f.w.turn(from, to)
	}
	return to, nil
}

// Log ends where it would wait: its streams end there.
func (f fakeBreakers) Log(_ context.Context, ref string, after int64, limit int, _ bool) ([]parley.AgentEvent, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	name, err := f.name(ref)
	all := f.w.logs[name]
	all = all[min(int(after), len(all)):]
	return all[:min(limit, len(all))], err
}
