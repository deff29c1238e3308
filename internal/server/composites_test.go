package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// meeting lets its callers go on once as many as it waits for are there.
type meeting struct {
	there chan struct{}
	log   *callLog
}

func (m *meeting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.there <- struct{}{}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Minute)
	defer cancel()
	for len(m.there) < cap(m.there) && ctx.Err() == nil {
		pause(ctx, 5*time.Millisecond)
	}
	if ctx.Err() != nil {
		http.Error(w, "nobody else came", http.StatusConflict)
		return
	}
	m.log.simpleAgent("m", 0).ServeHTTP(w, r)
}

// TestS4_ParallelCallsAtTheSameTime: the agents of a parallel are called side by
// side, and what follows chooses by what they said.
func TestS4_ParallelCallsAtTheSameTime(t *testing.T) {
	t.Parallel()
	m := &meeting{there: make(chan struct{}, 3), log: newCallLog()}
	w := newWorld(t, map[string]http.Handler{"m simple-a2a , retry: {max_retries: 0}": m, "echo simple-a2a": newCallLog().simpleAgent("echo", 0)}, `
name: f
steps:
  - id: p
    parallel:
      - {id: a, agent: m, input: {n: 1}}
      - {id: b, steps: [{id: b1, agent: m, input: {n: 2}}]}
      - {id: c, agent: m, input: {n: 3}}
  - id: choose
    switch:
      - {when: steps.p.output.b.n > 2, steps: [{fail: {code: Wrong}}]}
      - {when: steps.p.output.b.n == 2, steps: [{id: said, agent: echo, input: {sum: "${p.output.a.n + p.output.b.n + p.output.c.n}"}}]}
  - {id: last, if: "steps.choose.case == 1", then: [{id: good, set: {sum: "${said.output.sum}"}}], else: [{fail: {code: Wrong}}]}`)
	run := w.run("f", `{}`)
	if run.Status != parley.RunCompleted || !sameJSON(string(run.Output), `{"sum":6}`) {
		t.Fatalf("%s %s %v", run.Status, run.Output, run.Error)
	}
	if n := len(m.log.counts()); n != 3 {
		t.Errorf("%d tasks", n)
	}
}

// TestOldComposites runs plans of the existing platform with steps side by side and
// with branches, as they are (language.md §9).
func TestOldComposites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]http.Handler{"Echo simple-a2a": newCallLog().simpleAgent("echo", 0)}, `{
 "workflow_id": "wf-p", "name": "p", "version": "1.0.0", "start_step": "both", "steps": {
  "both": {"id": "both", "type": "parallel", "parallel_steps": ["step-a", "step-b"], "max_parallelism": 2, "next_step": "check"},
  "step-a": {"id": "step-a", "agent_name": "Echo", "next_step": null, "input_mapping": {"n": "${workflow.input.n}"}},
  "step-b": {"id": "step-b", "agent_name": "Echo", "next_step": null, "input_mapping": {"n": "two"}},
  "check": {"id": "check", "type": "conditional", "condition": {"expression": "${step-a.output.n} >= 5 and ${step-b.output.n} == 'two'"},
            "if_true_step": "high", "if_false_step": "low", "next_step": "end"},
  "high": {"id": "high", "agent_name": "Echo", "next_step": "higher", "input_mapping": {"was": "high"}},
  "higher": {"id": "higher", "agent_name": "Echo", "next_step": null, "input_mapping": {"was": "${high.output.was}er"}},
  "low": {"id": "low", "agent_name": "Echo", "next_step": null, "input_mapping": {"was": "low"}},
  "end": {"id": "end", "agent_name": "Echo", "next_step": null, "input_mapping": {"taken": "${check.output.branch_taken}", "was": "${check.output.branch_output.was}"}}}}`)
	for input, want := range map[string]string{
		`{"n":7}`: `{"taken":"then","was":"higher"}`,
		`{"n":1}`: `{"taken":"else","was":"low"}`,
	} {
		if run := w.run("wf-p", input); run.Status != parley.RunCompleted || !sameJSON(string(run.Output), want) {
			t.Errorf("%s: %s %s %v", input, run.Status, run.Output, run.Error)
		}
	}
}

// TestT4_WaitGoesOnAfterARestart: a timer that was due while nothing ran fires at
// once, and one that was not does so in its time.
func TestT4_WaitGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "flows", "f.yaml"), "name: f\nsteps: [{id: w, wait: 300ms}, {id: v, wait: 1s}, {id: z, set: {w: \"${w.output}\", v: \"${v.output}\"}}]")
	cfg := server.Config{Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", WorkflowDirs: []string{filepath.Join(dir, "flows")}}
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
	if step := run.Steps[0]; step.Phase != parley.PhaseWaiting {
		t.Errorf("it does not wait: %+v", step)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	pause(t.Context(), 300*time.Millisecond)
	got := finish(t, startServer(t, cfg), run.ID)
	var out struct {
		W, V struct {
			Waited int64 `json:"waited_ms"`
		}
	}
	if err := json.Unmarshal(got.Output, &out); err != nil || got.Status != parley.RunCompleted || out.W.Waited < 300 || out.V.Waited < 1000 {
		t.Errorf("%s %s %v", got.Status, got.Output, err)
	}
}
