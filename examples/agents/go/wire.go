package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

const (
	maxParts = 100 // parts of one message
	maxDepth = 64  // of a data part
	maxID    = 256 // bytes of an id that a client chooses
)

// dialect writes and reads one version of A2A; v1 is 1.0, else it is 0.3. What
// only one of them has is left out by the other.
type dialect struct{ v1 bool }

// kind is the member by which 0.3 tells objects apart.
func (d dialect) kind(name string) string {
	if d.v1 {
		return ""
	}
	return name
}

type wireTask struct {
	Kind      string         `json:"kind,omitempty"`
	ID        string         `json:"id"`
	ContextID string         `json:"contextId"`
	Status    wireStatus     `json:"status"`
	Artifacts []wireArtifact `json:"artifacts,omitempty"`
	History   []wireMessage  `json:"history,omitempty"`
}

type wireStatus struct {
	State     string       `json:"state"`
	Timestamp string       `json:"timestamp"`
	Message   *wireMessage `json:"message,omitempty"`
}

type wireArtifact struct {
	ArtifactID string     `json:"artifactId"`
	Name       string     `json:"name"`
	Parts      []wirePart `json:"parts"`
}

type wireMessage struct {
	Kind      string     `json:"kind,omitempty"`
	MessageID string     `json:"messageId"`
	Role      string     `json:"role"`
	Parts     []wirePart `json:"parts"`
	TaskID    string     `json:"taskId,omitempty"`
	ContextID string     `json:"contextId,omitempty"`
}

type wirePart struct {
	Kind      string          `json:"kind,omitempty"`
	Text      *string         `json:"text,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	MediaType string          `json:"mediaType,omitempty"`
}

type statusUpdate struct {
	Kind      string     `json:"kind,omitempty"`
	TaskID    string     `json:"taskId"`
	ContextID string     `json:"contextId"`
	Status    wireStatus `json:"status"`
	Final     *bool      `json:"final,omitempty"` // 0.3
}

type artifactUpdate struct {
	Kind      string       `json:"kind,omitempty"`
	TaskID    string       `json:"taskId"`
	ContextID string       `json:"contextId"`
	Artifact  wireArtifact `json:"artifact"`
	Append    bool         `json:"append"`
	LastChunk bool         `json:"lastChunk"`
}

// wrapped is how 1.0 says what a result is.
type wrapped struct {
	Task           any `json:"task,omitempty"`
	StatusUpdate   any `json:"statusUpdate,omitempty"`
	ArtifactUpdate any `json:"artifactUpdate,omitempty"`
}

// task writes t as it is now, with at most history of its messages, nil being
// all of them.
func (d dialect) task(t *Task, history *int) wireTask {
	out := wireTask{Kind: d.kind("task"), ID: t.id, ContextID: t.contextID, Status: d.status(t.status)}
	if len(t.result) > 0 {
		out.Artifacts = []wireArtifact{d.artifact(t.result)}
	}
	messages := t.history
	if history != nil {
		messages = messages[max(0, len(messages)-*history):]
	}
	for _, m := range messages {
		out.History = append(out.History, d.message(m))
	}
	return out
}

// sent is a task as the result of a send.
func (d dialect) sent(t wireTask) any {
	if d.v1 {
		return wrapped{Task: t}
	}
	return t
}

func (d dialect) event(t *Task, e event) any {
	if e.status != nil {
		out := statusUpdate{TaskID: t.id, ContextID: t.contextID, Status: d.status(*e.status)}
		if d.v1 {
			return wrapped{StatusUpdate: out}
		}
		final := resting(e.status.state)
		out.Kind, out.Final = "status-update", &final
		return out
	}
	out := artifactUpdate{
		Kind: d.kind("artifact-update"), TaskID: t.id, ContextID: t.contextID,
		Artifact: d.artifact(e.parts), Append: e.append, LastChunk: e.last,
	}
	if d.v1 {
		return wrapped{ArtifactUpdate: out}
	}
	return out
}

func (d dialect) status(s status) wireStatus {
	out := wireStatus{State: s.state, Timestamp: s.at.Format("2006-01-02T15:04:05.000Z")}
	if d.v1 {
		out.State = "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(s.state, "-", "_"))
	}
	if s.message != nil {
		m := d.message(*s.message)
		out.Message = &m
	}
	return out
}

func (d dialect) message(m message) wireMessage {
	role := m.role
	if d.v1 {
		role = "ROLE_" + strings.ToUpper(role)
	}
	return wireMessage{d.kind("message"), m.id, role, d.parts(m.parts), m.taskID, m.contextID}
}

func (d dialect) artifact(parts []part) wireArtifact {
	return wireArtifact{ArtifactID: "result", Name: "result", Parts: d.parts(parts)}
}

func (d dialect) parts(parts []part) []wirePart {
	out := make([]wirePart, len(parts))
	for i, p := range parts {
		switch {
		case p.data == nil:
			out[i] = wirePart{Kind: d.kind("text"), Text: &p.text}
		case d.v1:
			out[i] = wirePart{Data: p.data, MediaType: "application/json"}
		case p.data[0] == '{':
			out[i] = wirePart{Kind: "data", Data: p.data}
		default: // 0.3 knows objects only
			out[i] = wirePart{Kind: "data", Data: json.RawMessage(`{"value":` + string(p.data) + `}`)}
		}
	}
	return out
}

// params has the members of every operation's params.
type params struct {
	Message       *wireMessage  `json:"message"`
	Configuration configuration `json:"configuration"`

	ID            string `json:"id"`
	HistoryLength *int   `json:"historyLength"`

	ContextID            string    `json:"contextId"`
	Status               string    `json:"status"`
	StatusTimestampAfter time.Time `json:"statusTimestampAfter"`
	IncludeArtifacts     bool      `json:"includeArtifacts"`
	PageSize             *int      `json:"pageSize"`
	PageToken            string    `json:"pageToken"`
}

type configuration struct {
	HistoryLength              *int            `json:"historyLength"`
	Blocking                   *bool           `json:"blocking"`                   // 0.3
	ReturnImmediately          bool            `json:"returnImmediately"`          // 1.0
	PushNotificationConfig     json.RawMessage `json:"pushNotificationConfig"`     // 0.3
	TaskPushNotificationConfig json.RawMessage `json:"taskPushNotificationConfig"` // 1.0
}

// waits says whether a send waits for the end; both dialects do unless told
// otherwise.
func (c configuration) waits(d dialect) bool {
	if d.v1 {
		return !c.ReturnImmediately
	}
	return c.Blocking == nil || *c.Blocking
}

// readMessage checks and takes the message of a send.
func (d dialect) readMessage(m *wireMessage) (message, error) {
	role := "user"
	if d.v1 {
		role = "ROLE_USER"
	}
	switch {
	case m == nil:
		return message{}, faultf(codeInvalidParams, "message is missing")
	case m.MessageID == "":
		return message{}, faultf(codeInvalidParams, "message.messageId is missing")
	case max(len(m.MessageID), len(m.TaskID), len(m.ContextID)) > maxID:
		return message{}, faultf(codeInvalidParams, "an id is longer than %d bytes", maxID)
	case m.Role != role:
		return message{}, faultf(codeInvalidParams, "message.role must be %s", role)
	case len(m.Parts) == 0 || len(m.Parts) > maxParts:
		return message{}, faultf(codeInvalidParams, "message.parts must have 1 to %d parts", maxParts)
	}
	out := message{id: m.MessageID, role: "user", taskID: m.TaskID, contextID: m.ContextID}
	for _, p := range m.Parts {
		switch {
		case p.Text != nil:
			out.parts = append(out.parts, part{text: *p.Text})
		case deeper(p.Data, maxDepth):
			return message{}, faultf(codeInvalidParams, "data is nested more than %d deep", maxDepth)
		case p.Data != nil:
			out.parts = append(out.parts, part{data: p.Data})
		default:
			return message{}, faultf(codeContentType, "this agent takes text and data parts only")
		}
	}
	return out, nil
}

// deeper reports whether a JSON value is nested more than limit deep.
func deeper(value json.RawMessage, limit int) bool {
	depth := 0
	for dec := json.NewDecoder(bytes.NewReader(value)); ; {
		token, err := dec.Token()
		if err != nil {
			return false // the end
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > limit {
				return true
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

type object = map[string]any

// card has the shapes of 0.3 and 1.0 at once: neither has a member that the
// other uses for something else.
func card(url string) object {
	modes := []string{"text/plain", "application/json"}
	skill := func(id, name, description, tag string) object {
		return object{"id": id, "name": name, "description": description, "tags": []string{tag}}
	}
	return object{
		"name": "example", "version": "1.0.0",
		"description": "Echoes, works for long, asks, or fails, as the first word of a message says.",
		// 1.0
		"supportedInterfaces": []object{
			{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
			{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
		},
		// 0.3
		"protocolVersion": "0.3.0", "url": url, "preferredTransport": "JSONRPC",
		// both
		"capabilities":      object{"streaming": true, "pushNotifications": false},
		"defaultInputModes": modes, "defaultOutputModes": modes,
		"skills": []object{
			skill("echo", "Echo", "echo TEXT: answers TEXT at once", "text"),
			skill("long", "Long", "long SECONDS: works in the background", "task"),
			skill("ask", "Ask", "ask: asks a question and waits", "task"),
			skill("fail", "Fail", "fail: fails", "task"),
		},
	}
}
