package zone

import (
	"encoding/json"
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
// empty.
type taskWire struct {
	Channel       *string      `json:"channel,omitempty"`
	Text          *string      `json:"text,omitempty"`
	BotToken      *string      `json:"bot_token,omitempty"`
	CorrelationID *string      `json:"correlation_id,omitempty"`
	ThreadTS      *string      `json:"thread_ts,omitempty"`
	Attachments   []Attachment `json:"attachments,omitempty"`
	TeamID        *string      `json:"team_id,omitempty"`
	UserID        *string      `json:"user_id,omitempty"`
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
	var missing []string
	if strings.TrimSpace(t.Text) == "" {
		missing = append(missing, "text")
	}
	if c.profile == ProfileStrict && t.Channel == "" {
		missing = append(missing, "channel")
	}
	if c.profile == ProfileStrict && t.BotToken.IsZero() {
		missing = append(missing, "bot_token")
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
	return json.Marshal(w)
}

// A Query is the params of get_async_task_result.
type Query struct {
	// TaskID is what the acceptance said.
	TaskID        string `json:"task_id"`
	CorrelationID string `json:"correlation_id,omitempty"`
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
