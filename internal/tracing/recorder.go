package tracing

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/parley-project/parley"
)

const (
	// maxQueue bounds the spans that wait, maxBatch those of one delivery; one is made
	// at least each batchEvery.
	maxQueue   = 8192
	maxBatch   = 512
	batchEvery = 2 * time.Second
	// maxAttribute bounds one attribute, in bytes.
	maxAttribute = 1024
)

// Config of a [Tracer]. Exporter is required.
type Config struct {
	// Exporter delivers spans: that of [NewExporter], or one of a test. The tracer
	// shuts it down.
	Exporter sdk.SpanExporter
	// Timeout bounds one delivery with all its tries; default 10 s.
	Timeout time.Duration
	// Sample is the share of the runs without a trace of their own that are recorded,
	// from 0 to 1.
	Sample float64
	// Version and Instance say which program and which process tells.
	Version, Instance string
	// Random gives numbers of which no two are the same; required.
	Random func() uint64
	// Logger gets a line when deliveries begin to fail, and when they succeed again;
	// default none.
	Logger *slog.Logger
	// Metrics is where the counters are registered; nil is nowhere.
	Metrics prometheus.Registerer
}

// New gives a tracer. Close ends it.
func New(cfg Config) *Tracer {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	d := &delivery{SpanExporter: cfg.Exporter, log: cfg.Logger, counts: newCounts(cfg.Metrics)}
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(ids{}), sdk.WithRawSpanLimits(limits),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "parley"), attribute.String("service.version", cfg.Version), attribute.String("service.instance.id", cfg.Instance),
		)),
		sdk.WithBatcher(d, sdk.WithMaxQueueSize(maxQueue), sdk.WithMaxExportBatchSize(maxBatch), sdk.WithBatchTimeout(batchEvery), sdk.WithExportTimeout(cfg.Timeout)),
	)
	return &Tracer{sample: cfg.Sample, random: cfg.Random, spans: &recorder{provider: provider, tracer: provider.Tracer("github.com/parley-project/parley"), counts: d.counts}}
}

// Close delivers what waits, no longer than ctx, and ends the tracer: what is recorded
// afterwards is dropped. It may be called on nil.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.spans.provider.Shutdown(ctx)
}

// recorder makes spans of OpenTelemetry.
type recorder struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	counts   counts
}

func (r *recorder) record(s Span) {
	own := spanContext(s.Own)
	ctx := context.WithValue(context.Background(), wanted{}, own)
	if !s.Above.IsZero() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, spanContext(s.Above))
	}
	kind := trace.SpanKindInternal
	if s.Kind == Client {
		kind = trace.SpanKindClient
	}
	_, span := r.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Start), trace.WithSpanKind(kind), trace.WithAttributes(s.Attributes...))
	if s.Failed != "" {
		span.SetAttributes(attribute.String("error.type", string(s.Failed)))
		span.SetStatus(codes.Error, string(s.Failed))
	}
	end := s.End
	if end.Before(s.Start) {
		end = s.Start // of two clocks
	}
	r.counts.recorded.Inc()
	span.End(trace.WithTimestamp(end))
}

// spanContext gives a trace as OpenTelemetry has it. A tracestate that is no list of
// its kind is left out.
func spanContext(t parley.Trace) trace.SpanContext {
	c := trace.SpanContextConfig{TraceFlags: trace.FlagsSampled, Remote: true}
	c.TraceID, _ = trace.TraceIDFromHex(t.ID())
	c.SpanID, _ = trace.SpanIDFromHex(t.SpanID())
	c.TraceState, _ = trace.ParseTraceState(t.State)
	return trace.NewSpanContext(c)
}

// wanted is the key of the span context that a span is to have.
type wanted struct{}

// ids gives the ids that are wanted.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	c, _ := ctx.Value(wanted{}).(trace.SpanContext)
	return c.TraceID(), c.SpanID()
}

func (i ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := i.NewIDs(ctx)
	return id
}

// counts are the numbers of a tracer.
type counts struct {
	recorded, delivered, lost prometheus.Counter
}

func newCounts(reg prometheus.Registerer) counts {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		if reg != nil {
			reg.MustRegister(c)
		}
		return c
	}
	return counts{
		recorded:  counter("parley_spans_recorded_total", "Spans of runs, steps and calls that this process has recorded. Those that are neither delivered nor lost wait, or were dropped because too many did."),
		delivered: counter("parley_spans_delivered_total", "Spans that were taken where telemetry.traces.url says."),
		lost:      counter("parley_spans_lost_total", "Spans that were not taken there."),
	}
}

// delivery is an exporter that says how it goes. Its errors end here: nobody else waits
// for them.
type delivery struct {
	sdk.SpanExporter
	log     *slog.Logger
	counts  counts
	failing atomic.Bool
}

func (d *delivery) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := d.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		d.counts.lost.Add(float64(len(spans)))
		if !d.failing.Swap(true) {
			d.log.Warn("spans are not taken; runs are not affected (telemetry.traces.url)", "spans", len(spans), "error", shown(err))
		}
		return nil
	}
	d.counts.delivered.Add(float64(len(spans)))
	if d.failing.Swap(false) {
		d.log.Info("spans are taken again", "spans", len(spans))
	}
	return nil
}

// maxShown bounds what is logged of a receiver's answer, in bytes.
const maxShown = 512

// shown is the text of an error, shortened.
func shown(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	text := err.Error()
	if len(text) > maxShown {
		text = text[:maxShown] + "…"
	}
	return text
}
