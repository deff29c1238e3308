package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
	"github.com/parley-project/parley/internal/server"
)

// patience is how long anything may take that has to happen.
const patience = 5 * time.Minute

// world is a Parley as its users see it: by its REST API.
type world struct {
	*client.Client
	data string
	cmd  *exec.Cmd // if it is a process of its own
}

// newWorld starts a Parley in this process.
func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := parleyConfig(filepath.Join(t.TempDir(), "data"))
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{data: cfg.Data}
	w.connect(t, s.URL(), s.Key())
	w.serve(t, s.Run)
	return w
}

// serve runs a Parley of this process until the test ends.
func (w *world) serve(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error("Parley:", err)
		}
	})
}

func (w *world) connect(t *testing.T, url string, key parley.Secret) {
	t.Helper()
	c, err := client.New(client.Options{URL: url, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	w.Client = c
}

// newProcess starts a Parley that can be killed, on a new data folder or one of
// an earlier one.
func newProcess(t *testing.T, data string) *world {
	t.Helper()
	if data == "" {
		data = filepath.Join(t.TempDir(), "data")
	}
	endpoint := filepath.Join(data, "endpoint")
	_ = os.Remove(endpoint)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := new(record)
	w := &world{data: data, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), self)}
	w.cmd.Env = append(os.Environ(), parleyEnv+"="+data)
	w.cmd.Stderr = out
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.kill()
		if text := out.String(); strings.Contains(text, "DATA RACE") || t.Failed() && text != "" {
			t.Errorf("Parley wrote on standard error:\n%s", text)
		}
	})
	var url []byte
	eventually(t, "Parley to serve", func() bool {
		url, err = os.ReadFile(endpoint)
		return err == nil && len(url) > 0 && url[len(url)-1] == '\n'
	})
	key, err := os.ReadFile(filepath.Join(data, "key"))
	if err != nil {
		t.Fatal(err)
	}
	w.connect(t, strings.TrimSpace(string(url)), parley.NewSecret([]byte(strings.TrimSpace(string(key)))))
	return w
}

// kill ends a Parley process without any warning.
func (w *world) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// again starts another Parley on the data of w.
func (w *world) again(t *testing.T) *world {
	t.Helper()
	return newProcess(t, w.data)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(30 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited %s for %s", patience, what)
}

// registration is how an agent is registered.
type registration struct {
	// auto: Parley finds out what the agent at url speaks.
	auto bool
	// config is protocol_config; nil members are left out.
	config  map[string]any
	url     string
	policy  parley.OutcomePolicy
	timeout time.Duration
	retries int
}

// register makes a record of an agent and gives its name.
func (w *world) register(t *testing.T, r registration) string {
	t.Helper()
	name := "a" + strings.NewReplacer("/", "-", ".", "-", " ", "-").Replace(t.Name())
	if len(name) > 200 {
		name = name[:200]
	}
	name += fmt.Sprint(time.Now().UnixNano() % 1_000_000_000)
	config, err := json.Marshal(r.config)
	if err != nil {
		t.Fatal(err)
	}
	timeout := r.timeout
	if timeout == 0 {
		timeout = time.Minute
	}
	spec := parley.AgentSpec{
		Name: &name, URL: &r.url, Protocol: new(parley.ProtocolJSONRPC), ProtocolConfig: config, Timeout: &timeout,
		Retry: &parley.RetryConfig{
			MaxRetries: r.retries, InitialDelay: 100 * time.Millisecond, MaxDelay: time.Second, Multiplier: 1,
		},
		OutcomeUnknown: &r.policy,
	}
	if r.auto {
		spec.Protocol = new(parley.ProtocolAuto)
	}
	if r.config == nil {
		spec.ProtocolConfig = nil
	}
	if _, err := w.AddAgent(t.Context(), spec); err != nil {
		t.Fatalf("register %s with %s: %v", r.url, config, err)
	}
	return name
}

// start calls an agent with a text, or with a JSON object.
func (w *world) start(t *testing.T, agent, input string) string {
	t.Helper()
	if !strings.HasPrefix(input, "{") {
		b, err := json.Marshal(map[string]string{"text": input})
		if err != nil {
			t.Fatal(err)
		}
		input = string(b)
	}
	run, err := w.CallAgent(t.Context(), parley.StartRequest{CallAgent: agent, Input: json.RawMessage(input)})
	if err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// until waits for a run, or its one step, to be as ok wants it.
func (w *world) until(t *testing.T, run, what string, ok func(r parley.Run, s parley.Step) bool) parley.Run {
	t.Helper()
	var r parley.Run
	var err error
	began, pause := time.Now(), 10*time.Millisecond
	for ; time.Since(began) < patience; time.Sleep(pause) {
		// Dozens of these run at once.
		pause = min(pause*3/2, 250*time.Millisecond)
		if r, err = w.Run(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		if len(r.Steps) == 1 && ok(r, r.Steps[0]) {
			return r
		}
		if r.Status.Terminal() {
			t.Fatalf("the run is over before %s: %s", what, show(r))
		}
	}
	t.Fatalf("waited %s for %s: %s\n%s", patience, what, show(r), w.history(t, run))
	return r
}

// end waits for the end of a run.
func (w *world) end(t *testing.T, run string) parley.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wrong error
	for _, err := range w.Watch(ctx, run, client.WatchOptions{}) {
		wrong = err
	}
	r, err := w.Run(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	if wrong != nil || !r.Status.Terminal() {
		t.Fatalf("the run does not end (%v): %s\n%s", wrong, show(r), w.history(t, run))
	}
	return r
}

// accepted waits until the agent's own task is known.
func (w *world) accepted(t *testing.T, run string) parley.Run {
	t.Helper()
	return w.until(t, run, "the agent to accept", func(_ parley.Run, s parley.Step) bool { return s.AgentTaskID != "" })
}

// call calls an agent and waits for the end.
func (w *world) call(t *testing.T, agent, input string) parley.Run {
	t.Helper()
	return w.end(t, w.start(t, agent, input))
}

// completed calls an agent and wants it to complete; it gives the output.
func (w *world) completed(t *testing.T, agent, input string) output {
	t.Helper()
	return done(t, w.call(t, agent, input))
}

// output is what a step's output has (BR-2.4, and the superset rules).
type output struct {
	Text      string            `json:"text"`
	Response  string            `json:"response"`
	Artifacts []json.RawMessage `json:"artifacts"`
	ContextID string            `json:"context_id"`
	TaskID    string            `json:"task_id"`
	Data      json.RawMessage   `json:"data"`
	raw       json.RawMessage
}

// done gives the output of a run that has to be completed.
func done(t *testing.T, r parley.Run) output {
	t.Helper()
	if r.Status != parley.RunCompleted {
		t.Fatalf("not completed: %s", show(r))
	}
	o := output{raw: r.Steps[0].Output}
	if err := json.Unmarshal(o.raw, &o); err != nil {
		t.Fatalf("%s: %v", o.raw, err)
	}
	return o
}

// failed gives the error of a run that has to be failed.
func failed(t *testing.T, r parley.Run) *parley.Error {
	t.Helper()
	if r.Status != parley.RunFailed {
		t.Fatalf("not failed: %s", show(r))
	}
	return r.Steps[0].Error
}

// show is a run for people.
func show(r parley.Run) string {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// events gives the events of a run so far.
func (w *world) events(t *testing.T, run string) []parley.Event {
	t.Helper()
	var all []parley.Event
	for q := (client.EventQuery{Limit: 500}); ; {
		page, err := w.Events(t.Context(), run, q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Items...)
		if !page.More {
			return all
		}
		q.After = page.NextAfter
	}
}

// history is the events of a run for people.
func (w *world) history(t *testing.T, run string) string {
	t.Helper()
	var b strings.Builder
	for _, e := range w.events(t, run) {
		fmt.Fprintf(&b, "%d %s %s\n", e.Seq, e.Type, e.Data)
	}
	return b.String()
}

// answer answers the question of a run's only waiting step.
func (w *world) answer(t *testing.T, run, text string) {
	t.Helper()
	if _, err := w.Answer(t.Context(), parley.AnswerRequest{Run: run, Reply: parley.Reply{Text: text}}); err != nil {
		t.Fatal(err)
	}
}
