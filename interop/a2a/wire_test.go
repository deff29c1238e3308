package a2a

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ask is one JSON-RPC request to an agent, past Parley.
type ask struct {
	method string
	params map[string]any
	// header replaces what a request usually has; "" takes a name away.
	header map[string]string
	// body replaces the request that method and params make.
	body string
	// query is appended to the URL.
	query string
}

// reply is what an agent answered past Parley.
type reply struct {
	status int
	header http.Header
	body   string
}

// rpcError is the error of a JSON-RPC response.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// media is the Content-Type without its parameters.
func (r reply) media() string {
	media, _, _ := strings.Cut(r.header.Get("Content-Type"), ";")
	return media
}

// failure is the error of a JSON-RPC response, also of one in an event, or zero.
func (r reply) failure() rpcError {
	var answer struct{ Error rpcError }
	_ = json.Unmarshal([]byte(r.json()), &answer)
	return answer.Error
}

// json is the body, or the data of the first event.
func (r reply) json() string {
	if r.media() != "text/event-stream" {
		return r.body
	}
	_, data, _ := strings.Cut("\n"+r.body, "\ndata:")
	data, _, _ = strings.Cut(data, "\n")
	return data
}

// result is the result of a JSON-RPC response; "" is none.
func (r reply) result() string {
	var answer struct{ Result json.RawMessage }
	_ = json.Unmarshal([]byte(r.json()), &answer)
	return string(answer.Result)
}

// task is what a result says about a task, in both dialects.
type task struct {
	ID        string `json:"id"`
	ContextID string `json:"contextId"`
	Status    struct {
		State     string          `json:"state"`
		Timestamp string          `json:"timestamp"`
		Message   json.RawMessage `json:"message"`
	} `json:"status"`
	Artifacts []json.RawMessage `json:"artifacts"`
	History   []json.RawMessage `json:"history"`
}

// state is the task's, in the words of 0.3.
func (k task) state() string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(k.Status.State, "TASK_STATE_")), "_", "-")
}

// task is the one that a result has, of a send or another request.
func (r reply) task(t *testing.T) task {
	t.Helper()
	var result struct {
		task
		Task *task `json:"task"`
	}
	if err := json.Unmarshal([]byte(r.result()), &result); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	if result.Task != nil {
		return *result.Task
	}
	return result.task
}

// says gives the method of a request, in the route's dialect.
func (r route) says(what string) string {
	methods := map[string][2]string{
		"send":       {"message/send", "SendMessage"},
		"stream":     {"message/stream", "SendStreamingMessage"},
		"get":        {"tasks/get", "GetTask"},
		"list":       {"tasks/list", "ListTasks"},
		"cancel":     {"tasks/cancel", "CancelTask"},
		"subscribe":  {"tasks/resubscribe", "SubscribeToTask"},
		"set push":   {"tasks/pushNotificationConfig/set", "CreateTaskPushNotificationConfig"},
		"get push":   {"tasks/pushNotificationConfig/get", "GetTaskPushNotificationConfig"},
		"list push":  {"tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfigs"},
		"end push":   {"tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfig"},
		"whole card": {"agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"},
	}
	if r.version == "1.0" {
		return methods[what][1]
	}
	return methods[what][0]
}

// letter makes the params of a send. more are members of the message.
func (r route) letter(id, text string, wait bool, more map[string]any) map[string]any {
	message := map[string]any{"messageId": "msg-" + id + ".1"}
	configuration := map[string]any{}
	if r.version == "1.0" {
		message["role"], message["parts"] = "ROLE_USER", []any{map[string]any{"text": text}}
		configuration["returnImmediately"] = !wait
	} else {
		message["kind"], message["role"] = "message", "user"
		message["parts"] = []any{map[string]any{"kind": "text", "text": text}}
		configuration["blocking"] = wait
	}
	maps.Copy(message, more)
	return map[string]any{"message": message, "configuration": configuration}
}

// unique is a name that nobody else has.
func unique(what string) string { return fmt.Sprintf("%s-%d", what, time.Now().UnixNano()) }

// post sends a request to an agent, past Parley.
func (r route) post(ctx context.Context, a *agent, q ask) (*http.Response, error) {
	text := []byte(q.body)
	if q.body == "" {
		var err error
		if text, err = json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": q.method, "params": q.params}); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url(a)+q.query, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.version == "1.0" {
		req.Header.Set("A2A-Version", "1.0")
	}
	for name, value := range q.header {
		req.Header.Set(name, value)
		if value == "" {
			req.Header.Del(name)
		}
	}
	return pastParley().Do(req)
}

// ask sends a request to an agent, past Parley, and reads all of its answer.
func (r route) ask(t *testing.T, a *agent, q ask) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := r.post(ctx, a, q)
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, resp)
}

func readAll(t *testing.T, resp *http.Response) reply {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// about asks for something about a task.
func (r route) about(t *testing.T, a *agent, what, task string) reply {
	t.Helper()
	return r.ask(t, a, ask{method: r.says(what), params: map[string]any{"id": task}})
}

// became waits until a task is in a state, in the words of 0.3.
func (r route) became(t *testing.T, a *agent, id, state string) task {
	t.Helper()
	var k task
	eventually(t, "task "+id+" to be "+state, func() bool {
		k = r.about(t, a, "get", id).task(t)
		return k.state() == state
	})
	return k
}

// event is one of a stream; its data is JSON.
type event struct{ name, id, data string }

// failure is the error in an event, or zero.
func (e event) failure() rpcError {
	var answer struct{ Error rpcError }
	_ = json.Unmarshal([]byte(e.data), &answer)
	return answer.Error
}

// sort is what an event is, in the words of 1.0: task, message, statusUpdate,
// artifactUpdate, or error.
func (e event) sort() string {
	var answer struct {
		Error  json.RawMessage
		Result map[string]json.RawMessage
	}
	_ = json.Unmarshal([]byte(e.data), &answer)
	if answer.Error != nil {
		return "error"
	}
	for name, sort := range map[string]string{
		"status-update": "statusUpdate", "artifact-update": "artifactUpdate", "task": "task", "message": "message",
	} {
		if string(answer.Result["kind"]) == `"`+name+`"` {
			return sort
		}
		if answer.Result[sort] != nil && answer.Result["kind"] == nil {
			return sort
		}
	}
	return "nothing: " + e.data
}

// task is what an event says about the task, or zero.
func (e event) task() task {
	var answer struct {
		Result struct {
			task
			Task         *task
			StatusUpdate *task
		}
	}
	_ = json.Unmarshal([]byte(e.data), &answer)
	switch {
	case answer.Result.Task != nil:
		return *answer.Result.Task
	case answer.Result.StatusUpdate != nil:
		return *answer.Result.StatusUpdate
	}
	return answer.Result.task
}

// state is the one that an event tells, in the words of 0.3, or "".
func (e event) state() string { return e.task().state() }

// listener is a stream that is under way.
type listener struct {
	reply  reply // without a body, if it is a stream
	events chan event
	// over has why the stream ended, after its last event.
	over chan error
	// comments are the lines that are for nobody; lines counts their ends, with
	// and without a carriage return. Both are complete when the stream is over.
	comments []string
	crlf, lf int
}

// listen makes a request that is answered with a stream, or not.
func (r route) listen(t *testing.T, a *agent, q ask) *listener {
	t.Helper()
	l, err := (<-r.opening(t, a, q))()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// opening is listen that does not wait: the channel gives the stream once the
// agent has begun to answer.
func (r route) opening(t *testing.T, a *agent, q ask) <-chan func() (*listener, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	opened, done := make(chan func() (*listener, error), 1), make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		resp, err := r.post(ctx, a, q)
		if err != nil {
			opened <- func() (*listener, error) { return nil, err }
			return
		}
		defer resp.Body.Close()
		l := &listener{events: make(chan event, 1000), over: make(chan error, 1)}
		l.reply = reply{status: resp.StatusCode, header: resp.Header}
		if l.reply.media() == "text/event-stream" {
			opened <- func() (*listener, error) { return l, nil }
			l.over <- l.read(resp.Body)
			return
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		l.reply.body = string(body)
		close(l.events)
		l.over <- nil
		opened <- func() (*listener, error) { return l, err }
	}()
	return opened
}

// read takes events until the stream ends.
func (l *listener) read(body io.Reader) error {
	defer close(l.events)
	lines := bufio.NewReader(body)
	var e event
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.HasSuffix(line, "\r\n") {
			l.crlf++
		} else {
			l.lf++
		}
		line = strings.TrimRight(line, "\r\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && e != event{}:
			l.events <- e
			e = event{}
		case line == "":
		case name == "":
			l.comments = append(l.comments, value)
		case name == "event":
			e.name = value
		case name == "id":
			e.id = value
		case name == "data":
			e.data += value
		}
	}
}

// next waits for an event; ok is false at the end.
func (l *listener) next(t *testing.T) (e event, ok bool) {
	t.Helper()
	select {
	case e, ok = <-l.events:
		return e, ok
	case <-time.After(patience):
		t.Fatal("no event, and no end of the stream")
	}
	return e, false
}

// rest waits for the end of the stream.
func (l *listener) rest(t *testing.T) (all []event, err error) {
	t.Helper()
	for {
		e, ok := l.next(t)
		if !ok {
			return all, <-l.over
		}
		all = append(all, e)
	}
}
