package a2a

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// These tests record what the SDKs do that is no part of the protocol, and what
// a run then sees. A newer SDK may do better.

// callWithin is a run of one step with a time limit.
func (w *world) callWithin(t *testing.T, agent, text string, limit time.Duration) string {
	t.Helper()
	document, err := json.Marshal(map[string]any{
		"name": agent, "steps": []any{map[string]any{
			"id": "call", "agent": agent, "timeout": limit.String(), "input": map[string]any{"text": text},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ApplyWorkflow(t.Context(), parley.ApplyRequest{Source: document}); err != nil {
		t.Fatal(err)
	}
	run, err := w.StartRun(t.Context(), parley.StartRequest{Workflow: agent})
	if err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// end is how a run of an agent whose executor crashed ends.
type end string

const (
	// endError: the agent answered with an internal error.
	endError end = "error"
	// endFailed: the agent's task is failed.
	endFailed end = "failed"
	// endUnknown: the agent's word leaves open what became of the message, and
	// it cannot be found out.
	endUnknown end = "unknown"
	// endNever: the agent's task goes on for ever. Only a limit ends the step.
	endNever end = "never"
)

// crashed is what comes of an executor that throws before it has published
// anything, or afterwards.
func (r route) crashed(send string, late bool) end {
	switch r.kind {
	case js10:
		return endFailed
	case js03:
		if late && send != "blocking" {
			return endNever
		}
		return endFailed
	case go10, go03:
		if late {
			return endFailed
		}
		return endError // there is no task to be found
	case python10:
		switch {
		case r.version == "1.0":
			return endFailed // also where it answers with an error: the task is found
		case late && send != "blocking":
			return endFailed
		}
		return endError
	case python03:
		switch {
		case late && send != "blocking":
			return endNever
		case send == "stream":
			return endUnknown // the stream breaks off without a word
		}
		return endError
	case java03:
	}
	return endError
}

// TestQuirkCrash has executors throw, in all the ways to send a message.
func TestQuirkCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range routes() {
		for _, send := range []string{"nonblocking", "blocking", "stream"} {
			for _, text := range []string{"crash", "late-crash"} {
				if r.kind == java03 && text == "late-crash" {
					continue // an error or an endless task, as it happens
				}
				t.Run(r.name()+"/"+send+"/"+text, func(t *testing.T) {
					parallel(t)
					a := sharedAgent(t, r.kind)
					name := w.register(t, registration{
						url: r.url(a), config: r.pins(map[string]any{"send": send}), timeout: r.crashTimeout(),
					})
					want := r.crashed(send, text == "late-crash")
					var run parley.Run
					if want == endNever {
						run = w.end(t, w.callWithin(t, name, text, 20*time.Second))
					} else {
						run = w.call(t, name, text)
					}
					e := failed(t, run)
					executions, _ := a.entries(t, run.ID)
					got := ending(e)
					if r.kind == java03 && got == endUnknown {
						got = want // it did not answer at all
					}
					if (r.kind == go10 || r.kind == go03) && text == "late-crash" && got == endError {
						got = want // it gives its executor's error or the failed task, as it happens
					}
					if got != want || len(executions) != 1 {
						t.Fatalf("ended as %s, want %s; executed %d times; %s", got, want, len(executions), show(run))
					}
					if want == endNever {
						a.cancelled(t, executions[0].Task)
					}
				})
			}
		}
	}
}

// crashTimeout is how long an answer may take. Java gives none now and then.
func (r route) crashTimeout() time.Duration {
	if r.kind == java03 {
		return 5 * time.Second
	}
	return time.Minute
}

func ending(e *parley.Error) end {
	switch {
	case e.Code == parley.CodeTimeout:
		return endNever
	case e.Code == parley.CodeOutcomeUnknown:
		return endUnknown
	case strings.HasPrefix(e.Message, "Task state: failed"):
		return endFailed
	case strings.Contains(e.Message, "-32603"):
		return endError
	}
	return end(e.Message)
}

// cancelled waits until an agent says that a task is cancelled; it is asked past
// Parley.
func (a *agent) cancelled(t *testing.T, task string) {
	t.Helper()
	r := a.kind.routes()[0]
	method, state := "tasks/get", `"state":"canceled"`
	if r.version == "1.0" {
		method, state = "GetTask", `"state":"TASK_STATE_CANCELED"`
	}
	eventually(t, "the task to be cancelled", func() bool {
		answer := rpc(t, r, a, map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": map[string]any{"id": task}})
		return strings.Contains(strings.ReplaceAll(answer, ": ", ":"), state)
	})
}

// TestQuirkPythonDoubles gets integers back as doubles, and big ones changed.
func TestQuirkPythonDoubles(t *testing.T) {
	t.Parallel()
	each(t, map[string]any{"parts": "data"}, func(t *testing.T, s *scene) {
		run := s.call(t, s.name, `{"do":"data","n":42,"big":9007199254740993}`)
		if s.binding == "GRPC" {
			// Numbers travel as doubles there, so Parley does not send this one.
			if e := failed(t, run); e.Code != parley.CodeInvalidInput {
				t.Errorf("error %s", show(run))
			}
			return
		}
		o := done(t, run)
		var data struct{ N, Big json.RawMessage }
		if err := json.Unmarshal(o.Data, &data); err != nil {
			t.Fatalf("%s: %v", o.Data, err)
		}
		n, big := "42", "9007199254740993"
		switch s.kind {
		case python10:
			n, big = "42.0", "9007199254740992.0"
		case js10, js03, go10, go03:
			big = "9007199254740992" // all numbers are doubles there
		}
		if string(data.N) != n || string(data.Big) != big {
			t.Errorf("n %s, big %s", data.N, data.Big)
		}
	})
}

// TestQuirkJavaScriptBodyLimit sends more than the 100 KiB that express takes.
func TestQuirkJavaScriptBodyLimit(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, s *scene) {
		run := s.call(t, s.name, "echo "+strings.Repeat("x", 110_000))
		if s.kind != js10 && s.kind != js03 || s.binding == "GRPC" {
			if o := done(t, run); len(o.Text) != 110_000 {
				t.Errorf("%d bytes", len(o.Text))
			}
			s.once(t, run.ID)
			return
		}
		e := failed(t, run)
		var details struct{ Status int }
		if err := json.Unmarshal(e.Details, &details); err != nil || details.Status != 413 || e.Retryable || strings.Contains(e.Message, "<") {
			t.Errorf("error %s", show(run))
		}
		if executions, _ := s.agent.entries(t, run.ID); len(executions) != 0 {
			t.Errorf("executed %d times", len(executions))
		}
	})
}

// TestQuirkGoWithoutList loses the answer of a Go agent that has no
// authenticator: it refuses to list its tasks, so nobody knows.
func TestQuirkGoWithoutList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := ownAgent(t, go10, setup{flags: []string{"--no-list"}})
	for _, r := range go10.routes()[:2] {
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			p := newProxy(t, a.where["url"])
			p.swallowNext(1)
			name := w.register(t, registration{url: p.through(t, r.url(a)), config: r.pins(nil), policy: parley.OutcomeLookup})
			run := w.call(t, name, "echo once")
			if e := failed(t, run); e.Code != parley.CodeOutcomeUnknown {
				t.Errorf("error %+v", e)
			}
			if executions, _ := a.entries(t, run.ID); len(executions) != 1 {
				t.Errorf("executed %d times", len(executions))
			}
		})
	}
}

// TestQuirkPythonWorksForEver kills a Python agent with a database at work: the
// task stays at work in the next process, and only the limit of the step ends it.
// The agent then says that it is cancelled.
func TestQuirkPythonWorksForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, k := range []kind{python10, python03} {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			s := setup{db: filepath.Join(t.TempDir(), "tasks.db"), dual: k.dual()}
			a := settledAgent(t, k, s)
			runs := make(map[string]string)
			for _, r := range k.routes() {
				name := w.register(t, registration{url: r.url(a), config: r.pins(nil)})
				run := w.callWithin(t, name, "hold the line", 45*time.Second)
				w.accepted(t, run) // one by one: two first tasks at once both want to make its table
				runs[r.name()] = run
			}
			b := a.restart(t, k, s)
			b.release(t, "the line") // nobody is there
			for name, run := range runs {
				if e := failed(t, w.end(t, run)); e.Code != parley.CodeTimeout {
					t.Errorf("%s: error %+v", name, e)
				}
				executions, _ := b.entries(t, run)
				if len(executions) != 1 {
					t.Fatalf("%s: executions %+v", name, executions)
				}
				b.cancelled(t, executions[0].Task)
			}
		})
	}
}

// TestQuirkCommonJS restarts an agent of JavaScript 0.3 that was loaded as
// CommonJS: it answers every error of A2A as an internal one, "Task not found"
// among them.
func TestQuirkCommonJS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := setup{flags: []string{"--cjs"}}
	a := settledAgent(t, js03, s)
	r := js03.routes()[0]
	name := w.register(t, registration{url: r.url(a), config: r.pins(nil)})
	id := w.start(t, name, "hold the line")
	w.accepted(t, id)
	b := a.restart(t, js03, s)
	if e := failed(t, w.end(t, id)); e.Code != parley.CodeOutcomeUnknown {
		t.Errorf("error %+v", e)
	}
	if executions, _ := b.entries(t, id); len(executions) != 1 {
		t.Errorf("executed %d times", len(executions))
	}
}

// TestQuirkSameMessageTwice sends one message twice, past Parley: no server
// deduplicates. This is why nothing is sent again that may have arrived.
func TestQuirkSameMessageTwice(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			a := sharedAgent(t, k)
			r := k.routes()[0]
			run := fmt.Sprintf("twice-%d", time.Now().UnixNano())
			for range 2 {
				post := map[string]any{
					"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": map[string]any{"message": map[string]any{
						"kind": "message", "messageId": "msg-" + run + ".1", "role": "user",
						"parts": []any{map[string]any{"kind": "text", "text": "echo twice"}},
					}},
				}
				if r.version == "1.0" {
					post["method"] = "SendMessage"
					post["params"] = map[string]any{"message": map[string]any{
						"messageId": "msg-" + run + ".1", "role": "ROLE_USER", "parts": []any{map[string]any{"text": "echo twice"}},
					}}
				}
				if answer := rpc(t, r, a, post); !strings.Contains(answer, `"result"`) {
					t.Errorf("answer %s", answer)
				}
			}
			executions, _ := a.entries(t, run)
			if len(executions) != 2 || executions[0].Task == executions[1].Task {
				t.Errorf("executions %+v", executions)
			}
		})
	}
}
