package a2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
)

// TestStream_Discreet: an agent that repeats its caller's credential wherever
// it may name something gets it into nothing that is passed on.
func TestStream_Discreet(t *testing.T) {
	t.Parallel()
	const secret = "c4nary-c4nary"
	a, agent, _ := streamAgent(
		t, working,
		`{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"`+secret+`","name":"`+secret+`","parts":[{"text":"`+secret+`"},{"data":"`+secret+`"}]}}}`,
		`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING","timestamp":"`+secret+`","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"`+secret+`"}]}}}}`,
		`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"`+secret+`"}}}`,
	)
	agent.Auth, agent.Credential = parley.Auth{Type: parley.AuthBearer}, parley.NewSecret([]byte(secret))
	var told []bridge.Report
	note := func(r bridge.Report) { told = append(told, r) }
	out, err := a.Call(t.Context(), task(`"x"`), agent, note)
	if err != nil || out.Stream == nil {
		t.Fatalf("%+v, %v", out, err)
	}
	end := out.Stream.Listen(t.Context(), note)
	text, err := json.Marshal([]any{told, end.State, end.Result, end.Question})
	if err != nil || len(told) != 4 || strings.Contains(string(text), secret) {
		t.Errorf("%d reports, %v: %s", len(told), err, text)
	}
}

// TestPush_TokenIsNotLogged: the token with which an agent reports on a task is in its
// request, and stands in no line about that, nor in what comes back.
func TestPush_TokenIsNotLogged(t *testing.T) {
	t.Parallel()
	const token = "t0ken-of-this-task"
	var log strings.Builder
	g := &rpcAgent{answer: func(string) string {
		return `"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"` + token + `"}]}}`
	}}
	a := g.adapter(t, a2a.Options{
		Push:   func(string) (url, shown string, ok bool) { return "https://p.test/t", token, true },
		Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	agent := auto()
	agent.Detected = json.RawMessage(`{"protocol":"jsonrpc-2.0","url":"http://agent.test/","version":"1.0","push":true}`)
	out := call(t, a, agent)
	if asked := g.asked(); len(asked) != 1 || !strings.Contains(log.String(), "https://p.test/t") || !strings.Contains(log.String(), "[redacted]") {
		t.Errorf("it was not asked to report: %v, %s", asked, log.String())
	}
	if text, err := json.Marshal(out.Result); err != nil || strings.Contains(log.String()+string(text), token) {
		t.Errorf("%v, %s\n%s", err, text, log.String())
	}
}

// TestDiscreet_Cuts: where an agent's words are too long, and are cut or go in pieces, its
// caller's credential is not cut through: of one that is divided nobody would know the parts.
func TestDiscreet_Cuts(t *testing.T) {
	t.Parallel()
	const secret = "c4nary-with-a-long-tail"
	for _, at := range []int{4 << 10, 32 << 10, 64 << 10} {
		for before := 1; before < len(secret); before += 7 {
			words := strings.Repeat("x", at-before) + secret + strings.Repeat("y", 100)
			said := `"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"` + words + `"}]}`
			a, agent, _ := streamAgent(
				t, working,
				`{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"`+words+`"}]}}}`,
				`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING",`+said+`}}}`,
				`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED",`+said+`}}}`,
			)
			agent.Auth, agent.Credential = parley.Auth{Type: parley.AuthBearer}, parley.NewSecret([]byte(secret))
			var told strings.Builder
			note := func(r bridge.Report) {
				told.WriteString(r.Text)
				if r.Chunk != nil {
					told.WriteString(r.Chunk.Text)
				}
			}
			out, err := a.Call(t.Context(), task(`"x"`), agent, note)
			if err != nil || out.Stream == nil {
				t.Fatalf("%+v, %v", out, err)
			}
			end := out.Stream.Listen(t.Context(), note)
			if end.Question == nil {
				t.Fatalf("%+v", end)
			}
			for _, answer := range []string{
				`"result":{"task":{"id":"t","status":{"state":"TASK_STATE_FAILED",` + said + `}}}`,
				`"error":{"code":-32000,"message":"` + words + `"}`,
			} {
				g := &rpcAgent{answer: func(string) string { return answer }}
				failed := agent
				failed.ProtocolConfig = json.RawMessage(`{"a2a":"1.0"}`)
				e := call(t, g.adapter(t, a2a.Options{}), failed).Result.Err
				told.WriteString(e.Message + string(e.Details))
			}
			if text := told.String() + end.Question.Text; strings.Contains(text, "x"+secret[:1]) {
				t.Errorf("of a credential that begins %d bytes before byte %d something is told", before, at)
			}
		}
	}
}

// TestIDs_Large: the names that an agent gives are kept for as long as its task
// is followed, and sent back with every question: larger ones are refused.
func TestIDs_Large(t *testing.T) {
	t.Parallel()
	for _, member := range []string{"id", "contextId"} {
		for size, ok := range map[int]bool{1024: true, 1025: false, 64 << 10: false} {
			ids := map[string]string{"id": "t", "contextId": "c"}
			ids[member] = strings.Repeat("x", size)
			g := &rpcAgent{answer: func(string) string {
				return fmt.Sprintf(`"result":{"kind":"task","id":%q,"contextId":%q,"status":{"state":"working"}}`, ids["id"], ids["contextId"])
			}}
			agent := auto()
			agent.ProtocolConfig = json.RawMessage(`{"a2a":"0.3"}`)
			out := call(t, g.adapter(t, a2a.Options{}), agent)
			if ok != (out.Disposition == bridge.Accepted) {
				t.Errorf("%s of %d bytes: %v, %v", member, size, out.Disposition, out.Result.Err)
			}
			if !ok && (len(out.AgentTaskID) > 1024 || len(out.ContextID) > 1024) {
				t.Errorf("%s of %d bytes is passed on", member, size)
			}
		}
	}
}

// TestAboutTask_NoTask: a message, or a piece of output, with a state in it is no
// task, whatever it says: it ends nothing, and breaks nothing.
func TestAboutTask_NoTask(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"message", "artifact-update"} {
		for _, state := range []string{"working", "canceled", "completed"} {
			g := &rpcAgent{answer: func(string) string {
				return fmt.Sprintf(`"result":{"kind":%q,"taskId":"t","status":{"state":%q},"parts":[{"kind":"text","text":"x"}],"artifact":{}}`, kind, state)
			}}
			a := g.adapter(t, a2a.Options{})
			agent := parley.Agent{Name: "agent", URL: "http://agent.test/", ProtocolConfig: json.RawMessage(`{"a2a":"0.3"}`)}
			for name, ask := range map[string]func(context.Context, parley.Task, parley.Agent, bridge.AgentTask) (bridge.Outcome, error){
				"poll": a.Poll, "cancel": a.Cancel,
			} {
				out, err := ask(t.Context(), task(`"x"`), agent, bridge.AgentTask{ID: "t"})
				if err != nil || out.Disposition != bridge.Lost || out.Result.Err == nil || out.Result.Err.Code != parley.CodeAgentError {
					t.Errorf("%s, a %s that is %s: %+v, %v", name, kind, state, out, err)
				}
			}
		}
	}
}
