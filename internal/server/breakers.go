package server

import (
	"context"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/breaker"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/store"
)

const (
	// logEvery is how often whoever waits for an entry of an agent's log looks.
	logEvery = time.Second
	// switchTries bounds how often a circuit is changed that others change, too.
	switchTries = 10
)

// breakers is the API's view of circuits and of the logs of agents.
type breakers struct {
	db     *store.DB
	agents *registry.Registry
}

// Breaker gives the state of an agent's circuit.
func (b breakers) Breaker(ctx context.Context, ref string) (parley.BreakerState, error) {
	agent, err := b.agents.Get(ctx, ref)
	if err != nil {
		return parley.BreakerState{}, err
	}
	return b.db.Breaker(ctx, agent.Name)
}

// Switch opens or closes a circuit by hand. Bridges may change it at the same
// time.
func (b breakers) Switch(ctx context.Context, ref string, o parley.BreakerOrder) (parley.BreakerState, error) {
	for range switchTries {
		from, err := b.Breaker(ctx, ref)
		if err != nil {
			return from, err
		}
		now := b.db.Now().UTC().Truncate(time.Microsecond)
		to, changed := breaker.ByHand(from, o, now)
		if !changed {
			return to, nil
		}
		var entry *parley.AgentEvent
		if e, ok := breaker.Event(from, to, now); ok {
			entry = &e
		}
		if ok, err := b.db.ChangeBreaker(ctx, to, entry); ok || err != nil {
			return to, err
		}
	}
	return parley.BreakerState{}, parley.Errorf(parley.CodeUnavailable, "the circuit of agent %q changes all the time; try it again", ref)
}

// Log gives entries of the log of an agent, and waits for one if asked to.
func (b breakers) Log(ctx context.Context, ref string, after int64, limit int, wait bool) ([]parley.AgentEvent, error) {
	agent, err := b.agents.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	for {
		list, err := b.db.AgentEvents(ctx, agent.Name, after, limit)
		if len(list) > 0 || err != nil || !wait {
			return list, err
		}
		t := time.NewTimer(logEvery)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
}
