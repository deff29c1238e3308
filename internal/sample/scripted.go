package sample

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Call is one request that a [Scripted] agent got.
type Call struct {
	// TaskID is task_id, or the id of the JSON-RPC request.
	TaskID string
	// MessageID is the message's, "" in Simple A2A.
	MessageID string
	// Method is "message/send", "tasks/get" …, or "simple-a2a".
	Method string
	// AgentTaskID is the task that tasks/get and tasks/cancel are about.
	AgentTaskID string
	// Input is the input of Simple A2A, or the text of the message as JSON.
	Input json.RawMessage
	// CorrelationID is the header's, and so are Traceparent and Tracestate.
	CorrelationID           string
	Traceparent, Tracestate string
	// At is when the request had been read.
	At time.Time
	// N counts the requests that send this task id, from 1; 0 for tasks/get and
	// tasks/cancel.
	N int
}

// executes reports whether the call makes the agent work.
func (c Call) executes() bool { return c.Method != "tasks/get" && c.Method != "tasks/cancel" }

// CallLog is what was asked of an agent, in order of arrival. It may be used
// concurrently. It grows without limit: it is for tests.
type CallLog struct {
	mu    sync.Mutex
	calls []Call
	sent  map[string]int
}

func (l *CallLog) add(c Call) Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent == nil {
		l.sent = map[string]int{}
	}
	if c.executes() {
		l.sent[c.TaskID]++
		c.N = l.sent[c.TaskID]
	}
	l.calls = append(l.calls, c)
	return c
}

// All gives a copy of the log.
func (l *CallLog) All() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// Executions gives how often the task was sent to the agent.
func (l *CallLog) Executions(taskID string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent[taskID]
}

// Tasks gives how many different tasks were sent, and Sent how many requests
// sent them.
func (l *CallLog) Tasks() (tasks, sent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.sent {
		sent += n
	}
	return len(l.sent), sent
}

// Repeated gives the ids of the tasks that were sent more than once, sorted.
func (l *CallLog) Repeated() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for id, n := range l.sent {
		if n > 1 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Script says what a [Scripted] agent does. Every field may be nil or zero: then
// it completes each task at once with the output {"echo": input}. The functions
// are called concurrently.
type Script struct {
	// Delay is how long to wait before the answer. A client that leaves does not
	// stop the work.
	Delay func(Call) time.Duration
	// Status is the HTTP status; 0 and 200 answer properly, any other with a text.
	Status func(Call) int
	// Output is one JSON value. In A2A it is the text of the artifact.
	Output func(Call) json.RawMessage
	// Error, if it gives a text, fails the task with it.
	Error func(Call) string
	// Polls makes an A2A task a long one: the answer is a task at work, and
	// tasks/get says that it is for so many times before it is completed.
	Polls func(Call) int
	// Now reads the clock for the log; nil is time.Now.
	Now func() time.Time
}

// Scripted is an agent for tests and benchmarks. It speaks Simple A2A and A2A
// 0.3, whichever the request speaks, and keeps a log. It may be used
// concurrently.
type Scripted struct {
	Log    *CallLog
	script Script

	mu    sync.Mutex
	tasks map[string]*longTask
}

type longTask struct {
	message  rpcMessage
	call     Call
	polls    int
	canceled bool
}

// NewScripted makes an agent with an empty log.
func NewScripted(s Script) *Scripted {
	if s.Now == nil {
		s.Now = time.Now
	}
	return &Scripted{Log: &CallLog{}, script: s, tasks: map[string]*longTask{}}
}

// scriptedRequest is a request of either protocol.
type scriptedRequest struct {
	TaskID string          `json:"task_id"`
	Input  json.RawMessage `json:"input"`
	rpcRequest
}

// ServeHTTP implements [http.Handler].
func (s *Scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req scriptedRequest
	if !read(w, r, &req) {
		return
	}
	c := Call{
		CorrelationID: r.Header.Get("X-Correlation-ID"), Traceparent: r.Header.Get("traceparent"), Tracestate: r.Header.Get("tracestate"),
		At: s.script.Now(),
	}
	if req.JSONRPC == "" {
		c.TaskID, c.Method, c.Input = req.TaskID, "simple-a2a", req.Input
	} else {
		_ = json.Unmarshal(req.ID, &c.TaskID) // another type stays ""
		c.Method, c.MessageID, c.AgentTaskID = req.Method, req.Params.Message.MessageID, req.Params.ID
		c.Input, _ = json.Marshal(req.Params.Message.text())
	}
	c = s.Log.add(c)
	if s.script.Delay != nil {
		<-time.After(s.script.Delay(c))
	}
	if s.script.Status != nil {
		if status := s.script.Status(c); status != 0 && status != http.StatusOK {
			http.Error(w, fmt.Sprintf("scripted status %d", status), status)
			return
		}
	}
	if req.JSONRPC == "" {
		s.simple(w, c)
		return
	}
	s.rpc(w, req.rpcRequest, c)
}

func (s *Scripted) simple(w http.ResponseWriter, c Call) {
	if text := s.failure(c); text != "" {
		write(w, map[string]any{"task_id": c.TaskID, "status": "error", "output": nil, "error": text})
		return
	}
	write(w, map[string]any{"task_id": c.TaskID, "status": "success", "output": s.output(c), "error": nil})
}

func (s *Scripted) failure(c Call) string {
	if s.script.Error == nil {
		return ""
	}
	return s.script.Error(c)
}

func (s *Scripted) output(c Call) json.RawMessage {
	if s.script.Output != nil {
		return s.script.Output(c)
	}
	b, _ := json.Marshal(map[string]json.RawMessage{"echo": c.Input}) // was decoded before
	return b
}

func (s *Scripted) rpc(w http.ResponseWriter, req rpcRequest, c Call) {
	m := req.Params.Message
	if !c.executes() {
		s.about(w, req)
		return
	}
	if s.script.Polls != nil {
		if n := s.script.Polls(c); n > 0 {
			t := &longTask{message: m, call: c, polls: n}
			s.mu.Lock()
			s.tasks["task-"+m.MessageID] = t
			s.mu.Unlock()
			rpcResult(w, req.ID, withState(completed(m, ""), "working"))
			return
		}
	}
	s.end(w, req.ID, &longTask{message: m, call: c})
}

// end answers with the final state of t.
func (s *Scripted) end(w http.ResponseWriter, id json.RawMessage, t *longTask) {
	if t.canceled {
		rpcResult(w, id, withState(completed(t.message, ""), "canceled"))
		return
	}
	if text := s.failure(t.call); text != "" {
		task := withState(completed(t.message, ""), "failed")
		task["status"] = map[string]any{"state": "failed", "message": rpcMessage{
			Kind: "message", Role: "agent", MessageID: "reply-" + t.message.MessageID, Parts: []rpcPart{{Kind: "text", Text: text}},
		}}
		rpcResult(w, id, task)
		return
	}
	rpcResult(w, id, completed(t.message, string(s.output(t.call))))
}

// about answers tasks/get and tasks/cancel.
func (s *Scripted) about(w http.ResponseWriter, req rpcRequest) {
	s.mu.Lock()
	t := s.tasks[req.Params.ID]
	var now longTask
	if t != nil {
		if req.Method == "tasks/cancel" && t.polls > 0 {
			t.canceled, t.polls = true, 0
		}
		now = *t
		t.polls = max(t.polls-1, 0)
	}
	s.mu.Unlock()
	switch {
	case t == nil:
		rpcFail(w, req.ID, -32001, "Task not found: "+req.Params.ID)
	case req.Method == "tasks/cancel" && !now.canceled:
		rpcFail(w, req.ID, -32002, "Task cannot be canceled: it has ended")
	case now.polls > 0:
		rpcResult(w, req.ID, withState(completed(now.message, ""), "working"))
	default:
		s.end(w, req.ID, &now)
	}
}

// withState is a task in another state than completed: it has no artifacts yet.
func withState(task map[string]any, state string) map[string]any {
	task["status"] = map[string]any{"state": state}
	delete(task, "artifacts")
	delete(task, "history")
	return task
}
