package bridge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

// traceOne is a trace of tests.
var traceOne = parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "congo=t61rcWkgMzE, rojo=1"}

// TestTrace_OfAForeignTask: that of its record goes to its agent, each time that it is
// tried, and onto nothing else: the rig holds results of foreign tasks to have no
// headers. What is not valid is none.
func TestTrace_OfAForeignTask(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		var mu sync.Mutex // protects what follows
		got := map[string][]parley.Trace{}
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			mu.Lock()
			defer mu.Unlock()
			name, _, _ := strings.Cut(task.ID, ".")
			if got[name] = append(got[name], task.Trace); len(got[name]) == 1 {
				return withStatus(bridge.Answered, 503), nil
			}
			return answered(task, `{"text":"hello"}`), nil
		}
		r.begin("b", nil)
		for task, header := range map[string]map[string]string{
			"traced":  {"traceparent": traceOne.Parent, "tracestate": traceOne.State},
			"plain":   nil,
			"invalid": {"traceparent": "00-1", "tracestate": "a=1"},
		} {
			m := message(r.t, record(task, "one"))
			m.Header = header
			r.publish(m)
		}
		for _, task := range []string{"traced", "plain", "invalid"} {
			r.result(task, 280*time.Second)
		}
		r.wantQuiet()
		mu.Lock()
		defer mu.Unlock()
		for task, want := range map[string]parley.Trace{"traced": traceOne, "plain": {}, "invalid": {}} {
			if list := got[task]; len(list) != 2 || list[0] != want || list[1] != want {
				r.t.Errorf("%s: the agent got %+v, want twice %+v", task, list, want)
			}
		}
	})
}

// TestTrace_OfAResult: the result of a task of our own executor has it, and so has the
// agent; log lines about the attempt have its id.
func TestTrace_OfAResult(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return // its rows are those of the model
		}
		var log safeBuffer
		r.traced = traceOne
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if task.Trace != traceOne {
				r.t.Errorf("the agent got %+v", task.Trace)
			}
			return lost(), nil
		}
		r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
		id := r.task("one", 1, func(a *store.Attempt) { a.Trace = traceOne })
		a := r.ledger.row(id)
		value, err := json.Marshal(map[string]any{
			"run_id": a.Run, "task_id": a.ID, "agent_name": a.Agent, "input_data": a.Input, "correlation_id": a.CorrelationID, "timestamp": "2026-11-21T10:04:05.974607",
		})
		if err != nil {
			r.t.Fatal(err)
		}
		r.publish(bus.Message{Subject: bus.SubjectTasks, Key: a.Run, Value: value, Header: map[string]string{bus.HeaderTask: "1"}})
		r.result(id, time.Minute)
		if !bytes.Contains([]byte(log.String()), []byte(`"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"`)) {
			r.t.Errorf("the log does not name the trace:\n%s", log.String())
		}
	})
}
