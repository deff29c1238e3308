package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/zonetest"
)

// thinker is an agent that says back what it is asked, and takes its time for
// "think".
type thinker struct {
	calls atomic.Int64
	let   chan struct{}
}

func (a *thinker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var task struct {
		TaskID string `json:"task_id"`
		Input  struct {
			Text string `json:"text"`
		} `json:"input"`
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &task)
	a.calls.Add(1)
	if task.Input.Text == "think" {
		select {
		case <-a.let:
		case <-r.Context().Done():
			return
		}
	}
	answer := map[string]any{"task_id": task.TaskID, "status": "success", "output": map[string]any{"text": "You said: " + task.Input.Text, "tokens": 7}}
	if task.Input.Text == "fail" {
		answer["status"], answer["error"] = "error", "the model at 10.0.0.7 is out of order"
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// zoneWorld is an Execution Zone and who asks it.
type zoneWorld struct {
	*world
	agent  *thinker
	client *zone.Client
	// stop ends the server and waits for it.
	stop func()
}

func startZone(t *testing.T, change func(*server.Config)) *zoneWorld {
	t.Helper()
	z := &zoneWorld{agent: &thinker{let: make(chan struct{})}}
	agent := httptest.NewServer(z.agent)
	t.Cleanup(agent.Close)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agents.yaml"), `agents: [{name: thinker, url: "`+agent.URL+`", protocol: simple-a2a, retry: {max_retries: 0}}]`)
	write(t, filepath.Join(dir, "flows", "answer.yaml"), `
name: answer
input: {type: object, properties: {text: {type: string, maxLength: 100}}}
steps: [{id: think, agent: thinker, input: {text: "${workflow.input.text}"}}]
output: {response_text: "${think.output.text}", tokens: "${think.output.tokens}"}`)
	cfg := server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"}, DrainGrace: time.Second,
		AgentFiles: []string{filepath.Join(dir, "agents.yaml")}, WorkflowDirs: []string{filepath.Join(dir, "flows")},
		Execution: &server.ExecutionZone{
			Listen: "127.0.0.1:0", A2AListen: "127.0.0.1:0", Workflow: "answer", Profile: server.ZoneRelaxed,
			SyncLimit: 30 * time.Second, TaskLimit: time.Minute, MaxTasks: 4,
		},
	}
	if change != nil {
		change(&cfg)
	}
	z.world = z.serveZone(t, cfg)
	return z
}

// serveZone runs a server until the test ends or it is stopped.
func (z *zoneWorld) serveZone(t *testing.T, cfg server.Config) *world {
	t.Helper()
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w := &world{t: t, cfg: cfg, server: s}
	z.stop = func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server: %v", err)
		}
		ended <- nil
	}
	t.Cleanup(z.stop)
	z.client = zone.NewClient(zone.ClientConfig{Transport: posting(s.ZoneURLs()[0] + "/invocations"), Profile: zone.ProfileRelaxed, NewID: uuid.NewString})
	return w
}

// posting is a plain transport.
type posting string

func (p posting) Call(ctx context.Context, body []byte, _ zone.Meta) ([]byte, zone.Info, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(p), strings.NewReader(string(body)))
	if err != nil {
		return nil, zone.Info{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, zone.Info{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return text, zone.Info{Status: resp.StatusCode}, err
}

func (z *zoneWorld) ask(id, text string) (zone.Result, error) {
	res, _, err := z.client.Ask(z.t.Context(), zone.Call{ID: id, Task: zone.Task{Text: text, Channel: "C1", CorrelationID: "corr-1"}})
	return res, err
}

func reasonOf(err error) zone.Reason {
	if e, ok := err.(*zone.Error); ok {
		return e.Reason
	}
	return ""
}

// TestZN2_ExecuteTaskRunsTheWorkflow: a task is a run, whose output is the answer;
// the same request again is the same run, and another task with its id is refused.
func TestZN2_ExecuteTaskRunsTheWorkflow(t *testing.T) {
	t.Parallel()
	z := startZone(t, nil)
	id := uuid.NewString()
	for range 2 {
		res, err := z.ask(id, "hello")
		if err != nil || res.Status != zone.StatusSuccess || res.ResponseText != "You said: hello" || string(res.More["tokens"]) != "7" ||
			res.Channel != "C1" || res.CorrelationID != "corr-1" {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if n := z.agent.calls.Load(); n != 1 {
		t.Errorf("the agent was called %d times", n)
	}
	if _, err := z.ask(id, "other"); reasonOf(err) != zone.ReasonIDReused {
		t.Errorf("another task with the same id: %v", err)
	}
	_, err := z.ask(uuid.NewString(), "fail")
	if reasonOf(err) != zone.ReasonTaskFailed || strings.Contains(err.Error(), "10.0.0.7") {
		t.Errorf("a failing task: %v", err)
	}
	if _, err := z.ask(uuid.NewString(), strings.Repeat("x", 101)); reasonOf(err) != zone.ReasonInvalidParams {
		t.Errorf("an input that the workflow does not take: %v", err)
	}
	_, body := z.call("GET", "/api/v1/runs", "")
	if !strings.Contains(string(body), `"zone":"execution"`) {
		t.Errorf("the runs are not labelled: %s", body)
	}
}

// TestZN5_AcceptedTasksGoOn: a task that takes long is accepted, goes on while the
// zone is stopped and started anew, and is there to be fetched, once.
func TestZN5_AcceptedTasksGoOn(t *testing.T) {
	t.Parallel()
	z := startZone(t, func(c *server.Config) { c.Execution.SyncLimit = 50 * time.Millisecond })
	id := uuid.NewString()
	res, err := z.ask(id, "think")
	if err != nil || res.Status != zone.StatusAccepted || res.TaskID != id {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := z.ping(); got != "HealthyBusy" {
		t.Errorf("ping: %s", got)
	}
	fetch := func() zone.AsyncResult {
		got, _, err := z.client.Fetch(t.Context(), zone.Query{TaskID: id}, zone.Meta{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := fetch(); got.Status != zone.StatusRunning {
		t.Errorf("%+v", got)
	}
	z.stop()
	close(z.agent.let)
	z.world = z.serveZone(t, z.cfg)
	waitFor(t, "the task has not ended:", func() bool { return fetch().Status == zone.StatusCompleted })
	if got := fetch(); got.Result.ResponseText != "You said: think" {
		t.Errorf("%+v", got.Result)
	}
	if res, err := z.ask(id, "think"); err != nil || res.ResponseText != "You said: think" {
		t.Errorf("asked again: %+v, %v", res, err)
	}
	waitFor(t, "ping:", func() bool { return z.ping() == "Healthy" })
	if _, _, err := z.client.Fetch(t.Context(), zone.Query{TaskID: uuid.NewString()}, zone.Meta{}); reasonOf(err) != zone.ReasonUnknownTask {
		t.Errorf("a task that nobody began: %v", err)
	}
}

func (z *zoneWorld) ping() string {
	resp, err := http.Get(z.server.ZoneURLs()[0] + "/ping")
	if err != nil {
		z.t.Fatal(err)
	}
	defer resp.Body.Close()
	var p struct {
		Status string `json:"status"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		z.t.Error(err)
	}
	return p.Status
}

// TestZN4_TooManyTasks: no more tasks are taken than may be in hand.
func TestZN4_TooManyTasks(t *testing.T) {
	t.Parallel()
	z := startZone(t, func(c *server.Config) { c.Execution.SyncLimit, c.Execution.MaxTasks = 50*time.Millisecond, 2 })
	for range 2 {
		if res, err := z.ask(uuid.NewString(), "think"); err != nil || res.Status != zone.StatusAccepted {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	_, err := z.ask(uuid.NewString(), "hello")
	if e, ok := err.(*zone.Error); !ok || e.Code != zone.CodeServer || e.Reason != zone.ReasonOverloaded || e.RetryAfterMS == 0 {
		t.Errorf("the third task: %v", err)
	}
}

// TestZN4_NoRoomBesideOtherRuns: a task for which there is no room beside other runs of the
// workflow (concurrency) may be asked for again, and is then done.
func TestZN4_NoRoomBesideOtherRuns(t *testing.T) {
	t.Parallel()
	for whenFull, most := range map[string]int{"reject": 1, "queue": 2} {
		t.Run(whenFull, func(t *testing.T) {
			t.Parallel()
			z := startZone(t, func(c *server.Config) {
				c.Execution.SyncLimit = 50 * time.Millisecond
				c.Limits = workflow.DefaultRunLimits()
				c.Limits.QueuedRuns = 1
				write(t, filepath.Join(c.WorkflowDirs[0], "answer.yaml"), `
name: answer
concurrency: {limit: 1, when_full: `+whenFull+`}
steps: [{id: think, agent: thinker, input: {text: "${workflow.input.text}"}}]
output: {response_text: "${think.output.text}"}`)
			})
			for range most {
				if res, err := z.ask(uuid.NewString(), "think"); err != nil || res.Status != zone.StatusAccepted {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			id := uuid.NewString()
			_, err := z.ask(id, "hello")
			if e, ok := err.(*zone.Error); !ok || e.Code != zone.CodeServer || e.Reason != zone.ReasonOverloaded || e.RetryAfterMS == 0 {
				t.Errorf("a task without room: %v", err)
			}
			close(z.agent.let)
			waitFor(t, "the task has no room later either:", func() bool {
				_, err := z.ask(id, "hello")
				return err == nil
			})
		})
	}
}

// TestZN4_TaskLimit: a task that takes too long is a timeout.
func TestZN4_TaskLimit(t *testing.T) {
	t.Parallel()
	z := startZone(t, func(c *server.Config) {
		c.Execution.SyncLimit, c.Execution.TaskLimit = 50*time.Millisecond, 2*time.Second
	})
	first := uuid.NewString()
	_, _ = z.ask(first, "think") // where the machine is slow its time may be over already
	waitFor(t, "the task has no time limit:", func() bool {
		got, _, err := z.client.Fetch(t.Context(), zone.Query{TaskID: first}, zone.Meta{})
		return err == nil && got.Status == zone.StatusFailed && got.Error.Reason == zone.ReasonTimeout && got.Error.Code == zone.CodeTimeout
	})
}

// TestZN4_StoppingAnswersWhoWaits: a caller whose task is under way when the zone is
// stopped is told that it was accepted, and finds the answer when it runs again.
func TestZN4_StoppingAnswersWhoWaits(t *testing.T) {
	t.Parallel()
	// All of it passes, since the agent is at work. A slow machine needs more than a second to answer.
	z := startZone(t, func(c *server.Config) { c.DrainGrace = 5 * time.Second })
	id := uuid.NewString()
	type answer struct {
		res zone.Result
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		res, err := z.ask(id, "think")
		answered <- answer{res, err}
	}()
	waitFor(t, "the agent is not called:", func() bool { return z.agent.calls.Load() == 1 })
	z.stop()
	if got := <-answered; got.err != nil || got.res.Status != zone.StatusAccepted || got.res.TaskID != id {
		t.Errorf("%+v, %v", got.res, got.err)
	}
	close(z.agent.let)
	z.world = z.serveZone(t, z.cfg)
	waitFor(t, "the task is lost:", func() bool {
		got, _, err := z.client.Fetch(t.Context(), zone.Query{TaskID: id}, zone.Meta{})
		return err == nil && got.Status == zone.StatusCompleted
	})
}

// TestZN2_ExecuteTaskCallsTheAgent: without a workflow a task is a call of one
// agent, whose text is the answer.
func TestZN2_ExecuteTaskCallsTheAgent(t *testing.T) {
	t.Parallel()
	z := startZone(t, func(c *server.Config) { c.Execution.Workflow, c.Execution.Agent = "", "thinker" })
	id := uuid.NewString()
	for range 2 {
		if res, err := z.ask(id, "hello"); err != nil || res.ResponseText != "You said: hello" || len(res.More) != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if n := z.agent.calls.Load(); n != 1 {
		t.Errorf("the agent was called %d times", n)
	}
	card, _, err := z.client.Card(t.Context(), zone.Meta{})
	if err != nil || !strings.Contains(string(card), `"name":"thinker"`) || !strings.Contains(string(card), z.server.ZoneURLs()[1]) {
		t.Errorf("%s, %v", card, err)
	}
}

// TestZN6_ExecutionZoneKnowsItsCallers: an address that others reach wants to know
// who calls; who is not believed gets 401 and nothing else.
func TestZN6_ExecutionZoneKnowsItsCallers(t *testing.T) {
	t.Parallel()
	z := startZone(t, func(c *server.Config) { c.Execution.Bearer = parley.NewSecret([]byte("letmein-0123456789")) })
	_, err := z.ask(uuid.NewString(), "hello")
	if reasonOf(err) != zone.ReasonUnauthorized {
		t.Errorf("without a token: %v", err)
	}
	for name, change := range map[string]func(*server.ExecutionZone){
		"everybody":      func(z *server.ExecutionZone) { z.Listen = "0.0.0.0:0" },
		"no work":        func(z *server.ExecutionZone) { z.Workflow = "" },
		"two works":      func(z *server.ExecutionZone) { z.Agent = "thinker" },
		"no workflow":    func(z *server.ExecutionZone) { z.Workflow = "unheard of" },
		"no agent":       func(z *server.ExecutionZone) { z.Workflow, z.Agent = "", "unheard of" },
		"half of TLS":    func(z *server.ExecutionZone) { z.Cert = "nowhere.pem" },
		"audience alone": func(z *server.ExecutionZone) { z.Audience = "urn:x" },
	} {
		cfg := z.cfg
		execution := *cfg.Execution
		execution.Bearer = parley.Secret{}
		change(&execution)
		cfg.Execution, cfg.Data = &execution, t.TempDir()
		s, err := server.New(t.Context(), cfg)
		if parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// TestZN4_ContractOverTheServer runs the suite's malformed requests against a whole
// zone: its answers are those of the contract.
func TestZN4_MalformedRequests(t *testing.T) {
	t.Parallel()
	z := startZone(t, nil)
	for body, want := range map[string]string{
		`{`:  `"code":-32700`,
		`[]`: `"code":-32600`,
		`{"jsonrpc":"2.0","id":"1","method":"execute_task","params":{}}`: `"missing":["text"]`,
		`{"jsonrpc":"2.0","id":"1","method":"sudo"}`:                     `"code":-32601`,
	} {
		got, _, err := posting(z.server.ZoneURLs()[0]+"/invocations").Call(t.Context(), []byte(body), zone.Meta{})
		if err != nil || !strings.Contains(string(got), want) || strings.Contains(string(got), zonetest.Token) {
			t.Errorf("%s: %s, %v", body, got, err)
		}
	}
}

// TestZN6_VerificationZoneRefusesHalfOfIt: what does not go together is said at the
// start, and nothing is left behind.
func TestZN6_VerificationZoneRefusesHalfOfIt(t *testing.T) {
	t.Parallel()
	secret := parley.NewSecret([]byte("0123456789abcdef"))
	for name, change := range map[string]func(*server.VerificationConfig){
		"no other zone":  func(c *server.VerificationConfig) { c.Transport.URL = "" },
		"plain HTTP":     func(c *server.VerificationConfig) { c.Transport.URL = "http://example.com/invocations" },
		"two proofs":     func(c *server.VerificationConfig) { c.Transport.Bearer, c.Transport.GoogleAccess = secret, true },
		"half an issuer": func(c *server.VerificationConfig) { c.Transport.OIDC.Issuer = "https://issuer.example.com" },
		"no certificate": func(c *server.VerificationConfig) { c.Transport.CA = "nowhere.pem" },
		"JWT, no token": func(c *server.VerificationConfig) {
			c.Transport.RuntimeARN, c.Transport.JWT = "arn:aws:bedrock-agentcore:us-east-1:111122223333:runtime/x-1", true
		},
		"no signing secret": func(c *server.VerificationConfig) { c.Slack.SigningSecret = parley.Secret{} },
		"no bot token":      func(c *server.VerificationConfig) { c.Slack.BotToken = parley.Secret{} },
		"no app token":      func(c *server.VerificationConfig) { c.Slack.Mode = server.SlackSocket },
		"language":          func(c *server.VerificationConfig) { c.Language = "tlh" },
	} {
		cfg := server.VerificationConfig{
			Data: t.TempDir(), Listen: "127.0.0.1:0", Slack: server.ZoneSlack{Mode: server.SlackHTTP, SigningSecret: secret, BotToken: secret},
			Transport: server.ZoneTransport{URL: "https://execution.example.com/invocations"},
		}
		change(&cfg)
		v, err := server.NewVerification(t.Context(), cfg)
		if parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = v.Close()
		}
	}
}
