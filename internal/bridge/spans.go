package bridge

import (
	"errors"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/tracing"
)

// callSpan is the span of a call (decision 054): from the first exchange with the
// agent until the attempt leaves this bridge, with everything that is asked of the
// agent between. Who takes an attempt over has a span of its own. Only the call's
// goroutine uses it.
type callSpan struct {
	// own is the trace that the agent is sent.
	own      parley.Trace
	recorded bool
	// attempt is the number of the try: the row's is that of the next one when this one
	// has failed.
	attempt int
	// began is the time of the first exchange.
	began time.Time
}

// openSpan decides about the span of a call that begins.
func (c *call) openSpan() {
	c.span.own, c.span.recorded = c.b.cfg.Tracer.Call(c.row.Trace)
	c.span.attempt = c.row.Attempt
}

// exchanges notes that the agent is asked now.
func (c *call) exchanges() {
	if c.span.recorded && c.span.began.IsZero() {
		c.span.began = c.b.cfg.Clock()
	}
}

// tellSpan records the span of a call that is over, or has left this bridge, if its
// agent was asked.
func (c *call) tellSpan() {
	if c.span.began.IsZero() {
		return
	}
	s := tracing.Span{
		Own: c.span.own, Above: c.row.Trace, Name: "invoke_agent " + c.row.Agent, Kind: tracing.Client,
		Start: c.span.began, End: c.b.cfg.Clock(),
		Attributes: []attribute.KeyValue{
			attribute.String("gen_ai.operation.name", "invoke_agent"), attribute.String("gen_ai.agent.name", c.row.Agent),
			attribute.String("parley.run.id", c.row.Run), attribute.String("parley.step.path", c.row.Step),
			attribute.String("parley.task.id", c.row.ID), attribute.Int("parley.attempt", c.span.attempt),
			attribute.String("parley.agent.protocol", c.agent.Protocol), attribute.String("parley.call.outcome", c.outcomeWord()),
		},
	}
	if c.row.AgentTaskID != "" {
		s.Attributes = append(s.Attributes, attribute.String("a2a.task.id", c.row.AgentTaskID), attribute.String("gen_ai.conversation.id", c.row.AgentContextID))
	}
	if c.status > 0 {
		s.Attributes = append(s.Attributes, attribute.Int("http.response.status_code", c.status))
	}
	s.Attributes = append(s.Attributes, serverOf(c.agent.URL)...)
	if e := c.out.Result.Err; e != nil && !c.givenUp() {
		s.Failed = e.Code
	}
	c.b.cfg.Tracer.Record(s)
	c.span.began = time.Time{}
}

// outcomeWord says in a word how a call has left this bridge.
func (c *call) outcomeWord() string {
	switch {
	case c.keep:
		return "left" // somebody goes on with it: another process, or this one later
	case c.givenUp():
		return "given_up"
	case c.out.Result.Err != nil && c.out.Disposition == Lost:
		return "lost"
	case c.out.Result.Err != nil && c.out.Disposition == NotSent:
		return "not_sent"
	case c.out.Disposition == Accepted:
		return "left"
	}
	return "answered"
}

// givenUp reports whether nobody wanted the answer any more: what is known of it then is
// how the exchange was broken off, and no failure of the agent.
func (c *call) givenUp() bool { return errors.Is(c.why, errGone) || errors.Is(c.why, errCancelled) }

// serverOf names the host of an agent that is reached by one.
func serverOf(raw string) []attribute.KeyValue {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	list := []attribute.KeyValue{attribute.String("server.address", u.Hostname())}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		list = append(list, attribute.Int("server.port", port))
	}
	return list
}
