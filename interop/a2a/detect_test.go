package a2a

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// TestDetect finds out by the card what an agent speaks, and calls it so.
func TestDetect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, k := range kinds() {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			a := sharedAgent(t, k)
			d, err := w.DetectAgent(t.Context(), parley.AgentSpec{URL: new(a.where["url"])})
			if err != nil {
				t.Fatal(err)
			}
			want := k.routes()[0]
			if d.Protocol != parley.ProtocolJSONRPC || d.Version != want.version || d.Binding != "JSONRPC" ||
				strings.TrimSuffix(d.URL, "/") != strings.TrimSuffix(want.url(a), "/") || !d.Streaming || !d.Push {
				t.Errorf("found %+v", d)
			}
			if d.CardURL != a.where["url"]+"/.well-known/agent-card.json" || len(d.Skills) != 1 || len(d.Explanation) == 0 {
				t.Errorf("card %+v", d)
			}
			name := w.register(t, registration{url: a.where["url"], auto: true})
			run := w.call(t, name, "echo found")
			if o := done(t, run); o.Text != "found" {
				t.Errorf("output %s", o.raw)
			}
			if executions, _ := a.entries(t, run.ID); len(executions) != 1 {
				t.Errorf("executed %d times", len(executions))
			}
		})
	}
}

// TestDetectPinned finds out only what the operator left open.
func TestDetectPinned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range routes() {
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			a := sharedAgent(t, r.kind)
			name := w.register(t, registration{url: a.where["url"], auto: true, config: r.pins(nil)})
			record, err := w.Agent(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if d := record.Detected; d == nil || d.Version != r.version || d.Binding != r.binding {
				t.Errorf("detected %+v", d)
			}
			if o := w.completed(t, name, "echo found"); o.Text != "found" {
				t.Errorf("output %s", o.raw)
			}
		})
	}
}

// TestDetectWithoutCard finds out by harmless requests what an agent speaks that
// shows no card. No agent may be given work by that.
func TestDetectWithoutCard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range routes() {
		if r.binding != "JSONRPC" {
			continue
		}
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			a := ownAgent(t, r.kind, setup{dual: r.kind.dual() && r.version == "0.3"})
			d, err := w.DetectAgent(t.Context(), parley.AgentSpec{URL: new(cardless(t, a.where[r.at]))})
			if err != nil {
				t.Fatal(err)
			}
			// Some servers take both dialects on one URL: then the newer one.
			both := r.kind.dual() && r.version == "0.3" && a.where["jsonrpc"] == a.where["jsonrpc03"]
			if d.Protocol != parley.ProtocolJSONRPC || d.Version != r.version && (!both || d.Version != "1.0") {
				t.Errorf("found %+v", d)
			}
			if text := a.everything(t); text != "" {
				t.Errorf("the agent did something: %s", text)
			}
		})
	}
}

// cardless passes requests on to an agent's endpoint and nothing else.
func cardless(t *testing.T, endpoint string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		forward(w, r, endpoint)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// TestDialectChanged replaces an agent by one of the other dialect on the same
// URL between two runs.
func TestDialectChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct{ from, to kind }{
		{go10, go03}, {go03, go10}, {python10, python03}, {python03, python10}, {js10, js03}, {js03, js10},
	} {
		t.Run(string(c.from)+"/"+string(c.to), func(t *testing.T) {
			parallel(t)
			a := settledAgent(t, c.from, setup{})
			name := w.register(t, registration{url: a.where["url"], auto: true, config: map[string]any{"a2a": "auto"}})
			if o := w.completed(t, name, "echo one"); o.Text != "one" {
				t.Errorf("output %s", o.raw)
			}
			b := a.restart(t, c.to, setup{})
			run := w.call(t, name, "echo two")
			if o := done(t, run); o.Text != "two" {
				t.Errorf("output %s", o.raw)
			}
			if executions, _ := b.entries(t, run.ID); len(executions) != 1 {
				t.Errorf("executed %d times", len(executions))
			}
		})
	}
}

// TestDialectPinnedWrongly pins a dialect that the agent does not speak: nothing
// is executed, and the run says which.
func TestDialectPinnedWrongly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, k := range kinds() {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			a := ownAgent(t, k, setup{})
			wrong, at := "1.0", "jsonrpc03"
			if k.dual() {
				wrong, at = "0.3", "jsonrpc"
			}
			name := w.register(t, registration{url: a.where[at], config: map[string]any{"a2a": wrong}})
			run := w.call(t, name, "echo one")
			if e := failed(t, run); e.Code != parley.CodeAgentRejected || e.Retryable {
				t.Errorf("error %s", show(run))
			}
			if executions, _ := a.entries(t, run.ID); len(executions) != 0 {
				t.Errorf("executed %d times", len(executions))
			}
		})
	}
}
