package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// world is a server with agents and workflows of a test.
type world struct {
	t      *testing.T
	cfg    server.Config
	server *server.Server
	log    *callLog
}

// newWorld starts a server. Each agent is "name protocol [more members]" and
// its handler; each workflow is a document.
func newWorld(t *testing.T, agents map[string]http.Handler, workflows ...string) *world {
	t.Helper()
	return newWorldWith(t, nil, agents, workflows...)
}

// newWorldWith is newWorld with a configuration that change may adjust.
func newWorldWith(t *testing.T, change func(*server.Config), agents map[string]http.Handler, workflows ...string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, log: newCallLog(), cfg: server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"},
		DrainGrace: 100 * time.Millisecond,
	}}
	var file strings.Builder
	file.WriteString("agents:\n")
	for spec, h := range agents {
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		name, rest, _ := strings.Cut(spec, " ")
		protocol, more, _ := strings.Cut(rest, " ")
		fmt.Fprintf(&file, "  - {name: %s, url: %q, protocol: %s%s}\n", name, srv.URL, protocol, more)
	}
	if len(agents) > 0 {
		write(t, filepath.Join(dir, "agents.yaml"), file.String())
		w.cfg.AgentFiles = []string{filepath.Join(dir, "agents.yaml")}
	}
	for i, doc := range workflows {
		write(t, filepath.Join(dir, "flows", fmt.Sprintf("%d.yaml", i)), doc)
		w.cfg.WorkflowDirs = []string{filepath.Join(dir, "flows")}
	}
	if change != nil {
		change(&w.cfg)
	}
	w.server = startServer(t, w.cfg)
	return w
}

func (w *world) start(workflow, input string) parley.Run {
	w.t.Helper()
	run, _, err := w.server.Executor().Start(w.t.Context(), parley.StartRequest{Workflow: workflow, Input: json.RawMessage(input)})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

func (w *world) end(id string) parley.Run {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := w.server.Executor().Wait(ctx, id); err != nil {
		run, _ := w.server.Executor().Get(w.t.Context(), id)
		b, _ := json.MarshalIndent(run, "", " ")
		w.t.Fatalf("the run does not end: %v\n%s", err, b)
	}
	run, err := w.server.Executor().Get(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

func (w *world) run(workflow, input string) parley.Run { return w.end(w.start(workflow, input).ID) }

// call is one REST request with the server's key.
func (w *world) call(method, path, body string, header ...string) (int, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL()+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+string(w.server.Key().Reveal()))
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return resp.StatusCode, []byte(b.String())
		}
	}
}

// TestAD13_MixedProtocols runs one workflow over both protocols and looks at
// what each agent was sent (AD-13, BR-8.7).
func TestAD13_MixedProtocols(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	w := newWorld(t, map[string]http.Handler{
		"old simple-a2a":  log.simpleAgent("old", 0),
		"new jsonrpc-2.0": log.a2aAgent("new", 0),
	}, `
name: mixed
steps:
  - {id: a, agent: old, input: {text: "${workflow.input.text}", big: 12345678901234567890}}
  - {id: b, agent: new, input: {text: "${a.output.text}"}}
  - {id: c, agent: old, input: {text: "${b.output.text}", ctx: "${b.output.context_id}"}}
output: {text: "${c.output.text}", big: "${a.output.big}", task: "${b.output.task_id}", ctx: "${c.output.ctx}"}
`)
	run := w.run("mixed", `{"text":"h\u00e9"}`)
	if run.Status != parley.RunCompleted {
		t.Fatalf("%s: %v", run.Status, run.Error)
	}
	if got, want := string(run.Output), `{"text":"hé","big":12345678901234567890,"task":"t-`+run.ID+`.b.1","ctx":"c"}`; !sameJSON(got, want) {
		t.Errorf("output %s, want %s", got, want)
	}
	for i, step := range []struct{ agent, protocol string }{{"old", "simple-a2a"}, {"new", "jsonrpc-2.0"}, {"old", "simple-a2a"}} {
		if got := run.Steps[i]; got.Agent != step.agent || got.Protocol != step.protocol || got.Attempts != 1 || got.StartedAt == nil {
			t.Errorf("step %d: %+v", i, got)
		}
	}
	log.check(t)
}

func sameJSON(a, b string) bool {
	var x, y any
	dx, dy := json.NewDecoder(strings.NewReader(a)), json.NewDecoder(strings.NewReader(b))
	dx.UseNumber()
	dy.UseNumber()
	if dx.Decode(&x) != nil || dy.Decode(&y) != nil {
		return false
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return string(p) == string(q)
}

// TestSyncedWrites holds a run of k steps to k + 1 synced writes (protocol.md
// §6).
func TestSyncedWrites(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	w := newWorld(t, map[string]http.Handler{"one simple-a2a": log.simpleAgent("one", 0)}, `
name: five
steps: [{id: a, agent: one}, {id: b, agent: one}, {id: c, agent: one}, {id: d, agent: one}, {id: e, agent: one}]
`)
	w.run("five", `{}`)
	// On a busy machine an answer is written alone now and then, which costs a
	// write more; never does a run cost less.
	var costs []int64
	for len(costs) < 10 && !slices.Contains(costs, 6) {
		before := w.server.SyncedCommits()
		if run := w.run("five", `{}`); run.Status != parley.RunCompleted {
			t.Fatalf("%s: %v", run.Status, run.Error)
		}
		costs = append(costs, w.server.SyncedCommits()-before)
	}
	if slices.Min(costs) != 6 {
		t.Errorf("runs of 5 steps cost %d synced writes, want 6", costs)
	}
}

// TestC7_IdempotentStart starts the same run a hundred times at once, then
// with other input under the same key.
func TestC7_IdempotentStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, `{"name":"still","steps":[{"id":"a","set":1}]}`)
	start := func(input string) (string, error) {
		run, _, err := w.server.Executor().Start(t.Context(), parley.StartRequest{
			Workflow: "still", Input: json.RawMessage(input), IdempotencyKey: "k",
		})
		return run.ID, err
	}
	first, err := start(`{"a":1,"b":[1.0]}`)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			// Members in another order and numbers spelled differently are equal values.
			id, err := start([]string{`{"a":1,"b":[1.0]}`, `{ "b": [1], "a": 1e0 }`}[i%2])
			if err != nil || id != first {
				t.Errorf("start %d gave %s, %v; want %s", i, id, err, first)
			}
		})
	}
	wg.Wait()
	if _, err := start(`{"a":2,"b":[1]}`); parley.CodeOf(err) != parley.CodeIdempotencyConflict {
		t.Errorf("other input under the same key: %v", err)
	}
}

// TestC7_WhatAKeyCompares holds docs/errors.md to what it says of idempotency_conflict.
func TestC7_WhatAKeyCompares(t *testing.T) {
	t.Parallel()
	const schema = `"input":{"type":"object","properties":{"n":{"type":"number","default":7}}}`
	w := newWorld(t, nil, `{"name":"still","version":"1",`+schema+`,"steps":[{"id":"a","set":1}]}`,
		`{"name":"still","version":"2",`+schema+`,"steps":[{"id":"a","set":2}]}`, `{"name":"other","steps":[{"id":"a","set":1}]}`)
	first, _, err := w.server.Executor().Start(t.Context(), parley.StartRequest{Workflow: "still", Version: "1", Input: json.RawMessage(`{"b":"é"}`), IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		req  parley.StartRequest
		want string // "same", "new" or the code
	}{
		"a default that is given":            {parley.StartRequest{Input: json.RawMessage(` {"n": 7.0, "b":"\u00e9"}`)}, "same"},
		"another version":                    {parley.StartRequest{Version: "2", Input: json.RawMessage(`{"b":"é"}`)}, "same"},
		"other labels, priority and timeout": {parley.StartRequest{Input: json.RawMessage(`{"b":"é"}`), Labels: map[string]string{"x": "y"}, Priority: new(9), Timeout: time.Hour}, "same"},
		"another value":                      {parley.StartRequest{Input: json.RawMessage(`{"b":"e"}`)}, "idempotency_conflict"},
		"null for none":                      {parley.StartRequest{Input: json.RawMessage(`{"b":"é","c":null}`)}, "idempotency_conflict"},
		"the same of another workflow":       {parley.StartRequest{Workflow: "other", Input: json.RawMessage(`{"b":"e"}`)}, "new"},
	} {
		if c.req.Workflow == "" {
			c.req.Workflow = "still"
		}
		c.req.IdempotencyKey = "k"
		run, existing, err := w.server.Executor().Start(t.Context(), c.req)
		got := string(parley.CodeOf(err))
		switch {
		case err == nil && existing && run.ID == first.ID:
			got = "same"
		case err == nil && !existing:
			got = "new"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s (%v)", name, got, c.want, err)
		}
	}
}

// TestC3_CancelClosesTheConnection cancels a run whose agent does not answer.
func TestC3_CancelClosesTheConnection(t *testing.T) {
	t.Parallel()
	called, gone := make(chan struct{}), make(chan struct{})
	w := newWorld(t, map[string]http.Handler{"hung simple-a2a": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 4<<10)
		for {
			if _, err := r.Body.Read(buf); err != nil {
				break
			}
		}
		close(called)
		<-r.Context().Done()
		close(gone)
	})}, `{"name":"hang","steps":[{"id":"a","agent":"hung"}]}`)
	run := w.start("hang", `{}`)
	<-called
	if _, err := w.server.Executor().Cancel(t.Context(), parley.CancelRequest{Run: run.ID, By: "test", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	got := w.end(run.ID)
	if got.Status != parley.RunCancelled || got.Steps[0].Status != parley.StepCancelled {
		t.Errorf("run %s, step %s", got.Status, got.Steps[0].Status)
	}
	<-gone
	if _, err := w.server.Executor().Cancel(t.Context(), parley.CancelRequest{Run: run.ID}); parley.CodeOf(err) != parley.CodeConflict {
		t.Errorf("cancelling a cancelled run: %v", err)
	}
}

// TestC6_Retry starts a failed run again: the completed step is not called.
func TestC6_Retry(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	var broken sync.Once
	fails := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := false
		broken.Do(func() { first = true })
		if first {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		log.simpleAgent("two", 0).ServeHTTP(w, r)
	})
	w := newWorld(t, map[string]http.Handler{"one simple-a2a": log.simpleAgent("one", 0), "two simple-a2a": fails}, `
name: again
steps: [{id: a, agent: one, input: {v: 1}}, {id: b, agent: two, input: "${a.output}"}]
`)
	old := w.run("again", `{}`)
	if old.Status != parley.RunFailed || old.Error.Code != parley.CodeAgentRejected || old.Error.Step != "b" {
		t.Fatalf("%s: %v", old.Status, old.Error)
	}
	run, err := w.server.Executor().Retry(t.Context(), old.ID, "test")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.end(run.ID); got.Status != parley.RunCompleted || got.RetriedFrom != old.ID {
		t.Errorf("%s from %q: %v", got.Status, got.RetriedFrom, got.Error)
	}
	if n := len(log.counts()); n != 2 {
		t.Errorf("%d tasks were executed, want the old a and the new b", n)
	}
	if _, err := w.server.Executor().Retry(t.Context(), run.ID, "test"); parley.CodeOf(err) != parley.CodeConflict {
		t.Errorf("retry of a completed run: %v", err)
	}
}

// TestAgentRetries sees an agent fail twice and then answer, under the policy
// of its own record (rule R4).
func TestAgentRetries(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	var mu sync.Mutex
	n := 0
	w := newWorld(t, map[string]http.Handler{
		`flaky simple-a2a , retry: {max_retries: 3, initial_delay_ms: 100, max_delay_ms: 1000, backoff_multiplier: 1}`: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			n++
			k := n
			mu.Unlock()
			if k < 3 {
				w.Header().Set("Retry-After", "0")
				http.Error(w, "busy", []int{0, http.StatusServiceUnavailable, http.StatusInternalServerError}[k])
				return
			}
			log.simpleAgent("flaky", 0).ServeHTTP(w, r)
		}),
	}, `{"name":"flaky","steps":[{"id":"a","agent":"flaky"}]}`)
	run := w.run("flaky", `{}`)
	if run.Status != parley.RunCompleted || run.Steps[0].Attempts != 3 {
		t.Errorf("%s after %d attempts: %v", run.Status, run.Steps[0].Attempts, run.Error)
	}
	var page struct{ Items []parley.Attempt }
	_, body := w.call("GET", "/api/v1/runs/"+run.ID+"/attempts", "")
	if err := json.Unmarshal(body, &page); err != nil || len(page.Items) != 3 {
		t.Fatalf("%v: %s", err, body)
	}
	for i, want := range []int{503, 500, 200} {
		a := page.Items[i]
		if a.Status != want || a.Number != i+1 || a.TookMS == nil || string(a.Request) != "{}" || (a.ResponseBytes > 0) != (want == 200) {
			t.Errorf("attempt %d: %+v", i+1, a)
		}
	}
}

// TestRestartResumes stops a server in the middle of a run, as Ctrl-C does, and
// starts another on the same folder.
func TestRestartResumes(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	slow := httptest.NewServer(log.simpleAgent("slow", 300*time.Millisecond))
	defer slow.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agents.yaml"), "agents: [{name: slow, url: \""+slow.URL+"\", protocol: simple-a2a}]")
	write(t, filepath.Join(dir, "flows", "f.yaml"), "name: f\nsteps: [{id: a, agent: slow}, {id: b, agent: slow}]")
	cfg := server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"},
		AgentFiles: []string{filepath.Join(dir, "agents.yaml")}, WorkflowDirs: []string{filepath.Join(dir, "flows")},
	}
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	run, _, err := s.Executor().Start(ctx, parley.StartRequest{Workflow: "f"})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatalf("a clean stop gave %v", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Data, "endpoint")); !os.IsNotExist(err) {
		t.Errorf("the endpoint file is left behind: %v", err)
	}
	if got := finish(t, startServer(t, cfg), run.ID); got.Status != parley.RunCompleted {
		t.Errorf("%s: %v", got.Status, got.Error)
	}
	for task, n := range log.counts() {
		if n != 1 {
			t.Errorf("%s was called %d times across a clean stop", task, n)
		}
	}
}

// TestSecondServerIsRefused starts two servers on one folder.
func TestSecondServerIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, err := server.New(t.Context(), w.cfg)
	if parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("a second server gave %v", err)
	}
}

// TestREST goes the main job through the door: apply, execute and wait, look.
func TestREST(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	w := newWorld(t, map[string]http.Handler{"one simple-a2a": log.simpleAgent("one", 0)})
	if status, b := w.call("POST", "/api/v1/workflows", `{"name":"Old Plan","start_step":"a","steps":{"a":{"id":"a","agent_name":"one","next_step":null,"input_mapping":{"t":"${workflow.input.t}"}}}}`); status != 201 {
		t.Fatalf("%d %s", status, b)
	}
	status, b := w.call("POST", "/api/v1/workflows/Old%20Plan/execute", `{"input_data":{"t":7}}`, "Prefer", "wait=30")
	var run parley.Run
	if err := json.Unmarshal(b, &run); err != nil || status != 200 || run.Status != parley.RunCompleted || !sameJSON(string(run.Output), `{"t":7}`) {
		t.Fatalf("%d %s", status, b)
	}
	if status, b := w.call("GET", "/api/v1/runs/"+run.ID+"/steps", ""); status != 200 || !strings.Contains(string(b), `"step_name"`) {
		t.Errorf("%d %s", status, b)
	}
	if status, b := w.call("GET", "/api/v1/runs/"+run.ID+"/events", "", "Accept", "text/event-stream"); status != 200 || !strings.Contains(string(b), "event: run.completed") {
		t.Errorf("%d %s", status, b)
	}
	if status, b := w.call("POST", "/api/v1/agents/one/call", `{"input":{"q":1}}`); status != 202 {
		t.Errorf("%d %s", status, b)
	}
	if status, b := w.call("GET", "/api/v1/runs", ""); status != 200 || !strings.Contains(string(b), `"total":1`) {
		t.Errorf("agent calls are not hidden: %d %s", status, b)
	}
	if status, b := w.call("GET", "/metrics", ""); status != 200 || !strings.Contains(string(b), `agent_protocol_requests_total{agent_name="one",protocol="simple-a2a"}`) {
		t.Errorf("%d metrics without the agent's requests", status)
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		if status, b := w.call("GET", path, ""); status != 200 {
			t.Errorf("%s: %d %s", path, status, b)
		}
	}
}

// TestOldPlan runs a plan of the existing platform as it is: chained steps, a
// reference to a custom member of an A2A result, literals beside references.
func TestOldPlan(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	researcher := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID json.RawMessage `json:"id"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"status":{"state":"completed"},"findings":{"n":1.50},"list":[{"name":"x"}]}}`, req.ID)
	})
	w := newWorld(t, map[string]http.Handler{
		"ResearchAgent jsonrpc-2.0": researcher,
		"WriterAgent simple-a2a":    log.simpleAgent("WriterAgent", 0),
	}, `
{"workflow_id":"wf-1","name":"Research and write","version":"1.0.0","start_step":"step-1",
 "steps":{"step-2":{"id":"step-2","agent_name":"WriterAgent","next_step":null,
            "input_mapping":{"data":"${step-1.output.findings}","first":"${step-1.output.list[0].name}","note":"About ${workflow.input.topic}","kind":"report"}},
          "step-1":{"id":"step-1","agent_name":"ResearchAgent","next_step":"step-2",
            "input_mapping":{"topic":"${workflow.input.topic}"}}}}`)
	run := w.run("wf-1", `{"topic":"queues"}`)
	if want := `{"data":{"n":1.50},"first":"x","note":"About queues","kind":"report"}`; run.Status != parley.RunCompleted || !sameJSON(string(run.Output), want) {
		t.Errorf("%s: %v, output %s, want %s", run.Status, run.Error, run.Output, want)
	}
}

// TestRemovedWorkflowStaysRemoved: removing a workflow by its name must not
// bring an older version back; removing one version leaves the others.
func TestRemovedWorkflowStaysRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	apply := func(n int) (id string) {
		status, b := w.call("POST", "/api/v1/workflows", fmt.Sprintf("name: twice\nsteps: [{id: a, set: %d}]\n", n), "Content-Type", "application/yaml")
		var v struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(b, &v); err != nil || status != 201 {
			t.Fatalf("%d %s", status, b)
		}
		return v.ID
	}
	apply(1)
	second := apply(2)
	if status, b := w.call("DELETE", "/api/v1/workflows/"+second, ""); status != 200 {
		t.Fatalf("%d %s", status, b)
	}
	if run := w.run("twice", `{}`); string(run.Output) != "1" {
		t.Errorf("without its second version the workflow gives %s", run.Output)
	}
	apply(3)
	if status, b := w.call("DELETE", "/api/v1/workflows/twice", ""); status != 200 {
		t.Fatalf("%d %s", status, b)
	}
	if status, b := w.call("POST", "/api/v1/workflows/twice/execute", `{"input_data":{}}`); status != 404 {
		t.Errorf("a removed workflow was started: %d %s", status, b)
	}
}
