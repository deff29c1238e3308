package api

import (
	"context"
	"time"

	"github.com/parley-project/parley"
)

// fakeConditions is the view of how agents do: one that speaks JSON-RPC was looked
// at and called.
type fakeConditions struct{ w *world }

func (f fakeConditions) Condition(_ context.Context, ref string) (parley.AgentCondition, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	a, err := (fakeAgents{f.w}).findAgent(ref)
	if err != nil {
		return parley.AgentCondition{}, err
	}
	return f.of(*a), nil
}

func (f fakeConditions) of(a parley.Agent) parley.AgentCondition {
	c := parley.AgentCondition{
		Health: parley.HealthState{Agent: a.Name, Status: parley.HealthUnknown}, Calls: parley.CallStats{Window: 5 * time.Minute},
		Circuit: f.w.circuit(a.Name).Circuit,
	}
	if a.Protocol != parley.ProtocolJSONRPC || a.Status != parley.AgentActive {
		return c
	}
	c.Health.Status, c.Health.Message, c.Health.Failures = parley.HealthUnhealthy, "The agent answered 503 Service Unavailable", 3
	c.Health.Took, c.Health.CheckedAt, c.Health.ChangedAt = 1500*time.Microsecond, a.CreatedAt.Add(-time.Second), a.CreatedAt.Add(-time.Minute)
	c.InFlight = 7
	c.Calls = parley.CallStats{
		Count: 200, Errors: 25, P50: 80 * time.Millisecond, P95: 420500 * time.Microsecond, P99: 2 * time.Second, Window: 90 * time.Second,
	}
	return c
}

func (f fakeConditions) Conditions(ctx context.Context, q parley.AgentQuery) ([]parley.AgentCondition, int, error) {
	agents, total, err := (fakeAgents{f.w}).List(ctx, q)
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	var list []parley.AgentCondition
	for _, a := range agents {
		list = append(list, f.of(a))
	}
	return list, total, err
}
