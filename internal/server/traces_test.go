package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/kafkatest"
	"github.com/parley-project/parley/internal/sample"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/tracing/tracingtest"
)

// TestSpans_OfAServer: a receiver gets one tree of each run that is recorded, below the
// span that has started it, and the agents are told what they work below; of a run that
// its caller does not record nothing is told, and its agents get what it has brought.
func TestSpans_OfAServer(t *testing.T) {
	t.Parallel()
	receiver := tracingtest.New(t)
	long := sample.NewScripted(sample.Script{Polls: func(sample.Call) int { return 2 }})
	simple := sample.NewScripted(sample.Script{Error: func(c sample.Call) string {
		if strings.Contains(string(c.Input), "fail") {
			return "the password is hunter2"
		}
		return ""
	}})
	old, new := &tracedHandler{Handler: simple}, &tracedHandler{Handler: long}
	w := newWorldWith(t, func(c *server.Config) {
		c.Traces = &server.Traces{Receiver: server.SpanReceiver{URL: receiver.URL, Header: "X-Team", Value: parley.NewSecret([]byte("s3cret-team"))}, Sample: 1}
	}, map[string]http.Handler{"old simple-a2a , retry: {max_retries: 0}": old, "new jsonrpc-2.0 , protocol_config: {a2a: \"0.3\"}": new},
		"name: part\nsteps: [{id: p, agent: old, input: {text: \"${workflow.input.text}\"}}]\n",
		"name: all\nsteps:\n  - {id: a, agent: new, input: {text: hi}}\n  - {id: b, workflow: part, input: {text: \"${workflow.input.text}\"}}\n",
	)
	execute := func(text string, header ...string) parley.Run {
		t.Helper()
		status, body := w.call("POST", "/api/v1/workflows/all/execute", `{"input_data":{"text":"`+text+`"}}`, header...)
		return w.end(started(t, status, body).ID)
	}
	// of gives the spans of runs of one trace, once they are all there.
	of := func(trace string, n int) (list []tracingtest.Span) {
		t.Helper()
		waitFor(t, "the spans do not arrive:", func() bool {
			list = slices.DeleteFunc(receiver.Spans(), func(s tracingtest.Span) bool { return s.Trace != trace })
			return len(list) >= n
		})
		return list
	}
	tree := func(failed string) string {
		return "run all" + failed + "\n  step a\n    invoke_agent new\n  step b" + failed + "\n    run part" + strings.Replace(failed, "sub_workflow_failed", "agent_error", 1) +
			"\n      step p" + strings.Replace(failed, "sub_workflow_failed", "agent_error", 1) + "\n        invoke_agent old" + strings.Replace(failed, "sub_workflow_failed", "agent_error", 1) + "\n"
	}

	run := execute("fail", "traceparent", traceOne.Parent, "tracestate", traceOne.State)
	if run.Traceparent != traceOne.Parent || run.Status != parley.RunFailed {
		t.Errorf("the run shows %q and is %s", run.Traceparent, run.Status)
	}
	list := of(traceOne.ID(), 7)
	if got, want := tracingtest.Tree(list), traceOne.SpanID()+" > "+tree(": sub_workflow_failed"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	calls := map[string]tracingtest.Span{}
	for _, s := range list {
		if text := fmt.Sprint(s); strings.Contains(text, "hunter2") || strings.Contains(text, "s3cret") {
			t.Errorf("a span tells secrets: %s", text)
		}
		if s.Kind == "client" {
			calls[s.Attributes["gen_ai.agent.name"]] = s
		}
	}
	for agent, h := range map[string]*tracedHandler{"new": new, "old": old} {
		sent := h.take()
		want := parley.Trace{Parent: "00-" + traceOne.ID() + "-" + calls[agent].ID + "-01", State: traceOne.State}
		if len(sent) == 0 || slices.ContainsFunc(sent, func(x parley.Trace) bool { return x != want }) {
			t.Errorf("%s got %+v, want %+v", agent, sent, want)
		}
	}
	if c := calls["new"].Attributes; c["a2a.task.id"] == "" || c["http.response.status_code"] != "200" || c["server.address"] != "127.0.0.1" || c["parley.call.outcome"] != "answered" || c["parley.agent.protocol"] != "jsonrpc-2.0" {
		t.Errorf("the call has %v", c)
	}

	execute("hi", "traceparent", traceTwo.Parent)
	for _, h := range []*tracedHandler{old, new} {
		if sent := h.take(); len(sent) == 0 || slices.ContainsFunc(sent, func(x parley.Trace) bool { return x != traceTwo }) {
			t.Errorf("an agent got %+v, want %+v", sent, traceTwo)
		}
	}
	execute("hi")
	own := old.take()[0]
	if got := tracingtest.Tree(of(own.ID(), 7)); got != tree("") {
		t.Errorf("got\n%s", got)
	}
	for _, s := range receiver.Spans() {
		if s.Trace == traceTwo.ID() {
			t.Errorf("recorded: %+v", s)
		}
	}
	// A delivery counts when the receiver has answered, which is after it has the spans.
	waitFor(t, "the deliveries are not counted:", func() bool { return w.metrics()["parley_spans_delivered_total"] == "14" })
	if lost := w.metrics()["parley_spans_lost_total"]; lost != "0" {
		t.Errorf("%s are lost", lost)
	}
}

// TestSpans_OfRoles: executors and bridges in processes of their own give one tree
// together, over PostgreSQL and over Kafka; what waits is delivered when they stop.
func TestSpans_OfRoles(t *testing.T) { //nolint:tparallel // one cluster of processes at a time
	kafkatest.NeedServer(t)
	t.Parallel()
	binary := buildBinary(t)
	for _, kind := range []string{"postgres", "kafka"} {
		t.Run(kind, func(t *testing.T) {
			receiver := tracingtest.New(t)
			r := newRolesRig(t, binary, kind, 0)
			r.env = append(r.env, "PARLEY_TELEMETRY__TRACES__URL="+receiver.URL)
			api := r.start("api", "api")
			r.start("executor", "executor")
			r.start("bridge", "bridge")
			const runs = 3
			for n := range runs {
				r.execute(api, n)
			}
			r.stopAll()
			want := strings.Repeat("run chain\n  step a\n    invoke_agent resend\n  step b\n    invoke_agent once\n  step c\n    invoke_agent resend\n", runs)
			if got := tracingtest.Tree(receiver.Spans()); got != want {
				t.Errorf("got\n%s", got)
			}
			from := map[string]string{}
			for _, s := range receiver.Spans() {
				from[s.Resource["service.instance.id"]] += s.Kind
			}
			if len(from) != 2 {
				t.Errorf("the spans come from %v", from)
			}
		})
	}
}
