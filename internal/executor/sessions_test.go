package executor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
)

// TestP1_SessionThatIsIgnored: whoever deploys or validates a step with a session whose
// agent does not speak A2A is told that the session does nothing.
func TestP1_SessionThatIsIgnored(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		protocols := map[string]string{"a2a": parley.ProtocolJSONRPC, "simple": parley.ProtocolSimpleA2A, "own": "graphql"}
		config := r.config
		config.Agent = func(_ context.Context, name string) (executor.AgentInfo, bool) {
			p, ok := protocols[name]
			return executor.AgentInfo{Protocol: p}, ok
		}
		c := executor.NewCatalog(executor.CatalogConfig{
			DB: r.db, Executor: executor.New(config), Now: r.config.Now, NewID: r.config.NewID, KnownAgent: func(context.Context, string) bool { return true },
		})
		req := parley.ApplyRequest{File: "w.yaml", Source: []byte(`name: talks
steps:
  - {id: none, agent: simple}
  - {id: kept, agent: a2a, session: s}
  - {id: later, agent: nobody, session: s}
  - {id: lost, agent: simple, session: s}
  - {id: g, steps: [{id: one, agents: [a2a, own], session: s}]}
  - {id: any, agent: "${workflow.input.who}", among: [a2a, simple], session: s}
finally:
  - {id: end, agent: own, session: s}
`)}
		var got []string
		for _, p := range c.Validate(t.Context(), req) {
			if p.Code != "session_ignored" || p.Severity != parley.SeverityWarning || p.File != "w.yaml" || !strings.Contains(p.Text, "a2a") && !strings.Contains(p.Text, "A2A") {
				t.Errorf("problem %+v", p)
			}
			got = append(got, p.Path+": "+p.Text)
		}
		want := []string{
			`steps.lost: agent "simple" speaks simple-a2a: session does nothing, only agents of jsonrpc-2.0 (A2A) continue a conversation`,
			`steps.g/one: agent "own" speaks graphql: session does nothing, only agents of jsonrpc-2.0 (A2A) continue a conversation`,
			`steps.any: agent "simple" speaks simple-a2a: session does nothing, only agents of jsonrpc-2.0 (A2A) continue a conversation`,
			`steps.end: agent "own" speaks graphql: session does nothing, only agents of jsonrpc-2.0 (A2A) continue a conversation`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		if _, _, err := c.Apply(t.Context(), req); err != nil {
			t.Errorf("it cannot be deployed: %v", err)
		}
	})
}
