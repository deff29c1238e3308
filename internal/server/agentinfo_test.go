package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// TestR4_TheAgentsOwnRetriesWithoutItsCredential: an agent that cannot be called, since
// its credential cannot be had, is tried as often as its record says (rule R4), and is
// known to be there, and to be idempotent (rule R5).
func TestR4_TheAgentsOwnRetriesWithoutItsCredential(t *testing.T) {
	secrets := t.TempDir()
	const auth = `, idempotent: true, auth: {type: bearer, secret: "file:gone"}, retry: {max_retries: `
	w := newWorldWith(t, func(c *server.Config) { c.SecretsDir = secrets }, map[string]http.Handler{
		"once simple-a2a " + auth + "0}":                         newCallLog().simpleAgent("once", 0),
		"twice simple-a2a " + auth + "1, initial_delay_ms: 100}": newCallLog().simpleAgent("twice", 0),
	}, "name: once\nsteps: [{id: a, agent: once}]\n", "name: twice\nsteps: [{id: a, agent: twice}]\n",
		"name: both\nsteps: [{id: a, agents: [once, twice], hedge_after: 1s, retry: {attempts: 1}}]\n")
	code, answer := w.call(http.MethodPost, "/api/v1/workflows:validate", `{"name": "w", "steps": [{"id": "a", "agent": "once"}, {"id": "b", "agent": "none"}]}`)
	if text := string(answer); code != http.StatusOK || strings.Contains(text, "once") || !strings.Contains(text, `agent \"none\" is not registered`) {
		t.Errorf("validated: %d %s", code, text)
	}
	for workflow, attempts := range map[string]int{"once": 1, "twice": 2, "both": 2} {
		run := w.end(w.start(workflow, "{}").ID)
		if run.Status != parley.RunFailed || run.Error.Code != parley.CodeAgentUnavailable || run.Steps[0].Attempts != attempts {
			t.Errorf("%s is %s after %d attempts, want %d: %v", workflow, run.Status, run.Steps[0].Attempts, attempts, run.Error)
		}
	}
}
