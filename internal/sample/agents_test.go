package sample_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
	"github.com/parley-project/parley/internal/bridge/simplea2a"
	"github.com/parley-project/parley/internal/sample"
)

// TestAgentsSpeak calls the sample agents through the adapters, over the network:
// the greeting of the one is polished by the other (AD-13).
func TestAgentsSpeak(t *testing.T) {
	greeter, polisher := httptest.NewServer(sample.Greeter()), httptest.NewServer(sample.Polisher(""))
	t.Cleanup(greeter.Close)
	t.Cleanup(polisher.Close)
	x := bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Loopback: true}})
	t.Cleanup(x.Close)

	greeting := callSample(t, simplea2a.New(x, nil, nil), greeter.URL, `{"name":"Ada"}`)["greeting"]
	text, err := json.Marshal(map[string]any{"text": greeting})
	if err != nil {
		t.Fatal(err)
	}
	out := callSample(t, a2a.New(a2a.Options{Exchange: x}), polisher.URL, string(text))
	want := "Hello, Ada! It is a pleasure to meet you."
	if out["text"] != want || out["response"] != want || out["task_id"] != "task-msg-run.polish.1" || out["context_id"] == nil {
		t.Errorf("%v", out)
	}
}

// TestScriptedFollowed follows and cancels long tasks of the scripted agent
// through the adapter.
func TestScriptedFollowed(t *testing.T) {
	agent := sample.NewScripted(sample.Script{Polls: func(sample.Call) int { return 1 }})
	s := httptest.NewServer(agent)
	t.Cleanup(s.Close)
	x := bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Loopback: true}})
	t.Cleanup(x.Close)
	adapter := a2a.New(a2a.Options{Exchange: x})
	at := parley.Agent{Name: "scripted", URL: s.URL}
	for _, cancel := range []bool{false, true} {
		task := parley.Task{ID: map[bool]string{false: "run.a.1", true: "run.b.1"}[cancel], Input: json.RawMessage(`"go"`)}
		out, err := adapter.Call(t.Context(), task, at, nil)
		if err != nil || out.Disposition != bridge.Accepted || out.AgentTaskID != "task-msg-"+task.ID {
			t.Fatalf("call: %+v, %v", out, err)
		}
		id, want := out.AgentTaskID, parley.OutcomeOK
		if cancel {
			want = parley.OutcomeCancelled
			out, err = adapter.Cancel(t.Context(), task, at, bridge.AgentTask{ID: id})
		} else {
			for range 2 {
				out, err = adapter.Poll(t.Context(), task, at, bridge.AgentTask{ID: id})
			}
		}
		if err != nil || out.Disposition != bridge.Answered || out.Result.Outcome != want {
			t.Errorf("end: %+v, %v", out, err)
		}
		if n := agent.Log.Executions(task.ID); n != 1 {
			t.Errorf("%d executions", n)
		}
	}
}

func callSample(t *testing.T, adapter bridge.Adapter, url, input string) map[string]any {
	t.Helper()
	task := parley.Task{ID: "run.polish.1", Input: json.RawMessage(input)}
	out, err := adapter.Call(t.Context(), task, parley.Agent{Name: "sample", URL: url}, nil)
	if err != nil || out.Disposition != bridge.Answered || out.Result.Err != nil {
		t.Fatalf("%+v, %v", out, err)
	}
	var o map[string]any
	if err := json.Unmarshal(out.Result.Output, &o); err != nil {
		t.Fatal(err)
	}
	return o
}
