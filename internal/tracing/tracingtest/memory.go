package tracingtest

import (
	"context"
	"slices"
	"sync"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Memory is an exporter that keeps spans. Its methods may be called concurrently.
type Memory struct {
	// Export, if set, is asked before spans are kept: what it returns is what becomes of
	// the delivery.
	Export func(ctx context.Context, n int) error

	mu    sync.Mutex // protects spans
	spans []Span
}

// ExportSpans keeps spans.
func (m *Memory) ExportSpans(ctx context.Context, list []sdk.ReadOnlySpan) error {
	if m.Export != nil {
		if err := m.Export(ctx, len(list)); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range list {
		span := Span{
			Trace: s.SpanContext().TraceID().String(), ID: s.SpanContext().SpanID().String(), State: s.SpanContext().TraceState().String(),
			Name: s.Name(), Kind: s.SpanKind().String(), Start: s.StartTime(), End: s.EndTime(),
			Status: s.Status().Description, Failed: s.Status().Code.String() == "Error", Attributes: map[string]string{}, Resource: map[string]string{},
		}
		if p := s.Parent(); p.HasSpanID() {
			span.Parent = p.SpanID().String()
		}
		for _, a := range s.Attributes() {
			span.Attributes[string(a.Key)] = a.Value.String()
		}
		for _, a := range s.Resource().Attributes() {
			span.Resource[string(a.Key)] = a.Value.String()
		}
		m.spans = append(m.spans, span)
	}
	return nil
}

// Shutdown does nothing.
func (m *Memory) Shutdown(context.Context) error { return nil }

// Spans gives what was kept so far, by the times at which they began.
func (m *Memory) Spans() []Span {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.Clone(m.spans)
	slices.SortStableFunc(list, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return list
}
