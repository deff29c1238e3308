package agents_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
	"github.com/parley-project/parley/internal/server"
)

// way is how Parley calls an agent.
type way struct {
	name   string
	config string
	// methods are those that the agent may see; stdio is not seen.
	methods []string
	// protocol is jsonrpc-2.0 unless it is said.
	protocol string
	stdio    bool
	streams  bool
}

func ways() []way {
	old := []string{"message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"}
	modern := []string{"SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"}
	return []way{
		{name: "0.3", config: `{"a2a":"0.3"}`, methods: old},
		{name: "1.0", config: `{"a2a":"1.0","stream":"off"}`, methods: modern},
		{name: "detected", config: `{"a2a":"auto"}`, methods: modern, streams: true},
		{name: "registered", protocol: "auto", methods: modern, streams: true},
		{name: "streamed 1.0", config: `{"a2a":"1.0","send":"stream"}`, methods: modern, streams: true},
		{name: "streamed 0.3", config: `{"a2a":"0.3","stream":"on"}`, methods: old, streams: true},
		{name: "stdio 0.3", config: `{"a2a":"0.3"}`, stdio: true},
		{name: "stdio 1.0", config: `{"a2a":"1.0"}`, stdio: true},
	}
}

// TestAgentsThroughParley calls each agent through Parley in every way: echo, a
// long task, a question and its answer, and a failure.
func TestAgentsThroughParley(t *testing.T) {
	t.Parallel()
	c := startParley(t)
	for language, command := range languages(t) {
		for _, w := range ways() {
			t.Run(language+" "+w.name, func(t *testing.T) {
				t.Parallel()
				name := strings.ReplaceAll(language+"-"+w.name, " ", "-")
				seen := &sightings{}
				at := "stdio:" + strings.Join(command, " ") + " --stdio"
				if !w.stdio {
					at = seen.start(t, command)
				}
				_, err := c.AddAgent(t.Context(), parley.AgentSpec{
					Name: &name, URL: &at, Protocol: new(cmp.Or(w.protocol, parley.ProtocolJSONRPC)), ProtocolConfig: json.RawMessage(w.config),
					Retry: new(parley.RetryConfig{InitialDelay: time.Second, MaxDelay: time.Second, Multiplier: 1}),
				})
				if err != nil {
					t.Fatal(err)
				}
				u := user{c: c, agent: name, streams: w.streams}
				t.Run("echo", u.echo)
				t.Run("long", u.long)
				t.Run("ask", u.ask)
				t.Run("fail", u.fail)
				t.Run("cancel", u.cancel)
				if !w.stdio {
					seen.check(t, w.methods)
				}
			})
		}
	}
}

// startParley runs a server until the test ends.
func startParley(t *testing.T) *client.Client {
	t.Helper()
	s, err := server.New(t.Context(), server.Config{
		Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"},
		AllowStdio: true, LookupEnv: os.LookupEnv, DrainGrace: 100 * time.Millisecond, CancelGrace: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	c, err := client.New(client.Options{URL: s.URL(), Key: s.Key()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// user is somebody who calls one agent.
type user struct {
	c     *client.Client
	agent string
	// streams says that the agent is heard while it works.
	streams bool
}

// start starts a run of one step with text, and waits until enough says so.
func (u user) start(t *testing.T, text string, enough func(parley.Run) bool) parley.Run {
	t.Helper()
	input, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	run, err := u.c.CallAgent(t.Context(), parley.StartRequest{CallAgent: u.agent, Input: input})
	if err != nil {
		t.Fatal(err)
	}
	return u.until(t, run.ID, enough)
}

func (u user) until(t *testing.T, id string, enough func(parley.Run) bool) parley.Run {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		run, err := u.c.Run(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if enough(run) {
			return run
		}
		if run.Status.Terminal() || time.Since(begun) > 2*patience {
			b, _ := json.MarshalIndent(run, "", " ")
			t.Fatalf("the run does not get there:\n%s", b)
		}
	}
}

func ended(run parley.Run) bool { return run.Status.Terminal() }

// output gives a member of the output of a completed run.
func output(t *testing.T, run parley.Run, member string) string {
	t.Helper()
	var out map[string]any
	if run.Status != parley.RunCompleted || json.Unmarshal(run.Steps[0].Output, &out) != nil {
		t.Fatalf("%s: %v %s", run.Status, run.Error, run.Steps[0].Output)
	}
	return fmt.Sprint(out[member])
}

func (u user) echo(t *testing.T) {
	run := u.start(t, "echo Hello, Ada", ended)
	if got := output(t, run, "text"); got != "Hello, Ada" {
		t.Errorf("text is %q", got)
	}
	if run.Steps[0].Attempts != 1 {
		t.Errorf("%d attempts", run.Steps[0].Attempts)
	}
}

func (u user) long(t *testing.T) {
	run := u.start(t, "long 4", ended)
	if got := output(t, run, "text"); got != "part 1\npart 2\npart 3\npart 4" {
		t.Errorf("text is %q", got)
	}
	if run.Steps[0].Attempts != 1 {
		t.Errorf("%d attempts", run.Steps[0].Attempts)
	}
	// What the agent says while it works is in the run's history: by streams its
	// output too.
	page, err := u.c.Events(t.Context(), run.ID, client.EventQuery{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(page)
	if err != nil {
		t.Fatal(err)
	}
	wanted := []string{string(parley.EventStepAccepted)}
	if u.streams {
		wanted = append(wanted, string(parley.EventStepChunk), string(parley.EventStepProgress), "part 1", " of 4 parts are done") // coalesced, so not each of them
	}
	for _, want := range wanted {
		if !strings.Contains(string(b), want) {
			t.Errorf("the history has no %q: %s", want, b)
		}
	}
}

func (u user) ask(t *testing.T) {
	run := u.start(t, "ask", func(run parley.Run) bool {
		return len(run.Steps) == 1 && run.Steps[0].Phase == parley.PhaseInputRequired
	})
	q := run.Steps[0].Question
	if q == nil || q.Kind != parley.QuestionInput || q.Text != "Which colour?" {
		t.Errorf("the question is %+v", q)
	}
	if _, err := u.c.Answer(t.Context(), parley.AnswerRequest{Run: run.ID, Reply: parley.Reply{Text: "red"}}); err != nil {
		t.Fatal(err)
	}
	run = u.until(t, run.ID, ended)
	if got := output(t, run, "text"); got != "You chose red." {
		t.Errorf("text is %q", got)
	}
}

func (u user) fail(t *testing.T) {
	run := u.start(t, "fail", ended)
	if run.Status != parley.RunFailed || run.Error.Code != parley.CodeAgentError || run.Error.Message != "Task state: failed" {
		t.Errorf("%s: %v", run.Status, run.Error)
	}
	var details struct{ Message string }
	if e := run.Steps[0].Error; e == nil || json.Unmarshal(e.Details, &details) != nil || details.Message != "You asked me to fail." {
		t.Errorf("the step's error is %v, with %+v", e, details)
	}
}

func (u user) cancel(t *testing.T) {
	run := u.start(t, "long 60", func(run parley.Run) bool { return len(run.Steps) == 1 && run.Steps[0].AgentTaskID != "" })
	if _, err := u.c.Cancel(t.Context(), run.ID, "enough"); err != nil {
		t.Fatal(err)
	}
	if run = u.until(t, run.ID, ended); run.Status != parley.RunCancelled {
		t.Errorf("%s: %v", run.Status, run.Error)
	}
}

// sightings is what an agent was asked: the requests pass it on their way.
type sightings struct {
	mu       sync.Mutex
	methods  []string
	messages map[string]int
	bad      []string
}

// start runs an agent behind a proxy that notes what it is asked, and gives the
// proxy's URL, which is also what the agent's card names.
func (s *sightings) start(t *testing.T, command []string) string {
	t.Helper()
	s.messages = make(map[string]int)
	front := httptest.NewUnstartedServer(nil)
	at := start(t, append(slices.Clone(command), "--url", "http://"+front.Listener.Addr().String()+"/"))
	to, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     strangers(), // else a request that meets the end of a kept connection is lost
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // streams are left in the middle
	}
	front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.note(r)
		}
		proxy.ServeHTTP(w, r)
	})
	front.Start()
	t.Cleanup(front.Close)
	return front.URL + "/"
}

func (s *sightings) note(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var req struct {
		Method string
		Params struct{ Message struct{ MessageID string } }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || json.Unmarshal(body, &req) != nil {
		s.bad = append(s.bad, string(body))
		return
	}
	if version, want := r.Header.Get("A2A-Version"), map[bool]string{false: "1.0"}[strings.Contains(req.Method, "/")]; version != want {
		s.bad = append(s.bad, fmt.Sprintf("%s with A2A-Version %q", req.Method, version))
	}
	s.methods = append(s.methods, req.Method)
	if id := req.Params.Message.MessageID; id != "" {
		s.messages[id]++
	}
}

// check looks at what the agent was asked: in the right dialect, every message
// once.
func (s *sightings) check(t *testing.T, allowed []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.bad {
		t.Errorf("the agent was sent %s", text)
	}
	for _, m := range s.methods {
		if !slices.Contains(allowed, m) {
			t.Errorf("the agent was asked %s", m)
		}
	}
	for id, n := range s.messages {
		if n != 1 {
			t.Errorf("message %s was sent %d times", id, n)
		}
	}
	if len(s.messages) != 6 { // one each, and the answer
		t.Errorf("%d messages: %v", len(s.messages), s.messages)
	}
}
