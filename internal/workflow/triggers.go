package workflow

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/cron"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// DefaultSignatureHeader is where a webhook looks for the signature unless it
// names another header.
const DefaultSignatureHeader = "X-Parley-Signature"

// Trigger is what starts runs by itself (language.md §8). One of Schedule,
// Webhook, Event and Kafka is set.
type Trigger struct {
	Schedule *ScheduleSpec
	Webhook  *Webhook
	Event    *EventTrigger
	Kafka    *KafkaTrigger

	// If is nil where every event starts a run.
	If *expr.Condition
	// Input is nil where the event is the input of the run.
	Input *expr.Template
	// IdempotencyKey is nil where the id of the event is the key.
	IdempotencyKey *expr.Template
}

// Overlap says what happens to a firing while the run of the one before it has
// not ended.
type Overlap string

// The values of overlap.
const (
	OverlapSkip   Overlap = "skip"
	OverlapQueue  Overlap = "queue"
	OverlapCancel Overlap = "cancel_previous"
	OverlapAllow  Overlap = "allow"
)

// ScheduleSpec fires at times. One of Cron and Every is set.
type ScheduleSpec struct {
	// Cron has five fields, read in Zone.
	Cron string
	// Every is a period; its multiples are counted from 1970-01-01T00:00:00Z.
	Every   time.Duration
	Zone    string
	Overlap Overlap
	// CatchUp is how late a firing may begin that was missed.
	CatchUp time.Duration
	// Jitter bounds the delay that is drawn for each firing.
	Jitter time.Duration
	// Input is the template of the input as it was written; nil is none.
	Input json.RawMessage
}

// Webhook starts a run for each delivery that is signed.
type Webhook struct {
	// Secret is a reference, env:NAME or file:PATH. Header has the signature.
	Secret, Header string
}

// EventTrigger starts a run for each event of a name (rule C8).
type EventTrigger struct{ Name string }

// KafkaTrigger starts a run for each record of a topic.
type KafkaTrigger struct{ Topic string }

// Next gives the first firing after an instant; ok is false if there is none.
func (s *ScheduleSpec) Next(after time.Time) (at time.Time, ok bool) {
	if s.Every > 0 {
		period := int64(s.Every / time.Millisecond)
		n := after.UnixMilli() / period
		if after.UnixMilli() < 0 {
			return time.Time{}, false
		}
		return time.UnixMilli((n + 1) * period).UTC(), true
	}
	zone, err := cron.Zone(s.Zone)
	if err != nil {
		return time.Time{}, false
	}
	spec, err := cron.Parse(s.Cron)
	if err != nil {
		return time.Time{}, false
	}
	return spec.Next(after, zone)
}

// Text gives the schedule as JSON with every member filled in. Schedules that are
// equal have equal texts.
func (s *ScheduleSpec) Text() json.RawMessage {
	t := scheduleText{
		Cron: s.Cron, Zone: s.Zone, Overlap: s.Overlap, CatchUp: FormatDuration(s.CatchUp), Jitter: FormatDuration(s.Jitter), Input: s.Input,
	}
	if s.Every > 0 {
		t.Every, t.Zone = FormatDuration(s.Every), "UTC"
	}
	return encode(t)
}

// FormatDuration writes a duration as rule D4 reads it.
func FormatDuration(d time.Duration) string {
	if d < time.Millisecond {
		return "0s"
	}
	var b strings.Builder
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if n := d / u.unit; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10) + u.name)
			d -= n * u.unit
		}
	}
	return b.String()
}

// ScheduleEvent is the event of a firing.
func ScheduleEvent(at time.Time) json.RawMessage {
	return encode(struct {
		ScheduledAt string `json:"scheduled_at"`
	}{at.UTC().Format(time.RFC3339Nano)})
}

// triggerScope is what the expressions of a trigger see: the event and what the
// workflow is called. It has no clock, so that an event that is looked at again
// gives the same input under the same key.
func triggerScope(of WorkflowName, event json.RawMessage) *expr.Scope {
	return &expr.Scope{Workflow: expr.WorkflowInfo{ID: of.ID, Name: of.Name, Version: of.Version}, Event: event}
}

// WorkflowName is what a workflow is called.
type WorkflowName struct{ ID, Name, Version string }

// Called gives what the workflow is called.
func (d *Definition) Called() WorkflowName {
	return WorkflowName{ID: d.ID, Name: d.Name, Version: d.Version}
}

// Holds says whether an event starts a run. The error is a *parley.Error of code
// expression or limit.
func (t *Trigger) Holds(of WorkflowName, event json.RawMessage) (bool, error) {
	if t.If == nil {
		return true, nil
	}
	return t.If.Eval(triggerScope(of, event))
}

// InputOf gives the input of the run that an event starts. The error is a
// *parley.Error of code expression or limit.
func (t *Trigger) InputOf(of WorkflowName, event json.RawMessage) (json.RawMessage, error) {
	if t.Input == nil {
		return event, nil
	}
	return t.Input.Eval(triggerScope(of, event))
}

// KeyOf gives the idempotency key that idempotency_key makes of an event; "" if
// the trigger names none: then it is the id of the event. The error is a
// *parley.Error of code expression, or limit for one that is longer than 255.
func (t *Trigger) KeyOf(of WorkflowName, event json.RawMessage) (string, error) {
	if t.IdempotencyKey == nil {
		return "", nil
	}
	v, err := t.IdempotencyKey.Eval(triggerScope(of, event))
	if err != nil {
		return "", err
	}
	var key string
	if json.Unmarshal(v, &key) != nil {
		key = string(v)
	}
	if n := utf8.RuneCountInString(key); n > maxTriggerKey {
		return "", parley.Errorf(parley.CodeLimit, "idempotency_key: %d characters, the limit is %d", n, maxTriggerKey)
	}
	return key, nil
}

// maxTriggerKey bounds keys (language.md §10).
const maxTriggerKey = 255
