package server

import (
	"context"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
)

// prober looks at agents: at their process or WebSocket, where no HTTP is spoken,
// at the card that was found of an A2A agent, else at the URL.
type prober struct {
	http  *bridge.Exchange
	links *a2a.Adapter
	cards *agentcard.Detector
}

// Probe implements registry.Prober.
func (p prober) Probe(ctx context.Context, agent parley.Agent) (parley.AgentHealth, error) {
	if h, ok := p.links.Probe(ctx, agent); ok {
		return h, nil
	}
	if agent.Protocol == parley.ProtocolJSONRPC {
		if h, ok := p.cards.Look(ctx, agent); ok {
			return h, nil
		}
	}
	return p.http.Probe(ctx, agent)
}
