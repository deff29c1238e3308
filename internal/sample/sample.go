package sample

import (
	"cmp"
	_ "embed" // for the workflow
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

//go:embed hello.yaml
var helloYAML string

// Workflow gives the text of the sample workflow, in list form. It needs agents
// called greeter and polisher.
func Workflow() string { return helloYAML }

// maxBody is the largest request that a sample agent reads.
const maxBody = 1 << 20

// Greeter is a Simple A2A agent: it greets input.name, or input.text, and answers
// with the output {"greeting": "Hello, NAME!", "name": "NAME"}.
func Greeter() http.Handler { return http.HandlerFunc(greet) }

func greet(w http.ResponseWriter, r *http.Request) {
	var req struct {
		TaskID string          `json:"task_id"`
		Input  json.RawMessage `json:"input"`
	}
	if !read(w, r, &req) {
		return
	}
	if req.TaskID == "" {
		http.Error(w, "task_id is missing", http.StatusBadRequest)
		return
	}
	name := nameIn(req.Input)
	write(w, map[string]any{
		"task_id": req.TaskID, "status": "success", "error": nil,
		"output": map[string]string{"greeting": "Hello, " + name + "!", "name": name},
	})
}

// nameIn finds whom to greet in an input: its name, its text, the input itself if
// it is a string, else the world.
func nameIn(input json.RawMessage) string {
	var text string
	if json.Unmarshal(input, &text) != nil {
		var o struct {
			Name any `json:"name"`
			Text any `json:"text"`
		}
		_ = json.Unmarshal(input, &o) // anything else is greeted as the world
		if text, _ = o.Name.(string); text == "" {
			text, _ = o.Text.(string)
		}
	}
	if text = strings.TrimSpace(text); text == "" {
		return "World"
	}
	return text
}

// Polisher is an A2A 0.3 agent over JSON-RPC 2.0: it tidies the text of a message
// and answers with a completed task. It serves its card at
// /.well-known/agent-card.json below wherever it is mounted; address is
// what the card names as its URL, and "" takes the one of the request. It remembers nothing:
// tasks/get and tasks/cancel answer that there is no such task.
func Polisher(address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, cardPath) {
			write(w, card(cmp.Or(address, mounted(r, cardPath))))
			return
		}
		polish(w, r)
	})
}

// mounted is the address at which a card was asked for, by the path well below
// it, also below a prefix that was stripped on the way.
func mounted(r *http.Request, well string) string {
	path := r.URL.Path
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		path = u.Path
	}
	return "http://" + r.Host + strings.TrimSuffix(path, well)
}

// Where cards are: now, and before 0.3.
const (
	cardPath    = "/.well-known/agent-card.json"
	oldCardPath = "/.well-known/agent.json"
)

func card(url string) map[string]any {
	return map[string]any{
		"protocolVersion": "0.3.0", "name": "polisher", "version": "1.0.0", "url": url, "preferredTransport": "JSONRPC",
		"description":  "Tidies a text and makes it a little warmer.",
		"capabilities": map[string]any{}, "defaultInputModes": []string{"text/plain"}, "defaultOutputModes": []string{"text/plain"},
		"skills": []any{map[string]any{
			"id": "polish", "name": "Polish", "description": "Tidies a text and makes it a little warmer.", "tags": []string{"text"},
		}},
	}
}

// rpcRequest is a JSON-RPC request to an A2A agent, as far as the agents of this
// package read it.
type rpcRequest struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  struct {
		ID      string     `json:"id"`
		Message rpcMessage `json:"message"`
	} `json:"params"`
}

type rpcMessage struct {
	Kind      string    `json:"kind,omitempty"`
	Role      string    `json:"role"`
	MessageID string    `json:"messageId"`
	ContextID string    `json:"contextId,omitempty"`
	TaskID    string    `json:"taskId,omitempty"`
	Parts     []rpcPart `json:"parts"`
}

type rpcPart struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// text joins the text parts of m.
func (m rpcMessage) text() string {
	var texts []string
	for _, p := range m.Parts {
		if p.Kind == "text" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func polish(w http.ResponseWriter, r *http.Request) {
	var req rpcRequest
	if !read(w, r, &req) {
		return
	}
	m := req.Params.Message
	switch {
	case req.JSONRPC != "2.0":
		rpcFail(w, req.ID, -32600, "jsonrpc must be 2.0")
	case req.Method == "tasks/get", req.Method == "tasks/cancel":
		rpcFail(w, req.ID, -32001, "Task not found: this agent remembers none")
	case req.Method != "message/send":
		rpcFail(w, req.ID, -32601, "Method not found: "+req.Method)
	case m.MessageID == "" || len(m.Parts) == 0:
		rpcFail(w, req.ID, -32602, "params.message needs messageId and parts")
	default:
		rpcResult(w, req.ID, completed(m, polished(m.text())))
	}
}

// completed is a finished A2A task whose one artifact is text.
func completed(m rpcMessage, text string) map[string]any {
	id := "task-" + m.MessageID
	context := m.ContextID
	if context == "" {
		context = "context-" + m.MessageID
	}
	parts := []rpcPart{{Kind: "text", Text: text}}
	m.Kind, m.ContextID, m.TaskID = "message", context, id
	return map[string]any{
		"kind": "task", "id": id, "contextId": context,
		"status":    map[string]any{"state": "completed"},
		"artifacts": []any{map[string]any{"artifactId": "text", "name": "text", "parts": parts}},
		"history": []rpcMessage{m, {
			Kind: "message", Role: "agent", MessageID: "reply-" + m.MessageID, ContextID: context, TaskID: id, Parts: parts,
		}},
	}
}

// polished tidies the space in text, begins it with a capital, ends it as a
// sentence and adds a kind word.
func polished(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "Silence is golden."
	}
	first, n := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[n:]
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "!") && !strings.HasSuffix(text, "?") {
		text += "."
	}
	return text + " It is a pleasure to meet you."
}

// read decodes the body of a POST into v, or answers why it cannot.
func read(w http.ResponseWriter, r *http.Request, v any) bool {
	body, ok := readBody(w, r)
	if !ok {
		return false
	}
	if err := json.Unmarshal(body, v); err != nil {
		http.Error(w, "the body cannot be read: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// readBody gives the body of a POST, or answers why it cannot.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "POST only", http.StatusMethodNotAllowed)
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		return body, true
	}
	status := http.StatusBadRequest
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, "the body cannot be read: "+err.Error(), status)
	return nil, false
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // nobody is left to tell
}

func rpcResult(w http.ResponseWriter, id json.RawMessage, result any) {
	write(w, map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

func rpcFail(w http.ResponseWriter, id json.RawMessage, code int, message string) {
	write(w, map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": message}})
}
