package graphql_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
	"github.com/parley-project/parley/examples/adapters/graphql"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/adaptertest"
	"github.com/parley-project/parley/internal/server"
)

var update = flag.Bool("update", false, "write what was seen into the dialogues")

// TestContract plays the dialogues of testdata, as the adapters that are built
// in do.
func TestContract(t *testing.T) {
	adaptertest.Run(t, adaptertest.Suite{
		Dir: "testdata", Update: *update,
		New: func(x *bridge.Exchange, log *slog.Logger, obs bridge.TranslationObserver) bridge.Adapter {
			return graphql.New(x, log, obs)
		},
	})
}

// agent is a tiny GraphQL agent with one mutation, which it executes once for
// each task id.
type agent struct {
	mu      sync.Mutex
	done    map[string]json.RawMessage
	asked   int
	failing int // how many requests lose their answer
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Query     string
		Variables struct {
			TaskID string
			Input  json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || !strings.Contains(req.Query, "{ shout(taskId: $taskId, input: $input) { output } }") {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"errors":[{"message":"no such mutation","extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	output, known := a.done[req.Variables.TaskID]
	if !known {
		var input struct{ Text string }
		if json.Unmarshal(req.Variables.Input, &input) != nil || input.Text == "" {
			fmt.Fprint(w, `{"data":{"shout":null},"errors":[{"message":"text is missing","path":["shout"],"extensions":{"code":"BAD_USER_INPUT"}}]}`)
			return
		}
		output, _ = json.Marshal(map[string]string{"text": strings.ToUpper(input.Text)})
		a.done[req.Variables.TaskID] = output
	}
	if a.failing > 0 {
		a.failing--
		panic(http.ErrAbortHandler) // the connection breaks before the answer
	}
	fmt.Fprintf(w, `{"data":{"shout":{"output":%s}}}`, output)
}

// TestThroughParley registers the adapter with a server and calls an agent of
// the protocol: a result, an error, and a lost answer that is asked for again.
func TestThroughParley(t *testing.T) {
	t.Parallel()
	a := &agent{done: make(map[string]json.RawMessage), failing: 1}
	srv := httptest.NewServer(a)
	defer srv.Close()
	s, err := server.New(t.Context(), server.Config{
		Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"},
		Adapters: []server.NewAdapter{graphql.New},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer stop()
	c, err := client.New(client.Options{URL: s.URL(), Key: s.Key()})
	if err != nil {
		t.Fatal(err)
	}
	spec := func(config string, policy parley.OutcomePolicy) parley.AgentSpec {
		return parley.AgentSpec{
			Name: new("mine"), URL: &srv.URL, Protocol: new(graphql.Protocol), ProtocolConfig: json.RawMessage(config), OutcomeUnknown: &policy,
		}
	}
	if _, err := c.AddAgent(ctx, spec(`{"mutation":"not a name"}`, "")); err == nil || !strings.Contains(err.Error(), "mutation") {
		t.Errorf("a wrong setting gives %v", err)
	}
	if _, err := c.AddAgent(ctx, spec(`{"mutation":"shout"}`, parley.OutcomeResend)); err != nil {
		t.Fatal(err)
	}

	run := call(ctx, t, c, `{"text":"hello"}`)
	if run.Status != parley.RunCompleted || string(run.Steps[0].Output) != `{"text":"HELLO"}` {
		t.Errorf("%s: %s %v", run.Status, run.Steps[0].Output, run.Error)
	}
	a.mu.Lock()
	if a.asked != 2 || len(a.done) != 1 {
		t.Errorf("asked %d times for %d tasks, want the same task twice", a.asked, len(a.done))
	}
	a.mu.Unlock()

	run = call(ctx, t, c, `{}`)
	if run.Status != parley.RunFailed || run.Error.Code != parley.CodeAgentRejected || !strings.Contains(run.Error.Message, "text is missing") {
		t.Errorf("%s: %v", run.Status, run.Error)
	}
}

// call runs one step on the agent.
func call(ctx context.Context, t *testing.T, c *client.Client, input string) parley.Run {
	t.Helper()
	run, err := c.CallAgent(ctx, parley.StartRequest{CallAgent: "mine", Input: json.RawMessage(input)})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.Watch(ctx, run.ID, client.WatchOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if run, err = c.Run(ctx, run.ID); err != nil {
		t.Fatal(err)
	}
	return run
}

// TestRequest keeps big numbers, and escapes what has to be.
func TestRequest(t *testing.T) {
	t.Parallel()
	got, err := graphql.Request(parley.Task{ID: `run-"1"`, Input: json.RawMessage(` {"n": 12345678901234567890} `)}, "execute")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"query":"mutation Task($taskId: ID!, $input: JSON) { execute(taskId: $taskId, input: $input) { output } }","variables":{"taskId":"run-\"1\"","input":{"n":12345678901234567890}}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if _, err := graphql.Request(parley.Task{ID: "t", Input: json.RawMessage(`{`)}, "execute"); err == nil {
		t.Error("an input that is no JSON is sent")
	}
}
