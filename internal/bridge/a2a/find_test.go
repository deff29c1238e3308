package a2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
)

// talkers is an agent of A2A 1.0 whose tasks have histories: the message that each was
// made of, and then so many words of the agent's.
type talkers struct {
	ids   []string // of the messages; task n is t<n>
	words int
	// refused: histories are not told by GetTask.
	refused bool
}

func (g *talkers) history(n, most int) string {
	all := []string{fmt.Sprintf(`{"role":"ROLE_USER","messageId":%q}`, g.ids[n])}
	for i := range g.words {
		all = append(all, fmt.Sprintf(`{"role":"ROLE_AGENT","messageId":"words-%d"}`, i))
	}
	return strings.Join(all[max(0, len(all)-most):], ",")
}

func (g *talkers) task(n, most int) string {
	return fmt.Sprintf(`{"id":"t%d","status":{"state":"TASK_STATE_WORKING"},"history":[%s]}`, n, g.history(n, most))
}

func (g *talkers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			ID            string `json:"id"`
			HistoryLength int    `json:"historyLength"`
		} `json:"params"`
	}
	_ = json.NewDecoder(r.Body).Decode(&call)
	said := `"error":{"code":-32601,"message":"no such method"}`
	switch n := 0; call.Method {
	case "ListTasks":
		var all []string
		for n := range g.ids {
			all = append(all, g.task(n, call.Params.HistoryLength))
		}
		said = `"result":{"tasks":[` + strings.Join(all, ",") + `]}`
	case "GetTask":
		_, _ = fmt.Sscanf(call.Params.ID, "t%d", &n)
		said = `"result":` + g.task(n, call.Params.HistoryLength)
		if g.refused && call.Params.HistoryLength > 0 {
			said = `"error":{"code":-32603,"message":"too much"}`
		}
	}
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, call.ID, said)
}

// find looks for what became of the task's message.
func (g *talkers) find(t *testing.T) bridge.Outcome {
	t.Helper()
	return findAt(t, g.ServeHTTP)
}

func findAt(t *testing.T, agent http.HandlerFunc) bridge.Outcome {
	t.Helper()
	server := httptest.NewServer(agent)
	t.Cleanup(server.Close)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	x := bridge.NewExchange(bridge.ExchangeConfig{DialContext: dial})
	t.Cleanup(x.Close)
	a := a2a.New(a2a.Options{Exchange: x})
	t.Cleanup(a.Close)
	out, err := a.Find(t.Context(), task(`"x"`), parley.Agent{Name: "agent", URL: "http://agent.test/", ProtocolConfig: json.RawMessage(`{"a2a":"1.0"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFind_LongHistories: of an agent that says more than a hundred things while it
// works, the message that its task was made of is not among the newest ones. The task is
// found all the same, and is never said to be missing.
func TestFind_LongHistories(t *testing.T) {
	t.Parallel()
	ours := task(`"x"`)
	mine := ours.MessageID()
	others := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprint("msg-other-", i))
		}
		return ids
	}
	for _, tt := range []struct {
		name  string
		agent talkers
		found string
		code  parley.Code
	}{
		{"few words", talkers{ids: []string{"msg-other", mine}, words: 98}, "t1", ""},
		{"as many as are asked for", talkers{ids: []string{"msg-other", mine}, words: 99}, "t1", ""},
		{"more", talkers{ids: []string{"msg-other", mine}, words: 100}, "t1", ""},
		{"many more", talkers{ids: []string{"msg-other", mine}, words: 9_999}, "t1", ""},
		{"too many", talkers{ids: []string{"msg-other", mine}, words: 10_000}, "", parley.CodeLimit},
		{"not there", talkers{ids: []string{"msg-other", "msg-another"}, words: 100}, "", parley.CodeNotFound},
		{"nothing there", talkers{}, "", parley.CodeNotFound},
		{"not read", talkers{ids: []string{"msg-other", mine}, words: 100, refused: true}, "", parley.CodeAgentError},
		{"the last that is looked at", talkers{ids: append(others(99), mine), words: 100}, "t99", ""},
		{"behind it", talkers{ids: append(others(100), mine), words: 100}, "", parley.CodeLimit},
		{"behind many that were read whole", talkers{ids: slices.Insert(others(100), 100, mine), words: 10}, "t100", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := tt.agent.find(t)
			if tt.found != "" && (out.Disposition != bridge.Accepted || out.AgentTaskID != tt.found) {
				t.Errorf("%v %q, %v; want task %s", out.Disposition, out.AgentTaskID, out.Result.Err, tt.found)
			}
			if tt.found == "" && (out.Disposition != bridge.Lost || parley.CodeOf(out.Result.Err) != tt.code) {
				t.Errorf("%v, %v; want %s", out.Disposition, out.Result.Err, tt.code)
			}
		})
	}
}

// TestFind_NoAnswer: what is no answer to the question, but the word of a proxy or of an
// agent that has broken down, says nothing about the task: neither that there is none, nor
// that it has failed.
func TestFind_NoAnswer(t *testing.T) {
	t.Parallel()
	const (
		failing = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"bug"}}`
		tasks   = `{"jsonrpc":"2.0","id":%s,"result":{"tasks":[{"id":"t1"}]}}`
		whole   = `{"jsonrpc":"2.0","id":%s,"result":{"id":"t1","history":[{"messageId":"msg-other"}]}}`
	)
	for _, tt := range []struct {
		name string
		// said are the bodies, each with its status before it.
		said []string
		code parley.Code
	}{
		{"500", []string{"500 oops"}, parley.CodeAgentUnavailable},
		{"no JSON", []string{"200 {"}, parley.CodeAgentError},
		{"no tasks", []string{`200 {"jsonrpc":"2.0","id":%s,"result":[]}`}, parley.CodeAgentError},
		{"a page for people", []string{"404 <html>"}, parley.CodeOutcomeUnknown},
		{"not allowed", []string{"403 no"}, parley.CodeOutcomeUnknown},
		{"500 for the second list", []string{"200 " + failing, "500 oops"}, parley.CodeAgentError},
		{"500 for the task", []string{"200 " + failing, "200 " + tasks, "500 oops"}, parley.CodeAgentUnavailable},
		{"no JSON for the task", []string{"200 " + failing, "200 " + tasks, "200 {"}, parley.CodeAgentError},
		{"all is well", []string{"200 " + failing, "200 " + tasks, "200 " + whole}, parley.CodeNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := 0
			out := findAt(t, func(w http.ResponseWriter, r *http.Request) {
				var call struct{ ID json.RawMessage }
				if err := json.NewDecoder(r.Body).Decode(&call); err != nil || n == len(tt.said) {
					t.Errorf("question %d: %v", n+1, err)
					return
				}
				status, body, _ := strings.Cut(tt.said[n], " ")
				code, _ := strconv.Atoi(status)
				n++
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				_, _ = io.WriteString(w, strings.ReplaceAll(body, "%s", string(call.ID)))
			})
			if out.Disposition != bridge.Lost || parley.CodeOf(out.Result.Err) != tt.code {
				t.Errorf("%v, %v; want %s", out.Disposition, out.Result.Err, tt.code)
			}
		})
	}
}

// TestFind_AfterGuard: what became of a message that was answered with an unclear error
// is asked, whatever has become of the right to send it, and says nothing about how the
// message itself was answered.
func TestFind_AfterGuard(t *testing.T) {
	t.Parallel()
	ours := task(`"x"`)
	var arrived atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		if call.Method == "SendMessage" {
			arrived.Store(true)
		}
		said := map[string]string{
			"SendMessage": `"error":{"code":-32603,"message":"bug"}`,
			"ListTasks":   `"result":{"tasks":[{"id":"t1","history":[{"messageId":"` + ours.MessageID() + `"}]}]}`,
			"GetTask":     `"result":{"id":"t1","status":{"state":"TASK_STATE_WORKING"}}`,
		}[call.Method]
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, call.ID, said)
	}))
	defer server.Close()
	x := bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Loopback: true}})
	defer x.Close()
	a := a2a.New(a2a.Options{Exchange: x})
	defer a.Close()
	ctx := bridge.WithSendGuard(t.Context(), func() bool { return !arrived.Load() })
	out, err := a.Call(ctx, ours, parley.Agent{Name: "agent", URL: server.URL, ProtocolConfig: json.RawMessage(`{"a2a":"1.0"}`)}, nil)
	if err != nil || out.Disposition != bridge.Accepted || out.AgentTaskID != "t1" {
		t.Errorf("%v %q, %v, %v; want task t1", out.Disposition, out.AgentTaskID, out.Result.Err, err)
	}
}
