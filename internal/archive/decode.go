package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// MaxLine bounds a line that is read, in bytes. All values of a run (256 MiB unless
// set otherwise) may stand in it twice: in its events and in its attempts.
const MaxLine = 576 << 20

// Decode reads the line of a run, without its line end or with it. It is strict:
// members that it does not know, members that are given twice, values of other types
// and other forms of times are errors with code invalid. Whether the parts go together
// is not its affair.
func Decode(text []byte) (store.Archived, error) {
	text = bytes.TrimSuffix(text, []byte("\n"))
	if len(text) > MaxLine {
		return store.Archived{}, parley.Errorf(parley.CodeLimit, "the line has %d bytes, the limit is %d MiB", len(text), MaxLine>>20)
	}
	var in lineIn
	if err := json.Unmarshal(text, &in, json.RejectUnknownMembers(true)); err != nil {
		return store.Archived{}, fault(text, err)
	}
	if in.Format != Format {
		return store.Archived{}, parley.Errorf(parley.CodeInvalid, "the line has the format %.40q, this program reads %s", in.Format, Format)
	}
	return in.archived(), nil
}

// fault says what is wrong without repeating any of the values.
func fault(text []byte, err error) error {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		what := "is not valid JSON"
		if errors.Is(err, jsontext.ErrDuplicateName) {
			what = "has a member twice"
		} else if int(e.ByteOffset) >= len(text) {
			what = "ends too early"
		}
		return parley.Errorf(parley.CodeInvalid, "the line %s, at byte %d", what, e.ByteOffset+1)
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		if e.JSONPointer == "" {
			return parley.Errorf(parley.CodeInvalid, "the line is JSON, and no line of an archive")
		}
		what := "does not belong there, or is of another type"
		if errors.Is(err, json.ErrUnknownName) {
			what = "is not known"
		}
		return parley.Errorf(parley.CodeInvalid, "the line: member %.200s %s", e.JSONPointer, what)
	}
	return parley.Errorf(parley.CodeInvalid, "the line cannot be read")
}

// stamp is a time as lines hold it.
type stamp time.Time

// UnmarshalText reads one form only.
func (s *stamp) UnmarshalText(b []byte) error {
	t, err := time.Parse(timeForm, string(b))
	if err != nil || t.Format(timeForm) != string(b) {
		return fmt.Errorf("times are written as %s", timeForm)
	}
	*s = stamp(t.UTC())
	return nil
}

func (s stamp) time() time.Time { return time.Time(s) }

// bytesIn is a value: as it is, or in base64.
func bytesIn(v jsontext.Value, b []byte) []byte {
	if v != nil {
		return v
	}
	return b
}

type lineIn struct {
	Format     string        `json:"format"`
	Run        runIn         `json:"run"`
	Definition *definitionIn `json:"definition"`
	Events     []eventIn     `json:"events"`
	Attempts   []attemptIn   `json:"attempts"`
}

type runIn struct {
	ID           string            `json:"id"`
	Workflow     string            `json:"workflow"`
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	DefinitionID string            `json:"definition_id"`
	Status       parley.RunStatus  `json:"status"`
	Phase        string            `json:"phase"`
	Paused       bool              `json:"paused"`
	Cancelling   bool              `json:"cancelling"`
	Hidden       bool              `json:"hidden"`
	Labels       map[string]string `json:"labels"`
	RetriedFrom  string            `json:"retried_from"`
	ParentRun    string            `json:"parent_run"`
	ParentStep   string            `json:"parent_step"`
	TriggeredBy  string            `json:"triggered_by"`
	Error        jsontext.Value    `json:"error"`
	ErrorBytes   []byte            `json:"error_bytes"`
	CancelledBy  string            `json:"cancelled_by"`
	CancelReason string            `json:"cancel_reason"`
	Key          string            `json:"idempotency_key"`
	InputDigest  string            `json:"input_digest"`
	CreatedAt    stamp             `json:"created_at"`
	UpdatedAt    stamp             `json:"updated_at"`
	StartedAt    stamp             `json:"started_at"`
	EndedAt      stamp             `json:"ended_at"`
}

type definitionIn struct {
	ID          string `json:"id"`
	Workflow    string `json:"workflow"`
	Version     string `json:"version"`
	Number      int    `json:"number"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Format      string `json:"format"`
	Source      string `json:"source"`
	SourceBytes []byte `json:"source_bytes"`
	CreatedAt   stamp  `json:"created_at"`
	CreatedBy   string `json:"created_by"`
}

type eventIn struct {
	At        stamp            `json:"at"`
	Type      parley.EventType `json:"type"`
	Step      string           `json:"step"`
	Attempt   int              `json:"attempt"`
	Data      jsontext.Value   `json:"data"`
	DataBytes []byte           `json:"data_bytes"`
}

type attemptIn struct {
	ID              string               `json:"id"`
	Step            string               `json:"step"`
	Number          int                  `json:"number"`
	Agent           string               `json:"agent"`
	Input           jsontext.Value       `json:"input"`
	InputBytes      []byte               `json:"input_bytes"`
	CorrelationID   string               `json:"correlation_id"`
	ContextID       string               `json:"context_id"`
	OutcomeUnknown  parley.OutcomePolicy `json:"outcome_unknown"`
	OnOpen          parley.OnOpen        `json:"on_open"`
	AttemptTimeout  int64                `json:"attempt_timeout_us"`
	Silence         int64                `json:"silence_us"`
	Urgency         int                  `json:"urgency"`
	Orphanings      int                  `json:"orphanings"`
	CancelRequested bool                 `json:"cancel_requested"`
	AgentTaskID     string               `json:"agent_task_id"`
	AgentContextID  string               `json:"agent_context_id"`
	AgentEndpoint   string               `json:"agent_endpoint"`
	AgentVersion    string               `json:"agent_version"`
	Question        jsontext.Value       `json:"question"`
	QuestionBytes   []byte               `json:"question_bytes"`
	Questions       int                  `json:"questions"`
	Reply           jsontext.Value       `json:"reply"`
	ReplyBytes      []byte               `json:"reply_bytes"`
	ReplySent       bool                 `json:"reply_sent"`
	Outcome         string               `json:"outcome"`
	Output          jsontext.Value       `json:"output"`
	OutputBytes     []byte               `json:"output_bytes"`
	Meta            jsontext.Value       `json:"meta"`
	MetaBytes       []byte               `json:"meta_bytes"`
	Deadline        stamp                `json:"deadline"`
	ScheduledAt     stamp                `json:"scheduled_at"`
	ClaimedAt       stamp                `json:"claimed_at"`
	SettledAt       stamp                `json:"settled_at"`
	Late            []lateIn             `json:"late"`
}

type lateIn struct {
	At          stamp          `json:"at"`
	From        string         `json:"from"`
	Outcome     string         `json:"outcome"`
	Output      jsontext.Value `json:"output"`
	OutputBytes []byte         `json:"output_bytes"`
	Meta        jsontext.Value `json:"meta"`
	MetaBytes   []byte         `json:"meta_bytes"`
}

func (in *lineIn) archived() store.Archived {
	r := &in.Run
	a := store.Archived{
		Run: store.Run{
			ID: r.ID, Workflow: r.Workflow, Name: r.Name, Version: r.Version, DefinitionID: r.DefinitionID, Seq: int64(len(in.Events)),
			Status: r.Status, Phase: r.Phase, Paused: r.Paused, Cancelling: r.Cancelling, Hidden: r.Hidden, Labels: r.Labels,
			RetriedFrom: r.RetriedFrom, ParentRun: r.ParentRun, ParentStep: r.ParentStep, TriggeredBy: r.TriggeredBy, Error: bytesIn(r.Error, r.ErrorBytes),
			CancelledBy: r.CancelledBy, CancelReason: r.CancelReason,
			CreatedAt: r.CreatedAt.time(), UpdatedAt: r.UpdatedAt.time(), StartedAt: r.StartedAt.time(), EndedAt: r.EndedAt.time(),
		},
		IdempotencyKey: r.Key, InputDigest: r.InputDigest,
	}
	if d := in.Definition; d != nil {
		source := d.SourceBytes
		if d.Source != "" {
			source = []byte(d.Source)
		}
		sum := sha256.Sum256(source)
		a.Definition = &store.Definition{
			ID: d.ID, Workflow: d.Workflow, Version: d.Version, Number: d.Number, Name: d.Name, Description: d.Description, Format: d.Format,
			Source: source, Digest: hex.EncodeToString(sum[:]),
			CreatedAt: d.CreatedAt.time(), UpdatedAt: d.CreatedAt.time(), CreatedBy: d.CreatedBy, UpdatedBy: d.CreatedBy,
		}
	}
	for i := range in.Events {
		e := &in.Events[i]
		a.Events = append(a.Events, parley.Event{
			Seq: int64(i) + 1, At: e.At.time(), Type: e.Type, Run: r.ID, Step: e.Step, Attempt: e.Attempt, Data: bytesIn(e.Data, e.DataBytes),
		})
	}
	for i := range in.Attempts {
		a.Attempts = append(a.Attempts, in.Attempts[i].archived())
	}
	return a
}

func (t *attemptIn) archived() store.ArchivedAttempt {
	a := store.ArchivedAttempt{
		ID: t.ID, Step: t.Step, Number: t.Number, Agent: t.Agent, CorrelationID: t.CorrelationID, ContextID: t.ContextID,
		Input: bytesIn(t.Input, t.InputBytes),
		Policy: store.Policy{
			OutcomeUnknown: t.OutcomeUnknown, OnOpen: t.OnOpen,
			AttemptTimeout: time.Duration(t.AttemptTimeout) * time.Microsecond, Silence: time.Duration(t.Silence) * time.Microsecond,
		},
		Urgency: t.Urgency, Orphanings: t.Orphanings, Questions: t.Questions, CancelRequested: t.CancelRequested, ReplySent: t.ReplySent,
		AgentTaskID: t.AgentTaskID, AgentContextID: t.AgentContextID, AgentEndpoint: t.AgentEndpoint, AgentVersion: t.AgentVersion,
		Outcome: t.Outcome, Output: bytesIn(t.Output, t.OutputBytes), Meta: bytesIn(t.Meta, t.MetaBytes),
		Question: bytesIn(t.Question, t.QuestionBytes), Reply: bytesIn(t.Reply, t.ReplyBytes),
		Deadline: t.Deadline.time(), ScheduledAt: t.ScheduledAt.time(), ClaimedAt: t.ClaimedAt.time(), SettledAt: t.SettledAt.time(),
	}
	for _, l := range t.Late {
		a.Late = append(a.Late, store.ArchivedAnswer{
			At: l.At.time(), From: l.From, Outcome: l.Outcome, Output: bytesIn(l.Output, l.OutputBytes), Meta: bytesIn(l.Meta, l.MetaBytes),
		})
	}
	return a
}
