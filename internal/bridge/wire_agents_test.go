package bridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

// wireAgents are agents behind a network that does anything, for the real adapters:
// "simple.test" speaks Simple A2A, "old.test" A2A 0.3 and "new.test" A2A 1.0. No agent
// knows a message again. They keep the log by which "never twice" is judged.
type wireAgents struct {
	r *rig
	c *chance
	// works is how long a task takes at most, dials how long a connection.
	works, dials time.Duration

	mu    sync.Mutex
	calm  bool
	tasks []*wireTask
	// replies counts the answers to questions by message id.
	replies map[string]int
	wg      sync.WaitGroup
}

// wireTask is what an agent has made of one message.
type wireTask struct {
	id, message string
	begun       time.Time
	works       time.Duration
	asks        bool
	answered    time.Time
	cancelled   bool
}

// state is where the task stands, as 0.3 spells it.
func (k *wireTask) state(now time.Time) string {
	from := k.begun
	switch {
	case k.cancelled:
		return "canceled"
	case k.asks && now.Sub(k.begun) < k.works/2:
		return "working"
	case k.asks && k.answered.IsZero():
		return "input-required"
	case k.asks:
		from = k.answered.Add(-k.works / 2)
	}
	if now.Sub(from) < k.works {
		return "working"
	}
	return "completed"
}

func (k *wireTask) over(now time.Time) bool {
	s := k.state(now)
	return s == "completed" || s == "canceled"
}

// dial is the network.
func (w *wireAgents) dial(ctx context.Context, _, address string) (net.Conn, error) {
	time.Sleep(w.dials)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case w.goesWrong(5):
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	w.wg.Go(func() {
		defer func() { _ = theirs.Close() }()
		from := bufio.NewReader(theirs)
		for {
			req, err := http.ReadRequest(from)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil || !w.serve(theirs, address, overREST(req, body), body) {
				return
			}
		}
	})
	return ours, nil
}

// goesWrong says whether something does, in so many of 100 cases.
func (w *wireAgents) goesWrong(percent int) bool {
	w.mu.Lock()
	calm := w.calm
	w.mu.Unlock()
	return !calm && w.c.of(percent)
}

// wireRequest is what an agent understands of a request.
type wireRequest struct {
	TaskID  string          `json:"task_id"` // Simple A2A
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Version string          `json:"-"`
	// plain: the binding is HTTP+JSON, so nothing wraps what is answered.
	plain  bool
	Params struct {
		ID      string `json:"id"`
		Message struct {
			MessageID string `json:"messageId"`
			TaskID    string `json:"taskId"`
		} `json:"message"`
	} `json:"params"`
}

// overREST gives a request that is made over HTTP+JSON, else nil.
func overREST(req *http.Request, body []byte) *wireRequest {
	path, ok := strings.CutPrefix(req.URL.Path, "/rest/")
	if !ok {
		return nil
	}
	q := &wireRequest{ID: json.RawMessage("null"), plain: true}
	_ = json.Unmarshal(body, &q.Params)
	id, verb, _ := strings.Cut(strings.TrimPrefix(path, "tasks/"), ":")
	switch path {
	case "message:send":
		q.Method = "SendMessage"
		return q
	case "message:stream":
		q.Method = "SendStreamingMessage"
		return q
	case "tasks":
		q.Method = "ListTasks"
		return q
	}
	q.Params.ID = id
	q.Method = map[string]string{"": "GetTask", "cancel": "CancelTask", "subscribe": "SubscribeToTask"}[verb]
	return q
}

func (q *wireRequest) sends() bool {
	switch q.Method {
	case "", "message/send", "message/stream", "SendMessage", "SendStreamingMessage":
		return true
	}
	return false
}

func (q *wireRequest) streams() bool {
	switch q.Method {
	case "message/stream", "tasks/resubscribe", "SendStreamingMessage", "SubscribeToTask":
		return true
	}
	return false
}

// serve answers one request, or has something go wrong with it; false if the connection
// is of no more use.
func (w *wireAgents) serve(c net.Conn, address string, q *wireRequest, body []byte) bool {
	if len(body) > 0 && body[0] == '[' {
		return w.serveBatch(c, body)
	}
	if q == nil {
		q = &wireRequest{}
		if err := json.Unmarshal(body, q); err != nil {
			w.r.t.Errorf("the request is no JSON: %s", body)
			return false
		}
	}
	if strings.HasPrefix(address, "new") {
		q.Version = "1.0"
	}
	if !w.goesWrong(35) {
		return w.answer(c, q, 1<<20)
	}
	switch w.c.n(9) {
	case 0: // nothing arrives, or late
		if q.sends() && w.c.of(50) {
			after := time.Duration(w.c.n(5000)) * time.Millisecond
			w.wg.Go(func() { time.Sleep(after); w.execute(q) })
		}
	case 1: // done, and nobody is told
		w.execute(q)
	case 2: // half of the answer
		return w.answer(c, q, 20+w.c.n(300))
	case 3:
		return w.say(c, fmt.Sprintf("%d X\r\nRetry-After: %d", []int{503, 429}[w.c.n(2)], w.c.n(4)), `{"error":"later"}`, 1<<20)
	case 4:
		if w.c.of(50) {
			w.execute(q)
		}
		return w.say(c, []string{"502 X", "504 X"}[w.c.n(2)], `<html>`, 1<<20)
	case 5: // slow, perhaps too slow
		task := w.execute(q)
		time.Sleep(time.Duration(w.c.n(9000)) * time.Millisecond)
		return w.tell(c, q, task, 1<<20)
	case 6: // it has failed, it says
		if w.c.of(50) {
			w.execute(q)
		}
		return w.say(c, "200 X", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"bug"}}`, orNull(q.ID)), 1<<20)
	case 7:
		return w.say(c, "500 X", `oops`, 1<<20)
	case 8:
		w.execute(q)
		return w.say(c, "200 X", `{"jsonrpc":"2.0","id":`, 1<<20)
	}
	return false
}

// serveBatch answers a batch to an agent of A2A 1.0, in any order, or has something go
// wrong with all of it, or with one answer.
func (w *wireAgents) serveBatch(c net.Conn, body []byte) bool {
	var list []*wireRequest
	if err := json.Unmarshal(body, &list); err != nil {
		w.r.t.Errorf("the batch is no JSON: %s", body)
		return false
	}
	if w.goesWrong(10) {
		return w.say(c, "503 X\r\nRetry-After: 1", "later", 1<<20)
	}
	var answers []string
	for i, first := 0, w.c.n(len(list)); i < len(list); i++ {
		q := list[(first+i)%len(list)]
		q.Version = "1.0"
		k := w.execute(q)
		if !w.goesWrong(10) { // else it is not told
			answers = append(answers, w.result(q, k))
		}
	}
	if w.goesWrong(10) {
		return false
	}
	return w.say(c, "200 X", "["+strings.Join(answers, ",")+"]", 1<<20)
}

func orNull(id json.RawMessage) json.RawMessage {
	if id == nil {
		return json.RawMessage("null")
	}
	return id
}

func (w *wireAgents) answer(c net.Conn, q *wireRequest, most int) bool {
	return w.tell(c, q, w.execute(q), most)
}

// execute does what is asked for, and gives the task that it is about, or nil.
func (w *wireAgents) execute(q *wireRequest) *wireTask {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := q.Params.ID
	switch {
	case q.Method == "":
		return w.beginLocked("msg-"+q.TaskID, false)
	case q.sends() && q.Params.Message.TaskID == "":
		return w.beginLocked(q.Params.Message.MessageID, w.c.of(30))
	case q.sends():
		id = q.Params.Message.TaskID
		w.replies[q.Params.Message.MessageID]++
	}
	for _, k := range w.tasks {
		if k.id != id {
			continue
		}
		switch {
		case q.Method == "tasks/cancel" || q.Method == "CancelTask":
			k.cancelled = k.cancelled || !k.over(time.Now())
		case q.sends() && k.state(time.Now()) == "input-required":
			k.answered = time.Now()
		}
		return k
	}
	return nil
}

func (w *wireAgents) beginLocked(message string, asks bool) *wireTask {
	k := &wireTask{
		id: fmt.Sprintf("agent-%d", len(w.tasks)), message: message, begun: time.Now(), asks: asks,
		works: time.Duration(w.c.n(int(w.works/time.Millisecond))) * time.Millisecond,
	}
	w.tasks = append(w.tasks, k)
	return k
}

// executions is how often an agent began with a message.
func (w *wireAgents) executions(message string) (list []*wireTask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.tasks {
		if k.message == message {
			list = append(list, k)
		}
	}
	return list
}

func (w *wireAgents) stateOf(k *wireTask) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return k.state(time.Now())
}

// tell answers with the task, at most so many bytes of it.
func (w *wireAgents) tell(c net.Conn, q *wireRequest, k *wireTask, most int) bool {
	switch {
	case q.Method == "":
		time.Sleep(k.works / 4)
		return w.say(c, "200 X", fmt.Sprintf(`{"task_id":%q,"status":"success","output":{"text":"done %s"}}`, q.TaskID, k.message), most)
	case k != nil && q.streams():
		w.stream(c, q, k)
		return false
	}
	status := "200 X"
	if q.plain && k == nil && q.Method != "ListTasks" {
		status = "404 X"
	}
	return w.say(c, status, w.result(q, k), most)
}

// wrap is what answers a request in its binding.
func (q *wireRequest) wrap(result string) string {
	if q.plain {
		return result
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, result)
}

// result is the response about a task, nil for one that there is not.
func (w *wireAgents) result(q *wireRequest, k *wireTask) string {
	switch {
	case q.Method == "ListTasks":
		return q.wrap(`{"tasks":[` + w.list() + `]}`)
	case k == nil && q.plain:
		return `{"error":{"code":404,"status":"NOT_FOUND","message":"no such task","details":[{"reason":"TASK_NOT_FOUND"}]}}`
	case k == nil:
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"no such task"}}`, q.ID)
	}
	text := w.task(k, q.Version)
	if q.Version != "" && q.sends() {
		text = `{"task":` + text + `}`
	}
	return q.wrap(text)
}

// say writes a response, at most so many bytes of it.
func (w *wireAgents) say(c net.Conn, status, body string, most int) bool {
	text := fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	_, err := io.WriteString(c, text[:min(len(text), most)])
	return err == nil && most >= len(text)
}

// list is all tasks with their histories.
func (w *wireAgents) list() string {
	w.mu.Lock()
	tasks := w.tasks
	w.mu.Unlock()
	var list []string
	for _, k := range tasks {
		list = append(list, strings.TrimSuffix(w.task(k, "1.0"), "}")+fmt.Sprintf(`,"history":[{"role":"ROLE_USER","messageId":%q}]}`, k.message))
	}
	return strings.Join(list, ",")
}

// task is a task in words.
func (w *wireAgents) task(k *wireTask, version string) string {
	state, kind, part := w.stateOf(k), "", `{"text":%q}`
	question := ""
	if version == "" {
		kind, part = `"kind":"task",`, `{"kind":"text","text":%q}`
	}
	artifacts := ""
	if state == "completed" {
		artifacts = `,"artifacts":[{"artifactId":"a","parts":[` + fmt.Sprintf(part, "done "+k.message) + `]}]`
	}
	if state == "input-required" {
		question = `,"message":{"role":"agent","messageId":"q","parts":[` + fmt.Sprintf(part, "which year?") + `]}`
	}
	if version != "" {
		state = "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(state, "-", "_"))
	}
	return fmt.Sprintf(`{%s"id":%q,"contextId":"c","status":{"state":%q%s}%s}`, kind, k.id, state, question, artifacts)
}

// stream tells of a task until it rests, or until the stream breaks.
func (w *wireAgents) stream(c net.Conn, q *wireRequest, k *wireTask) {
	head := "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(c, head); err != nil {
		return
	}
	for told := ""; ; time.Sleep(300 * time.Millisecond) {
		state := w.stateOf(k)
		rests := state != "working"
		if state == told {
			continue
		}
		told = state
		text := w.task(k, q.Version)
		if q.Version != "" {
			text = `{"task":` + text + `}`
		}
		event := "data: " + q.wrap(text) + "\n\n"
		if w.goesWrong(20) {
			event = event[:w.c.n(len(event))]
			rests = true
		} else if w.goesWrong(20) {
			event += event
		}
		if _, err := io.WriteString(c, event); err != nil || rests {
			return
		}
	}
}

// records are the agents as they are registered.
func (w *wireAgents) records() []parley.Agent {
	of := func(name, protocol, config string) parley.Agent {
		host, how, _ := strings.Cut(name, "-")
		return parley.Agent{
			Name: name, Protocol: protocol, URL: "http://" + host + ".test/" + how, Timeout: 5 * time.Second, ProtocolConfig: json.RawMessage(config),
		}
	}
	return []parley.Agent{
		of("simple", parley.ProtocolSimpleA2A, ""),
		of("old", parley.ProtocolJSONRPC, `{"a2a":"0.3"}`),
		of("old-streams", parley.ProtocolJSONRPC, `{"a2a":"0.3","stream":"on"}`),
		of("new", parley.ProtocolJSONRPC, `{"a2a":"1.0"}`),
		of("new-streams", parley.ProtocolJSONRPC, `{"a2a":"1.0","stream":"on"}`),
		of("new-batch", parley.ProtocolJSONRPC, `{"a2a":"1.0","batch":4}`),
		of("new-rest", parley.ProtocolJSONRPC, `{"a2a":"1.0","binding":"HTTP+JSON","stream":"on"}`),
		of("new-sends", parley.ProtocolJSONRPC, `{"a2a":"1.0","send":"stream"}`),
	}
}
