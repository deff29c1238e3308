package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/registry"
)

// LookupURLs are where agents are looked up that the configuration does not
// have: the existing platform's API, and its registry.
type LookupURLs struct{ API, Registry string }

// agentList keeps the agents of the configuration for a process without a
// database. They stay as they were declared. Methods may be called concurrently.
type agentList struct {
	mu     sync.Mutex // protects agents
	agents []parley.Agent
}

var _ registry.Store = (*agentList)(nil)

// CreateAgent implements [registry.Store].
func (l *agentList) CreateAgent(_ context.Context, a parley.Agent) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.find(a.Name) >= 0 {
		return parley.Errorf(parley.CodeConflict, "Agent with name '%s' already exists", a.Name)
	}
	l.agents = append(l.agents, a)
	return nil
}

// UpdateAgent implements [registry.Store].
func (l *agentList) UpdateAgent(_ context.Context, a parley.Agent, read time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.find(a.ID)
	if i < 0 {
		return parley.Errorf(parley.CodeNotFound, "agent %q not found", a.ID)
	}
	if !l.agents[i].UpdatedAt.Equal(read) {
		return parley.Errorf(parley.CodeConflict, "agent %q was changed meanwhile", a.Name)
	}
	l.agents[i] = a
	return nil
}

// Agent implements [registry.Store].
func (l *agentList) Agent(_ context.Context, idOrName string) (parley.Agent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.find(idOrName)
	if i < 0 {
		return parley.Agent{}, parley.Errorf(parley.CodeNotFound, "agent %q not found", idOrName)
	}
	return l.agents[i], nil
}

// Agents implements [registry.Store].
func (l *agentList) Agents(_ context.Context, q parley.AgentQuery) ([]parley.Agent, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := min(q.Page.Offset, len(l.agents))
	to := min(from+q.Page.Limit, len(l.agents))
	return append([]parley.Agent(nil), l.agents[from:to]...), len(l.agents), nil
}

func (l *agentList) find(idOrName string) int {
	for i, a := range l.agents {
		if a.ID == idOrName || a.Name == idOrName {
			return i
		}
	}
	return -1
}

// listedFirst finds agents in the configuration, then elsewhere.
type listedFirst struct{ listed, elsewhere bridge.Agents }

// Lookup implements [bridge.Agents].
func (f listedFirst) Lookup(ctx context.Context, name string) (parley.Agent, error) {
	a, err := f.listed.Lookup(ctx, name)
	if parley.CodeOf(err) == parley.CodeUnknownAgent {
		return f.elsewhere.Lookup(ctx, name)
	}
	return a, err
}

// agentsForCalls is where the bridge finds its agents.
func (s *Server) agentsForCalls() (bridge.Agents, error) {
	if !s.cfg.NoLedger || s.cfg.Lookup == (LookupURLs{}) {
		return s.registry, nil
	}
	elsewhere, err := registry.NewOldLookup(registry.OldLookupConfig{
		API: s.cfg.Lookup.API, Registry: s.cfg.Lookup.Registry, Client: &http.Client{}, // each request has its own time limit
		Secrets: s.secrets, Seen: s.cfg.SecretSeen, Now: s.cfg.Now, Logger: s.log,
	})
	return listedFirst{s.registry, elsewhere}, err
}
