package verification_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/verification/slacktest"
)

// TestTrace_OfAQuestion: the trace context of the request that brings a question goes
// to the other zone with it, also from another process, and with every look.
func TestTrace_OfAQuestion(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		want := parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "a=1"}
		r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
			return zone.Result{Status: zone.StatusAccepted, TaskID: "t-1"}, zone.Info{Attempts: 1}, nil
		}
		for _, trace := range []parley.Trace{want, {}} {
			body := message("what is up?").Body()
			header := slacktest.Sign(signingSecret, time.Now(), body)
			if !trace.IsZero() {
				header.Set("Traceparent", trace.Parent)
				header.Set("Tracestate", trace.State)
			}
			if w := slacktest.Send(t.Context(), r.zone.Handler(), header, body); w.Code != http.StatusOK {
				t.Fatalf("status %d", w.Code)
			}
			pass(30 * time.Second)
		}
		if len(r.exec.asked) != 2 || r.exec.asked[0].Meta.Trace != want || !r.exec.asked[1].Meta.Trace.IsZero() {
			t.Errorf("asked with %+v", r.exec.asked)
		}
		if len(r.exec.metas) == 0 || r.exec.metas[0].Trace != want {
			t.Errorf("looked with %+v", r.exec.metas)
		}
	})
}
