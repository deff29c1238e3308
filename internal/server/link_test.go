package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/push"
	"github.com/parley-project/parley/internal/server"
)

// echoProgram is an agent on stdio in one line: it answers every request with a
// message.
const echoProgram = `stdio:sed -un 's/.*"id":"\\([^"]*\\)".*/{"jsonrpc":"2.0","id":"\\1","result":{"kind":"message","role":"agent","messageId":"m","parts":[{"kind":"text","text":"hi"}]}}/p'`

// startLinkServer starts a server with the agent program.
func startLinkServer(t *testing.T, change func(*server.Config)) *world {
	t.Helper()
	w := &world{t: t, cfg: server.Config{
		Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", DrainGrace: 100 * time.Millisecond,
		LookupEnv: os.LookupEnv,
	}}
	change(&w.cfg)
	w.server = startServer(t, w.cfg)
	body := `{"name":"program","protocol":"jsonrpc-2.0","url":"` + strings.ReplaceAll(echoProgram, `"`, `\"`) + `"}`
	if status, answer := w.call(http.MethodPost, "/api/v1/agents", body); status != http.StatusCreated {
		t.Fatalf("%d %s", status, answer)
	}
	return w
}

// callAgent calls an agent once and gives the run of that.
func (w *world) callAgent(name string) parley.Run {
	w.t.Helper()
	var run struct {
		ID string `json:"id"`
	}
	status, answer := w.call(http.MethodPost, "/api/v1/agents/"+name+"/call", `{"input":{"text":"hello"}}`)
	if err := json.Unmarshal(answer, &run); err != nil || status != http.StatusAccepted {
		w.t.Fatalf("%d %s", status, answer)
	}
	return w.end(run.ID)
}

// TestAD14_Program proves that a program is called as an agent where the server
// allows it, and nowhere else, with a text that says how to allow it.
func TestAD14_Program(t *testing.T) {
	w := startLinkServer(t, func(c *server.Config) { c.AllowStdio = true })
	if run := w.callAgent("program"); run.Status != parley.RunCompleted || !strings.Contains(string(run.Output), `"hi"`) {
		t.Errorf("%s %s %v", run.Status, run.Output, run.Error)
	}
	if status, answer := w.call(http.MethodGet, "/api/v1/agents/program/health", ""); status != http.StatusOK || !strings.Contains(string(answer), "The process runs") {
		t.Errorf("health: %d %s", status, answer)
	}

	w = startLinkServer(t, func(*server.Config) {})
	run := w.callAgent("program")
	if run.Status != parley.RunFailed || !strings.Contains(run.Error.Message, "--allow-stdio") {
		t.Errorf("a server that runs no programs: %s %v", run.Status, run.Error)
	}
}

// TestAD14_Push proves that notifications are taken beside the API, without its
// key and with that of the task, which is good for a restart; and that a server
// that nobody reaches takes none.
func TestAD14_Push(t *testing.T) {
	w := startLinkServer(t, func(c *server.Config) { c.PushURL = "https://parley.example/base/" })
	file := filepath.Join(w.cfg.Data, "push.key")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v, want mode 0600", info, err)
	}
	key, err := push.LoadKey(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := push.New(push.Config{URL: w.cfg.PushURL, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	target, token, _ := r.Target("run-1.ask.1")
	path, ok := strings.CutPrefix(target, "https://parley.example/base")
	if !ok {
		t.Fatalf("target %s", target)
	}
	post := func(path string, header ...string) int {
		status, _ := w.call(http.MethodPost, path, `{"kind":"task","id":"t1"}`, header...)
		return status
	}
	if got := post(path, "Authorization", "", "X-A2A-Notification-Token", token); got != http.StatusAccepted {
		t.Errorf("a notification: %d, want 202", got)
	}
	if got := post(path, "Authorization", "Bearer "+token); got != http.StatusAccepted {
		t.Errorf("a notification with authorization: %d, want 202", got)
	}
	if got := post(path); got != http.StatusUnauthorized {
		t.Errorf("with the key of the API: %d, want 401", got)
	}
	if status, _ := w.call(http.MethodGet, "/api/v1/agents", "", "Authorization", "Bearer "+token); status != http.StatusUnauthorized {
		t.Errorf("the API with a token: %d, want 401", status)
	}
	if status, _ := w.call(http.MethodGet, "/api/v1/agents", ""); status != http.StatusOK {
		t.Errorf("the API: %d, want 200", status)
	}

	none := startLinkServer(t, func(*server.Config) {})
	if status, _ := none.call(http.MethodPost, path, `{}`, "X-A2A-Notification-Token", token); status != http.StatusNotFound {
		t.Errorf("a server without a URL for notifications: %d, want 404", status)
	}
	cfg := none.cfg
	cfg.Data, cfg.PushURL = filepath.Join(t.TempDir(), "data"), "parley.example"
	if _, err := server.New(t.Context(), cfg); parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("a URL without a scheme: %v, want the code invalid", err)
	}
}
