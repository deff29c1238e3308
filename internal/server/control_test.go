package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// asked is one request that an agent of a test holds back.
type asked struct{ called, gone, answer chan struct{} }

// slowAgent answers its first request when it is told to, and the others at once.
func slowAgent(next http.Handler) (http.Handler, *asked) {
	a := &asked{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	var once sync.Once
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() {
			// A server hears of a connection that is closed once the body is read.
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			close(a.called)
			select {
			case <-a.answer:
			case <-r.Context().Done():
			}
			if r.Context().Err() != nil {
				close(a.gone)
			}
		})
		next.ServeHTTP(w, r)
	}), a
}

// post is one request that changes a run; the answer is the run.
func (w *world) post(path, body string, status int) (run parley.Run) {
	w.t.Helper()
	code, b := w.call("POST", path, body)
	if code != status {
		w.t.Fatalf("POST %s: %d %s, want %d", path, code, b, status)
	}
	if status >= 300 {
		return run
	}
	if err := json.Unmarshal(b, &run); err != nil {
		w.t.Fatal(err)
	}
	return run
}

// until waits for a run to be as it is wanted, which what names, and gives it so.
func (w *world) until(id, what string, wanted func(parley.Run) bool) (run parley.Run) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	err := w.server.Executor().Await(ctx, id, func() (done bool, err error) {
		run, err = w.server.Executor().Get(ctx, id)
		return err == nil && wanted(run), err
	})
	if err != nil {
		w.t.Fatalf("waiting until %s: %v: %+v", what, err, run)
	}
	return run
}

// TestC3_TerminateClosesTheConnection: the run is over at once; the agent that
// works hears of it as one that has lost.
func TestC3_TerminateClosesTheConnection(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	agent, hung := slowAgent(log.simpleAgent("hung", 0))
	w := newWorld(t, map[string]http.Handler{"hung simple-a2a": agent}, `{"name":"hang","steps":[{"id":"a","agent":"hung"},{"id":"b","agent":"hung"}]}`)
	run := w.start("hang", `{}`)
	<-hung.called
	got := w.post("/api/v1/runs/"+run.ID+"/terminate", `{"reason":"enough"}`, http.StatusOK)
	if got.Status != parley.RunCancelled || got.EndedAt == nil || got.Steps[0].Status != parley.StepCancelled {
		t.Errorf("terminated: %s, step %s", got.Status, got.Steps[0].Status)
	}
	<-hung.gone
	w.post("/api/v1/runs/"+run.ID+"/terminate", ``, http.StatusConflict)
}

// TestC5_PauseAndResume: the agent at work answers, and the next one is called
// after the resume.
func TestC5_PauseAndResume(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	agent, slow := slowAgent(log.simpleAgent("one", 0))
	w := newWorld(t, map[string]http.Handler{"one simple-a2a": agent, "two simple-a2a": log.simpleAgent("two", 0)},
		`{"name":"pair","steps":[{"id":"a","agent":"one"},{"id":"b","agent":"two"}]}`)
	run := w.start("pair", `{}`)
	<-slow.called
	if got := w.post("/api/v1/runs/"+run.ID+"/pause", `{"reason":"lunch"}`, http.StatusOK); !got.Paused {
		t.Error("not paused")
	}
	close(slow.answer)
	w.until(run.ID, "a is completed", func(run parley.Run) bool { return run.Steps[0].Status == parley.StepCompleted })
	if n := len(log.counts()); n != 1 {
		t.Errorf("%d tasks were executed while the run was paused", n)
	}
	w.post("/api/v1/runs/"+run.ID+"/resume", ``, http.StatusOK)
	if got := w.end(run.ID); got.Status != parley.RunCompleted {
		t.Errorf("the run is %s: %v", got.Status, got.Error)
	}
}

// TestC5_RetryIsHeldBack: the next attempt of a step that fails while its run is
// paused is not begun by the bridge of the same process.
func TestC5_RetryIsHeldBack(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	var calls atomic.Int32
	agent, slow := slowAgent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		log.simpleAgent("one", 0).ServeHTTP(w, r)
	}))
	w := newWorld(t, map[string]http.Handler{"one simple-a2a": agent}, `{"name":"again","steps":[{"id":"a","agent":"one","retry":{"attempts":3,"delay":"0s","on":["*"]}}]}`)
	run := w.start("again", `{}`)
	<-slow.called
	w.post("/api/v1/runs/"+run.ID+"/pause", ``, http.StatusOK)
	close(slow.answer)
	held := w.until(run.ID, "the step is held back", func(run parley.Run) bool { return run.Steps[0].Phase == parley.PhaseBackoff })
	if n := held.Steps[0].Attempts; n != 1 {
		t.Errorf("%d attempts are counted, want the one that has begun", n)
	}
	_, b := w.call("GET", "/api/v1/runs/"+run.ID+"/attempts", "")
	var page struct{ Items []parley.Attempt }
	if err := json.Unmarshal(b, &page); err != nil || len(page.Items) != 2 || page.Items[1].State != "open" {
		t.Errorf("attempts: %s", b)
	}
	w.post("/api/v1/runs/"+run.ID+"/resume", ``, http.StatusOK)
	if got := w.end(run.ID); got.Status != parley.RunCompleted || calls.Load() != 2 {
		t.Errorf("the run is %s after %d calls", got.Status, calls.Load())
	}
}

// TestC6_RerunCallsWhatDepends: what does not depend on the step is not called
// again, and the input of the step is the edited one.
func TestC6_RerunCallsWhatDepends(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	w := newWorld(t, map[string]http.Handler{"one simple-a2a": log.simpleAgent("one", 0), "two simple-a2a": log.simpleAgent("two", 0)}, `
name: again
steps:
  - {id: a, agent: one}
  - {id: p, parallel: [{id: left, agent: one}, {id: right, agent: two}]}
  - {id: b, agent: two}
`)
	old := w.run("again", `{}`)
	run := w.post("/api/v1/runs/"+old.ID+"/rerun", `{"from":"right","input":{"text":"edited"}}`, http.StatusAccepted)
	got := w.end(run.ID)
	if got.Status != parley.RunCompleted || got.RetriedFrom != old.ID || got.RerunFrom != "right" {
		t.Errorf("%s, from %q at %q: %v", got.Status, got.RetriedFrom, got.RerunFrom, got.Error)
	}
	var called []string
	for _, s := range got.Steps {
		if s.Attempts > 0 && s.Kind == "agent" {
			called = append(called, s.ID+" "+string(s.Input))
		}
	}
	if want := []string{`p/right {"text":"edited"}`, `b {}`}; !slices.Equal(called, want) {
		t.Errorf("called %q, want %q", called, want)
	}
	if n := len(log.counts()); n != 6 {
		t.Errorf("%d tasks were executed, want 4 of the old run and 2 of the new", n)
	}
	w.post("/api/v1/runs/"+old.ID+"/rerun", `{"from":"nobody"}`, http.StatusNotFound)
}

// TestExplainLateAnswers: of a run that has ended it is told how many answers came after
// the end of their attempts, and where to see them.
func TestExplainLateAnswers(t *testing.T) {
	t.Parallel()
	agent, busy := slowAgent(newCallLog().simpleAgent("one", 0))
	defer close(busy.answer)
	w := newWorld(t, map[string]http.Handler{"one simple-a2a": agent}, `{"name":"ask","steps":[{"id":"a","agent":"one"}]}`)
	run := w.start("ask", `{}`)
	<-busy.called
	w.post("/api/v1/runs/"+run.ID+"/terminate", `{}`, http.StatusOK)
	for i := range 2 {
		late := store.Answer{Result: parley.Result{TaskID: run.ID + ".a.1", Outcome: parley.OutcomeOK, Output: json.RawMessage(`1`)}, At: time.Unix(int64(i+1), 0), From: "b"}
		if ok, err := w.server.Executor().Answer(t.Context(), late); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	code, b := w.call("GET", "/api/v1/runs/"+run.ID+"/explain", "")
	var e parley.Explanation
	if err := json.Unmarshal(b, &e); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, b)
	}
	// The bridge may have told of the call that was cut, too.
	want := fmt.Sprintf("The run has ended: it is CANCELLED; %d answers came after their attempts had ended: parley run attempts %s", e.Late, run.ID)
	if e.Late < 2 || e.Late > 3 || e.Text != want {
		t.Errorf("%d: %s, want %s", e.Late, e.Text, want)
	}
}

// TestExplain: a task that waits for its agent tells its place, and an open circuit
// why it waits besides; a call under way tells how long the agent may be silent.
func TestExplain(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	agent, busy := slowAgent(log.simpleAgent("one", 0))
	w := newWorld(t, map[string]http.Handler{"one simple-a2a , limits: {concurrency: 1}": agent}, `{"name":"ask","steps":[{"id":"a","agent":"one"}]}`)
	var runs []string
	for range 3 {
		runs = append(runs, w.start("ask", `{}`).ID)
		if len(runs) == 1 {
			<-busy.called
		}
	}
	explain := func(run string) (wait parley.StepWait) {
		t.Helper()
		code, b := w.call("GET", "/api/v1/runs/"+run+"/explain", "")
		var e parley.Explanation
		if err := json.Unmarshal(b, &e); err != nil || code != http.StatusOK || len(e.Steps) != 1 {
			t.Fatalf("%d %s", code, b)
		}
		return e.Steps[0]
	}
	if got := explain(runs[0]); got.Reason != parley.WaitAgent || got.SilentUntil == nil || got.Heard == nil || got.TaskID != runs[0]+".a.1" {
		t.Errorf("%+v", got)
	}
	for i, run := range runs[1:] {
		got := explain(run)
		if got.Reason != parley.WaitQueue || got.Queue == nil || *got.Queue != (parley.QueuePlace{Ahead: i, InFlight: 1, Slots: 1}) {
			t.Errorf("run %d: %+v, %+v", i+1, got, got.Queue)
		}
	}
	if code, b := w.call("POST", "/api/v1/agents/one/breaker", `{"action":"open","reason":"maintenance"}`); code != http.StatusOK {
		t.Fatalf("%d %s", code, b)
	}
	if got := explain(runs[2]); got.Reason != parley.WaitBreaker || got.Circuit != parley.CircuitOpen || !got.Manual || got.Until != nil ||
		got.Text != "the circuit of one was opened by hand by system: parley agent breaker one close" {
		t.Errorf("%+v", got)
	}
	w.post("/api/v1/runs/"+runs[2]+"/pause", "", http.StatusOK)
	if got := explain(runs[2]); got.Reason != parley.WaitPaused {
		t.Errorf("%+v", got)
	}
	close(busy.answer)
}
