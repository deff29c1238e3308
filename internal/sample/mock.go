package sample

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

// MockConfig says what a [Mock] does. The zero value answers every task at once
// with its own input, in whichever protocol the request speaks.
type MockConfig struct {
	// Name is the card's; "" is mock-agent.
	Name string
	// Protocol is the only one that is spoken; "" is both.
	Protocol string
	// Delay is how long a task takes.
	Delay time.Duration
	// FailFirst is how many new messages fail, from the first one; FailRate is the
	// share of the others that does, from 0 to 1.
	FailFirst int
	FailRate  float64
	// Chance gives numbers from 0 to below 1, one at a time; FailRate needs it.
	Chance func() float64
	// Status is the HTTP status of what fails; 0 is an error of the protocol.
	Status int
	// Reply is one JSON value, the output of every task; nil is its input.
	Reply json.RawMessage
	// Question, if there is one, is asked before an A2A task is done.
	Question string
	// Stream offers streams in A2A.
	Stream bool
	// Key is the bearer token that every POST has to show; zero is none.
	Key parley.Secret
	// Told is told of every message and every cancel, one at a time, before it is
	// answered; nil is nobody.
	Told func(MockCall)
	// Now reads the clock; nil is time.Now.
	Now func() time.Time
	// MaxTasks is how many tasks are remembered, MaxBytes how much of their outputs,
	// MaxCalls how many calls are handled at once; 0 is 10,000, 64 MiB and 256.
	MaxTasks, MaxBytes, MaxCalls int
}

// MockCall is one message to a [Mock], or one cancel, or what it turned away.
type MockCall struct {
	At time.Time
	// Method is that of A2A, or simple-a2a; "" if the request was not read.
	Method string
	// TaskID is the agent's own id of the task in A2A, task_id in Simple A2A.
	TaskID string
	// MessageID and RequestID are those of A2A.
	MessageID, RequestID string
	// Header has what says which attempt this is.
	Header http.Header
	// Answer is the state of the task that was answered, or the error.
	Answer string
	// Again says that the message had come before; nothing was done a second time.
	Again bool
}

// Mock is an agent for trying workflows, and bad days. It speaks Simple A2A, A2A
// 0.3 and A2A 1.0 over JSON-RPC and does nothing twice: a message that it has
// taken is answered with its task. A message that failed has no task; the same
// one again is new. It keeps no goroutines: a task is done when its time has
// come, however that is found out. It may be used concurrently.
type Mock struct {
	cfg  MockConfig
	busy chan struct{}

	telling sync.Mutex
	mu      sync.Mutex // guards everything below, and the tasks
	memory  mockMemory
	taken   int // new messages so far
}

// NewMock makes an agent that has no tasks yet.
func NewMock(cfg MockConfig) *Mock {
	cfg.Name = cmp.Or(cfg.Name, "mock-agent")
	cfg.MaxTasks, cfg.MaxCalls = cmp.Or(cfg.MaxTasks, 10_000), cmp.Or(cfg.MaxCalls, 256)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 64<<20)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Mock{cfg: cfg, busy: make(chan struct{}, cfg.MaxCalls), memory: newMockMemory(cfg.MaxTasks, cfg.MaxBytes)}
}

// simpleOnly and rpcOnly say that there is but one protocol.
func (m *Mock) simpleOnly() bool { return m.cfg.Protocol == parley.ProtocolSimpleA2A }
func (m *Mock) rpcOnly() bool    { return m.cfg.Protocol == parley.ProtocolJSONRPC }

// ServeHTTP implements [http.Handler].
func (m *Mock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && !m.simpleOnly() {
		for _, path := range []string{cardPath, oldCardPath} {
			if strings.HasSuffix(r.URL.Path, path) {
				write(w, m.card(mounted(r, path)))
				return
			}
		}
	}
	select {
	case m.busy <- struct{}{}:
		defer func() { <-m.busy }()
	default:
		w.Header().Set("Retry-After", "1")
		m.turnAway(w, r, http.StatusServiceUnavailable, "too many calls at once")
		return
	}
	if !m.admits(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		m.turnAway(w, r, http.StatusUnauthorized, "a bearer token is missing or wrong")
		return
	}
	if r.Method == http.MethodPost && !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		// A browser may send any other type to any address.
		m.turnAway(w, r, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return
	}
	m.post(w, r)
}

// admits compares what the request shows in constant time, also for keys of
// other lengths.
func (m *Mock) admits(r *http.Request) bool {
	if m.cfg.Key.IsZero() {
		return true
	}
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(shown)), sha256.Sum256(m.cfg.Key.Reveal())
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && ok
}

func (m *Mock) turnAway(w http.ResponseWriter, r *http.Request, status int, text string) {
	m.tell(MockCall{Header: attemptHeaders(r), Answer: fmt.Sprintf("HTTP %d", status)})
	http.Error(w, text, status)
}

// tell passes c on, one at a time.
func (m *Mock) tell(c MockCall) {
	if m.cfg.Told == nil {
		return
	}
	m.telling.Lock()
	defer m.telling.Unlock()
	c.At = m.cfg.Now()
	m.cfg.Told(c)
}

// attemptHeaders picks what tells one attempt from another. Credentials are not
// among them.
func attemptHeaders(r *http.Request) http.Header {
	h := http.Header{}
	for _, name := range []string{"X-Correlation-Id", "Idempotency-Key", "Traceparent", "A2a-Version"} {
		if v := r.Header.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	return h
}

// mockRequest is a request of either protocol.
type mockRequest struct {
	TaskID  string          `json:"task_id"`
	Input   json.RawMessage `json:"input"`
	JSONRPC json.RawMessage `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

func (m *Mock) post(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	if json.Unmarshal(body, &raw) != nil {
		m.malformed(w, -32700, "the body is not JSON")
		return
	}
	var req mockRequest
	if err := json.Unmarshal(raw, &req); err != nil {
		m.malformed(w, -32600, "the request cannot be read: "+err.Error())
		return
	}
	switch rpc := req.JSONRPC != nil; {
	case rpc && m.simpleOnly():
		http.Error(w, "task_id is missing: this agent speaks Simple A2A", http.StatusBadRequest)
	case rpc || m.rpcOnly():
		m.rpc(w, r, req)
	default:
		m.simple(w, r, req)
	}
}

// malformed answers what no protocol can be seen in.
func (m *Mock) malformed(w http.ResponseWriter, code int, text string) {
	if m.simpleOnly() {
		http.Error(w, text, http.StatusBadRequest)
		return
	}
	rpcFail(w, json.RawMessage("null"), code, text)
}

// simple answers a task of Simple A2A, which has no questions and no way to wait.
func (m *Mock) simple(w http.ResponseWriter, r *http.Request, req mockRequest) {
	call := MockCall{Method: parley.ProtocolSimpleA2A, TaskID: req.TaskID, Header: attemptHeaders(r)}
	if req.TaskID == "" || req.Input == nil {
		http.Error(w, "task_id and input must be given", http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	t := m.memory.byKey["simple "+req.TaskID]
	call.Again = t != nil
	fails := false
	if t == nil {
		if fails = m.fails(); !fails {
			t = &mockTask{id: req.TaskID, output: m.output(req.Input), state: stateCompleted, due: m.cfg.Now().Add(m.cfg.Delay), changed: make(chan struct{})}
			m.memory.add(t, "simple "+req.TaskID)
		}
	}
	m.mu.Unlock()
	if fails && m.cfg.Status != 0 {
		m.failStatus(w, call)
		return
	}
	answer := map[string]any{"task_id": req.TaskID, "status": "error", "output": nil, "error": mockFailure}
	call.Answer = "error"
	if !fails {
		m.outlast(r.Context(), t, call, nil)
		answer["status"], answer["output"], answer["error"] = "success", t.output, nil
		call.Answer = "success"
	}
	m.tell(call)
	write(w, answer)
}

// mockFailure is what an agent says that was told to fail.
const mockFailure = "failed as asked"

// fails decides about the next new message. The caller holds the lock.
func (m *Mock) fails() bool {
	m.taken++
	return m.taken <= m.cfg.FailFirst || m.cfg.FailRate > 0 && m.cfg.Chance() < m.cfg.FailRate
}

func (m *Mock) failStatus(w http.ResponseWriter, call MockCall) {
	call.Answer = fmt.Sprintf("HTTP %d", m.cfg.Status)
	m.tell(call)
	http.Error(w, mockFailure, m.cfg.Status)
}

func (m *Mock) output(input json.RawMessage) json.RawMessage {
	if m.cfg.Reply != nil {
		return m.cfg.Reply
	}
	return input
}

// keepAlive is how often who waits is told that the connection stands.
const keepAlive = 15 * time.Second

// outlast waits until t is not at work any more. If who asks has left, or the
// agent stops, the connection is cut, as a real agent's would be; the task goes on.
func (m *Mock) outlast(ctx context.Context, t *mockTask, call MockCall, alive func()) {
	for {
		m.mu.Lock()
		left, changed := t.due.Sub(m.cfg.Now()), t.changed
		m.mu.Unlock()
		if left <= 0 {
			return
		}
		timer := time.NewTimer(min(left, keepAlive))
		select {
		case <-timer.C:
			if alive != nil && left > keepAlive {
				alive()
			}
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			call.Answer = "nothing: the connection ended before"
			m.tell(call)
			panic(http.ErrAbortHandler)
		}
		timer.Stop()
	}
}
