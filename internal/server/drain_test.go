package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// heldAgent answers once it is let go, and tells of each call.
type heldAgent struct {
	log    *callLog
	called chan struct{}
	let    chan struct{}
	once   sync.Once
}

func newHeldAgent() *heldAgent {
	return &heldAgent{log: newCallLog(), called: make(chan struct{}, 100), let: make(chan struct{})}
}

func (h *heldAgent) letGo() { h.once.Do(func() { close(h.let) }) }

func (h *heldAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := h.log.simpleAgent("resend", 0)
	held := httptest.NewRecorder()
	answer.ServeHTTP(held, r) // reads the request, and notes it
	h.called <- struct{}{}
	select {
	case <-h.let:
	case <-r.Context().Done():
	}
	_, _ = w.Write(held.Body.Bytes())
}

// drainConfig is a server with one agent and a workflow of two steps.
func drainConfig(t *testing.T, h *heldAgent, grace time.Duration) server.Config {
	t.Helper()
	agent := httptest.NewServer(h)
	t.Cleanup(agent.Close)
	t.Cleanup(h.letGo)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agents.yaml"), "agents: [{name: held, url: \""+agent.URL+"\", protocol: simple-a2a, timeout: 60s, outcome_unknown: resend}, {name: nowhere, url: \"http://127.0.0.1:1/\", protocol: simple-a2a}]")
	write(t, filepath.Join(dir, "flows", "lost.yaml"), "name: lost\nsteps: [{id: a, agent: nowhere, retry: {attempts: 2, delay: 10ms}}]")
	write(t, filepath.Join(dir, "flows", "f.yaml"), "name: f\nsteps: [{id: a, agent: held}, {id: b, agent: held, input: \"${a.output}\"}]")
	return server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"}, DrainGrace: grace,
		AgentFiles: []string{filepath.Join(dir, "agents.yaml")}, WorkflowDirs: []string{filepath.Join(dir, "flows")},
	}
}

// drained is a server with a run whose first call is in flight, and how it is
// stopped.
type drained struct {
	*world
	run parley.Run
	// letter is the id of a dead letter that waits.
	letter string
	stop   context.CancelFunc
	ended  chan error
}

func startDrained(t *testing.T, cfg server.Config, h *heldAgent) *drained {
	t.Helper()
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	d := &drained{world: &world{t: t, cfg: cfg, server: s}, stop: stop, ended: make(chan error, 1)}
	go func() { d.ended <- s.Run(ctx) }()
	waitFor(t, "the server is not ready:", func() bool { status, _ := d.call("GET", "/readyz", ""); return status == http.StatusOK })
	d.letter = d.deadLetter()
	if status, body := d.call("POST", "/api/v1/workflows/f/execute", `{"input_data":{"n":1}}`); status != http.StatusAccepted || json.Unmarshal(body, &d.run) != nil {
		t.Fatalf("%d %s", status, body)
	}
	<-h.called
	return d
}

// deadLetter has a run fail, and gives the dead letter of its task.
func (d *drained) deadLetter() string {
	d.t.Helper()
	if status, body := d.call("POST", "/api/v1/workflows/lost/execute", `{"input_data":{}}`); status != http.StatusAccepted {
		d.t.Fatalf("%d %s", status, body)
	}
	var list struct{ Items []parley.DeadLetter }
	waitFor(d.t, "no dead letter:", func() bool {
		_, body := d.call("GET", "/api/v1/dead-letters", "")
		return json.Unmarshal(body, &list) == nil && len(list.Items) == 1
	})
	return list.Items[0].ID
}

// refusesWork: whatever would begin something new is refused, and says when to come
// again; what is asked, and a cancel, is not.
func (d *drained) refusesWork() {
	d.t.Helper()
	for _, c := range []struct{ path, body string }{
		{"/api/v1/workflows/f/execute", `{"input_data":{}}`},
		{"/api/v1/runs/" + d.run.ID + "/retry", `{}`},
		{"/api/v1/agents", `{"name":"new","url":"http://127.0.0.1:9/","protocol":"simple-a2a"}`},
		{"/api/v1/agents:detect", `{"url":"http://127.0.0.1:9/"}`},
		{"/api/v1/agents/held/check", `{}`},
		{"/api/v1/dead-letters/" + d.letter + "/replay", `{}`},
		{"/api/v1/dead-letters:replay", `{"filter":{},"rate":100}`},
	} {
		req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.server.URL()+c.path, strings.NewReader(c.body))
		if err != nil {
			d.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+string(d.server.Key().Reveal()))
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			d.t.Fatal(err)
		}
		d.isStopping(c.path, resp)
	}
	for _, path := range []string{"/api/v1/agents", "/api/v1/dead-letters", "/api/v1/runs"} {
		if status, body := d.call("GET", path, ""); status != http.StatusOK || strings.Contains(string(body), `"new"`) {
			d.t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := d.call("GET", "/api/v1/dead-letters/"+d.letter, ""); status != http.StatusOK || !strings.Contains(string(body), `"waiting"`) {
		d.t.Errorf("the dead letter: %d %s", status, body)
	}
}

// isStopping holds the answer to a request that would begin something: all of its text,
// and what clients and proxies go by.
func (d *drained) isStopping(path string, resp *http.Response) {
	d.t.Helper()
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	var got map[string]any
	if err = errors.Join(err, json.Unmarshal(text, &got)); err != nil {
		d.t.Fatalf("%s: %v %q", path, err, text)
	}
	want := map[string]any{
		"type": "https://github.com/parley-project/parley/blob/main/docs/errors.md#unavailable", "title": "Service Unavailable",
		"status": 503.0, "code": "unavailable", "request_id": resp.Header.Get("X-Correlation-Id"),
		"detail": "this process is being stopped and takes no new work; send the request again: another process takes it, or this one when it has started anew",
		// What clients of the existing platform read.
		"error": "Service Unavailable", "status_code": 503.0, "path": path, "timestamp": got["timestamp"],
	}
	if diff := cmp.Diff(want, got); diff != "" {
		d.t.Errorf("%s (-want +got):\n%s", path, diff)
	}
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" || resp.Header.Get("Content-Type") != "application/problem+json" {
		d.t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
	}
}

// TestDrain: a server that is told to stop takes no new work and says so at
// once, but finishes what it has; what it could not begin any more is done by
// the next one. No call is made twice.
func TestDrain(t *testing.T) {
	t.Parallel()
	h := newHeldAgent()
	cfg := drainConfig(t, h, time.Minute) // more than the test takes
	d := startDrained(t, cfg, h)
	d.stop()
	waitFor(t, "it is still ready:", func() bool { status, _ := d.call("GET", "/readyz", ""); return status == http.StatusServiceUnavailable })
	if status, body := d.call("GET", "/readyz", ""); status != http.StatusServiceUnavailable || !strings.Contains(string(body), "stopping") {
		t.Errorf("readyz: %d %s", status, body)
	}
	if status, body := d.call("GET", "/healthz", ""); status != http.StatusOK {
		t.Errorf("healthz: %d %s", status, body)
	}
	if status, _ := d.call("GET", "/health/ready", ""); status != http.StatusServiceUnavailable {
		t.Errorf("health/ready: %d", status)
	}
	d.refusesWork()
	if status, body := d.call("GET", "/api/v1/runs/"+d.run.ID, ""); status != http.StatusOK {
		t.Errorf("the run: %d %s", status, body)
	}
	h.letGo()
	if err := <-d.ended; err != nil {
		t.Fatalf("a clean stop gave %v", err)
	}
	if n := len(h.log.counts()); n != 1 {
		t.Errorf("%d tasks were begun before the stop, want the first one only", n)
	}
	if got := finish(t, startServer(t, cfg), d.run.ID); got.Status != parley.RunCompleted {
		t.Errorf("%s: %v", got.Status, got.Error)
	}
	for task, n := range h.log.counts() {
		if n != 1 {
			t.Errorf("%s was called %d times across a clean stop", task, n)
		}
	}
}

// TestDrainAnswersWaits: who waits for the end of a run is told of the run when the
// server is stopped. Without an answer he would start it again.
func TestDrainAnswersWaits(t *testing.T) {
	t.Parallel()
	h := newHeldAgent()
	d := startDrained(t, drainConfig(t, h, time.Minute), h) // more than the test takes
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.server.URL()+"/api/v1/workflows/f/execute", strings.NewReader(`{"input_data":{"n":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+string(d.server.Key().Reveal()))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Prefer", "wait=300")
	answered := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answered <- err
			return
		}
		var run parley.Run
		err = errors.Join(json.NewDecoder(resp.Body).Decode(&run), resp.Body.Close())
		if resp.StatusCode != http.StatusAccepted || run.ID == "" || run.ID == d.run.ID {
			err = errors.Join(err, fmt.Errorf("status %d with run %q", resp.StatusCode, run.ID))
		}
		answered <- err
	}()
	<-h.called // of the run that is waited for
	d.stop()
	if err := <-answered; err != nil {
		t.Errorf("the start: %v", err)
	}
	h.letGo()
	if err := <-d.ended; err != nil {
		t.Errorf("the stop gave %v", err)
	}
}

// TestDrainHandsBack: what outlives the grace is handed back, and the next
// server goes on with it by the agent's policy.
func TestDrainHandsBack(t *testing.T) {
	t.Parallel()
	h := newHeldAgent()
	cfg := drainConfig(t, h, 50*time.Millisecond)
	d := startDrained(t, cfg, h)
	d.stop()
	if err := <-d.ended; err != nil {
		t.Fatalf("the stop gave %v", err)
	}
	h.letGo()
	if got := finish(t, startServer(t, cfg), d.run.ID); got.Status != parley.RunCompleted {
		t.Errorf("%s: %v", got.Status, got.Error)
	}
	h.log.check(t)
}

// TestSecondSignal: a second SIGTERM ends the process at once and not well,
// however long the grace is, and nothing is lost.
func TestSecondSignal(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	t.Parallel()
	binary := buildBinary(t)
	for _, command := range []string{"serve", "dev"} {
		t.Run(command, func(t *testing.T) { secondSignal(t, binary, command) })
	}
}

func secondSignal(t *testing.T, binary, command string) {
	h := newHeldAgent()
	agent := httptest.NewServer(h)
	t.Cleanup(agent.Close)
	t.Cleanup(h.letGo)
	agents := "agents: [{name: held, url: \"" + agent.URL + "\", protocol: simple-a2a, timeout: 300s, outcome_unknown: resend}]\n"
	c := newCrashRig(t, binary, map[string]string{
		"parley.yaml":  "workflows: [flows]\ndatabase: {migrate: auto}\negress: {allow: [127.0.0.0/8]}\nlimits: {drain_grace: 10m}\n" + agents,
		"agents.yaml":  agents,
		"flows/f.yaml": "name: f\nsteps: [{id: a, agent: held}]",
	})
	if command == "serve" {
		c.args = []string{"serve", "--config", filepath.Join(c.dir, "parley.yaml")}
	} // else the rig's own command, whose grace is 10 s, twice
	c.start()
	var run parley.Run
	if err := c.call(http.MethodPost, "/api/v1/workflows/f/execute", `{"input_data":{"n":1}}`, &run); err != nil {
		t.Fatal(err)
	}
	<-h.called
	ended := make(chan error, 1)
	cmd := c.cmd
	go func() { ended <- cmd.Wait() }()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	waitFor(t, "it takes new work:", func() bool {
		resp, err := http.Get(c.url + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err == nil || cmd.ProcessState.Success() {
		t.Errorf("the process ended with %v", cmd.ProcessState)
	}
	c.mu.Lock()
	c.cmd = nil // waited for
	c.mu.Unlock()
	h.letGo()
	c.start()
	c.checkRun(0, run.ID)
	h.log.check(t)
}
