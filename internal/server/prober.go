package server

import (
	"context"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
)

// prober looks at agents: over HTTP, or, where none is spoken, at their process
// or WebSocket.
type prober struct {
	http  *bridge.Exchange
	links *a2a.Adapter
}

// Probe implements registry.Prober.
func (p prober) Probe(ctx context.Context, agent parley.Agent) (parley.AgentHealth, error) {
	if h, ok := p.links.Probe(ctx, agent); ok {
		return h, nil
	}
	return p.http.Probe(ctx, agent)
}
