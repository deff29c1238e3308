package executor_test

import (
	"testing"
	"time"

	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/tracing"
	"github.com/parley-project/parley/internal/tracing/tracingtest"
)

// TestSpans_OfEvents: a run that an event of another run starts is below that run, and
// below nothing else, over as many runs as follow each other so (decision 054). An event
// of a run that is not recorded hands on what the run was given.
func TestSpans_OfEvents(t *testing.T) {
	var kept tracingtest.Memory
	var tracer *tracing.Tracer
	triggering(t, func(c *executor.Config) {
		tracer = tracing.New(tracing.Config{Exporter: &kept, Random: func() uint64 { return 1 }})
		c.Tracer = tracer
	}, func(r *triggerRig) {
		t := r.t
		r.apply("name: ship\ntriggers: [{event: {name: paid}}]\nsteps: [{id: g, steps: [{id: a, emit: {event: shipped}}]}]\n")
		r.apply("name: tell\ntriggers: [{event: {name: shipped}}]\nsteps: [{id: a, emit: {event: told}}]\n")
		r.apply("name: file\ntriggers: [{event: {name: told}}]\nsteps: [{id: a, set: 1}]\n")
		e := signal("e1", "paid", "1")
		e.Trace = traceOne // has the flag sampled
		r.publish(e)
		time.Sleep(3 * time.Second)
		e = signal("e2", "paid", "2")
		e.Trace = traceTwo // has not
		r.publish(e)
		time.Sleep(3 * time.Second)
		if traces := r.traces(); len(traces) != 6 || traces[3] != traceTwo || traces[4] != traceTwo || traces[5] != traceTwo {
			t.Errorf("traces of the runs: %+v", traces)
		}
		check(t, tracer.Close(t.Context()))
	})
	runs := map[string]tracingtest.Span{}
	for _, s := range kept.Spans() {
		if s.Kind == "internal" && s.Attributes["parley.step.path"] == "" {
			runs[s.Name] = s
		}
		if s.Trace != traceOne.ID() {
			t.Errorf("%s has trace %s", s.Name, s.Trace)
		}
	}
	if len(runs) != 3 {
		t.Fatalf("runs: %v", runs)
	}
	for run, above := range map[string]string{"run ship": traceOne.SpanID(), "run tell": runs["run ship"].ID, "run file": runs["run tell"].ID} {
		if got := runs[run].Parent; got != above || got == "" {
			t.Errorf("%s is below %q, want %q", run, got, above)
		}
	}
}
