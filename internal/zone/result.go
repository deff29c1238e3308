package zone

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
)

// A Status is what a result says of its task.
type Status string

// The statuses: the first two are those of execute_task (ZN-5), the others those
// of get_async_task_result. StatusError is what some foreign zones put into a
// result for a failure.
const (
	StatusSuccess  Status = "success"
	StatusAccepted Status = "accepted"

	StatusRunning   Status = "running"
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed"
	StatusExpired   Status = "expired"

	StatusError Status = "error"
)

// A Result is the result of execute_task (ZN-5). It never holds a token.
type Result struct {
	Status Status `json:"status"`
	// ResponseText is the answer, of StatusSuccess.
	ResponseText string `json:"response_text,omitempty"`
	// TaskID is what to ask for later, of StatusAccepted, PollAfterMS when, in
	// milliseconds; 0 leaves it to who asks.
	TaskID      string `json:"task_id,omitempty"`
	PollAfterMS int64  `json:"poll_after_ms,omitempty"`

	// Channel, ThreadTS and CorrelationID are those of the task.
	Channel       string `json:"channel,omitempty"`
	ThreadTS      string `json:"thread_ts,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
	// FileArtifact is a file for the person, nil for none.
	FileArtifact *FileArtifact `json:"file_artifact,omitempty"`
	// FileRefused says why there is none although one was sent: FileTooLarge or
	// FileMalformed. It is not sent.
	FileRefused string `json:"-"`

	// ErrorCode and ErrorMessage are of StatusError.
	ErrorCode    string `json:"error_code,omitempty"`
	ErrorMessage string `json:"error_message,omitempty"`

	// More are members that this contract does not know, by their names.
	More map[string]json.RawMessage `json:"-"`
}

// A FileArtifact is a file in a result, its content in one part.
type FileArtifact struct {
	ArtifactID string     `json:"artifactId"`
	Name       string     `json:"name"`
	Parts      []FilePart `json:"parts"`
}

// A FilePart is the content of a file.
type FilePart struct {
	Kind          string `json:"kind"`
	ContentBase64 []byte `json:"contentBase64"`
	FileName      string `json:"fileName"`
	MIMEType      string `json:"mimeType"`
}

// An AsyncResult is the result of get_async_task_result.
type AsyncResult struct {
	// Status is running, completed, failed or expired.
	Status Status `json:"status"`
	// Result is of StatusCompleted, Error of StatusFailed and StatusExpired.
	Result *Result `json:"result,omitempty"`
	Error  *Error  `json:"error,omitempty"`
	// PollAfterMS is when to ask again, in milliseconds; 0 leaves it to who asks.
	PollAfterMS int64 `json:"poll_after_ms,omitempty"`
}

// resultMembers are the members that Result has fields for, and bot_token, which
// is dropped wherever it comes from.
var resultMembers = []string{
	"status", "response_text", "task_id", "poll_after_ms", "channel", "thread_ts", "correlation_id", "file_artifact",
	"error_code", "error_message", "bot_token",
}

// maxMember is how deep the value of a further member of a result may be nested, so
// that no response is too deep, whatever it is wrapped in.
const maxMember = MaxDepth - 16

// Carries says whether a member that the contract does not know may go along in a
// result. Over one that has the name of a known one in another case, holds a member
// twice, is too deep or no Unicode, a [Client] refuses the whole response.
func (c *Codec) Carries(name string, value json.RawMessage) bool {
	for _, known := range resultMembers {
		if name != known && strings.EqualFold(name, known) {
			return false
		}
	}
	if _, err := c.json.Append(nil, value); err != nil || deeper(value, maxMember) {
		return false
	}
	var raw json.RawMessage
	return c.json.Decode(value, &raw) == nil
}

// Why a file is not in a result although one was sent.
const (
	FileTooLarge  = "too-large"
	FileMalformed = "malformed"
)

// refuse says why a file is not to be passed on, or "".
func (f *FileArtifact) refuse(limit int) string {
	if len(f.Parts) != 1 || f.Parts[0].Kind != "file" || f.Parts[0].FileName == "" {
		return FileMalformed
	}
	if len(f.Parts[0].ContentBase64) > limit {
		return FileTooLarge
	}
	return ""
}

// ParseFile reads a file_artifact of a result or of the output of a workflow. It
// returns FileTooLarge or FileMalformed for one that is not to be passed on; limit
// is for its content, in bytes.
func ParseFile(raw json.RawMessage, limit int) (file *FileArtifact, refused string) {
	if raw == nil || string(raw) == "null" {
		return nil, ""
	}
	// Four characters of base64 are three bytes.
	if len(raw)/4*3 > limit+4096 {
		return nil, FileTooLarge
	}
	var f FileArtifact
	if json.Unmarshal(raw, &f) != nil {
		return nil, FileMalformed
	}
	if refused := f.refuse(limit); refused != "" {
		return nil, refused
	}
	return &f, ""
}

// MarshalJSON writes the known members first, then the others in the order of
// their names. Others with the name of a known one are left out. A success has
// its response_text even if that is empty.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result
	wire := struct {
		Status       Status  `json:"status"`
		ResponseText *string `json:"response_text,omitempty"`
		plain
	}{Status: r.Status, ResponseText: ref(r.ResponseText), plain: plain(r)}
	if r.Status == StatusSuccess {
		wire.ResponseText = &r.ResponseText
	}
	known, err := marshal(wire)
	if err != nil || len(r.More) == 0 {
		return known, err
	}
	more := maps.Clone(r.More)
	for _, name := range resultMembers {
		delete(more, name)
	}
	if len(more) == 0 {
		return known, nil
	}
	rest, err := marshal(more)
	if err != nil {
		return nil, err
	}
	return append(append(known[:len(known)-1], ','), rest[1:]...), nil
}

// MarshalJSON writes an error as a response has it.
func (e *Error) MarshalJSON() ([]byte, error) { return marshal(e.wire()) }

// marshal is json.Marshal without escapes for HTML, since nobody puts these texts
// into a page as they are.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
