package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/api"
	"github.com/parley-project/parley/internal/workflow"
)

const worldKey = "local-key"

// epoch is when everything in a world happens; later things happen
// milliseconds later.
func epoch() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// world is what stands behind the REST interface of a test: runs that go as
// their workflow's name says, and records in memory. The handlers in front of
// it are the real ones.
type world struct {
	// archived are the runs that were brought in.
	archived  []string
	mu        sync.Mutex
	runs      []*worldRun
	keys      map[string]string
	workflows []*parley.WorkflowVersion
	agents    []*parley.Agent
	aliases   []parley.WorkflowAlias
	// watched is closed when somebody first waits for events.
	watched chan struct{}
	once    sync.Once
	// circuits and logs are those of agents, by name.
	circuits map[string]parley.BreakerState
	logs     map[string][]parley.AgentEvent
}

type worldRun struct {
	run     parley.Run
	hidden  bool
	events  []parley.Event
	changed chan struct{}
}

// newWorld serves a world with the workflows hello, bad, stopped and slow and
// the agents greeter and polisher.
func newWorld(t testing.TB) (w *world, url string) {
	w = &world{keys: map[string]string{}, watched: make(chan struct{})}
	for _, name := range []string{"hello", "bad", "stopped", "slow"} {
		source := fmt.Sprintf("name: %s\nsteps:\n  - id: greet\n    agent: greeter\n  - id: polish\n    agent: polisher\n", name)
		if _, _, err := w.apply(parley.ApplyRequest{Source: []byte(source)}); err != nil {
			t.Fatal(err)
		}
	}
	greeter, polisher, a2a := "greeter", "polisher", parley.ProtocolJSONRPC
	first, second := "http://127.0.0.1:9001/", "http://127.0.0.1:9002/a2a"
	for _, spec := range []parley.AgentSpec{{Name: &greeter, URL: &first}, {Name: &polisher, URL: &second, Protocol: &a2a}} {
		if _, err := (worldAgents{w}).Add(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	h, err := api.New(api.Config{
		Runs: w, Controls: w, Workflows: worldWorkflows{w}, Releases: worldReleases{w}, Agents: worldAgents{w}, DeadLetters: newWorldDeadLetters(), Inbox: worldInbox{w}, Schedules: &worldSchedules{world: w}, Breakers: worldBreakers{w}, Conditions: worldConditions{w}, Archive: worldArchive{w}, Keys: worldKeys{}, Key: parley.NewSecret([]byte(worldKey)), Version: "1.2.3",
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return w, s.URL
}

func missing(what, name string) error {
	return parley.Errorf(parley.CodeNotFound, "there is no %s %q", what, name)
}

func window[T any](list []T, p parley.Page) []T {
	from := min(p.Offset, len(list))
	return list[from:min(from+p.Limit, len(list))]
}

// Start begins a run and lets it go as far as it goes without anybody.
func (w *world) Start(_ context.Context, req parley.StartRequest) (parley.Run, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name, version := "_call", "1"
	if req.CallAgent == "" {
		v := w.find(req.Workflow, req.Version)
		if v == nil {
			return parley.Run{}, false, missing("workflow", req.Workflow)
		}
		if v.Deprecated != nil {
			return parley.Run{}, false, parley.Errorf(parley.CodeConflict, "Version %s of workflow %q is deprecated (%s) and takes no new runs", v.Version, v.Name, v.Deprecated.Reason)
		}
		name, version = v.Workflow, v.Version
	}
	if id := w.keys[req.IdempotencyKey]; req.IdempotencyKey != "" && id != "" {
		r := w.at(id)
		if string(r.run.Input) != string(req.Input) {
			return parley.Run{}, false, parley.Errorf(parley.CodeIdempotencyConflict, "the key %q was used with other input", req.IdempotencyKey)
		}
		return r.run, true, nil
	}
	r := &worldRun{hidden: req.CallAgent != "", changed: make(chan struct{})}
	begin := epoch()
	r.run = parley.Run{
		ID: fmt.Sprintf("run-%d", len(w.runs)+1), Workflow: name, Version: version, Status: parley.RunRunning,
		Input: req.Input, Labels: req.Labels, Priority: req.Priority, CreatedAt: begin, StartedAt: &begin,
		Traceparent: req.Trace.Parent, Tracestate: req.Trace.State,
	}
	if name == "queued" {
		r.run.Status, r.run.StartedAt, r.run.Turn = parley.RunPending, nil, worldTurn()
	}
	w.runs = append(w.runs, r)
	if req.IdempotencyKey != "" {
		w.keys[req.IdempotencyKey] = r.run.ID
	}
	started := r.run
	r.play(name, req.CallAgent)
	return started, false, nil
}

func (w *world) find(ref, version string) *parley.WorkflowVersion {
	if name, v, ok := strings.Cut(ref, "@"); ok && v != "" {
		ref, version = name, v
	}
	for _, v := range slices.Backward(w.workflows) {
		if (v.Workflow == ref || v.ID == ref) && (version == "" || v.Version == version || slices.Contains(v.Aliases, version)) {
			return v
		}
	}
	return nil
}

func (w *world) at(id string) *worldRun {
	for _, r := range w.runs {
		if r.run.ID == id {
			return r
		}
	}
	return nil
}

// say records an event, 12 ms after the one before.
func (r *worldRun) say(kind parley.EventType, step string, attempt int, data string) time.Time {
	e := parley.Event{
		Seq: int64(len(r.events) + 1), At: epoch().Add(time.Duration(len(r.events)) * 12 * time.Millisecond),
		Type: kind, Run: r.run.ID, Step: step, Attempt: attempt, Data: json.RawMessage(data),
	}
	r.events = append(r.events, e)
	r.run.Seq = e.Seq
	close(r.changed)
	r.changed = make(chan struct{})
	return e.At
}

func (r *worldRun) end(kind parley.EventType, status parley.RunStatus, data string) {
	at := r.say(kind, "", 0, data)
	r.run.Status, r.run.EndedAt = status, &at
}

// step is one agent step from its begin to its end.
func (r *worldRun) step(id, agent, output string) {
	begin := r.say(parley.EventStepScheduled, id, 1, fmt.Sprintf(`{"kind":"agent","agent":%q}`, agent))
	r.say(parley.EventStepClaimed, id, 1, `{}`)
	end := r.say(parley.EventStepCompleted, id, 1, fmt.Sprintf(`{"kind":"agent","output":%s}`, output))
	r.run.Steps = append(r.run.Steps, parley.Step{
		ID: id, Kind: "agent", Status: parley.StepCompleted, Agent: agent, Attempts: 1, Protocol: "simple-a2a",
		Input: json.RawMessage(`{}`), Output: json.RawMessage(output), ScheduledAt: &begin, StartedAt: &begin, EndedAt: &end,
	})
}

func (r *worldRun) play(name, agent string) {
	if name == "queued" {
		r.say(parley.EventRunQueued, "", 0, `{"workflow":"queued"}`)
		return
	}
	r.say(parley.EventRunStarted, "", 0, `{"workflow":"hello"}`)
	fault := &parley.Error{Code: parley.CodeAgentError, Message: "Task state: failed", Step: "polish", Attempt: 2, Agent: "polisher"}
	fault = fault.WithDetails(map[string]string{"state": "failed", "message": "The draft\nis empty."})
	text, _ := json.Marshal(fault)
	switch {
	case agent == "polisher":
		r.run.Error = &parley.Error{Code: parley.CodeAgentUnavailable, Message: "connection refused", Step: "call"}
		r.end(parley.EventRunFailed, parley.RunFailed, `{}`)
	case agent != "":
		r.step("call", agent, `{"text":"Hello, Ada!\nWelcome.","n":12345678901234567890}`)
		r.run.Output = r.run.Steps[0].Output
		r.end(parley.EventRunCompleted, parley.RunCompleted, `{"output":null}`)
	case name == "bad":
		r.step("greet", "greeter", `"hi"`)
		begin := r.say(parley.EventStepScheduled, "polish", 1, `{"kind":"agent","agent":"polisher"}`)
		again := r.say(parley.EventStepRetrying, "polish", 1, fmt.Sprintf(`{"error":%s,"delay_ms":1000}`, text))
		end := r.say(parley.EventStepFailed, "polish", 2, fmt.Sprintf(`{"kind":"agent","error":%s}`, text))
		r.run.Steps = append(r.run.Steps, parley.Step{
			ID: "polish", Kind: "agent", Status: parley.StepFailed, Agent: "polisher", Attempts: 2, Error: fault,
			ScheduledAt: &begin, StartedAt: &again, EndedAt: &end,
		})
		r.run.Error = fault
		r.end(parley.EventRunFailed, parley.RunFailed, fmt.Sprintf(`{"error":%s}`, text))
	case name == "stopped":
		r.say(parley.EventRunCancelling, "", 0, `{"reason":"enough"}`)
		r.end(parley.EventRunCancelled, parley.RunCancelled, `{}`)
	case name == "spending":
		r.wait()
	case name == "family":
		r.parent()
	case name == "report":
		r.run.Parent = &parley.RunParent{Run: "run-1", Step: "regions[0]/one"}
		r.step("greet", "greeter", `{"text":"Hello, Ada!"}`)
		r.end(parley.EventRunCompleted, parley.RunCompleted, `{"output":null}`)
	case name == "asking":
		r.ask("greet", `{"kind":"input","text":"Whom?\nA name\u001b[31m, please.","note":"The agent refused the last answer: too long"}`)
	case name == "slow":
		begin := r.say(parley.EventStepScheduled, "greet", 1, `{"kind":"agent","agent":"greeter"}`)
		r.run.Steps = []parley.Step{
			{ID: "greet", Kind: "agent", Status: parley.StepRunning, Phase: parley.PhaseWorking, Agent: "greeter", Attempts: 1, ScheduledAt: &begin, StartedAt: &begin},
			{ID: "polish", Kind: "agent", Status: parley.StepPending, Agent: "polisher"},
		}
	default:
		r.step("greet", "greeter", `{"text":"Hello, Ada!"}`)
		r.step("polish", "polisher", `{"text":"Hello, dear Ada!"}`)
		r.run.Output = json.RawMessage(`{"text":"Hello, dear Ada!","n":12345678901234567890}`)
		r.end(parley.EventRunCompleted, parley.RunCompleted, `{"output":null}`)
	}
}

func (w *world) Run(_ context.Context, id string) (parley.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.at(id); r != nil {
		return r.run, nil
	}
	return parley.Run{}, missing("run", id)
}

func (w *world) List(_ context.Context, q parley.RunQuery) ([]parley.Run, int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.selected(q)
	return window(list, q.Page), len(list), nil
}

func (w *world) Events(ctx context.Context, id string, after int64, limit int, wait bool) ([]parley.Event, error) {
	for {
		w.mu.Lock()
		r := w.at(id)
		if r == nil {
			w.mu.Unlock()
			return nil, missing("run", id)
		}
		list := r.events[min(after, int64(len(r.events))):]
		list = list[:min(limit, len(list))]
		over, changed := r.run.Status.Terminal(), r.changed
		w.mu.Unlock()
		if len(list) > 0 || over || !wait {
			return list, nil
		}
		w.once.Do(func() { close(w.watched) })
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *world) Cancel(_ context.Context, req parley.CancelRequest) (parley.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.at(req.Run)
	if r == nil {
		return parley.Run{}, missing("run", req.Run)
	}
	if r.run.Status.Terminal() {
		return parley.Run{}, parley.Errorf(parley.CodeConflict, "run %s has ended: %s", req.Run, r.run.Status)
	}
	r.say(parley.EventRunCancelling, "", 0, fmt.Sprintf(`{"reason":%q}`, req.Reason))
	r.say(parley.EventStepCancelled, "greet", 1, `{"kind":"agent"}`)
	r.end(parley.EventRunCancelled, parley.RunCancelled, `{}`)
	return r.run, nil
}

func (w *world) Retry(ctx context.Context, req parley.RetryRequest) (parley.Run, bool, error) {
	w.mu.Lock()
	old := w.at(req.Run)
	w.mu.Unlock()
	if old == nil {
		return parley.Run{}, false, missing("run", req.Run)
	}
	if s := old.run.Status; s != parley.RunFailed && s != parley.RunCancelled {
		return parley.Run{}, false, parley.Errorf(parley.CodeConflict, "run %s is %s: only a run that failed or was cancelled can be retried", req.Run, s)
	}
	run, existing, err := w.Start(ctx, parley.StartRequest{Workflow: "hello", IdempotencyKey: req.IdempotencyKey, Input: old.run.Input, Trace: req.Trace})
	if err != nil {
		return parley.Run{}, false, err
	}
	run.RetriedFrom = req.Run
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at(run.ID).run.RetriedFrom = req.Run
	return run, existing, nil
}

func (w *world) apply(req parley.ApplyRequest) (parley.WorkflowVersion, bool, error) {
	def, problems := workflow.Parse(workflow.ParseOptions{File: req.File}, req.Source)
	if def == nil {
		return parley.WorkflowVersion{}, false, problems
	}
	n := 1
	for _, v := range w.workflows {
		if v.Workflow == def.ID {
			if v.Source == string(req.Source) {
				return *v, false, nil
			}
			n++
		}
	}
	v := &parley.WorkflowVersion{
		ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", len(w.workflows)+1), Workflow: def.ID, Name: def.Name,
		Version: fmt.Sprint(n), Number: n, Format: "yaml", Source: string(req.Source), Status: parley.AgentActive,
		CreatedAt: epoch(), UpdatedAt: epoch(), Description: def.Description, Warnings: problems,
	}
	for _, s := range def.Body.Steps {
		v.Steps = append(v.Steps, parley.StepSummary{ID: s.ID, Kind: string(s.Kind), Agent: s.Agent})
	}
	w.workflows = append(w.workflows, v)
	return *v, true, nil
}
