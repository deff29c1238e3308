package server_test

import (
	"encoding/json"
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

type longRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ID      string `json:"id"`
		Message struct {
			MessageID string `json:"messageId"`
			TaskID    string `json:"taskId"`
		} `json:"message"`
	} `json:"params"`
}

func (a *longAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req longRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch req.Method {
	case "SendMessage":
		id, swallowed := a.take(req)
		if swallowed {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		reply(w, req, map[string]any{"task": a.state(id)})
	case "GetTask":
		reply(w, req, a.state(req.Params.ID))
	case "ListTasks":
		reply(w, req, map[string]any{"tasks": a.list(), "nextPageToken": ""})
	case "SubscribeToTask":
		a.stream(w, r, req)
	default:
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, req.ID)
	}
}

func reply(w http.ResponseWriter, req longRequest, result any) {
	b, _ := json.Marshal(result)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, req.ID, b)
}

// take executes a message: a new task, or an answer to one.
func (a *longAgent) take(req longRequest) (id string, swallowed bool) {
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
		list = append(list, map[string]any{
			"id": id, "contextId": "ctx-" + id, "status": map[string]any{"state": "TASK_STATE_WORKING"},
			"history": []any{map[string]any{"messageId": a.tasks[id].message, "role": "ROLE_USER", "parts": []any{}}},
		})
	}
	return list
}

// stream tells the task's state and then a piece of its output now and then,
// until it waits or has ended.
func (a *longAgent) stream(w http.ResponseWriter, r *http.Request, req longRequest) {
	w.Header().Set("Content-Type", "text/event-stream")
	id := req.Params.ID
	tell := func(result any) {
		b, _ := json.Marshal(result)
		_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", req.ID, b)
		w.(http.Flusher).Flush()
	}
	tell(map[string]any{"task": a.state(id)})
	for n := 0; ; n++ {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(30 * time.Millisecond):
		}
		task := a.state(id)
		if status := task["status"].(map[string]any); status["state"] != "TASK_STATE_WORKING" {
			tell(map[string]any{"statusUpdate": map[string]any{"taskId": id, "contextId": "ctx-" + id, "status": status}})
			return
		}
		tell(map[string]any{"artifactUpdate": map[string]any{
			"taskId": id, "contextId": "ctx-" + id, "append": n > 0,
			"artifact": map[string]any{"artifactId": "a", "parts": []any{map[string]any{"text": fmt.Sprint(n, " ")}}},
		}})
		a.mu.Lock()
		a.tasks[id].pieces++
		a.mu.Unlock()
	}
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
