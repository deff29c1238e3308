package sample

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// mockVerb is what a method of A2A does.
type mockVerb int

const (
	verbNone mockVerb = iota
	verbSend
	verbStream
	verbGet
	verbCancel
	verbSubscribe
)

// mockMethod takes a method apart: its name says the dialect.
func mockMethod(name string) (mockVerb, dialect) {
	switch name {
	case "message/send":
		return verbSend, dialect{}
	case "message/stream":
		return verbStream, dialect{}
	case "tasks/get":
		return verbGet, dialect{}
	case "tasks/cancel":
		return verbCancel, dialect{}
	case "tasks/resubscribe":
		return verbSubscribe, dialect{}
	case "SendMessage":
		return verbSend, dialect{modern: true}
	case "SendStreamingMessage":
		return verbStream, dialect{modern: true}
	case "GetTask":
		return verbGet, dialect{modern: true}
	case "CancelTask":
		return verbCancel, dialect{modern: true}
	case "SubscribeToTask":
		return verbSubscribe, dialect{modern: true}
	}
	return verbNone, dialect{}
}

// mockParams are those of every method that is served.
type mockParams struct {
	ID      string `json:"id"`
	Message struct {
		MessageID string            `json:"messageId"`
		ContextID string            `json:"contextId"`
		TaskID    string            `json:"taskId"`
		Parts     []json.RawMessage `json:"parts"`
	} `json:"message"`
	Configuration struct {
		Blocking          *bool `json:"blocking"`
		ReturnImmediately bool  `json:"returnImmediately"`
	} `json:"configuration"`
}

// impatient says that the answer is not to wait for the end of the task.
func (p *mockParams) impatient() bool {
	b := p.Configuration.Blocking
	return p.Configuration.ReturnImmediately || b != nil && !*b
}

// rpcFault is an error of JSON-RPC.
type rpcFault struct {
	code int
	text string
}

// mockErrand is one request of A2A on its way to an answer.
type mockErrand struct {
	w      http.ResponseWriter
	r      *http.Request
	id     json.RawMessage
	speak  dialect
	params mockParams
	call   MockCall
}

func (m *Mock) rpc(w http.ResponseWriter, r *http.Request, req mockRequest) {
	e := &mockErrand{w: w, r: r, id: req.ID, call: MockCall{Method: req.Method, Header: attemptHeaders(r)}}
	if !bytes.Equal(req.JSONRPC, []byte(`"2.0"`)) || !validRPCID(req.ID) {
		rpcFail(w, json.RawMessage("null"), -32600, `jsonrpc must be "2.0", and id a string or a number`)
		return
	}
	if json.Unmarshal(req.ID, &e.call.RequestID) != nil {
		e.call.RequestID = string(req.ID)
	}
	verb, speak := mockMethod(req.Method)
	if e.speak = speak; verb == verbNone {
		rpcFail(w, e.id, -32601, "Method not found: "+req.Method)
		return
	}
	if req.Params == nil {
		req.Params = json.RawMessage("{}")
	}
	if err := json.Unmarshal(req.Params, &e.params); err != nil {
		rpcFail(w, e.id, -32602, "params: "+err.Error())
		return
	}
	switch verb {
	case verbSend, verbStream:
		m.send(e, verb == verbStream)
	case verbSubscribe:
		m.subscribe(e)
	default:
		m.about(e, verb == verbCancel)
	}
}

func validRPCID(id json.RawMessage) bool {
	return len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// send takes a message: a new task, the answer to a question, or one that has
// come before.
func (m *Mock) send(e *mockErrand, stream bool) {
	msg := e.params.Message
	e.call.MessageID = msg.MessageID
	if text := badMessage(&e.params); text != "" {
		rpcFail(e.w, e.id, -32602, text)
		return
	}
	if stream && !m.cfg.Stream {
		rpcFail(e.w, e.id, -32004, "this agent has no streams")
		return
	}
	t, fault := m.take(e)
	switch {
	case fault != nil && fault.text == mockFailure && m.cfg.Status != 0:
		m.failStatus(e.w, e.call)
	case fault != nil:
		e.call.Answer = fmt.Sprintf("error %d", fault.code)
		m.tell(e.call)
		rpcFail(e.w, e.id, fault.code, fault.text)
	case stream:
		m.stream(e, t)
	default:
		if !e.params.impatient() {
			m.outlast(e.r.Context(), t, e.call, nil)
		}
		v := m.view(t)
		e.call.Answer = v.state
		m.tell(e.call)
		rpcResult(e.w, e.id, e.speak.wrapped("task", e.speak.task(v)))
	}
}

// badMessage says what is wrong with a message, or "".
func badMessage(p *mockParams) string {
	if p.Message.MessageID == "" || len(p.Message.Parts) == 0 {
		return "params.message needs messageId and parts"
	}
	for i, part := range p.Message.Parts {
		if len(part) == 0 || part[0] != '{' {
			return fmt.Sprintf("params.message.parts[%d] is not an object", i)
		}
	}
	return ""
}

// take finds or makes the task of a message.
func (m *Mock) take(e *mockErrand) (*mockTask, *rpcFault) {
	msg := e.params.Message
	key := "message " + msg.MessageID
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.memory.byKey[key]; t != nil {
		e.call.TaskID, e.call.Again = t.id, true
		return t, nil
	}
	now := m.cfg.Now()
	t := m.memory.byID[msg.TaskID]
	e.call.TaskID = msg.TaskID
	switch {
	case msg.TaskID != "" && t == nil:
		return nil, &rpcFault{-32001, "Task not found: " + msg.TaskID}
	case t != nil && t.at(now) != stateAsking:
		return nil, &rpcFault{-32004, "the task does not wait for an answer: it is " + t.at(now)}
	case m.fails():
		return nil, &rpcFault{-32000, mockFailure}
	}
	if t != nil {
		t.state, t.parts, t.due = stateCompleted, m.parts(e), now.Add(m.cfg.Delay)
		m.memory.know(t, key)
		return t, nil
	}
	t = &mockTask{
		id: "task-" + msg.MessageID, contextID: cmp.Or(msg.ContextID, "context-"+msg.MessageID),
		state: stateCompleted, parts: m.parts(e), due: now.Add(m.cfg.Delay), changed: make(chan struct{}),
	}
	if m.cfg.Question != "" {
		t.state = stateAsking
	}
	e.call.TaskID = t.id
	m.memory.add(t, key)
	return t, nil
}

// parts are what a task gives: the reply, or the message's own.
func (m *Mock) parts(e *mockErrand) []json.RawMessage {
	if m.cfg.Reply == nil {
		return e.params.Message.Parts
	}
	return []json.RawMessage{e.speak.part(m.cfg.Reply)}
}

// about answers tasks/get and tasks/cancel.
func (m *Mock) about(e *mockErrand, cancel bool) {
	id := e.params.ID
	m.mu.Lock()
	t, late := m.memory.byID[id], ""
	if t != nil && cancel {
		switch state := t.at(m.cfg.Now()); state {
		case stateWorking, stateAsking:
			if state == stateWorking {
				close(t.changed)
				t.changed = make(chan struct{})
			}
			t.state, t.due = stateCanceled, m.cfg.Now()
		default:
			late = state
		}
	}
	m.mu.Unlock()
	e.call.TaskID = id
	switch {
	case t == nil:
		e.call.Answer = "error -32001"
		rpcFail(e.w, e.id, -32001, "Task not found: "+id)
	case late != "":
		e.call.Answer = "error -32002"
		rpcFail(e.w, e.id, -32002, "Task cannot be canceled: it is "+late)
	default:
		v := m.view(t)
		e.call.Answer = v.state
		rpcResult(e.w, e.id, e.speak.task(v))
	}
	if cancel {
		m.tell(e.call)
	}
}

// subscribe attaches to a task that is at work.
func (m *Mock) subscribe(e *mockErrand) {
	m.mu.Lock()
	t := m.memory.byID[e.params.ID]
	m.mu.Unlock()
	switch {
	case !m.cfg.Stream:
		rpcFail(e.w, e.id, -32004, "this agent has no streams")
	case t == nil:
		rpcFail(e.w, e.id, -32001, "Task not found: "+e.params.ID)
	case m.view(t).state != stateWorking:
		rpcFail(e.w, e.id, -32004, "the task is not at work; get it instead")
	default:
		e.call.TaskID = t.id
		m.stream(e, t)
	}
}

// stream says what t is, and what becomes of it.
func (m *Mock) stream(e *mockErrand, t *mockTask) {
	e.w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(e.w)
	send := func(kind string, v map[string]any) {
		b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": e.id, "result": e.speak.wrapped(kind, v)}) // made here
		_, _ = fmt.Fprintf(e.w, "data: %s\n\n", b)                                                             // nobody is left to tell
		_ = out.Flush()
	}
	first := m.view(t)
	send("task", e.speak.task(first))
	last := first
	if first.state == stateWorking {
		m.outlast(e.r.Context(), t, e.call, func() { _, _ = fmt.Fprint(e.w, ": still at work\n\n"); _ = out.Flush() })
		if last = m.view(t); last.state == stateCompleted {
			send("artifactUpdate", e.speak.artifact(last))
		}
	}
	e.call.Answer = last.state + ", streamed"
	m.tell(e.call)
	send("statusUpdate", e.speak.status(last))
}

// view is a task as it is now.
func (m *Mock) view(t *mockTask) taskView {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	v := taskView{id: t.id, contextID: t.contextID, state: t.at(now), at: now.UTC().Format(time.RFC3339Nano)}
	if v.state != stateWorking {
		v.at = t.due.UTC().Format(time.RFC3339Nano)
	}
	switch v.state {
	case stateCompleted:
		v.parts = t.parts
	case stateAsking:
		v.question = m.cfg.Question
	}
	return v
}
