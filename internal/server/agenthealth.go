package server

import (
	"cmp"
	"context"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/health"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/store"
)

const (
	// callWindow and callSample bound the calls that an agent's figures are of:
	// those of the last 5 minutes, and of them the newest 2,000, so that they cost
	// a millisecond however many there are.
	callWindow = 5 * time.Minute
	callSample = 2000
	// upShown bounds the agents that the metrics name, upWithin the time that a
	// scrape waits for them.
	upShown  = 1000
	upWithin = 2 * time.Second
)

// buildHealth makes what looks at agents in the background, where the role
// bridge may reach them, and shows what all processes have seen.
func (s *Server) buildHealth(metrics *prometheus.Registry) {
	if s.db == nil {
		return
	}
	metrics.MustRegister(agentsUp{s.db, prometheus.NewDesc("parley_agent_up",
		"Whether an agent is well by the looks at it in the background, of all processes: 1 healthy, 0 unhealthy.", []string{"agent_name"}, nil)})
	if s.cfg.Health == nil || s.cfg.Health.Off || !s.cfg.has(RoleBridge) {
		return
	}
	s.checker = health.New(health.Config{
		DB: s.db, Agent: s.registry.Get, Look: s.registry.LookAt, Check: *s.cfg.Health,
		Random: mathrand.Float64, NewToken: newToken, Logger: s.log,
	})
}

// runChecker looks at agents until ctx ends.
func (s *Server) runChecker(ctx context.Context) error {
	if s.checker == nil {
		<-ctx.Done()
		return nil
	}
	return s.checker.Run(ctx)
}

// agentsUp reads what is known of agents when somebody asks for the metrics.
type agentsUp struct {
	db   *store.DB
	desc *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (u agentsUp) Describe(to chan<- *prometheus.Desc) { to <- u.desc }

// Collect implements [prometheus.Collector]. What cannot be read now is left
// out.
func (u agentsUp) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), upWithin)
	defer cancel()
	list, err := u.db.AgentsUp(ctx, upShown)
	if err != nil {
		return
	}
	for _, a := range list {
		up := 0.0
		if a.Status == parley.HealthHealthy {
			up = 1
		}
		to <- prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, up, a.Agent)
	}
}

// conditions is the API's view of how agents do.
type conditions struct {
	db     *store.DB
	agents *registry.Registry
}

// Condition says how one agent does.
func (c conditions) Condition(ctx context.Context, ref string) (parley.AgentCondition, error) {
	agent, err := c.agents.Get(ctx, ref)
	if err != nil {
		return parley.AgentCondition{}, err
	}
	list, err := c.of(ctx, []parley.Agent{agent})
	if err != nil {
		return parley.AgentCondition{}, err
	}
	return list[0], nil
}

// Conditions says how one page of agents do.
func (c conditions) Conditions(ctx context.Context, q parley.AgentQuery) ([]parley.AgentCondition, int, error) {
	agents, total, err := c.agents.List(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	list, err := c.of(ctx, agents)
	return list, total, err
}

// of asks the store for all of them together, not for each.
func (c conditions) of(ctx context.Context, agents []parley.Agent) ([]parley.AgentCondition, error) {
	names := make([]string, len(agents))
	for i := range agents {
		names[i] = agents[i].Name
	}
	now := c.db.Now()
	inFlight, err := c.db.InFlight(ctx)
	if err != nil {
		return nil, err
	}
	healths, err := c.db.Healths(ctx, names)
	if err != nil {
		return nil, err
	}
	calls, err := c.db.Calls(ctx, names, now.Add(-callWindow), now, callSample)
	if err != nil {
		return nil, err
	}
	breakers, err := c.db.Breakers(ctx)
	if err != nil {
		return nil, err
	}
	circuits := make(map[string]parley.Circuit, len(breakers)) // those that are not closed
	for _, b := range breakers {
		circuits[b.Agent] = b.Circuit
	}
	list := make([]parley.AgentCondition, len(agents))
	for i, agent := range agents {
		list[i] = parley.AgentCondition{
			Health: healthOf(agent, healths[agent.Name]), Calls: calls[agent.Name], InFlight: inFlight[agent.Name],
			Circuit: cmp.Or(circuits[agent.Name], parley.CircuitClosed),
		}
	}
	return list, nil
}

// healthOf is what is shown of the looks at an agent; those of one that nobody has
// looked at are the zero value.
func healthOf(agent parley.Agent, h parley.HealthState) parley.HealthState {
	if h.Agent == "" {
		h = parley.HealthState{Agent: agent.Name, Status: parley.HealthUnknown}
	}
	switch {
	case agent.Status != parley.AgentActive:
		// What was seen before says nothing any more.
		return parley.HealthState{Agent: agent.Name, Status: parley.HealthUnknown, Message: "Nobody looks at an agent that is " + string(agent.Status)}
	case !h.CheckedAt.IsZero():
	case strings.HasPrefix(agent.URL, "stdio:"):
		h.Message = "A program of this machine: its calls say how it does"
	default:
		h.Message = "Nobody has looked yet"
	}
	return h
}
