package zone

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/jsonrpc"
)

// A Profile says which params of execute_task are required.
type Profile string

// The profiles: strict as the documents have it (ZN-2): channel, text and
// bot_token; relaxed wants the text only, and the token never leaves the
// Verification Zone.
const (
	ProfileStrict  Profile = "strict"
	ProfileRelaxed Profile = "relaxed"
)

// required are the params without which there is no task.
func (p Profile) required() []string {
	if p == ProfileStrict {
		return []string{"text", "channel", "bot_token"}
	}
	return []string{"text"}
}

// MaxCorrelationID is how long a correlation id may be, in bytes, since every line
// of the logs has it.
const MaxCorrelationID = 256

// A Task is the params of execute_task (ZN-2).
type Task struct {
	// Channel is where the question was asked, required by ProfileStrict.
	Channel string
	// Text is the question.
	Text string
	// BotToken is for platforms that answer the person themselves. It is required
	// by ProfileStrict and absent from requests of ProfileRelaxed. It is never kept,
	// passed on or sent back.
	BotToken parley.Secret
	// CorrelationID finds the task in the logs of both zones.
	CorrelationID string
	// ThreadTS is the thread that the answer goes to, TeamID and UserID are who
	// asked.
	ThreadTS, TeamID, UserID string
	// Attachments came with the question, by reference.
	Attachments []Attachment
}

// An Attachment is a file that came with a question: its content stays where it
// is.
type Attachment struct {
	ID       string `json:"id,omitempty"`
	Name     string `json:"name,omitempty"`
	MIMEType string `json:"mimetype,omitempty"`
	// Size is in bytes, 0 if it is not known.
	Size int64 `json:"size,omitempty"`
	// PresignedURL gives the content to whoever has it, for a short time; "" where
	// the Verification Zone gives none.
	PresignedURL string `json:"presigned_url,omitempty"`
}

// taskWire is a Task as it is sent. Pointers tell what is absent from what is
// empty; doc is the description in the JSON Schema.
type taskWire struct {
	Channel       *string      `json:"channel,omitempty" doc:"where the question was asked"`
	Text          *string      `json:"text,omitempty" doc:"the question"`
	BotToken      *string      `json:"bot_token,omitempty" doc:"for platforms that answer the person themselves; never kept, passed on or sent back"`
	CorrelationID *string      `json:"correlation_id,omitempty" doc:"finds the task in the logs of both zones"`
	ThreadTS      *string      `json:"thread_ts,omitempty" doc:"the thread that the answer goes to"`
	Attachments   []Attachment `json:"attachments,omitempty" doc:"files that came with the question, by reference"`
	TeamID        *string      `json:"team_id,omitempty" doc:"the team of who asked"`
	UserID        *string      `json:"user_id,omitempty" doc:"who asked"`
}

// decodeTask reads the params of execute_task. The error is an *Error with the
// code of invalid params, whose data names every member that is missing.
func (c *Codec) decodeTask(params json.RawMessage) (Task, *Error) {
	var w taskWire
	if err := c.decodeParams(params, &w); err != nil {
		return Task{}, err
	}
	t := Task{
		Channel: deref(w.Channel), Text: deref(w.Text), CorrelationID: deref(w.CorrelationID), ThreadTS: deref(w.ThreadTS),
		TeamID: deref(w.TeamID), UserID: deref(w.UserID), Attachments: w.Attachments,
	}
	if token := deref(w.BotToken); token != "" {
		t.BotToken = parley.NewSecret([]byte(token))
	}
	if len(t.CorrelationID) > MaxCorrelationID {
		fault := NewError(ReasonInvalidParams)
		fault.Field, fault.Message = "correlation_id", fmt.Sprintf("invalid params: correlation_id must be a string of at most %d bytes", MaxCorrelationID)
		return Task{}, fault
	}
	given := map[string]bool{"text": strings.TrimSpace(t.Text) != "", "channel": t.Channel != "", "bot_token": !t.BotToken.IsZero()}
	var missing []string
	for _, name := range c.profile.required() {
		if !given[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return Task{}, &Error{
			Code: jsonrpc.CodeInvalidParams, Reason: ReasonInvalidParams, CorrelationID: t.CorrelationID, Missing: missing,
			Message: "missing params: " + strings.Join(missing, ", "),
		}
	}
	return t, nil
}

// encode gives the params as they are sent. With ProfileRelaxed the token stays
// here.
func (t Task) encode(profile Profile) ([]byte, error) {
	w := taskWire{
		Channel: ref(t.Channel), Text: &t.Text, CorrelationID: ref(t.CorrelationID), ThreadTS: ref(t.ThreadTS),
		TeamID: ref(t.TeamID), UserID: ref(t.UserID), Attachments: t.Attachments,
	}
	if profile == ProfileStrict {
		w.BotToken = ref(string(t.BotToken.Reveal()))
	}
	return marshal(w)
}

// A Query is the params of get_async_task_result.
type Query struct {
	// TaskID is what the acceptance said.
	TaskID        string `json:"task_id" doc:"what the acceptance said, or the id of the request"`
	CorrelationID string `json:"correlation_id,omitempty" doc:"finds the request in the logs of both zones"`
}

func ref(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
