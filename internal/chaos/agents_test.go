package chaos_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// callLog is what the agents saw: the judge of how often they were called.
type callLog struct {
	mu    sync.Mutex
	calls map[string][]string    // the agent of each call, by task
	at    map[string][]time.Time // when each came
	count int
}

func newCallLog() *callLog {
	return &callLog{calls: map[string][]string{}, at: map[string][]time.Time{}}
}

func (l *callLog) saw(task, agent string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[task] = append(l.calls[task], agent)
	l.at[task] = append(l.at[task], time.Now())
	l.count++
}

// times are when the calls of each task came.
func (l *callLog) times() map[string][]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	copied := make(map[string][]time.Time, len(l.at))
	for task, at := range l.at {
		copied[task] = slices.Clone(at)
	}
	return copied
}

// total is how many calls there were.
func (l *callLog) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

func (l *callLog) snapshot() map[string][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	copied := make(map[string][]string, len(l.calls))
	for task, calls := range l.calls {
		copied[task] = slices.Clone(calls)
	}
	return copied
}

// The agents of the cluster, one for each policy.
const (
	agentResend = "resend" // Simple A2A
	agentLookup = "lookup" // A2A 1.0, works on after its answer, lists its tasks
	agentFail   = "fail"   // A2A 0.3, answers with the end
)

// agents are the web servers of the agents, by name.
type agents struct {
	log     *callLog
	servers map[string]*httptest.Server
}

func newAgents(tb testing.TB, works time.Duration) *agents {
	tb.Helper()
	a := &agents{log: newCallLog(), servers: map[string]*httptest.Server{}}
	for name, h := range map[string]http.Handler{
		agentResend: a.simple(works), agentFail: a.blocking(works), agentLookup: &listingAgent{log: a.log, works: works, tasks: map[string]*listedTask{}},
	} {
		s := httptest.NewServer(h)
		tb.Cleanup(func() { s.CloseClientConnections(); s.Close() })
		a.servers[name] = s
	}
	return a
}

// about draws a time around works: some tasks take three times as long.
func about(works time.Duration) time.Duration {
	if works == 0 {
		return 0
	}
	return works/2 + rand.N(works)*time.Duration(1+2*rand.IntN(2))
}

func (a *agents) address(name string) string { return a.servers[name].Listener.Addr().String() }

// file is the YAML file that declares them.
func (a *agents) file() string {
	const retry = "retry: {max_retries: 8, initial_delay_ms: 300, max_delay_ms: 5000, backoff_multiplier: 2}"
	var b strings.Builder
	b.WriteString("agents:\n")
	for _, line := range []struct{ name, rest string }{
		{agentResend, "protocol: simple-a2a, outcome_unknown: resend"},
		{agentLookup, "protocol: jsonrpc-2.0, outcome_unknown: lookup, protocol_config: {a2a: \"1.0\"}"},
		{agentFail, "protocol: jsonrpc-2.0, outcome_unknown: fail, protocol_config: {a2a: \"0.3\"}"},
	} {
		fmt.Fprintf(&b, "  - {name: %s, url: %q, %s, %s}\n", line.name, a.servers[line.name].URL, line.rest, retry)
	}
	return b.String()
}

// chain is the workflow: a step for each agent.
const chain = `name: chain
steps:
  - {id: a, agent: resend, input: {text: "${workflow.input.n}"}}
  - {id: b, agent: lookup, input: {text: "${a.output.text}"}}
  - {id: c, agent: fail, input: {text: "${b.output.text}"}}
output: {text: "${c.output.text}"}
`

// hurry is the same with less time for a step than its agent needs now and then.
const hurry = `name: hurry
steps:
  - {id: a, agent: resend, input: {text: "${workflow.input.n}"}, timeout: 1s}
  - {id: b, agent: lookup, input: {text: "${a.output.text}"}, timeout: 1s}
  - {id: c, agent: fail, input: {text: "${b.output.text}"}, timeout: 1s}
output: {text: "${c.output.text}"}
`

// family takes turns, and has its answer from a run of its own, beside a wait for an
// event.
const family = `name: family
concurrency: {limit: 16}
steps:
  - id: both
    parallel:
      - {id: kid, workflow: chain, input: {n: "${workflow.input.n}"}}
      - {id: told, event: told, key: "${workflow.input.n}"}
  - {id: rest, wait: 300ms}
  - {id: last, agent: lookup, input: {text: "${kid.output.text}"}}
output: {text: "${last.output.text}"}
`

// The names of the workflows.
const (
	flowChain  = "chain"
	flowHurry  = "hurry"
	flowFamily = "family"
)

// flows are the workflows by their names.
func flows() map[string]string {
	return map[string]string{flowChain: chain, flowHurry: hurry, flowFamily: family}
}

// simple speaks Simple A2A. It goes on when the caller has hung up: agents
// finish what they have begun.
func (a *agents) simple(works time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			TaskID string          `json:"task_id"`
			Input  json.RawMessage `json:"input"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.log.saw(body.TaskID, agentResend)
		<-time.After(about(works))
		_ = json.NewEncoder(w).Encode(map[string]any{"task_id": body.TaskID, "status": "success", "output": body.Input, "error": nil})
	})
}

// message is what both versions of A2A say in a send.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ID        string `json:"id"`
		PageToken string `json:"pageToken"`
		ContextID string `json:"contextId"`
		Message   struct {
			MessageID string `json:"messageId"`
			ContextID string `json:"contextId"`
			Parts     []struct {
				Text string `json:"text"`
			} `json:"parts"`
		} `json:"message"`
	} `json:"params"`
}

func (m *message) task() string { return strings.TrimPrefix(m.Params.Message.MessageID, "msg-") }

func (m *message) text() string {
	if len(m.Params.Message.Parts) == 0 {
		return ""
	}
	return m.Params.Message.Parts[0].Text
}

// blocking speaks A2A 0.3 and answers a send with the finished task.
func (a *agents) blocking(works time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if m.Method != "message/send" {
			reply(w, m.ID, "error", map[string]any{"code": -32601, "message": "Method not found"})
			return
		}
		a.log.saw(m.task(), agentFail)
		<-time.After(about(works))
		reply(w, m.ID, "result", map[string]any{
			"kind": "task", "id": "t-" + m.task(), "contextId": "c", "status": map[string]any{"state": "completed"},
			"artifacts": []any{map[string]any{"artifactId": "a", "parts": []any{map[string]any{"kind": "text", "text": m.text()}}}},
		})
	})
}

func reply(w http.ResponseWriter, id json.RawMessage, member string, value any) {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, member: value})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// listingAgent speaks A2A 1.0: it answers a send at once, works on, and can be
// asked for its tasks. Like the official servers it does not deduplicate.
type listingAgent struct {
	log   *callLog
	works time.Duration

	mu    sync.Mutex
	tasks map[string]*listedTask
	order []string
}

type listedTask struct {
	message, context, text string
	ready                  time.Time
}

func (a *listingAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch m.Method {
	case "SendMessage":
		a.log.saw(m.task(), agentLookup)
		reply(w, m.ID, "result", map[string]any{"task": a.show(a.take(&m))})
	case "GetTask":
		reply(w, m.ID, "result", a.show(m.Params.ID))
	case "ListTasks":
		tasks, next := a.page(m.Params.PageToken, m.Params.ContextID)
		reply(w, m.ID, "result", map[string]any{"tasks": tasks, "nextPageToken": next})
	default:
		reply(w, m.ID, "error", map[string]any{"code": -32601, "message": "Method not found"})
	}
}

func (a *listingAgent) take(m *message) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := fmt.Sprintf("task-%d", len(a.order)+1)
	context := m.Params.Message.ContextID
	if context == "" {
		context = "ctx-" + id
	}
	a.tasks[id] = &listedTask{message: m.Params.Message.MessageID, context: context, text: m.text(), ready: time.Now().Add(about(a.works))}
	a.order = append(a.order, id)
	return id
}

// show is a task as the agent shows it.
func (a *listingAgent) show(id string) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tasks[id]
	if t == nil {
		return map[string]any{}
	}
	state := map[string]any{"state": "TASK_STATE_WORKING"}
	task := map[string]any{
		"id": id, "contextId": t.context, "status": state,
		"history": []any{map[string]any{"messageId": t.message, "role": "ROLE_USER", "parts": []any{}}},
	}
	if !time.Now().Before(t.ready) {
		state["state"] = "TASK_STATE_COMPLETED"
		task["artifacts"] = []any{map[string]any{"artifactId": "a", "parts": []any{map[string]any{"text": t.text}}}}
	}
	return task
}

// page gives tasks, the newest first, and the token of the next page.
func (a *listingAgent) page(token, context string) ([]any, string) {
	const size = 100
	a.mu.Lock()
	last := len(a.order)
	if token != "" {
		_, _ = fmt.Sscan(token, &last)
	}
	first := max(0, last-size)
	ids := slices.Clone(a.order[first:last])
	a.mu.Unlock()
	slices.Reverse(ids)
	tasks := []any{}
	for _, id := range ids {
		if task := a.show(id); context == "" || task["contextId"] == context {
			tasks = append(tasks, task)
		}
	}
	if first == 0 {
		return tasks, ""
	}
	return tasks, fmt.Sprint(first)
}
