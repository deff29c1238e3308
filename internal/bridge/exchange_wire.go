package bridge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/parley-project/parley"
)

// TranslationObserver counts translations (AD-11). Direction is "request" or
// "response"; errorType is the Kind of a [DefectError], or "other".
type TranslationObserver interface {
	Translated(protocol, direction string, took time.Duration)
	TranslationError(protocol, direction, errorType string)
}

// Wire is what adapters over HTTP have in common: one [Exchange], and around it
// the log lines of AD-10 and BR-7, the measurements of AD-11, and the rule that
// nothing in an error or a log line repeats a credential. It may be used
// concurrently.
type Wire struct {
	x   *Exchange
	log *slog.Logger
	obs TranslationObserver
	bad *failures
}

// NewWire makes a Wire; log and obs may be nil. It does not own x.
func NewWire(x *Exchange, log *slog.Logger, obs TranslationObserver) *Wire {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Wire{x: x, log: log, obs: obs, bad: newFailures(log)}
}

// Warning is something odd in an answer that was used all the same.
type Warning struct {
	Kind string
	Text string
}

// Conversation is one call as its protocol sees it: two translations, and what
// the protocol knows about answers outside 2xx.
type Conversation struct {
	Protocol string
	// Request makes the body.
	Request func() ([]byte, error)
	// Carry makes the exchange; nil posts to the agent's URL. Its error is as
	// that of [Exchange.Do].
	Carry func(ctx context.Context, body []byte) (Reply, error)
	// Answer reads the body of a 2xx response. Its error, a [*DefectError] as a rule,
	// means that the agent answered something that cannot be used.
	Answer func(body []byte) (Outcome, []Warning, error)
	// Refusal may turn the body of another response into a better error than
	// its status gives; e is what the status gives. Nil is no opinion.
	Refusal func(body []byte, e *ExchangeError) Outcome
	// Minor says of a failed outcome that it does not decide about the task: it
	// is logged as a warning. Nil: none is.
	Minor func(Outcome) bool
	// Usual says of a failed outcome that it is an answer like any other, and no
	// failure: it is logged at debug. Nil: none is.
	Usual func(Outcome) bool
}

const (
	// maxLogged is logged of an answer that is malformed (BR-4.1).
	maxLogged = 64 << 10
	// maxTraced is logged of everything else.
	maxTraced = 4 << 10
)

// Call holds c about task with agent and says what came of it, as
// [Adapter.Call] does.
func (w *Wire) Call(ctx context.Context, task parley.Task, agent parley.Agent, c Conversation) (Outcome, error) {
	t := &talk{Wire: w, ctx: ctx, errand: errand{task, agent}, protocol: c.Protocol, minor: c.Minor, usual: c.Usual}
	begun := w.x.now()
	body, err := c.Request()
	if err != nil {
		return Outcome{}, t.badRequest(err)
	}
	t.translated("request", begun, body)

	reply, err := t.carry(c, body)
	if e, ok := errors.AsType[*ExchangeError](err); ok {
		out := e.Outcome(task.ID)
		if c.Refusal != nil && e.Status != 0 {
			out = c.Refusal(reply.Body, e)
		}
		return t.finish(out), nil
	}
	if err != nil { // nothing that could be sent
		t.failed(slog.LevelError, string(parley.CodeOf(err)), slog.String("error", err.Error()))
		return Outcome{}, err
	}

	begun = w.x.now()
	out, warnings, err := c.Answer(reply.Body)
	if err != nil {
		return t.complete(t.badResponse(err, reply)), nil
	}
	t.translated("response", begun, reply.Body)
	t.warn(warnings)
	return t.finish(out), nil
}

// Finish completes what came of a stream, which had begun in a Call: it logs
// warnings and outcome, and takes secrets out.
func (w *Wire) Finish(ctx context.Context, task parley.Task, agent parley.Agent, s Stanza) Outcome {
	t := &talk{Wire: w, ctx: ctx, errand: errand{task, agent}, protocol: s.Protocol, minor: s.Minor, usual: s.Usual}
	t.warn(s.Warnings)
	return t.finish(s.Outcome)
}

// Stanza is what came of a stream.
type Stanza struct {
	Protocol string
	Outcome  Outcome
	Warnings []Warning
	// Minor and Usual are as in [Conversation].
	Minor, Usual func(Outcome) bool
}

func (t *talk) warn(warnings []Warning) {
	for _, wn := range warnings {
		t.line(slog.LevelWarn, "protocol_response_warning",
			slog.String("kind", wn.Kind), slog.String("warning", Redact(t.agent, []byte(wn.Text), maxTraced)))
	}
}

// talk is one call of Wire while it lasts.
type talk struct {
	*Wire
	ctx context.Context //nolint:containedctx // a talk is one call
	errand
	protocol string
	// minor and usual are as in [Conversation].
	minor, usual func(Outcome) bool
}

// line writes a log line with what every line has (BR-7.5).
func (t *talk) line(level slog.Level, event string, attrs ...slog.Attr) {
	if t.log.Enabled(t.ctx, level) {
		t.log.LogAttrs(t.ctx, level, event, t.attrs(attrs)...)
	}
}

func (t *talk) attrs(more []slog.Attr) []slog.Attr {
	list := append(append(make([]slog.Attr, 0, 5+len(more)), slog.String("task_id", t.task.ID), slog.String("agent", t.agent.Name),
		slog.String("correlation_id", t.task.CorrelationID), slog.String("protocol", t.protocol)), more...)
	if id := t.task.Trace.ID(); id != "" {
		list = append(list, slog.String("trace_id", id))
	}
	return list
}

// failed logs a failure of the agent, as [failures] does.
func (t *talk) failed(level slog.Level, class string, attrs ...slog.Attr) {
	if t.log.Enabled(t.ctx, level) {
		t.bad.note(t.ctx, failureKind{agent: t.agent.Name, class: class, text: "agent_failure", level: level}, t.attrs(attrs))
	}
}

// translated measures a translation and shows its structure at debug
// (BR-7.1, BR-7.2).
func (t *talk) translated(direction string, begun time.Time, body []byte) {
	took := t.x.now().Sub(begun)
	if t.obs != nil {
		t.obs.Translated(t.protocol, direction, took)
	}
	if !t.log.Enabled(t.ctx, slog.LevelDebug) {
		return
	}
	t.line(slog.LevelDebug, "protocol_"+direction+"_translation", slog.Int("size", len(body)),
		slog.Duration("took", took), slog.String("body", Redact(t.agent, body, maxTraced)))
}

// carry makes the exchange and logs it as one http_call.
func (t *talk) carry(c Conversation, body []byte) (reply Reply, err error) {
	begun := t.x.now()
	if c.Carry != nil {
		reply, err = c.Carry(t.ctx, body)
	} else {
		reply, err = t.x.do(t.ctx, &t.errand, Request{Body: body})
	}
	if !t.log.Enabled(t.ctx, slog.LevelInfo) {
		return reply, err
	}
	attrs := []slog.Attr{
		slog.Int("status", reply.Status), slog.Duration("took", t.x.now().Sub(begun)),
		slog.Int("request_size", len(body)), slog.Int("response_size", len(reply.Body)),
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	if e, ok := errors.AsType[*ExchangeError](err); ok {
		attrs = append(attrs, slog.String("disposition", e.Disposition.word()))
	}
	t.line(slog.LevelInfo, "http_call", attrs...)
	return reply, err
}

// badRequest logs and counts a task that cannot be translated (AD-9).
func (t *talk) badRequest(err error) error {
	te := &TranslationError{
		Protocol: t.protocol, Direction: "request", Err: err,
		Data: []byte(Redact(t.agent, t.task.Input, maxLogged)),
	}
	t.untranslated(te)
	return te
}

// badResponse logs and counts an answer that cannot be used, with its body
// (BR-4.1, AD-8), and makes it the answer that it is: a failure.
func (t *talk) badResponse(err error, reply Reply) Outcome {
	te := &TranslationError{
		Protocol: t.protocol, Direction: "response", Err: err,
		Data: []byte(Redact(t.agent, reply.Body, maxLogged)),
	}
	t.untranslated(te)
	e := t.errorf(parley.CodeAgentError, "%w", te)
	e.Message, e.Retryable = err.Error(), true
	if d, ok := errors.AsType[*DefectError](err); ok && d.Kind == "html" {
		e.Message += "; " + notTheAgent
	}
	e = e.WithDetails(errorDetails{Status: reply.Status, Body: Redact(t.agent, reply.Body, maxErrorBody)})
	return Outcome{Disposition: Answered, Result: parley.Result{TaskID: t.task.ID, Outcome: parley.OutcomeError, Err: e}}
}

// notTheAgent explains a page where an answer was expected.
const notTheAgent = "such pages come from proxies and web servers in front of an agent: check its URL"

func (t *talk) untranslated(te *TranslationError) {
	kind := "other"
	if d, ok := errors.AsType[*DefectError](te.Err); ok {
		kind = d.Kind
	}
	if t.obs != nil {
		t.obs.TranslationError(t.protocol, te.Direction, kind)
	}
	t.line(slog.LevelError, "protocol_translation_error", slog.String("direction", te.Direction), slog.String("error_type", kind),
		slog.String("error", Redact(t.agent, []byte(te.Err.Error()), maxTraced)), slog.String("data", string(te.Data)))
}

// finish completes an outcome and logs it: an output at info (BR-7.3), a
// failure with all that is known about it at error (BR-7.4, AD-8), but not each
// of many alike.
func (t *talk) finish(out Outcome) Outcome {
	out = t.complete(out)
	level := slog.LevelError
	if t.minor != nil && t.minor(out) {
		level = slog.LevelWarn
	}
	switch e := out.Result.Err; {
	case e != nil && e.Code == parley.CodeCancelled:
		t.line(slog.LevelInfo, "agent_call_cancelled", slog.String("error", e.Message))
	case e != nil && t.usual != nil && t.usual(out):
		t.line(slog.LevelDebug, "agent_refusal", slog.String("code", string(e.Code)), slog.String("error", e.Message))
	case e != nil:
		t.failed(level, classOf(out.Disposition, e), slog.String("disposition", out.Disposition.word()),
			slog.String("code", string(e.Code)), slog.String("error", e.Message), slog.String("details", string(e.Details)))
	case out.Disposition == Answered && t.log.Enabled(t.ctx, slog.LevelInfo):
		t.line(slog.LevelInfo, "agent_output", slog.Int("size", len(out.Result.Output)),
			slog.String("output", Redact(t.agent, out.Result.Output, maxTraced)))
	}
	return out
}

// complete says in an outcome whose it is and takes secrets out of its error,
// its question and its output.
func (t *talk) complete(out Outcome) Outcome {
	out.Result.TaskID = t.task.ID
	out.Result.Output = redactOutput(t.agent, out.Result.Output)
	if q := out.Question; q != nil {
		q.Text = Redact(t.agent, []byte(q.Text), len(q.Text))
		q.Parts = RedactJSON(t.agent, q.Parts)
	}
	if e := redactError(t.agent, out.Result.Err); e != nil {
		e.Agent, e.Step, e.Attempt = t.agent.Name, t.task.Step, t.task.Attempt
	}
	return out
}

// word names d in log lines.
func (d Disposition) word() string {
	switch d {
	case Answered:
		return "answered"
	case Accepted:
		return "accepted"
	case NotSent:
		return "not_sent"
	case Lost:
		return "lost"
	}
	return "none"
}
