package sample_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley/internal/sample"
)

func post(h http.Handler, body string) (int, string) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("X-Correlation-ID", "corr-1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

// TestGreeter: whom it greets, and what it refuses.
func TestGreeter(t *testing.T) {
	for input, name := range map[string]string{
		`{"name":"Ada"}`: "Ada", `{"text":" Grace "}`: "Grace", `"Linus"`: "Linus", `{}`: "World", `null`: "World", `7`: "World", `{"name":7}`: "World",
	} {
		code, got := post(sample.Greeter(), `{"task_id":"t1","input":`+input+`}`)
		want := `{"error":null,"output":{"greeting":"Hello, ` + name + `!","name":"` + name + `"},"status":"success","task_id":"t1"}`
		if code != 200 || got != want {
			t.Errorf("%s: %d %s", input, code, got)
		}
	}
	for _, bad := range []string{"", "{", `{"input":{}}`, `{"task_id":7}`} {
		if code, got := post(sample.Greeter(), bad); code != http.StatusBadRequest {
			t.Errorf("%q: %d %s", bad, code, got)
		}
	}
	w := httptest.NewRecorder()
	sample.Greeter().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
}

const send = `{"jsonrpc":"2.0","id":"r1","method":"message/send","params":{"message":{"role":"user","messageId":"m1","parts":[{"kind":"text","text":%q}]}}}`

// TestPolisher: a completed task with one artifact and its history.
func TestPolisher(t *testing.T) {
	_, got := post(sample.Polisher(""), fmt.Sprintf(send, "  hello,\n world"))
	var r struct {
		ID     string
		Result struct {
			Kind, ID, ContextID string
			Status              struct{ State string }
			Artifacts           []struct{ Parts []struct{ Kind, Text string } }
			History             []struct{ Role, MessageID string }
		}
	}
	if err := json.Unmarshal([]byte(got), &r); err != nil {
		t.Fatal(err)
	}
	res := r.Result
	if r.ID != "r1" || res.Kind != "task" || res.ID != "task-m1" || res.Status.State != "completed" || len(res.History) != 2 || res.History[1].Role != "agent" {
		t.Errorf("%s", got)
	}
	if text := res.Artifacts[0].Parts[0].Text; text != "Hello, world. It is a pleasure to meet you." {
		t.Errorf("text %q", text)
	}
	if _, again := post(sample.Polisher(""), fmt.Sprintf(send, "  hello,\n world")); again != got {
		t.Error("not the same twice")
	}
}

// TestPolisherErrors: what it refuses, in JSON-RPC's words.
func TestPolisherErrors(t *testing.T) {
	for body, code := range map[string]string{
		`{"jsonrpc":"1.0","id":1}`:                                           "-32600",
		`{"jsonrpc":"2.0","id":1,"method":"x"}`:                              "-32601",
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}`:       "-32602",
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"t1"}}`: "-32001",
	} {
		if _, got := post(sample.Polisher(""), body); !strings.Contains(got, `"code":`+code) || !strings.Contains(got, `"id":1`) {
			t.Errorf("%s: %s", body, got)
		}
	}
}

// TestPolisherCard: the card names the address at which it was asked, or the one
// that was given.
func TestPolisherCard(t *testing.T) {
	for given, want := range map[string]string{"": "http://h:1/agents/polisher", "https://x/y": "https://x/y"} {
		h := http.StripPrefix("/agents/polisher", sample.Polisher(given))
		s := httptest.NewRecorder()
		h.ServeHTTP(s, httptest.NewRequest(http.MethodGet, "http://h:1/agents/polisher/.well-known/agent-card.json", nil))
		var card struct{ Name, URL, ProtocolVersion string }
		if err := json.Unmarshal(s.Body.Bytes(), &card); err != nil || card.URL != want || card.ProtocolVersion != "0.3.0" || card.Name != "polisher" {
			t.Errorf("%q: %+v, %v", given, card, err)
		}
	}
}

// TestWorkflow: the sample workflow is YAML and names the sample agents.
func TestWorkflow(t *testing.T) {
	var w struct {
		Name  string
		Steps []struct{ ID, Agent string }
		Input struct {
			Properties map[string]struct{ Default string }
		}
		Output map[string]string
	}
	if err := yaml.Unmarshal([]byte(sample.Workflow()), &w); err != nil {
		t.Fatal(err)
	}
	if w.Name != "hello" || len(w.Steps) != 3 || w.Steps[0].Agent != "greeter" || w.Steps[1].Agent != "polisher" || w.Input.Properties["name"].Default != "World" || w.Output["text"] == "" {
		t.Errorf("%+v", w)
	}
}

// TestScripted: both protocols, one log.
func TestScripted(t *testing.T) {
	s := sample.NewScripted(sample.Script{Now: func() time.Time { return time.Unix(1, 0) }})
	if _, got := post(s, `{"task_id":"t1","input":{"n":1}}`); got != `{"error":null,"output":{"echo":{"n":1}},"status":"success","task_id":"t1"}` {
		t.Error(got)
	}
	_, _ = post(s, `{"task_id":"t1","input":{"n":1}}`)
	if _, got := post(s, fmt.Sprintf(send, "hi")); !strings.Contains(got, `"text":"{\"echo\":\"hi\"}"`) {
		t.Error(got)
	}
	want := []sample.Call{
		{TaskID: "t1", Method: "simple-a2a", Input: json.RawMessage(`{"n":1}`), CorrelationID: "corr-1", At: time.Unix(1, 0), N: 1},
		{TaskID: "t1", Method: "simple-a2a", Input: json.RawMessage(`{"n":1}`), CorrelationID: "corr-1", At: time.Unix(1, 0), N: 2},
		{TaskID: "r1", MessageID: "m1", Method: "message/send", Input: json.RawMessage(`"hi"`), CorrelationID: "corr-1", At: time.Unix(1, 0), N: 1},
	}
	if diff := cmp.Diff(want, s.Log.All()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"t1"}, s.Log.Repeated()); diff != "" {
		t.Error(diff)
	}
	if tasks, sent := s.Log.Tasks(); tasks != 2 || sent != 3 || s.Log.Executions("t1") != 2 || s.Log.Executions("x") != 0 {
		t.Errorf("%d tasks, %d sent", tasks, sent)
	}
}

// TestScriptedScript: status, failure, output and delay.
func TestScriptedScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.NewScripted(sample.Script{
			Delay:  func(sample.Call) time.Duration { return time.Hour },
			Status: func(c sample.Call) int { return map[int]int{1: 503}[c.N] },
			Error:  func(c sample.Call) string { return map[int]string{2: "out of paper"}[c.N] },
			Output: func(sample.Call) json.RawMessage { return json.RawMessage(`[1]`) },
		})
		begun := time.Now()
		simple := `{"task_id":"t1","input":null}`
		if code, _ := post(s, simple); code != 503 {
			t.Error(code)
		}
		if _, got := post(s, simple); !strings.Contains(got, `"error":"out of paper"`) {
			t.Error(got)
		}
		if _, got := post(s, simple); !strings.Contains(got, `"output":[1]`) {
			t.Error(got)
		}
		_, _ = post(s, fmt.Sprintf(send, "x"))
		if _, got := post(s, fmt.Sprintf(send, "x")); !strings.Contains(got, `"state":"failed"`) || !strings.Contains(got, "out of paper") {
			t.Error(got)
		}
		if took := time.Since(begun); took != 5*time.Hour {
			t.Errorf("took %v", took)
		}
	})
}

// TestScriptedLongTask: working, asked, completed; and cancelled.
func TestScriptedLongTask(t *testing.T) {
	about := func(method, id string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":"r2","method":%q,"params":{"id":%q}}`, method, id)
	}
	s := sample.NewScripted(sample.Script{Polls: func(sample.Call) int { return 2 }})
	steps := []struct{ body, want string }{
		{fmt.Sprintf(send, "x"), `"state":"working"`},
		{about("tasks/get", "task-m1"), `"state":"working"`},
		{about("tasks/get", "task-m1"), `"state":"working"`},
		{about("tasks/get", "task-m1"), `"state":"completed"`},
		{about("tasks/cancel", "task-m1"), `"code":-32002`},
		{about("tasks/get", "other"), `"code":-32001`},
		{fmt.Sprintf(send, "x"), `"state":"working"`},
		{about("tasks/cancel", "task-m1"), `"state":"canceled"`},
		{about("tasks/get", "task-m1"), `"state":"canceled"`},
	}
	for i, step := range steps {
		if _, got := post(s, step.body); !strings.Contains(got, step.want) {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	if n := s.Log.Executions("r1"); n != 2 {
		t.Errorf("%d executions: tasks/get counts for none", n)
	}
}

// TestScriptedConcurrent: the log loses nothing.
func TestScriptedConcurrent(t *testing.T) {
	s := sample.NewScripted(sample.Script{})
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			resp, err := http.Post(srv.URL, "application/json", strings.NewReader(fmt.Sprintf(`{"task_id":"t%d"}`, i%10)))
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	wg.Wait()
	if tasks, sent := s.Log.Tasks(); tasks != 10 || sent != 20 || len(s.Log.Repeated()) != 10 {
		t.Errorf("%d tasks, %d sent", tasks, sent)
	}
}
