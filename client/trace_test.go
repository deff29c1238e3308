package client_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/parley-project/parley"
)

// TestTraceIsSent: each request that starts runs sends the trace that it was given,
// and no headers without one that is valid.
func TestTraceIsSent(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var got http.Header
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		_, _ = io.WriteString(w, `{}`)
	})
	ctx := t.Context()
	for name, call := range map[string]func(parley.Trace) error{
		"start": func(v parley.Trace) error {
			_, err := c.StartRun(ctx, parley.StartRequest{Workflow: "w", Trace: v})
			return err
		},
		"call": func(v parley.Trace) error {
			_, err := c.CallAgent(ctx, parley.StartRequest{CallAgent: "a", Trace: v})
			return err
		},
		"retry": func(v parley.Trace) error {
			_, err := c.RetryRun(ctx, parley.RetryRequest{Run: "r", Trace: v})
			return err
		},
		"retry with a key": func(v parley.Trace) error {
			_, err := c.RetryRun(ctx, parley.RetryRequest{Run: "r", IdempotencyKey: "k", Trace: v})
			return err
		},
		"rerun": func(v parley.Trace) error {
			_, err := c.Rerun(ctx, parley.RerunRequest{Run: "r", Trace: v})
			return err
		},
		"replay": func(v parley.Trace) error {
			_, err := c.Replay(ctx, parley.ReplayRequest{ID: "d", Trace: v})
			return err
		},
		"publish": func(v parley.Trace) error { _, err := c.Publish(ctx, parley.Signal{Name: "e", Trace: v}); return err },
	} {
		for given, want := range map[parley.Trace]parley.Trace{
			{}:                                     {},
			{Parent: parent}:                       {Parent: parent},
			{Parent: parent, State: "a=1, b=2"}:    {Parent: parent, State: "a=1, b=2"},
			{Parent: parent + "\r\nx: y"}:          {},
			{Parent: "mine", State: "a=1"}:         {},
			{Parent: parent, State: "a=1\r\nx: y"}: {Parent: parent},
		} {
			if err := call(given); err != nil {
				t.Fatal(name, err)
			}
			if sent := (parley.Trace{Parent: got.Get("Traceparent"), State: got.Get("Tracestate")}); sent != want {
				t.Errorf("%s sends %+v, want %+v", name, sent, want)
			}
		}
	}
}
