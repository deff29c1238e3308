package executor

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/tracing"
	"github.com/parley-project/parley/internal/workflow"
)

// trace records the spans of what the events of a decision have ended (decision 054).
// The decision is durable; s is the state after it.
func (x *Executor) trace(s *workflow.State, events []parley.Event) {
	if x.cfg.Tracer == nil {
		return
	}
	own, recorded := x.cfg.Tracer.Run(s.RunID(), s.Trace())
	if !recorded {
		return
	}
	for i := range events {
		switch events[i].Type {
		case parley.EventStepCompleted, parley.EventStepFailed, parley.EventStepCancelled:
			x.traceStep(s, events[i].Step)
		case parley.EventRunCompleted, parley.EventRunFailed, parley.EventRunCancelled:
			x.cfg.Tracer.Record(runSpan(s, own))
		}
	}
}

// runSpan is the span of a run that is over: from the time at which it was accepted.
func runSpan(s *workflow.State, own parley.Trace) tracing.Span {
	def := s.Definition()
	_, ended := s.Times()
	span := tracing.Span{
		Own: own, Above: s.Trace(), Name: "run " + def.ID, Start: s.CreatedAt(), End: ended,
		Attributes: []attribute.KeyValue{
			attribute.String("parley.run.id", s.RunID()), attribute.String("parley.run.status", string(s.Status())),
			attribute.String("parley.workflow.id", def.ID), attribute.String("parley.workflow.version", def.Version),
		},
	}
	if p := s.Parent(); p != nil {
		span.Attributes = append(span.Attributes, attribute.String("parley.run.parent", p.Run))
	}
	if err := s.Err(); err != nil {
		span.Failed = err.Code
	}
	return span
}

// traceStep records the span of a step that is over, below that of what it stands in.
func (x *Executor) traceStep(s *workflow.State, path string) {
	e, ok := s.Ended(path)
	if !ok {
		return
	}
	span := tracing.Span{
		Own: x.cfg.Tracer.Step(s.RunID(), s.Trace(), path), Above: x.cfg.Tracer.Step(s.RunID(), s.Trace(), e.Around),
		Name: "step " + e.Name, Start: e.ScheduledAt, End: e.EndedAt,
		Attributes: []attribute.KeyValue{
			attribute.String("parley.run.id", s.RunID()), attribute.String("parley.workflow.id", s.Definition().ID),
			attribute.String("parley.step.path", path), attribute.String("parley.step.kind", string(e.Kind)),
			attribute.String("parley.step.status", string(e.Status)),
		},
	}
	if e.Kind == workflow.KindAgent {
		span.Attributes = append(span.Attributes, attribute.String("gen_ai.agent.name", e.Agent), attribute.Int("parley.step.attempts", e.Attempts))
	}
	if e.Child != "" {
		span.Attributes = append(span.Attributes, attribute.String("parley.run.child", e.Child))
	}
	if e.Err != nil {
		span.Failed = e.Err.Code
	}
	x.cfg.Tracer.Record(span)
}

// traced gives the events that a run publishes with the run's span above what they
// start.
func (x *Executor) traced(s *workflow.State, emit []parley.Signal) []parley.Signal {
	own, recorded := x.cfg.Tracer.Run(s.RunID(), s.Trace())
	if !recorded || len(emit) == 0 {
		return emit
	}
	emit = slices.Clone(emit)
	for i := range emit {
		emit[i].Trace = own
	}
	return emit
}
