package workflow

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestTrace: every task of a run has the trace that it was started with, also after
// its history was replayed, and the history of a run without one does not name it.
func TestTrace(t *testing.T) {
	def, problems := Parse(ParseOptions{}, []byte("---\n{name: x, steps: [{id: a, agent: one}, {id: b, agent: one}]}"))
	if def == nil {
		t.Fatal(problems)
	}
	at := time.Unix(1, 0).UTC()
	trace := parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "a=1"}
	for _, want := range []parley.Trace{trace, {}} {
		s := NewState("run-1", def, DefaultRunLimits())
		d := s.Apply(Start{At: at, Input: json.RawMessage(`{}`), Trace: want})
		again := NewState("run-1", def, DefaultRunLimits())
		for _, e := range d.Events {
			if err := again.Replay(e); err != nil {
				t.Fatal(err)
			}
		}
		if named := strings.Contains(string(d.Events[0].Data), "trace"); named == want.IsZero() {
			t.Errorf("the first event is %s", d.Events[0].Data)
		}
		next := again.Apply(Settled{At: at, TaskID: "run-1.a.1", Result: parley.Result{TaskID: "run-1.a.1", Outcome: parley.OutcomeOK, Output: json.RawMessage(`1`)}})
		for _, list := range [][]Schedule{d.Schedule, next.Schedule} {
			if len(list) != 1 || list[0].Task.Trace != want {
				t.Errorf("tasks %+v, want one with %+v", list, want)
			}
		}
		v := again.View()
		if again.Trace() != want || v.Traceparent != want.Parent || v.Tracestate != want.State {
			t.Errorf("replayed: %+v, the run shows %q and %q", again.Trace(), v.Traceparent, v.Tracestate)
		}
	}
}

// TestTraceOfAHistory: a history may come from elsewhere. What in it is no trace is none,
// and what is not valid beside one is left out.
func TestTraceOfAHistory(t *testing.T) {
	def, problems := Parse(ParseOptions{}, []byte("---\n{name: x, steps: [{id: a, agent: one}]}"))
	if def == nil {
		t.Fatal(problems)
	}
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for given, want := range map[parley.Trace]parley.Trace{
		{Parent: parent, State: "a=1"}:            {Parent: parent, State: "a=1"},
		{Parent: parent + "\r\nx: y"}:             {},
		{Parent: "\x00", State: "a=1"}:            {},
		{State: "a=1"}:                            {},
		{Parent: parent, State: "a=1\r\nx: y"}:    {Parent: parent},
		{Parent: strings.Repeat(parent+"-", 999)}: {},
	} {
		s := NewState("run-1", def, DefaultRunLimits())
		d := s.Apply(Start{At: time.Unix(1, 0).UTC(), Input: json.RawMessage(`{}`), Trace: given})
		v := s.View()
		if got := (parley.Trace{Parent: v.Traceparent, State: v.Tracestate}); got != want || s.Trace() != want || d.Schedule[0].Task.Trace != want {
			t.Errorf("of %q: the run shows %q, has %q and its task %q", given, got, s.Trace(), d.Schedule[0].Task.Trace)
		}
	}
}
