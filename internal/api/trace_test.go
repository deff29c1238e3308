package api

import (
	"net/http"
	"testing"

	"github.com/parley-project/parley"
)

// TestTrace: what starts runs later has the trace of its request, too: an event, also
// for one run, and a dead letter that is replayed.
func TestTrace(t *testing.T) {
	s, w := setup(nil)
	must(t, w.do("dead task"))
	want := parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "a=1"}
	for _, tt := range []struct {
		path, body string
		got        func() parley.Trace
	}{
		{"/api/v1/events", `{"event":"paid"}`, func() parley.Trace { return w.signals[len(w.signals)-1].Signal.Trace }},
		{"/api/v1/dead-letters/" + w.letters[0].ID + "/replay", `{}`, func() parley.Trace { return w.traces[len(w.traces)-1] }},
	} {
		rec := call(s.handler(), http.MethodPost, tt.path, tt.body, "Traceparent", want.Parent, "Tracestate", want.State)
		if rec.Code != http.StatusAccepted || tt.got() != want {
			t.Errorf("%s: %d, trace %+v", tt.path, rec.Code, tt.got())
		}
	}
}

// TestTraceIsDescribed: the headers stand with each operation that starts runs.
func TestTraceIsDescribed(t *testing.T) {
	s, _ := setup(nil)
	described := map[string]bool{}
	for _, rt := range s.routes {
		for _, p := range rt.params {
			if p.Name == parley.HeaderTraceparent && p.In == "header" {
				described[rt.id] = true
			}
		}
	}
	for _, id := range []string{"start-run", "call-agent", "retry-run", "rerun-run", "publish-event", "deliver-hook", "replay-dead-letter"} {
		if !described[id] {
			t.Errorf("%s does not describe %s", id, parley.HeaderTraceparent)
		}
	}
}
