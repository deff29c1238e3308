package archive

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// Format is the format of the lines that are written, and the only one that is read.
const Format = "parley-run/1"

// Encode gives the line of a run, with its line end.
func Encode(a *store.Archived) []byte {
	size := 1 << 10
	for i := range a.Events {
		size += len(a.Events[i].Data) + 128
	}
	for i := range a.Attempts {
		size += len(a.Attempts[i].Input) + len(a.Attempts[i].Output) + 512
	}
	l := line{b: make([]byte, 0, size)}
	l.open('{')
	l.text("format", Format)
	l.name("run")
	l.run(a)
	if a.Definition != nil {
		l.name("definition")
		l.definition(a.Definition)
	}
	l.name("events")
	l.open('[')
	for i := range a.Events {
		l.comma()
		l.event(&a.Events[i])
	}
	l.close(']')
	if len(a.Attempts) > 0 {
		l.name("attempts")
		l.open('[')
		for i := range a.Attempts {
			l.comma()
			l.attempt(&a.Attempts[i])
		}
		l.close(']')
	}
	l.close('}')
	return append(l.b, '\n')
}

// line is a line that is being written. What is empty is left out.
type line struct{ b []byte }

func (l *line) open(c byte)  { l.b = append(l.b, c) }
func (l *line) close(c byte) { l.b = append(l.b, c) }

// comma separates what follows from what is before it, if anything is.
func (l *line) comma() {
	if c := l.b[len(l.b)-1]; c != '{' && c != '[' {
		l.b = append(l.b, ',')
	}
}

func (l *line) name(name string) {
	l.comma()
	l.b = append(l.b, '"')
	l.b = append(l.b, name...)
	l.b = append(l.b, '"', ':')
}

func (l *line) quote(s string) {
	// A string is a JSON string always: what is no UTF-8 in it is replaced.
	b, err := jsontext.AppendQuote(l.b, s)
	if err != nil {
		b, _ = jsontext.AppendQuote(l.b, string(bytes.ToValidUTF8([]byte(s), []byte("\uFFFD"))))
	}
	l.b = b
}

func (l *line) text(name, s string) {
	if s != "" {
		l.name(name)
		l.quote(s)
	}
}

func (l *line) number(name string, n int64) {
	if n != 0 {
		l.name(name)
		l.b = strconv.AppendInt(l.b, n, 10)
	}
}

func (l *line) yes(name string, b bool) {
	if b {
		l.name(name)
		l.b = append(l.b, "true"...)
	}
}

func (l *line) time(name string, t time.Time) {
	if !t.IsZero() {
		l.name(name)
		l.b = append(l.b, '"')
		l.b = t.UTC().AppendFormat(l.b, timeForm)
		l.b = append(l.b, '"')
	}
}

// timeForm is RFC 3339 in microseconds.
const timeForm = "2006-01-02T15:04:05.000000Z"

// value writes bytes as they are if that can be read back, else in base64.
func (l *line) value(name string, b []byte) {
	switch {
	case b == nil:
	case stands(b):
		l.name(name)
		l.b = append(l.b, b...)
	default:
		l.base64(name+"_bytes", b)
	}
}

func (l *line) base64(name string, b []byte) {
	l.name(name)
	l.b = append(l.b, '"')
	l.b = base64.StdEncoding.AppendEncode(l.b, b)
	l.b = append(l.b, '"')
}

// stands reports whether a value can stand in a line as it is: strict JSON, without
// a line end or white space around it, and not null, which would be nothing.
func stands(b []byte) bool {
	if len(b) == 0 || bytes.ContainsAny(b, "\n\r") || len(bytes.TrimSpace(b)) != len(b) || string(b) == "null" {
		return false
	}
	return jsontext.Value(b).IsValid() && json.Valid(b)
}

func (l *line) run(a *store.Archived) {
	r := &a.Run
	l.open('{')
	l.text("id", r.ID)
	l.text("workflow", r.Workflow)
	l.text("name", r.Name)
	l.text("version", r.Version)
	l.text("definition_id", r.DefinitionID)
	l.text("status", string(r.Status))
	l.text("phase", r.Phase)
	l.yes("paused", r.Paused)
	l.yes("cancelling", r.Cancelling)
	l.yes("hidden", r.Hidden)
	if len(r.Labels) > 0 {
		l.name("labels")
		l.labels(r.Labels)
	}
	l.text("retried_from", r.RetriedFrom)
	l.text("parent_run", r.ParentRun)
	l.text("parent_step", r.ParentStep)
	l.text("triggered_by", r.TriggeredBy)
	l.value("error", r.Error)
	l.text("cancelled_by", r.CancelledBy)
	l.text("cancel_reason", r.CancelReason)
	l.text("idempotency_key", a.IdempotencyKey)
	l.text("input_digest", a.InputDigest)
	l.time("created_at", r.CreatedAt)
	l.time("updated_at", r.UpdatedAt)
	l.time("started_at", r.StartedAt)
	l.time("ended_at", r.EndedAt)
	l.close('}')
}

func (l *line) labels(labels map[string]string) {
	names := make([]string, 0, len(labels))
	for name := range labels {
		names = append(names, name)
	}
	slices.Sort(names)
	l.open('{')
	for _, name := range names {
		l.comma()
		l.quote(name)
		l.b = append(l.b, ':')
		l.quote(labels[name])
	}
	l.close('}')
}

// definition writes what a version is, and nothing of what it may be used for.
func (l *line) definition(d *store.Definition) {
	l.open('{')
	l.text("id", d.ID)
	l.text("workflow", d.Workflow)
	l.text("version", d.Version)
	l.number("number", int64(d.Number))
	l.text("name", d.Name)
	l.text("description", d.Description)
	l.text("format", d.Format)
	if utf8.Valid(d.Source) {
		l.text("source", string(d.Source))
	} else {
		l.base64("source_bytes", d.Source)
	}
	l.time("created_at", d.CreatedAt)
	l.text("created_by", d.CreatedBy)
	l.close('}')
}

func (l *line) event(e *parley.Event) {
	l.open('{')
	l.time("at", e.At)
	l.text("type", string(e.Type))
	l.text("step", e.Step)
	l.number("attempt", int64(e.Attempt))
	l.value("data", e.Data)
	l.close('}')
}

func (l *line) attempt(a *store.ArchivedAttempt) {
	l.open('{')
	l.text("id", a.ID)
	l.text("step", a.Step)
	l.number("number", int64(a.Number))
	l.text("agent", a.Agent)
	l.value("input", a.Input)
	l.text("correlation_id", a.CorrelationID)
	l.text("context_id", a.ContextID)
	l.text("outcome_unknown", string(a.Policy.OutcomeUnknown))
	l.text("on_open", string(a.Policy.OnOpen))
	l.number("attempt_timeout_us", a.Policy.AttemptTimeout.Microseconds())
	l.number("silence_us", a.Policy.Silence.Microseconds())
	l.number("urgency", int64(a.Urgency))
	l.number("orphanings", int64(a.Orphanings))
	l.yes("cancel_requested", a.CancelRequested)
	l.text("agent_task_id", a.AgentTaskID)
	l.text("agent_context_id", a.AgentContextID)
	l.text("agent_endpoint", a.AgentEndpoint)
	l.text("agent_version", a.AgentVersion)
	l.value("question", a.Question)
	l.number("questions", int64(a.Questions))
	l.value("reply", a.Reply)
	l.yes("reply_sent", a.ReplySent)
	l.text("outcome", a.Outcome)
	l.value("output", a.Output)
	l.value("meta", a.Meta)
	l.time("deadline", a.Deadline)
	l.time("scheduled_at", a.ScheduledAt)
	l.time("claimed_at", a.ClaimedAt)
	l.time("settled_at", a.SettledAt)
	if len(a.Late) > 0 {
		l.name("late")
		l.open('[')
		for i := range a.Late {
			l.comma()
			l.late(&a.Late[i])
		}
		l.close(']')
	}
	l.close('}')
}

func (l *line) late(a *store.ArchivedAnswer) {
	l.open('{')
	l.time("at", a.At)
	l.text("from", a.From)
	l.text("outcome", a.Outcome)
	l.value("output", a.Output)
	l.value("meta", a.Meta)
	l.close('}')
}
