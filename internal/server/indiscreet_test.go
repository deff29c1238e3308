package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// indiscreetA2A is an agent with a card that writes its caller's credential
// wherever it may write anything.
func indiscreetA2A(w http.ResponseWriter, r *http.Request) {
	told := r.Header.Get("Authorization")
	token := strings.TrimPrefix(told, "Bearer ")
	w.Header().Set("ETag", `"`+token+`"`)
	w.Header().Set("X-Told", token)
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		fmt.Fprintf(w, `{"name":%[1]q,"description":%[1]q,"version":%[1]q,"supportedInterfaces":[{"url":"/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
"capabilities":{"streaming":true},"defaultInputModes":[%[1]q],"defaultOutputModes":[%[1]q],"skills":[{"id":%[1]q}],"iconUrl":"x",
"securitySchemes":{%[1]q:{"apiKeySecurityScheme":{"location":"header","name":%[1]q}}},"securityRequirements":[{"schemes":{%[1]q:{"list":[%[1]q]}}}]}`, token)
		return
	}
	var req struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.NewDecoder(r.Body).Decode(&req)
	words := fmt.Sprintf(`"parts":[{"text":%[1]q},{"data":{%[1]q:%[1]q}}],"metadata":{%[1]q:%[1]q}`, told)
	message := `"message":{"messageId":"m","role":"ROLE_AGENT",` + words + `}`
	task := func(state string) string {
		return `{"id":"t","contextId":"c","status":{"state":"` + state + `","timestamp":"` + token + `",` + message + `},"artifacts":[{"artifactId":"` + token + `","name":"` + token + `",` + words + `}]}`
	}
	answer := func(member string) string { return `{"jsonrpc":"2.0","id":` + string(req.ID) + `,` + member + `}` }
	switch req.Method {
	case "SendStreamingMessage", "SubscribeToTask":
		w.Header().Set("Content-Type", "text/event-stream")
		for _, result := range []string{
			`{"task":` + task("TASK_STATE_WORKING") + `}`,
			`{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"` + token + `","name":"` + token + `",` + words + `}}}`,
			`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING","timestamp":"` + token + `",` + message + `}}}`,
			`{"statusUpdate":{"taskId":"` + token + `","contextId":"` + token + `","status":{"state":"TASK_STATE_WORKING"}}}`,
			`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"` + token + `"}}}`,
		} {
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", token, answer(`"result":`+result))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(100 * time.Millisecond) // what comes at once is told after the end, to nobody
		}
	case "GetTask":
		_, _ = io.WriteString(w, answer(`"result":`+task("TASK_STATE_"+map[bool]string{true: "COMPLETED", false: "FAILED"}[r.URL.Path == "/rpc"])))
	case "SendMessage":
		_, _ = io.WriteString(w, answer(`"result":{"task":`+task("TASK_STATE_INPUT_REQUIRED")+`}`))
	default:
		_, _ = io.WriteString(w, answer(`"error":{"code":-32601,"message":`+fmt.Sprintf("%q", told)+`,"data":{`+fmt.Sprintf("%[1]q:%[1]q", told)+`}}`))
	}
}

// TestA2ASecretsStayInside calls indiscreet agents of A2A, and looks for the
// credential in the log, the API and the database.
func TestA2ASecretsStayInside(t *testing.T) {
	t.Parallel()
	agent := httptest.NewServer(http.HandlerFunc(indiscreetA2A))
	t.Cleanup(agent.Close)
	dir := t.TempDir()
	var out syncBuffer
	s := startServer(t, server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"}, DrainGrace: 100 * time.Millisecond,
		Logger: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	w := &world{t: t, server: s}
	const secret = "l1teral-token"
	seen := []string{}
	get := func(method, path, body string) {
		_, text := w.call(method, path, body, "Accept", "application/json")
		seen = append(seen, string(text))
	}
	for name, config := range map[string]string{
		"auto": `"protocol":"auto"`, "stream": `"protocol":"auto","protocol_config":{"send":"stream"}`, "pinned": `"protocol":"jsonrpc-2.0","protocol_config":{"a2a":"1.0"}`,
	} {
		body := fmt.Sprintf(`"url":%q,%s,"retry_config":{"max_retries":0},"auth_type":"bearer","auth_config":{"token":%q}}`, agent.URL+map[bool]string{true: "/pinned", false: "/rpc"}[name == "pinned"], config, secret)
		get("POST", "/api/v1/agents:detect", "{"+body)
		status, text := w.call("POST", "/api/v1/agents", fmt.Sprintf(`{"name":%q,`, name)+body)
		if status != http.StatusCreated {
			t.Fatalf("%s: %d %s", name, status, text)
		}
		seen = append(seen, string(text))
		run, _, err := s.Executor().Start(t.Context(), parley.StartRequest{CallAgent: name, Input: json.RawMessage(`{"text":"x"}`)})
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			r, err := s.Executor().Get(t.Context(), run.ID)
			if err != nil || r.Status.Terminal() {
				break
			}
			if len(r.Steps) > 0 && r.Steps[0].Question != nil {
				get("GET", "/api/v1/runs/"+run.ID, "")
				get("GET", "/api/v1/runs/"+run.ID+"/attempts", "")
				get("POST", "/api/v1/runs/"+run.ID+"/answer", `{"text":"yes"}`)
			}
		}
		for _, path := range []string{"/runs/" + run.ID, "/runs/" + run.ID + "/events", "/agents/" + name, "/agents/" + name + "/health"} {
			get("GET", "/api/v1"+path, "")
		}
		get("POST", "/api/v1/agents/"+name+"/check", "")
	}
	get("GET", "/api/v1/agents", "")
	seen = append(seen, out.text())
	all := strings.Join(seen, "\n")
	for _, word := range []string{"[redacted]", "step.progress", "step.chunk", "agent_output", "explanation"} {
		if !strings.Contains(all, word) {
			t.Errorf("no %s: nothing was tried", word)
		}
	}
	err := filepath.WalkDir(filepath.Join(dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		seen = append(seen, string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range seen {
		for i, found := strings.Index(text, secret), 0; i >= 0 && found < 5; i, found = strings.Index(text, secret), found+1 {
			t.Errorf("came out: …%q…", text[max(0, i-300):min(len(text), i+100)])
			text = text[i+len(secret):]
		}
	}
}
