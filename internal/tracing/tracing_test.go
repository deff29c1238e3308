package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/tracing"
	"github.com/parley-project/parley/internal/tracing/tracingtest"
)

var (
	sampled = parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "congo=t61rcWkgMzE,rojo=1"}
	ignored = parley.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", State: "a=1"}
)

// counting gives 1, 2, 3 and so on.
func counting() func() uint64 {
	var mu sync.Mutex
	n := uint64(0)
	return func() uint64 { mu.Lock(); defer mu.Unlock(); n++; return n }
}

func newTracer(t *testing.T, sample float64) (*tracing.Tracer, *tracingtest.Memory) {
	t.Helper()
	var kept tracingtest.Memory
	tracer := tracing.New(tracing.Config{Exporter: &kept, Sample: sample, Random: counting(), Version: "1.2", Instance: "one"})
	t.Cleanup(func() {
		if err := tracer.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return tracer, &kept
}

// TestIDs: each process gives a run, a step and a call the same place in the trace, and
// nothing else the same id.
func TestIDs(t *testing.T) {
	one, _ := newTracer(t, 1)
	two, _ := newTracer(t, 1)
	ids := map[string]string{}
	add := func(what string, t1, t2 parley.Trace) {
		t.Helper()
		if t1 != t2 || parley.ParseTrace(t1.String()) != t1 || !t1.Sampled() {
			t.Errorf("%s: %+v and %+v", what, t1, t2)
		}
		if other, ok := ids[t1.SpanID()]; ok {
			t.Errorf("%s and %s have the id %s", what, other, t1.SpanID())
		}
		ids[t1.SpanID()] = what
	}
	for _, run := range []string{"run-1", "run-11", "1", ""} {
		for _, from := range []parley.Trace{{}, sampled} {
			r1, ok := one.Run(run, from)
			r2, _ := two.Run(run, from)
			if !ok || !from.IsZero() && (r1.ID() != from.ID() || r1.State != from.State) {
				t.Errorf("%s from %+v: %+v %v", run, from, r1, ok)
			}
			if one.Step(run, from, "") != r1 {
				t.Errorf("%s: the step without a path is not the run", run)
			}
			if from.IsZero() {
				add("run "+run, r1, r2)
				for _, path := range []string{"a", "a/b", "1a"} {
					add("step "+run+" "+path, one.Step(run, from, path), two.Step(run, from, path))
				}
			}
		}
	}
	other, _ := one.Run("run-2", parley.Trace{})
	if first, _ := one.Run("run-1", parley.Trace{}); first.ID() == other.ID() {
		t.Error("two runs without a trace have one")
	}
	for range 3 {
		c, ok := one.Call(sampled)
		if !ok {
			t.Error("a call is not recorded")
		}
		add("call", c, c)
	}
}

// TestNothingOfOurs: without a tracer, and for traces that nobody records, everything is
// passed on byte for byte.
func TestNothingOfOurs(t *testing.T) {
	tracer, kept := newTracer(t, 0)
	later := parley.Trace{Parent: "cc" + ignored.Parent[2:] + "-more"}
	for _, from := range []parley.Trace{{}, ignored, later, sampled} {
		for _, x := range []*tracing.Tracer{nil, tracer} {
			if x != nil && from == sampled {
				continue
			}
			run, ok1 := x.Run("run-1", from)
			call, ok2 := x.Call(from)
			if run != from || call != from || x.Step("run-1", from, "a") != from || ok1 || ok2 {
				t.Errorf("%+v: run %+v, call %+v, step %+v", from, run, call, x.Step("run-1", from, "a"))
			}
		}
	}
	var none *tracing.Tracer
	none.Record(tracing.Span{Own: sampled})
	if err := none.Close(t.Context()); err != nil || len(kept.Spans()) != 0 {
		t.Error(err, kept.Spans())
	}
}

// TestSample: that share of the runs without a trace is recorded, the same in every
// process; runs that bring one are recorded as it says.
func TestSample(t *testing.T) {
	const n = 20_000
	for _, share := range []float64{0, 0.1, 0.5, 1} {
		one, _ := newTracer(t, share)
		two, _ := newTracer(t, share)
		recorded := 0
		for i := range n {
			id := fmt.Sprintf("run-%d", i)
			_, yes := one.Run(id, parley.Trace{})
			if _, also := two.Run(id, parley.Trace{}); yes != also {
				t.Fatalf("%s is recorded here and not there", id)
			}
			if yes {
				recorded++
			}
		}
		if got := float64(recorded) / n; got < share-0.02 || got > share+0.02 || (share == 0 || share == 1) && got != share {
			t.Errorf("share %v: %v are recorded", share, got)
		}
		if _, yes := one.Run("run-1", sampled); !yes {
			t.Errorf("share %v: a sampled trace is not recorded", share)
		}
		if _, yes := one.Run("run-1", ignored); yes {
			t.Errorf("share %v: a trace that is not sampled is recorded", share)
		}
	}
}

// TestRecord: what a receiver is told of a span.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer, kept := newTracer(t, 1)
		begin := time.Now()
		own, _ := tracer.Run("run-1", sampled)
		root, _ := tracer.Run("run-2", parley.Trace{})
		call, _ := tracer.Call(own)
		end := begin.Add(time.Second)
		tracer.Record(tracing.Span{Own: own, Above: sampled, Name: "run a", Start: begin, End: end})
		tracer.Record(tracing.Span{Own: root, Name: "run b", Start: begin.Add(1), End: end})
		tracer.Record(tracing.Span{
			Own: call, Above: own, Name: "invoke_agent x", Kind: tracing.Client, Start: begin.Add(2), End: begin, Failed: "timeout",
			Attributes: []attribute.KeyValue{attribute.String("long", strings.Repeat("x", 5000)), attribute.Int("n", 7)},
		})
		time.Sleep(3 * time.Second)
		got := kept.Spans()
		if len(got) != 3 {
			t.Fatalf("%d spans", len(got))
		}
		from := map[string]string{"service.name": "parley", "service.version": "1.2", "service.instance.id": "one"}
		for i, want := range []tracingtest.Span{
			{Trace: sampled.ID(), ID: own.SpanID(), Parent: sampled.SpanID(), State: sampled.State, Name: "run a", Kind: "internal", Start: begin, End: end},
			{Trace: root.ID(), ID: root.SpanID(), Name: "run b", Kind: "internal", Start: begin.Add(1), End: end},
			{
				Trace: sampled.ID(), ID: call.SpanID(), Parent: own.SpanID(), State: sampled.State, Name: "invoke_agent x", Kind: "client", Start: begin.Add(2), End: begin.Add(2),
				Status: "timeout", Failed: true, Attributes: map[string]string{"long": strings.Repeat("x", 1024), "n": "7", "error.type": "timeout"},
			},
		} {
			if want.Attributes == nil {
				want.Attributes = map[string]string{}
			}
			want.Resource = from
			if fmt.Sprint(got[i]) != fmt.Sprint(want) {
				t.Errorf("got  %+v\nwant %+v", got[i], want)
			}
		}
	})
}

// TestDeliveryFails: nobody waits for a receiver that does not answer or refuses; what
// was lost is counted, and said once until it goes well again.
func TestDeliveryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		reg := prometheus.NewRegistry()
		var mu sync.Mutex
		how := "hangs"
		set := func(to string) { mu.Lock(); how = to; mu.Unlock() }
		kept := tracingtest.Memory{Export: func(ctx context.Context, _ int) error {
			mu.Lock()
			now := how
			mu.Unlock()
			switch now {
			case "hangs":
				<-ctx.Done()
				return ctx.Err()
			case "refuses":
				return errors.New("401 " + strings.Repeat("no", 1000))
			}
			return nil
		}}
		tracer := tracing.New(tracing.Config{
			Exporter: &kept, Sample: 1, Random: counting(), Timeout: 5 * time.Second, Metrics: reg, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		record := func(n int) {
			begin := time.Now()
			for range n {
				call, _ := tracer.Call(sampled)
				tracer.Record(tracing.Span{Own: call, Above: sampled, Name: "x", Start: begin, End: begin})
			}
			if waited := time.Since(begin); waited > 0 {
				t.Errorf("recording %d spans took %v", n, waited)
			}
		}
		record(20_000) // more than fit
		time.Sleep(2 * time.Minute)
		set("refuses")
		record(10)
		time.Sleep(10 * time.Second)
		record(10)
		time.Sleep(10 * time.Second)
		set("")
		record(10)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(kept.Spans()); n != 10 {
			t.Errorf("%d spans are delivered", n)
		}
		lost := counter(t, reg, "parley_spans_lost_total")
		if recorded := counter(t, reg, "parley_spans_recorded_total"); recorded != 20_030 || lost < 8192 || lost > 9300 || counter(t, reg, "parley_spans_delivered_total") != 10 {
			t.Errorf("recorded %v, lost %v", recorded, lost)
		}
		if text := log.String(); strings.Count(text, "\n") != 2 || strings.Count(text, "not taken") != 1 || strings.Count(text, "taken again") != 1 || len(text) > 2000 {
			t.Errorf("the log:\n%s", text)
		}

		set("hangs")
		record(10)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tracer.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("the end: %v after %v", err, time.Since(begin))
		}
		record(1)
		time.Sleep(time.Minute)
	})
}

func counter(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
