package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

// testClock is a clock that tests move.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *testClock {
	return &testClock{now: time.Date(2026, 11, 21, 10, 4, 5, 974607000, time.UTC)}
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is all three views in memory. Times are given in another zone than
// UTC on purpose.
type world struct {
	mu        sync.Mutex
	clock     *testClock
	agents    []*parley.Agent
	workflows []*parley.WorkflowVersion
	aliases   []parley.WorkflowAlias
	runs      []*parley.Run
	events    map[string][]parley.Event
	changed   map[string]chan struct{}
	keys      map[string]string
	inputs    map[string]string
	// specs, starts and applies are what the API asked for.
	specs   []parley.AgentSpec
	starts  []parley.StartRequest
	applies []parley.ApplyRequest
	// meanwhile, if set, is what somebody else does before the next document is applied.
	meanwhile func() error
	queries   []parley.RunQuery
	letters   []*parley.DeadLetter
	// signals are the events that were published, approvals those that wait.
	signals []parley.SignalRequest
	// traces are those of replays.
	traces    []parley.Trace
	approvals []parley.ApprovalItem
	// circuits and logs are those of agents, by name.
	circuits map[string]parley.BreakerState
	logs     map[string][]parley.AgentEvent
	archive  archiveWorld
	// broken is given by every method, if set.
	broken error
}

func newWorld(clock *testClock) *world {
	w := &world{clock: clock}
	w.reset()
	return w
}

// reset empties the world, so that one handler can be used for many cases.
func (w *world) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.agents, w.workflows, w.runs, w.specs, w.starts, w.applies, w.queries = nil, nil, nil, nil, nil, nil, nil
	w.events, w.changed = map[string][]parley.Event{}, map[string]chan struct{}{}
	w.keys, w.inputs = map[string]string{}, map[string]string{}
	w.circuits, w.logs = map[string]parley.BreakerState{}, map[string][]parley.AgentEvent{}
}

func (w *world) now() time.Time { return w.clock.Now().In(time.FixedZone("CET", 3600)) }

func uuidOf(kind, n int) string { return fmt.Sprintf("%08d-0000-4000-8000-%012d", kind, n) }

// append adds an event and wakes whoever waits. The caller holds the lock.
func (w *world) appendEvent(run *parley.Run, e parley.Event) {
	run.Seq++
	e.Seq, e.Run, e.At = run.Seq, run.ID, w.now()
	w.events[run.ID] = append(w.events[run.ID], e)
	if c := w.changed[run.ID]; c != nil {
		close(c)
	}
	w.changed[run.ID] = make(chan struct{})
}

func (w *world) findRun(id string) (*parley.Run, error) {
	if w.broken != nil {
		return nil, w.broken
	}
	for _, r := range w.runs {
		if r.ID == id {
			return r, nil
		}
	}
	return nil, parley.Errorf(parley.CodeNotFound, "Run with id '%s' not found", id)
}

type fakeRuns struct{ *world }

func (f fakeRuns) Start(_ context.Context, req parley.StartRequest) (parley.Run, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts = append(f.starts, req)
	if f.broken != nil {
		return parley.Run{}, false, f.broken
	}
	run := &parley.Run{
		ID: fmt.Sprintf("run-%d", len(f.runs)+1), Status: parley.RunPending, Input: req.Input, Labels: req.Labels, Priority: req.Priority,
		CreatedAt: f.now(), UpdatedAt: f.now(), TriggeredBy: req.TriggeredBy, Traceparent: req.Trace.Parent, Tracestate: req.Trace.State,
	}
	if run.Input == nil {
		run.Input = json.RawMessage(`{}`)
	}
	if req.CallAgent != "" {
		run.Workflow, run.WorkflowName, run.Version = "_call", "_call", "1"
		run.Steps = []parley.Step{{ID: "call", Kind: "agent", Status: parley.StepPending, Agent: req.CallAgent}}
	} else {
		v, err := f.findWorkflow(req.Workflow)
		if err != nil {
			return parley.Run{}, false, err
		}
		if v.Status != parley.AgentActive {
			return parley.Run{}, false, parley.Errorf(parley.CodeConflict, "Workflow '%s' is not active", v.Name)
		}
		run.Workflow, run.WorkflowName, run.Version, run.DefinitionID = v.Workflow, v.Name, v.Version, v.ID
		for _, s := range v.Steps {
			run.Steps = append(run.Steps, parley.Step{ID: s.ID, Kind: s.Kind, Status: parley.StepPending, Agent: s.Agent})
		}
	}
	if k := req.IdempotencyKey; k != "" {
		k = run.Workflow + "\x00" + k
		if id, ok := f.keys[k]; ok {
			if f.inputs[k] != string(req.Input) {
				return parley.Run{}, false, parley.Errorf(parley.CodeIdempotencyConflict, "the key was used with other input")
			}
			old, err := f.findRun(id)
			return *old, true, err
		}
		f.keys[k], f.inputs[k] = run.ID, string(req.Input)
	}
	f.runs = append(f.runs, run)
	f.appendEvent(run, parley.Event{Type: parley.EventRunStarted, Data: json.RawMessage(`{"input":` + string(run.Input) + `}`)})
	return *run, false, nil
}

func (f fakeRuns) Run(_ context.Context, id string) (parley.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.findRun(id)
	if err != nil {
		return parley.Run{}, err
	}
	return *r, nil
}

func (f fakeRuns) List(_ context.Context, q parley.RunQuery) ([]parley.Run, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries = append(f.queries, q)
	if f.broken != nil {
		return nil, 0, f.broken
	}
	all := f.selected(q)
	return window(all, q.Page), len(all), nil
}

// selected gives the runs that q selects. The caller holds the lock.
func (f fakeRuns) selected(q parley.RunQuery) (all []parley.Run) {
	for _, r := range f.runs {
		if (q.Hidden || r.Workflow != "_call") && (len(q.Status) == 0 || slices.Contains(q.Status, r.Status)) && (!q.Paused || r.Paused) &&
			(q.Workflow == "" || r.Workflow == q.Workflow) && (q.DefinitionID == "" || r.DefinitionID == q.DefinitionID) &&
			(q.CreatedAfter.IsZero() || r.CreatedAt.After(q.CreatedAfter)) && (q.CreatedBefore.IsZero() || r.CreatedAt.Before(q.CreatedBefore)) {
			c := *r
			c.Steps = nil
			all = append(all, c)
		}
	}
	if !q.Ascending {
		slices.Reverse(all)
	}
	return all
}

// Search gives the runs behind the one that is named.
func (f fakeRuns) Search(_ context.Context, q parley.RunQuery, limit int) (p parley.RunPage, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries = append(f.queries, q)
	if f.broken != nil {
		return p, f.broken
	}
	p.Items = f.selected(q)
	if q.After != nil {
		i := slices.IndexFunc(p.Items, func(r parley.Run) bool { return r.ID == q.After.ID })
		p.Items = p.Items[i+1:]
	}
	if len(p.Items) > limit {
		p.Items = p.Items[:limit]
		p.Next = &parley.RunMark{ID: p.Items[limit-1].ID, At: p.Items[limit-1].CreatedAt}
	}
	return p, nil
}

func window[T any](all []T, p parley.Page) []T {
	from := min(p.Offset, len(all))
	return all[from:min(from+p.Limit, len(all))]
}

func (f fakeRuns) Events(ctx context.Context, id string, after int64, limit int, wait bool) ([]parley.Event, error) {
	for {
		f.mu.Lock()
		r, err := f.findRun(id)
		if err != nil {
			f.mu.Unlock()
			return nil, err
		}
		all := f.events[id]
		all = all[min(int(after), len(all)):]
		ended, changed := r.Status.Terminal(), f.changed[id]
		f.mu.Unlock()
		if len(all) > 0 || !wait || ended {
			return slices.Clone(all[:min(limit, len(all))]), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Attempts gives, for each step that has begun, one that was answered with 503
// and one that waits.
func (f fakeRuns) Attempts(_ context.Context, q parley.AttemptQuery) ([]parley.Attempt, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.findRun(q.Run)
	if err != nil {
		return nil, 0, err
	}
	all := []parley.Attempt{}
	for _, s := range r.Steps {
		if s.StartedAt == nil || q.Step != "" && q.Step != s.ID {
			continue
		}
		took, next := int64(12), s.StartedAt.Add(2*time.Second).UTC()
		at := s.StartedAt.UTC()
		failed := parley.Attempt{
			TaskID: r.ID + "." + s.ID + ".1", Step: s.ID, Number: 1, Agent: "A", State: "closed", Outcome: parley.OutcomeError,
			Status: 503, Error: parley.Errorf(parley.CodeAgentUnavailable, "HTTP 503 Service Unavailable"), Request: s.Input, RequestBytes: int64(len(s.Input)),
			RetryAfterMS: 2000, Sendings: 1, ScheduledAt: at, StartedAt: &at, EndedAt: &at, TookMS: &took,
		}
		failed.Late = []parley.LateAnswer{{At: at.Add(time.Second), From: "b1", Outcome: parley.OutcomeOK, Status: 200, ResponseStart: "{\"cut", ResponseBytes: 5, AgentTaskID: "at-1"}}
		waits := failed
		waits.Late = nil
		waits.TaskID, waits.Number, waits.State, waits.NotBefore = r.ID+"."+s.ID+".2", 2, "open", &next
		waits.Outcome, waits.Status, waits.Error, waits.RetryAfterMS, waits.Sendings = "", 0, nil, 0, 0
		waits.StartedAt, waits.EndedAt, waits.TookMS = nil, nil, nil
		all = append(all, failed, waits)
	}
	return window(all, q.Page), len(all), nil
}

func (f fakeRuns) Cancel(_ context.Context, req parley.CancelRequest) (parley.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.findRun(req.Run)
	if err != nil {
		return parley.Run{}, err
	}
	if r.Status.Terminal() {
		return parley.Run{}, parley.Errorf(parley.CodeConflict, "Run '%s' cannot be cancelled: it is %s", r.ID, r.Status)
	}
	r.CancelledBy, r.CancelReason = req.By, req.Reason
	f.end(r, parley.RunCancelled, nil)
	return *r, nil
}

func (f fakeRuns) Retry(_ context.Context, req parley.RetryRequest) (run parley.Run, existing bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, err := f.findRun(req.Run)
	if err != nil {
		return parley.Run{}, false, err
	}
	if old.Status != parley.RunFailed && old.Status != parley.RunCancelled {
		return parley.Run{}, false, parley.Errorf(parley.CodeConflict, "Run '%s' cannot be retried: it is %s", old.ID, old.Status)
	}
	if run, existing, err = f.once(req.IdempotencyKey, "retry "+req.Run); err != nil || existing {
		return run, existing, err
	}
	r := *old
	r.ID, r.Status, r.RetriedFrom, r.TriggeredBy = fmt.Sprintf("run-%d", len(f.runs)+1), parley.RunPending, req.Run, req.By
	r.Error, r.EndedAt, r.CancelledBy, r.CancelReason, r.Seq = nil, nil, "", "", 0
	r.CreatedAt, r.UpdatedAt = f.now(), f.now()
	r.Traceparent, r.Tracestate = req.Trace.Parent, req.Trace.State
	f.runs = append(f.runs, &r)
	f.appendEvent(&r, parley.Event{Type: parley.EventRunStarted})
	return r, false, nil
}

// once is the key of a retry or a rerun, which the next run will have.
func (f fakeRuns) once(key, request string) (parley.Run, bool, error) {
	if key == "" {
		return parley.Run{}, false, nil
	}
	key = "again " + key
	if id, ok := f.keys[key]; ok {
		if f.inputs[key] != request {
			return parley.Run{}, false, parley.Errorf(parley.CodeIdempotencyConflict, "the key was used with another request")
		}
		r, err := f.findRun(id)
		return *r, true, err
	}
	f.keys[key], f.inputs[key] = fmt.Sprintf("run-%d", len(f.runs)+1), request
	return parley.Run{}, false, nil
}

func (f fakeRuns) AnswerStep(_ context.Context, req parley.AnswerRequest) (parley.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.findRun(req.Run)
	if err != nil {
		return parley.Run{}, err
	}
	if req.Choice != "" || f.asksIn(r) {
		return f.vote(r, req)
	}
	if req.Reply.Text == "" && req.Reply.Data == nil {
		return parley.Run{}, parley.Errorf(parley.CodeInvalid, "An answer needs text or data")
	}
	var waiting []string
	for _, s := range r.Steps {
		if s.Question != nil && (req.Step == "" || req.Step == s.ID) {
			waiting = append(waiting, s.ID)
		}
	}
	switch len(waiting) {
	case 0:
		return parley.Run{}, parley.Errorf(parley.CodeConflict, "No step of run %s waits for an answer: it is %s", r.ID, r.Status)
	case 1:
	default:
		return parley.Run{}, parley.Errorf(parley.CodeConflict, "Several steps of run %s wait for answers: name one of %s", r.ID, strings.Join(waiting, ", "))
	}
	r.Steps = slices.Clone(r.Steps)
	i := slices.IndexFunc(r.Steps, func(s parley.Step) bool { return s.ID == waiting[0] })
	r.Steps[i].Question, r.Steps[i].Phase = nil, parley.PhaseWorking
	data, err := json.Marshal(map[string]any{"reply": req.Reply})
	f.appendEvent(r, parley.Event{Type: parley.EventStepAnswered, Step: waiting[0], Attempt: 1, Data: data})
	return *r, err
}

// end puts a run into a terminal state. The caller holds the lock.
func (w *world) end(r *parley.Run, status parley.RunStatus, e *parley.Error) {
	at := w.now()
	r.Status, r.EndedAt, r.UpdatedAt, r.Error = status, &at, at, e
	kinds := map[parley.RunStatus]parley.EventType{
		parley.RunCompleted: parley.EventRunCompleted, parley.RunFailed: parley.EventRunFailed, parley.RunCancelled: parley.EventRunCancelled,
	}
	w.appendEvent(r, parley.Event{Type: kinds[status]})
}

// do moves a run: "begin RUN", "ask RUN", "approval RUN", "complete RUN", "fail RUN STEP".
func (w *world) do(line string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	words := strings.Fields(line)
	if words[0] == "wait" {
		d, err := time.ParseDuration(words[1])
		w.clock.step(d)
		return err
	}
	if words[0] == "dead" {
		w.bury(words[1])
		return nil
	}
	if words[0] == "trip" {
		w.trip(words[1])
		return nil
	}
	r, err := w.findRun(words[1])
	if err != nil {
		return err
	}
	at := w.now()
	r.Steps = slices.Clone(r.Steps)
	switch words[0] {
	case "begin":
		r.Status, r.StartedAt = parley.RunRunning, &at
		s := &r.Steps[0]
		s.Status, s.StartedAt, s.ScheduledAt, s.Attempts = parley.StepRunning, &at, &at, 1
		s.Input, s.Protocol = json.RawMessage(`{"topic":"a<b","n":1e400}`), parley.ProtocolJSONRPC
		w.appendEvent(r, parley.Event{Type: parley.EventStepScheduled, Step: s.ID, Attempt: 1, Data: json.RawMessage(`{"agent":"A"}`)})
	case "approval":
		w.approvals = append(w.approvals, parley.ApprovalItem{
			Run: r.ID, Step: r.Steps[0].ID, Workflow: r.Workflow, CreatedAt: at,
			Approval: parley.Approval{Title: "Pay <it>?", To: []string{"finance"}, Choices: []string{"approve", "reject"}, Min: 1, Form: json.RawMessage(`{"type":"object"}`)},
		})
	case "ask":
		for i := range r.Steps {
			s := &r.Steps[i]
			if s.Question != nil {
				continue
			}
			q := &parley.Question{Kind: parley.QuestionInput, Text: "Which <city>?", Parts: json.RawMessage(`[{"text":"Which <city>?"},{"data":{"n":1.10}}]`)}
			s.Status, s.Phase, s.StartedAt, s.ScheduledAt, s.Attempts, s.Question = parley.StepRunning, parley.PhaseInputRequired, &at, &at, 1, q
			s.AgentTaskID = "task-1"
			data, err := json.Marshal(map[string]any{"question": q, "task_id": r.ID + "." + s.ID + ".1", "news": 1})
			w.appendEvent(r, parley.Event{Type: parley.EventStepWaiting, Step: s.ID, Attempt: 1, Data: data})
			return err
		}
	case "complete":
		s := &r.Steps[0]
		s.Status, s.EndedAt, s.Output = parley.StepCompleted, &at, json.RawMessage(`{"text":"é\u0000"}`)
		w.appendEvent(r, parley.Event{Type: parley.EventStepCompleted, Step: s.ID, Attempt: 1})
		r.Output = s.Output
		w.end(r, parley.RunCompleted, nil)
	case "fail":
		e := parley.Errorf(parley.CodeAgentError, "Task state: failed")
		e.Step, e.Agent, e.Attempt = words[2], "A", 1
		s := &r.Steps[0]
		s.Status, s.EndedAt, s.Error = parley.StepFailed, &at, e
		w.appendEvent(r, parley.Event{Type: parley.EventStepFailed, Step: s.ID, Attempt: 1})
		w.end(r, parley.RunFailed, e)
	default:
		return errors.New("unknown action " + line)
	}
	return nil
}

// setup gives a handler over a new world.
func setup(change func(*Config)) (*server, *world) {
	clock := newClock()
	w := newWorld(clock)
	var mu sync.Mutex
	ids := 0
	cfg := Config{
		Runs: fakeRuns{w}, Controls: fakeRuns{w}, Workflows: fakeWorkflows{w}, Releases: fakeReleases{w}, Agents: fakeAgents{w}, DeadLetters: fakeDeadLetters{w}, Inbox: fakeInbox{w}, Schedules: &fakeSchedules{world: w}, Breakers: fakeBreakers{w}, Conditions: fakeConditions{w}, Archive: fakeArchive{w}, Keys: newFakeKeys(clock.Now),
		Key: parley.NewSecret([]byte("test-key")), Version: "1.2.3", Now: clock.Now,
		NewID: func() string {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return fmt.Sprintf("corr-%d", ids)
		},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := newServer(cfg)
	if err != nil {
		panic(err)
	}
	return s, w
}
