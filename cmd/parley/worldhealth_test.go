package main

import (
	"context"
	"time"

	"github.com/parley-project/parley"
)

// worldConditions say how a world's agents do: polisher is not well, and nobody has
// looked at those that were added since.
type worldConditions struct{ *world }

func (v worldConditions) Condition(_ context.Context, ref string) (parley.AgentCondition, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	g := (worldAgents{v.world}).at(ref)
	if g == nil {
		return parley.AgentCondition{}, missing("agent", ref)
	}
	return v.of(*g)
}

func (v worldConditions) of(g parley.Agent) (parley.AgentCondition, error) {
	circuit, err := worldBreakers(v).state(g.Name)
	c := parley.AgentCondition{
		Health: parley.HealthState{Agent: g.Name, Status: parley.HealthUnknown, Message: "Nobody has looked yet"},
		Calls:  parley.CallStats{Window: 5 * time.Minute}, Circuit: circuit.Circuit,
	}
	switch g.Name {
	case "greeter":
		c.Health = parley.HealthState{
			Agent: g.Name, Status: parley.HealthHealthy, Message: "The agent answered 200 OK", Took: 1500 * time.Microsecond,
			CheckedAt: epoch().Add(48 * time.Second), ChangedAt: epoch(),
		}
		c.Calls = parley.CallStats{Count: 2000, Errors: 3, P50: 12 * time.Millisecond, P95: 80500 * time.Microsecond, P99: 2 * time.Second, Window: 90 * time.Second}
		c.InFlight = 4
	case "polisher":
		c.Health = parley.HealthState{
			Agent: g.Name, Status: parley.HealthUnhealthy, Message: "The agent could not be reached: connection refused",
			CheckedAt: epoch().Add(30 * time.Second), ChangedAt: epoch(), Failures: 2,
		}
	}
	return c, err
}

func (v worldConditions) Conditions(ctx context.Context, q parley.AgentQuery) ([]parley.AgentCondition, int, error) {
	agents, total, err := (worldAgents{v.world}).List(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []parley.AgentCondition
	for _, g := range agents {
		c, err := v.of(g)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, c)
	}
	return list, total, nil
}
