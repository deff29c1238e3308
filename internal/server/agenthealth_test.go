package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// until waits for something that happens by itself.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 2400 {
		if is() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not within two minutes: %s", what)
}

// condition is what the API says of how an agent does.
type condition struct {
	Agent, Status, Message, Circuit string
	CheckedAt                       *time.Time      `json:"checked_at"`
	AgentCard                       json.RawMessage `json:"agent_card"`
	Calls                           struct {
		Count, Errors int
		P50MS         *float64 `json:"p50_ms"`
	}
}

func (w *world) condition(agent, query string) (c condition) {
	w.t.Helper()
	status, b := w.call("GET", "/api/v1/agents/"+agent+"/health"+query, "")
	if err := json.Unmarshal(b, &c); status != 200 || err != nil {
		w.t.Fatalf("%d %s", status, b)
	}
	return c
}

// agentLog gives the types of the entries in an agent's log.
func (w *world) agentLog(agent string) (types []string) {
	w.t.Helper()
	status, b := w.call("GET", "/api/v1/agents/"+agent+"/events", "")
	var page struct{ Items []parley.AgentEvent }
	if err := json.Unmarshal(b, &page); status != 200 || err != nil {
		w.t.Fatalf("%d %s", status, b)
	}
	for _, e := range page.Items {
		types = append(types, string(e.Type))
	}
	return types
}

// TestAgentHealthAcrossTheServer: agents are looked at in the background, without
// a task and without a change of their circuit; what changes stands in their logs,
// and how they do is told by the API and the metrics, with their calls.
func TestAgentHealthAcrossTheServer(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	var ill atomic.Bool
	ill.Store(true)
	var tasks atomic.Int64
	good := log.simpleAgent("frail", 0)
	frail := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			tasks.Add(1)
		}
		if ill.Load() {
			http.Error(rw, "ill", http.StatusServiceUnavailable)
			return
		}
		good.ServeHTTP(rw, r)
	}))
	t.Cleanup(frail.Close)
	a2a := &newAgent{version: "1"}
	modern := httptest.NewServer(a2a)
	t.Cleanup(modern.Close)
	cfg := server.Config{
		Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"},
		DrainGrace: 100 * time.Millisecond, Health: &parley.HealthCheck{Interval: 2 * time.Second}, // which bounds a look, too
	}
	w := &world{t: t, log: log, cfg: cfg, server: startServer(t, cfg)}
	for _, body := range []string{
		fmt.Sprintf(`{"name":"frail","url":%q,"protocol":"simple-a2a","breaker":{"failure_threshold":1}}`, frail.URL),
		fmt.Sprintf(`{"name":"modern","url":%q,"protocol":"auto"}`, modern.URL),
		`{"name":"idle","url":"http://127.0.0.1:1/"}`,
	} {
		if status, b := w.call("POST", "/api/v1/agents", body); status != http.StatusCreated {
			t.Fatalf("%d %s", status, b)
		}
	}
	if status, b := w.call("PUT", "/api/v1/agents/idle", `{"status":"inactive"}`); status != 200 {
		t.Fatalf("%d %s", status, b)
	}
	until(t, "frail is unhealthy", func() bool { return w.condition("frail", "?fresh=false").Status == "unhealthy" })
	until(t, "modern is healthy", func() bool { return w.condition("modern", "?fresh=false").Status == "healthy" })
	if c := w.condition("frail", "?fresh=false"); c.Circuit != "closed" || !strings.Contains(c.Message, "503") || c.CheckedAt == nil || c.AgentCard != nil && string(c.AgentCard) != "null" {
		t.Errorf("%+v", c)
	}
	if c := w.condition("idle", "?fresh=false"); c.Status != "unknown" || !strings.Contains(c.Message, "inactive") {
		t.Errorf("%+v", c)
	}
	if n := tasks.Load(); n != 0 {
		t.Errorf("%d tasks were sent", n)
	}
	ill.Store(false)
	until(t, "frail is healthy", func() bool { return w.condition("frail", "?fresh=false").Status == "healthy" })
	if got := w.agentLog("frail"); !slices.Equal(got[len(got)-2:], []string{"agent.health_changed", "agent.health_changed"}) {
		t.Errorf("%v", got)
	}

	// A look now, as old clients have it, and calls.
	if c := w.condition("modern", ""); c.Status != "healthy" || !strings.Contains(string(c.AgentCard), "New One") {
		t.Errorf("%+v", c)
	}
	if status, b := w.call("POST", "/api/v1/agents/frail/call", `{"input":{"text":"x"}}`, "Prefer", "wait=30"); status != 200 {
		t.Errorf("%d %s", status, b)
	}
	if c := w.condition("frail", "?fresh=false"); c.Calls.Count != 1 || c.Calls.Errors != 0 || c.Calls.P50MS == nil {
		t.Errorf("%+v", c)
	}

	// The card.
	a2a.set("2")
	until(t, "the new card is told", func() bool { return slices.Contains(w.agentLog("modern"), "agent.card_changed") })
	if _, b := w.call("GET", "/api/v1/agents/modern", ""); !strings.Contains(string(b), `"agent_version":"1"`) {
		t.Errorf("it was detected anew in silence: %s", b)
	}
	status, b := w.call("GET", "/api/v1/agents:health?status=active", "")
	var page struct{ Items []condition }
	if err := json.Unmarshal(b, &page); status != 200 || err != nil || len(page.Items) != 2 || page.Items[0].Agent != "frail" {
		t.Errorf("%d %s", status, b)
	}
	for _, line := range []string{
		`parley_agent_up{agent_name="frail"} 1`, `parley_agent_up{agent_name="modern"} 1`,
		`parley_agent_call_duration_seconds_count{agent_name="frail"} 1`, `parley_agent_calls_in_flight{agent_name="frail"} 0`,
	} {
		until(t, line, func() bool {
			_, b = w.call("GET", "/metrics", "")
			return strings.Contains(string(b), line+"\n")
		})
	}
	if strings.Contains(string(b), `parley_agent_up{agent_name="idle"}`) {
		t.Error("the metrics say of an agent out of use whether it is up")
	}
}
