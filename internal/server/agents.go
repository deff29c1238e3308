package server

import (
	"context"
	"encoding/json"
	mathrand "math/rand/v2"
	"net/netip"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
	"github.com/parley-project/parley/internal/bridge/simplea2a"
	"github.com/parley-project/parley/internal/registry"
)

// openSecrets makes what turns references into secrets, and what finds out how
// agents are called: the registry asks it when an agent is added, the A2A adapter
// when a record says "auto".
func (s *Server) openSecrets() {
	s.secrets = registry.NewSecrets(registry.SecretsConfig{
		Dir: s.cfg.SecretsDir, EnvPrefix: s.cfg.SecretsPrefix, LookupEnv: s.cfg.LookupEnv,
		KeyFile: s.cfg.SealKeyFile, Seen: s.cfg.SecretSeen,
	})
	s.cards = agentcard.New(agentcard.Config{Exchange: s.exchange, Now: s.cfg.Now, NewID: newToken, Resolve: s.secrets.Resolve})
}

// adapters are the protocols that this server speaks (AD-4).
func (s *Server) adapters(m *bridge.Metrics) []bridge.Adapter {
	s.a2a = a2a.New(a2a.Options{
		Exchange: s.exchange, Logger: s.log, Observer: m, Push: s.pushTarget(), Detector: s.cards,
		Stdio: s.cfg.AllowStdio, LookupEnv: s.cfg.LookupEnv, Random: mathrand.Float64, Now: s.cfg.Now,
	})
	all := []bridge.Adapter{simplea2a.New(s.exchange, s.log, m), s.a2a}
	for _, adapter := range s.cfg.Adapters {
		all = append(all, adapter(s.exchange, s.log, m))
	}
	return all
}

func (s *Server) newRegistry(adapters []bridge.Adapter) *registry.Registry {
	return s.registryOn(s.db, adapters)
}

// registryOn gives a registry that keeps its agents in db.
func (s *Server) registryOn(db registry.Store, adapters []bridge.Adapter) *registry.Registry {
	protocols := make([]string, len(adapters))
	checkers := make(map[string]func(json.RawMessage) []error)
	for i, a := range adapters {
		protocols[i] = a.Protocol()
		if c, ok := a.(bridge.ConfigChecker); ok {
			checkers[a.Protocol()] = c.CheckConfig
		}
	}
	return registry.New(registry.Config{
		Store: db, Prober: prober{s.exchange, s.a2a, s.cards}, Detector: s.cards, Protocols: protocols, Checkers: checkers, Now: s.cfg.Now, Clock: s.clock, NewID: newUUID,
		Secrets: s.secrets,
	})
}

// agents is the API's view of the registry.
type agents struct {
	*registry.Registry
	// admit is an error while nothing new is begun.
	admit func() error
}

// Add refuses before anything is asked or written.
func (a agents) Add(ctx context.Context, spec parley.AgentSpec) (parley.Agent, error) {
	if err := a.admit(); err != nil {
		return parley.Agent{}, err
	}
	return a.Registry.Add(ctx, spec)
}

// Detect refuses before anything is asked.
func (a agents) Detect(ctx context.Context, spec parley.AgentSpec) (parley.Detection, error) {
	if err := a.admit(); err != nil {
		return parley.Detection{}, err
	}
	return a.Registry.Detect(ctx, spec)
}

// Check refuses before anything is asked or written.
func (a agents) Check(ctx context.Context, ref, by string) (parley.AgentCheck, error) {
	if err := a.admit(); err != nil {
		return parley.AgentCheck{}, err
	}
	return a.Registry.Check(ctx, ref, by)
}

// Remove marks an agent deleted and gives it as it is then.
func (a agents) Remove(ctx context.Context, ref, by string) (parley.Agent, error) {
	if err := a.Registry.Remove(ctx, ref, by); err != nil {
		return parley.Agent{}, err
	}
	return a.Get(ctx, ref)
}

// egress reads the ranges that agents may be at besides the public ones.
func egress(ranges []string) (e bridge.Egress, err error) {
	for _, r := range ranges {
		prefix, err := netip.ParsePrefix(r)
		if err != nil {
			return e, parley.Errorf(parley.CodeInvalid, "egress.allow: %q is no range such as 10.0.0.0/8", r)
		}
		e.Allow = append(e.Allow, prefix)
	}
	return e, nil
}
