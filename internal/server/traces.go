package server

import (
	"context"
	mathrand "math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley/internal/tracing"
)

// SpanReceiver is where spans are sent (see package tracing).
type SpanReceiver = tracing.Receiver

// CheckSpanReceiver sends no spans, and says whether they would be taken.
func CheckSpanReceiver(ctx context.Context, r SpanReceiver) error { return tracing.Check(ctx, r) }

// Traces says where spans go, and of which runs there are some (decision 054).
type Traces struct {
	Receiver SpanReceiver
	// Sample is the share of the runs that are recorded if they bring no trace, from 0
	// to 1.
	Sample float64
}

// tracesPatience bounds how long a process that ends delivers what waits.
const tracesPatience = 3 * time.Second

// openTracer makes what records spans, if they are to go anywhere.
func (s *Server) openTracer(ctx context.Context, metrics *prometheus.Registry) error {
	if s.cfg.Traces == nil {
		return nil
	}
	r := s.cfg.Traces.Receiver
	if r.Dial == nil {
		r.Dial = s.cfg.Dial
	}
	exporter, err := tracing.NewExporter(ctx, r)
	if err != nil {
		return err
	}
	s.tracer = tracing.New(tracing.Config{
		Exporter: exporter, Timeout: r.Timeout, Sample: s.cfg.Traces.Sample, Version: s.cfg.Version, Instance: s.process,
		Random: mathrand.Uint64, Logger: s.log, Metrics: metrics,
	})
	return nil
}

// closeTracer delivers what waits. That a receiver does not take it is logged, and no
// failure of the server.
func (s *Server) closeTracer() {
	ctx, cancel := context.WithTimeout(context.Background(), tracesPatience)
	defer cancel()
	if err := s.tracer.Close(ctx); err != nil {
		s.log.Warn("spans were not delivered before the end", "error", err)
	}
}
