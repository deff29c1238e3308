package execution_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone/execution"
	"github.com/parley-project/parley/internal/zone/zonetest"
)

// tracedWork notes the trace of what it is to do.
type tracedWork struct {
	zonetest.Work
	got []parley.Trace
}

func (w *tracedWork) Start(ctx context.Context, key string, in execution.Input) error {
	w.got = append(w.got, in.Trace)
	return w.Work.Start(ctx, key, in)
}

// TestTrace_OfATask: the trace context of a request is that of its task, on both
// contracts; one that is not valid is none.
func TestTrace_OfATask(t *testing.T) {
	want := parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "a=1,b=2"}
	work := &tracedWork{}
	rig := zonetest.NewRig(func(c *execution.Config) { c.Work = work })
	const request = `{"jsonrpc":"2.0","method":"execute_task","params":{"text":"say x"},"id":7}`
	wrapped := `{"jsonrpc":"2.0","id":"m","method":"message/send","params":{"message":{"role":"user","messageId":"m","kind":"message","parts":[{"kind":"data","data":` + request + `}]}}}`
	for _, tt := range []struct {
		h      http.Handler
		path   string
		body   string
		parent string
		want   parley.Trace
	}{
		{rig.Zone.Handler(), "/invocations", request, want.Parent, want},
		{rig.Zone.Handler(), "/invocations", request, "00-1", parley.Trace{}},
		{rig.Zone.A2AHandler(), "/", request, want.Parent, want},
		{rig.Zone.A2AHandler(), "/", wrapped, want.Parent, want},
	} {
		r := httptest.NewRequest(http.MethodPost, tt.path, strings.NewReader(tt.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Traceparent", tt.parent)
		r.Header["Tracestate"] = []string{"a=1", "b=2"}
		w := httptest.NewRecorder()
		tt.h.ServeHTTP(w, r)
		if n := len(work.got); n == 0 || work.got[n-1] != tt.want {
			t.Errorf("%s %s: %+v, want %+v; %s", tt.path, tt.parent, work.got, tt.want, w.Body)
		}
		work.got = nil
	}
}
