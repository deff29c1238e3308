package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/sample"
	"github.com/parley-project/parley/internal/server"
)

// Traces of tests.
var (
	traceOne = parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "congo=t61rcWkgMzE, rojo=1"}
	traceTwo = parley.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
)

// tracedHandler notes the trace of every request, by method.
type tracedHandler struct {
	http.Handler
	mu  sync.Mutex
	got map[string][]parley.Trace // guarded by mu
}

func (h *tracedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		h.mu.Lock()
		if h.got == nil {
			h.got = map[string][]parley.Trace{}
		}
		h.got["all"] = append(h.got["all"], parley.Trace{Parent: r.Header.Get("Traceparent"), State: r.Header.Get("Tracestate")})
		h.mu.Unlock()
	}
	h.Handler.ServeHTTP(w, r)
}

// take gives what came since the last time.
func (h *tracedHandler) take() []parley.Trace {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.got["all"]
	h.got = nil
	return list
}

// started reads the run of an answer.
func started(t *testing.T, status int, body []byte) parley.Run {
	t.Helper()
	var run parley.Run
	if err := json.Unmarshal(body, &run); err != nil || status != http.StatusAccepted {
		t.Fatalf("%d %s", status, body)
	}
	return run
}

// TestTrace_EndToEnd: what a request brings is what every agent of the run is sent, on
// each request about its tasks, also by sub-workflows, retries and reruns; a run that
// was given none sends none.
func TestTrace_EndToEnd(t *testing.T) {
	t.Parallel()
	long := sample.NewScripted(sample.Script{Polls: func(sample.Call) int { return 2 }})
	simple := sample.NewScripted(sample.Script{Error: func(c sample.Call) string {
		if strings.Contains(string(c.Input), "fail") {
			return "no"
		}
		return ""
	}})
	old, new := &tracedHandler{Handler: simple}, &tracedHandler{Handler: long}
	w := newWorld(t, map[string]http.Handler{"old simple-a2a , retry: {max_retries: 0}": old, "new jsonrpc-2.0 , protocol_config: {a2a: \"0.3\"}": new},
		"name: part\nsteps: [{id: p, agent: old, input: {text: \"${workflow.input.text}\"}}]\n",
		"name: all\nsteps:\n  - {id: a, agent: new, input: {text: hi}}\n  - {id: b, workflow: part, input: {text: \"${workflow.input.text}\"}}\n",
	)
	only := func(h *tracedHandler, want parley.Trace, least int) {
		t.Helper()
		if got := h.take(); len(got) < least || slices.ContainsFunc(got, func(x parley.Trace) bool { return x != want }) {
			t.Errorf("the agent got %+v, want at least %d of %+v", got, least, want)
		}
	}
	execute := func(text string, header ...string) parley.Run {
		t.Helper()
		status, body := w.call("POST", "/api/v1/workflows/all/execute", `{"input_data":{"text":"`+text+`"}}`, header...)
		return w.end(started(t, status, body).ID)
	}
	run := execute("fail", "traceparent", traceOne.Parent, "tracestate", traceOne.State)
	if run.Status != parley.RunFailed || run.Traceparent != traceOne.Parent || run.Tracestate != traceOne.State {
		t.Fatalf("%s %v, trace %q %q", run.Status, run.Error, run.Traceparent, run.Tracestate)
	}
	only(new, traceOne, 3) // one send, and looks
	only(old, traceOne, 1)

	status, body := w.call("POST", "/api/v1/runs/"+run.ID+"/retry", "")
	w.end(started(t, status, body).ID)
	only(new, traceOne, 0)
	only(old, traceOne, 1)
	status, body = w.call("POST", "/api/v1/runs/"+run.ID+"/rerun", `{}`, "traceparent", traceTwo.Parent)
	if again := w.end(started(t, status, body).ID); again.Traceparent != traceTwo.Parent || again.Tracestate != "" {
		t.Errorf("the rerun has %q %q", again.Traceparent, again.Tracestate)
	}
	only(new, traceTwo, 3)
	only(old, traceTwo, 1)

	status, body = w.call("POST", "/api/v1/agents/old/call", `{"input":{"text":"hi"}}`, "traceparent", traceTwo.Parent)
	w.end(started(t, status, body).ID)
	only(old, traceTwo, 1)
	execute("hi")
	only(new, parley.Trace{}, 3)
	only(old, parley.Trace{}, 1)
}

// TestTrace_OfACancel: the request that cancels a task at its agent has it, too.
func TestTrace_OfACancel(t *testing.T) {
	t.Parallel()
	agent := &tracedHandler{Handler: sample.NewScripted(sample.Script{Polls: func(sample.Call) int { return 1_000_000 }})}
	w := newWorld(t, map[string]http.Handler{"new jsonrpc-2.0 , protocol_config: {a2a: \"0.3\"}": agent}, "name: all\nsteps: [{id: a, agent: new, input: {text: hi}}]\n")
	status, body := w.call("POST", "/api/v1/workflows/all/execute", `{"input_data":{}}`, "traceparent", traceOne.Parent)
	run := started(t, status, body)
	waitFor(t, "the task is not followed:", func() bool {
		r, err := w.server.Executor().Get(t.Context(), run.ID)
		return err == nil && r.Steps[0].AgentTaskID != ""
	})
	log := agent.Handler.(*sample.Scripted).Log
	if status, body := w.call("POST", "/api/v1/runs/"+run.ID+"/cancel", ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	w.end(run.ID)
	var methods []string
	for _, c := range log.All() {
		methods = append(methods, c.Method)
		if c.Traceparent != traceOne.Parent {
			t.Errorf("%s has traceparent %q", c.Method, c.Traceparent)
		}
	}
	if !slices.Contains(methods, "tasks/cancel") {
		t.Errorf("the agent got %q", methods)
	}
}

// TestTrace_OfAZoneTask: the trace of execute_task is that of its run.
func TestTrace_OfAZoneTask(t *testing.T) {
	t.Parallel()
	z := startZone(t, nil)
	body := `{"jsonrpc":"2.0","method":"execute_task","params":{"text":"hello"},"id":"` + uuid.NewString() + `"}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, z.server.ZoneURLs()[0]+"/invocations", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("traceparent", traceOne.Parent)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, list := z.call("GET", "/api/v1/runs", "")
	var page struct{ Items []parley.Run }
	if err := json.Unmarshal(list, &page); err != nil || len(page.Items) != 1 {
		t.Fatalf("%v %s", err, list)
	}
	if run := z.end(page.Items[0].ID); run.Traceparent != traceOne.Parent {
		t.Errorf("the run has %q", run.Traceparent)
	}
}

// TestTrace_ThroughKafka: roles apart, on PostgreSQL and Kafka. The record that asks for
// a run, the record of its task, the agent, and the record of the result have the same
// trace; so has a run that was asked for by HTTP.
func TestTrace_ThroughKafka(t *testing.T) {
	t.Parallel()
	cfg, topic := onKafka(t)
	agent := &tracedHandler{Handler: sample.NewScripted(sample.Script{})}
	srv := httptest.NewServer(agent)
	defer srv.Close()
	conf := onDatabase(t, "postgres", "name: ask\nsteps: [{id: a, agent: writer, input: {text: hi}}]\n")
	conf.Kafka, conf.BridgeGroup, conf.ExecutorGroup, conf.EgressAllow = &cfg, topic("bridges"), topic("executors"), []string{"127.0.0.0/8"}
	conf.Requests, conf.RequestGroup = true, topic("requests")
	conf.AgentSpecs = []parley.AgentSpec{{Name: new("writer"), URL: &srv.URL, Protocol: new(parley.ProtocolSimpleA2A), By: "test"}}
	second := conf
	conf.Roles = []server.Role{server.RoleAPI, server.RoleExecutor}
	w := &world{t: t, cfg: conf, server: startServer(t, conf)}
	second.Data, second.Roles, second.WorkflowDirs = filepath.Join(t.TempDir(), "data"), []server.Role{server.RoleBridge}, nil
	startServer(t, second)

	raw, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumeTopics(topic("tasks"), topic("results")), kgo.DefaultProduceTopic(topic("starts")))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	value, err := records.ExecutionRequest{
		RunID: "run-asked", Plan: json.RawMessage(`{"workflow_id":"wf","name":"wf","version":"1","start_step":"s","steps":{"s":{"id":"s","agent_name":"writer","input_mapping":{}}}}`),
		Input: json.RawMessage(`{}`), At: time.Now(),
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	headers := []kgo.RecordHeader{{Key: "traceparent", Value: []byte(traceOne.Parent)}, {Key: "tracestate", Value: []byte(traceOne.State)}}
	waitFor(t, "the run does not come:", func() bool { // a group begins with what is published once it is there
		if err := raw.ProduceSync(t.Context(), &kgo.Record{Key: []byte("run-asked"), Value: value, Headers: headers}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		_, err := w.server.Executor().Get(t.Context(), "run-asked")
		return err == nil
	})
	w.end("run-asked")
	status, body := w.call("POST", "/api/v1/workflows/ask/execute", `{"input_data":{}}`, "traceparent", traceTwo.Parent)
	run := w.end(started(t, status, body).ID)
	if got := agent.take(); !slices.Equal(got, []parley.Trace{traceOne, traceTwo}) {
		t.Errorf("the agent got %+v", got)
	}

	seen := map[string]int{}
	waitFor(t, "not all records come:", func() bool {
		fetches := raw.PollFetches(t.Context())
		fetches.EachRecord(func(r *kgo.Record) { seen[r.Topic+" "+traceOfRecord(r).String()]++ })
		return seen[topic("results")+" "+traceOne.String()] > 0 && seen[topic("results")+" "+traceTwo.String()] > 0
	})
	for _, of := range []parley.Trace{traceOne, traceTwo} {
		if seen[topic("tasks")+" "+of.String()] == 0 {
			t.Errorf("no task of %s among %v", of, seen)
		}
	}
	if len(seen) != 4 || run.Traceparent != traceTwo.Parent {
		t.Errorf("records %v, the run has %q", seen, run.Traceparent)
	}
}

func traceOfRecord(r *kgo.Record) (t parley.Trace) {
	for _, h := range r.Headers {
		switch h.Key {
		case "traceparent":
			t.Parent = string(h.Value)
		case "tracestate":
			t.State = string(h.Value)
		}
	}
	return t
}

// TestTrace_OfAnArchive: what an archive says of a trace is read like a header: a run
// that goes on from an imported one hands on what is valid, and nothing else, and no
// such text adds headers or keeps it from going on.
func TestTrace_OfAnArchive(t *testing.T) {
	t.Parallel()
	deny := sample.NewScripted(sample.Script{Error: func(sample.Call) string { return "no" }})
	agents := func(h http.Handler) map[string]http.Handler {
		return map[string]http.Handler{"one simple-a2a , retry: {max_retries: 0}": h}
	}
	from := newWorld(t, agents(deny), "name: single\nsteps: [{id: a, agent: one, input: {text: hi}}]\n")
	status, body := from.call("POST", "/api/v1/workflows/single/execute", `{"input_data":{}}`, "traceparent", traceOne.Parent, "tracestate", "a=1")
	old := from.end(started(t, status, body).ID)
	line := from.export()
	given := `"traceparent":"` + traceOne.Parent + `","tracestate":"a=1"`
	if !strings.Contains(line, given) {
		t.Fatalf("%s is not in %s", given, line)
	}
	var evil atomic.Int64
	seen := &tracedHandler{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		evil.Add(int64(len(r.Header.Values("X-Evil"))))
		sample.NewScripted(sample.Script{}).ServeHTTP(w, r)
	})}
	to := newWorld(t, agents(seen))
	for _, tt := range []struct {
		name, parent, state string
		want                parley.Trace
	}{
		{"as-it-was", traceOne.Parent, "a=1", parley.Trace{Parent: traceOne.Parent, State: "a=1"}},
		{"line-break", traceOne.Parent + `\r\nX-Evil: 1`, "a=1", parley.Trace{}},
		{"zero-byte", `\u0000`, "a=1", parley.Trace{}},
		{"capitals", strings.ToUpper(traceOne.Parent), "", parley.Trace{}},
		{"large", strings.Repeat("x", 1<<20), "", parley.Trace{}},
		{"state-alone", "", "a=1", parley.Trace{}},
		{"state-of-a-line", traceOne.Parent, `a=1\r\nX-Evil: 1`, parley.Trace{Parent: traceOne.Parent}},
	} {
		id := "run-" + tt.name
		changed := strings.ReplaceAll(strings.Replace(line, given, `"traceparent":"`+tt.parent+`","tracestate":"`+tt.state+`"`, 1), old.ID, id)
		if r := to.bringIn(changed); r.Added != 1 {
			t.Fatalf("%s: %+v", tt.name, r)
		}
		status, body := to.call("POST", "/api/v1/runs/"+id+"/retry", "")
		again := to.end(started(t, status, body).ID)
		if got := (parley.Trace{Parent: again.Traceparent, State: again.Tracestate}); got != tt.want || again.Status != parley.RunCompleted {
			t.Errorf("%s: the retry is %s with %.90q", tt.name, again.Status, got)
		}
		if got := seen.take(); len(got) != 1 || got[0] != tt.want || evil.Load() > 0 {
			t.Errorf("%s: the agent got %.90q, and %d other headers", tt.name, got, evil.Load())
		}
		status, body = to.call("GET", "/api/v1/runs/"+id, "")
		if text := string(body); status != http.StatusOK || strings.Contains(text, "Evil") || len(text) > 64<<10 {
			t.Errorf("%s: %d, the run shows %.200s", tt.name, status, text)
		}
	}
}
