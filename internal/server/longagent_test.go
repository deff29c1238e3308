package server_test

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// longAgent speaks A2A 1.0 over JSON-RPC: it answers sends at once, works for a
// while, tells how far it is, asks a question halfway, and lists its tasks. Like
// the official servers it does not deduplicate: its log shows every message that
// it got.
type longAgent struct {
	works time.Duration
	// pieces, if set, is how much it has to have told on a stream before it asks.
	pieces int
	// swallow, if set, is called instead of answering the first send, which was
	// executed.
	swallow func()

	mu      sync.Mutex
	order   []string
	tasks   map[string]*longTask
	sends   map[string]int
	answers map[string]int
}

// longTask is one task of a longAgent. The first answer makes it go on.
type longTask struct {
	message  string
	begun    time.Time
	answered time.Time
	pieces   int // told on streams
}

func newLongAgent() *longAgent {
	return &longAgent{works: 300 * time.Millisecond, tasks: map[string]*longTask{}, sends: map[string]int{}, answers: map[string]int{}}
}

func (a *longAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serveA2A(w, r, a, 30*time.Millisecond)
}

func (a *longAgent) send(w http.ResponseWriter, _ *http.Request, req *a2aRequest) {
	id, swallowed := a.take(req)
	if swallowed {
		panic(http.ErrAbortHandler) // the connection breaks
	}
	req.reply(w, map[string]any{"task": a.state(id)})
}

// take executes a message: a new task, or an answer to one.
func (a *longAgent) take(req *a2aRequest) (id string, swallowed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := req.Params.Message
	if t := a.tasks[m.TaskID]; t != nil {
		a.answers[m.MessageID]++
		if t.answered.IsZero() {
			t.answered = time.Now()
		}
		return m.TaskID, false
	}
	a.sends[m.MessageID]++
	id = fmt.Sprintf("task-%d", len(a.tasks)+1)
	a.tasks[id] = &longTask{message: m.MessageID, begun: time.Now()}
	a.order = append(a.order, id)
	if f := a.swallow; f != nil {
		a.swallow = nil
		f()
		return id, true
	}
	return id, false
}

// state is a task as the agent shows it.
func (a *longAgent) state(id string) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tasks[id]
	task := map[string]any{"id": id, "contextId": "ctx-" + id}
	status := map[string]any{"state": "TASK_STATE_WORKING"}
	switch {
	case t.answered.IsZero() && time.Since(t.begun) >= a.works/2 && t.pieces >= a.pieces:
		status["state"] = "TASK_STATE_INPUT_REQUIRED"
		status["message"] = map[string]any{"messageId": "q", "role": "ROLE_AGENT", "parts": []any{map[string]any{"text": "which year?"}}}
	case !t.answered.IsZero() && time.Since(t.answered) >= a.works/2:
		status["state"] = "TASK_STATE_COMPLETED"
		task["artifacts"] = []any{map[string]any{"artifactId": "a", "parts": []any{map[string]any{"text": "done"}}}}
	}
	task["status"] = status
	return task
}

func (a *longAgent) list() []any {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []any{}
	for _, id := range a.order {
		list = append(list, listedTask(id, a.tasks[id].message))
	}
	return list
}

func (a *longAgent) told(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tasks[id].pieces++
}

// most is how often a message was sent at most, and how many there were.
func (a *longAgent) most() (sends, answers int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.sends {
		sends = max(sends, n)
	}
	for _, n := range a.answers {
		answers = max(answers, n)
	}
	return sends, answers
}
