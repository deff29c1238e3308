package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/parley-project/parley"
)

// newAgent is an A2A 1.0 agent at /rpc with a card. It answers with the
// message's text, and refuses every other dialect.
type newAgent struct {
	mu      sync.Mutex
	methods []string
	version string // of the card
}

func (a *newAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		fmt.Fprintf(w, `{"name":"New One","description":"d","version":%q,"supportedInterfaces":[{"url":"/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
"capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[]}`, a.version)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var req struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Message struct {
				MessageID string          `json:"messageId"`
				Parts     json.RawMessage `json:"parts"`
			} `json:"message"`
		} `json:"params"`
	}
	_ = json.Unmarshal(body, &req)
	a.methods = append(a.methods, r.URL.Path+" "+req.Method+" "+r.Header.Get("A2A-Version"))
	if req.Method != "SendMessage" || r.URL.Path != "/rpc" {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, req.ID)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":%s}]}}}`,
		req.ID, req.Params.Message.Parts)
}

func (a *newAgent) set(version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version = version
}

// TestAD14_Detection: an agent that is found out about is called by what was
// found, in its own dialect and at its own address, and checked anew.
func TestAD14_Detection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	agent := &newAgent{version: "1"}
	s := httptest.NewServer(agent)
	t.Cleanup(s.Close)

	status, b := w.call("POST", "/api/v1/agents:detect", fmt.Sprintf(`{"url":%q}`, s.URL))
	var d parley.Detection
	if err := json.Unmarshal(b, &d); err != nil || status != 200 || d.Version != "1.0" || d.URL != s.URL+"/rpc" || d.Name != "New One" || len(d.Explanation) == 0 {
		t.Fatalf("%d %s", status, b)
	}
	if status, b := w.call("GET", "/api/v1/agents", ""); status != 200 || !strings.Contains(string(b), `"total":0`) {
		t.Errorf("something was stored: %d %s", status, b)
	}
	if status, b := w.call("POST", "/api/v1/agents", fmt.Sprintf(`{"name":"new","url":%q,"protocol":"auto"}`, s.URL)); status != 201 || !strings.Contains(string(b), `"protocol":"jsonrpc-2.0"`) {
		t.Fatalf("%d %s", status, b)
	}
	status, b = w.call("POST", "/api/v1/agents/new/call", `{"input":{"text":"hello"}}`, "Prefer", "wait=30")
	if status != 200 || !strings.Contains(string(b), `"text":"hello"`) {
		t.Errorf("%d %s", status, b)
	}
	if got := strings.Join(agent.methods, "\n"); got != "/rpc SendMessage 1.0" {
		t.Errorf("the agent was asked\n%s", got)
	}

	agent.set("2")
	status, b = w.call("POST", "/api/v1/agents/new/check", "")
	if status != 200 || !strings.Contains(string(b), `"agent version: 1 → 2"`) || !strings.Contains(string(b), `"stored":true`) {
		t.Errorf("%d %s", status, b)
	}
	if status, b := w.call("GET", "/api/v1/agents/new", ""); status != 200 || !strings.Contains(string(b), `"agent_version":"2"`) {
		t.Errorf("%d %s", status, b)
	}

	// An agent that says "auto" in its settings is found out about by the first call.
	if status, b := w.call("POST", "/api/v1/agents", fmt.Sprintf(`{"name":"later","url":%q,"protocol":"jsonrpc-2.0","protocol_config":{"a2a":"auto"}}`, s.URL)); status != 201 {
		t.Fatalf("%d %s", status, b)
	}
	if status, b := w.call("POST", "/api/v1/agents/later/call", `{"input":{"text":"again"}}`, "Prefer", "wait=30"); status != 200 || !strings.Contains(string(b), `"text":"again"`) {
		t.Errorf("%d %s", status, b)
	}

	// Nobody there: nothing is stored.
	if status, b := w.call("POST", "/api/v1/agents", `{"name":"gone","url":"http://127.0.0.1:1/","protocol":"auto"}`); status != 502 || !strings.Contains(string(b), "agent_unavailable") {
		t.Errorf("%d %s", status, b)
	}
	// The egress policy holds for cards too.
	if status, b := w.call("POST", "/api/v1/agents:detect", `{"url":"http://169.254.169.254/latest/meta-data"}`); status != 502 || strings.Contains(string(b), "explanation") && strings.Contains(string(b), "found an agent card") {
		t.Errorf("%d %s", status, b)
	}
}
