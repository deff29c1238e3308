package server

import (
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
	inFlight, err := c.db.InFlight(ctx)
	if err != nil {
		return parley.AgentCondition{}, err
	}
	return c.of(ctx, agent, inFlight)
}

// Conditions says how one page of agents do.
func (c conditions) Conditions(ctx context.Context, q parley.AgentQuery) ([]parley.AgentCondition, int, error) {
	agents, total, err := c.agents.List(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	inFlight, err := c.db.InFlight(ctx)
	if err != nil {
		return nil, 0, err
	}
	list := make([]parley.AgentCondition, 0, len(agents))
	for _, agent := range agents {
		one, err := c.of(ctx, agent, inFlight)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, one)
	}
	return list, total, nil
}

func (c conditions) of(ctx context.Context, agent parley.Agent, inFlight map[string]int) (a parley.AgentCondition, err error) {
	if a.Health, err = c.db.Health(ctx, agent.Name); err != nil {
		return a, err
	}
	switch {
	case agent.Status != parley.AgentActive:
		// What was seen before says nothing any more.
		a.Health = parley.HealthState{Agent: agent.Name, Status: parley.HealthUnknown, Message: "Nobody looks at an agent that is " + string(agent.Status)}
	case !a.Health.CheckedAt.IsZero():
	case strings.HasPrefix(agent.URL, "stdio:"):
		a.Health.Message = "A program of this machine: its calls say how it does"
	default:
		a.Health.Message = "Nobody has looked yet"
	}
	now := c.db.Now()
	if a.Calls, err = c.db.Calls(ctx, agent.Name, now.Add(-callWindow), now, callSample); err != nil {
		return a, err
	}
	circuit, err := c.db.Breaker(ctx, agent.Name)
	a.Circuit, a.InFlight = circuit.Circuit, inFlight[agent.Name]
	return a, err
}
