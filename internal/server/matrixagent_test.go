package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// matrixWeb is where the agents of all cases of the failpoint matrix are: one for
// each case, told apart by the version that the callers name.
type matrixWeb struct {
	mu     sync.Mutex // protects agents
	agents map[string]*matrixAgent
}

// meet makes a process known to the agent that it may call.
func (m *matrixWeb) meet(a *matrixAgent, l *life) {
	a.mu.Lock()
	a.lives["parley/"+l.name] = l
	a.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agents["parley/"+l.name] = a
}

func (m *matrixWeb) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	a := m.agents[r.UserAgent()]
	m.mu.Unlock()
	if a == nil {
		http.Error(w, "nobody knows "+r.UserAgent(), http.StatusForbidden)
		return
	}
	a.ServeHTTP(w, r)
}

// matrixAgent speaks A2A 1.0 over JSON-RPC in one case of the failpoint matrix.
// What a task's text says is what it does: "quick" is done at once, "long" is worked
// on and asked about, "slow" and "slower" take their time to answer, "hang" is never answered,
// "busy" is not taken, "cut" breaks the connection of the first send. It executes whatever it receives
// and remembers that: its log is what the matrix is judged by.
type matrixAgent struct {
	mu    sync.Mutex // protects what follows
	lives map[string]*life
	tasks map[string]*matrixTask
	// execs are the executions of each message, in their order.
	execs map[string][]*execution
}

// execution is one send that the agent has received.
type execution struct {
	at   time.Time
	life *life
	task string
	// answered: the whole answer, which ended the task, was written.
	answered bool
}

// matrixTask is what became of one execution.
type matrixTask struct {
	message, mode string
	begun         time.Time
}

const (
	// matrixSlow is how long a slow task takes, matrixLong a long one.
	matrixSlow = 300 * time.Millisecond
	matrixLong = 900 * time.Millisecond
)

func newMatrixAgent() *matrixAgent {
	return &matrixAgent{lives: map[string]*life{}, tasks: map[string]*matrixTask{}, execs: map[string][]*execution{}}
}

// executions gives copies of those of a task's message.
func (a *matrixAgent) executions(task string) (all []execution) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.execs["msg-"+task] {
		all = append(all, *e)
	}
	return all
}

func (a *matrixAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serveA2A(w, r, a, 100*time.Millisecond)
}

// send executes a message and answers it. The caller's process may have its fault
// when the agent has all of the request, and when it has the head of the answer.
func (a *matrixAgent) send(w http.ResponseWriter, r *http.Request, req *a2aRequest) {
	if parts := req.Params.Message.Parts; len(parts) > 0 && parts[0].Text == "busy" {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	id, e, first := a.execute(r, req)
	task := a.state(id)
	mode := a.mode(id)
	_ = e.life.reached("sent", "")
	switch {
	case mode == "hang":
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Second):
		}
		panic(http.ErrAbortHandler)
	case mode == "cut" && first:
		panic(http.ErrAbortHandler)
	case mode == "slow":
		time.Sleep(matrixSlow)
	case mode == "slower":
		time.Sleep(2 * matrixSlow)
	}
	text := req.answer(map[string]any{"task": task})
	half := len(text) / 2
	_, err := w.Write(text[:half])
	w.(http.Flusher).Flush()
	_ = e.life.reached("head", "")
	if err == nil {
		_, err = w.Write(text[half:])
	}
	w.(http.Flusher).Flush()
	a.mu.Lock()
	defer a.mu.Unlock()
	e.answered = err == nil && mode != "long" && r.Context().Err() == nil && !e.life.isDead()
}

// execute notes an execution and makes a task of it.
func (a *matrixAgent) execute(r *http.Request, req *a2aRequest) (id string, e *execution, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := req.Params.Message
	e = &execution{at: time.Now(), life: a.lives[r.UserAgent()], task: strings.TrimPrefix(m.MessageID, "msg-")}
	first = len(a.execs[m.MessageID]) == 0
	a.execs[m.MessageID] = append(a.execs[m.MessageID], e)
	id = fmt.Sprintf("task-%d", len(a.tasks)+1)
	mode := "quick"
	if len(m.Parts) > 0 {
		mode = m.Parts[0].Text
	}
	a.tasks[id] = &matrixTask{message: m.MessageID, mode: mode, begun: time.Now()}
	return id, e, first
}

func (a *matrixAgent) mode(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tasks[id].mode
}

// state is a task as the agent shows it.
func (a *matrixAgent) state(id string) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	task := map[string]any{"id": id, "contextId": "ctx-" + id}
	t := a.tasks[id]
	if t == nil {
		return task
	}
	if t.mode == "hang" || t.mode == "long" && time.Since(t.begun) < matrixLong {
		task["status"] = map[string]any{"state": "TASK_STATE_WORKING"}
		return task
	}
	task["status"] = map[string]any{"state": "TASK_STATE_COMPLETED"}
	task["artifacts"] = []any{map[string]any{"artifactId": "a", "parts": []any{map[string]any{"text": t.mode}}}}
	return task
}

func (a *matrixAgent) list() []any {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []any{}
	for id, t := range a.tasks {
		list = append(list, listedTask(id, t.message))
	}
	return list
}

func (*matrixAgent) told(string) {}
