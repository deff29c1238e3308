package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/store"
)

// rig is a whole hand-off in one bubble: ledger, bus, agents, bridges, and
// what an executor does beside them. It ends itself with the test.
type rig struct {
	t      *testing.T
	ledger *modelLedger
	bus    *memory.Bus
	agents *agentBook
	// agent speaks simple-a2a, long speaks jsonrpc-2.0 and can be followed and
	// told to stop.
	agent *scripted
	long  *scripted
	// staffed, if set, speaks jsonrpc-2.0 in simulations.
	staffed bridge.Adapter
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu    sync.Mutex
	woken map[string]int
}

// inBubble runs f with a rig in virtual time.
func inBubble(t *testing.T, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		f(r)
		r.end()
	})
}

func newRig(t *testing.T) *rig {
	r := &rig{
		t: t, ledger: newModel(), bus: memory.New(memory.Options{}), agents: newAgentBook(),
		agent: newScripted(parley.ProtocolSimpleA2A), long: newScripted(parley.ProtocolJSONRPC), woken: map[string]int{},
	}
	r.agent.note, r.long.note = r.ledger.note, r.ledger.note
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	_, err := r.bus.Subscribe(ctx, bus.SubjectRuns, "executor", func(_ context.Context, m bus.Message) error {
		r.mu.Lock()
		r.woken[m.Key]++
		r.mu.Unlock()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wg.Go(func() {
		for tick := time.NewTicker(time.Second); ; {
			r.sweep()
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	return r
}

// sweep publishes what is open and settles what is lost.
func (r *rig) sweep() {
	for _, a := range r.ledger.publish(time.Now()) {
		r.announce(a.ID)
	}
	r.ledger.settleLost()
}

func (r *rig) end() {
	r.stop()
	r.wg.Wait()
	_ = r.bus.Close()
	r.ledger.wg.Wait()
	synctest.Wait()
}

// process is one bridge.
type process struct {
	*bridge.Bridge
	r      *rig
	cancel context.CancelFunc
	ended  chan error
	dead   atomic.Bool
}

// processLedger is the ledger as one process sees it: nothing of a process
// that has died reaches it.
type processLedger struct {
	*modelLedger
	p *process
}

func (l processLedger) alive(ctx context.Context) error {
	if l.p.dead.Load() {
		return errDoubt
	}
	return ctx.Err()
}

func (l processLedger) Beat(ctx context.Context, w string, inc int64) error {
	if err := l.alive(ctx); err != nil {
		return err
	}
	return l.modelLedger.Beat(ctx, w, inc)
}

func (l processLedger) Register(ctx context.Context, w string, at time.Time) (int64, error) {
	if err := l.alive(ctx); err != nil {
		return 0, err
	}
	return l.modelLedger.Register(ctx, w, at)
}

func (l processLedger) Claim(ctx context.Context, c store.Claim, reqs []store.ClaimRequest, at time.Time) ([]store.Attempt, error) {
	if err := l.alive(ctx); err != nil {
		return nil, err
	}
	return l.modelLedger.Claim(ctx, c, reqs, at)
}

func (l processLedger) Defer(ctx context.Context, ds []store.Deferral) error {
	if err := l.alive(ctx); err != nil {
		return err
	}
	return l.modelLedger.Defer(ctx, ds)
}

func (l processLedger) Move(ctx context.Context, m store.Move) (bool, error) {
	if err := l.alive(ctx); err != nil {
		return false, err
	}
	return l.modelLedger.Move(ctx, m)
}

func (l processLedger) Answer(ctx context.Context, a store.Answer) (bool, error) {
	if err := l.alive(ctx); err != nil {
		return false, err
	}
	return l.modelLedger.Answer(ctx, a)
}

// start makes and runs a bridge; adjust may be nil.
func (r *rig) start(name string, adjust func(*bridge.Config, *process)) *process {
	r.t.Helper()
	p := &process{r: r, ended: make(chan error, 1)}
	cfg := bridge.Config{
		Worker: name, Ledger: processLedger{r.ledger, p}, Agents: r.agents, Bus: r.bus,
		Adapters: []bridge.Adapter{r.agent, following{r.long}},
		NewToken: counter(name), Jitter: func() float64 { return 0.5 }, Logger: slog.New(slog.DiscardHandler),
	}
	if adjust != nil {
		adjust(&cfg, p)
	}
	b, err := bridge.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	p.Bridge = b
	ctx, cancel := context.WithCancel(r.t.Context())
	p.cancel = cancel
	r.wg.Go(func() {
		err := b.Run(ctx)
		if left := b.NotGivenBack(); left != "" {
			r.t.Errorf("bridge %s has ended and not given back:%s", name, left)
		}
		p.ended <- err
	})
	synctest.Wait()
	return p
}

var tokens atomic.Int64

func counter(name string) func() string {
	return func() string { return fmt.Sprintf("%s/%d", name, tokens.Add(1)) }
}

// stop ends the bridge in order.
func (p *process) stop() {
	p.r.t.Helper()
	p.cancel()
	if err := <-p.ended; err != nil {
		p.r.t.Errorf("Run: %v", err)
	}
}

// kill ends the process as kill -9 does: nothing that it does counts any more.
func (p *process) kill() {
	p.dead.Store(true)
	p.cancel()
	<-p.ended
}

// agentBook is what the bridges know about agents.
type agentBook struct {
	mu sync.Mutex
	m  map[string]parley.Agent
	// fail, if set, is the answer to every look-up, unread to those that it gives an
	// error for. locked, if set, stands beside each record: its credential cannot be
	// had. Before each of them slow is called, if it is set.
	fail, locked error
	unread       func() error
	slow         func()
}

func newAgentBook() *agentBook {
	b := &agentBook{m: map[string]parley.Agent{}}
	b.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A})
	b.put(parley.Agent{Name: "long", Protocol: parley.ProtocolJSONRPC})
	return b
}

func (b *agentBook) put(a parley.Agent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.m[a.Name] = a
}

// answer sets the error of all look-ups, nil for none.
func (b *agentBook) answer(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

func (b *agentBook) Lookup(_ context.Context, name string) (parley.Agent, error) {
	if b.slow != nil {
		b.slow()
	}
	if b.unread != nil {
		if err := b.unread(); err != nil {
			return parley.Agent{}, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return parley.Agent{}, b.fail
	}
	a, ok := b.m[name]
	if !ok {
		return a, parley.Errorf(parley.CodeUnknownAgent, "there is no agent %q", name)
	}
	return a, b.locked
}

// lock sets the error of whoever looks for a credential, nil for none.
func (b *agentBook) lock(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.locked = err
}

// scripted is an adapter whose agents do what a script says, and that keeps
// the log by which I1 is judged.
type scripted struct {
	protocol string
	mu       sync.Mutex
	log      map[string][]time.Time
	agents   map[string]int
	note     func(task, format string, args ...any)
	cancels  map[string]int
	unsent   map[string]int
	polls    map[string][]time.Time
	busy     int
	most     int
	// prepare is what takes time before the guard is asked; nil is nothing.
	prepare func()
	// call answers the n-th call of a task (from 1); nil answers at once.
	call   func(ctx context.Context, task parley.Task, n int, p bridge.Progress) (bridge.Outcome, error)
	poll   func(ctx context.Context, task parley.Task, n int) (bridge.Outcome, error)
	cancel func(ctx context.Context, task parley.Task, id string) (bridge.Outcome, error)
}

func newScripted(protocol string) *scripted {
	return &scripted{
		protocol: protocol, note: func(string, string, ...any) {}, log: map[string][]time.Time{}, agents: map[string]int{},
		cancels: map[string]int{}, unsent: map[string]int{}, polls: map[string][]time.Time{},
	}
}

func (s *scripted) Protocol() string { return s.protocol }

func (s *scripted) Call(ctx context.Context, task parley.Task, agent parley.Agent, p bridge.Progress) (bridge.Outcome, error) {
	if s.prepare != nil {
		s.prepare()
	}
	if e, ok := errors.AsType[*bridge.ExchangeError](bridge.Guarded(ctx, task, agent)); ok {
		return e.Outcome(task.ID), nil
	}
	s.mu.Lock()
	s.log[task.ID] = append(s.log[task.ID], time.Now())
	s.agents[task.Agent]++
	s.busy++
	s.most = max(s.most, s.busy)
	n, script := len(s.log[task.ID]), s.call
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.busy--
		s.mu.Unlock()
	}()
	s.note(task.ID, "call %d", n)
	if script == nil {
		return answered(task, fmt.Sprintf(`{"n":%d}`, n)), nil
	}
	out, err := script(ctx, task, n, p)
	s.note(task.ID, "call %d came to %d", n, out.Disposition)
	if err != nil || out.Disposition == bridge.NotSent {
		s.mu.Lock()
		s.unsent[task.ID]++
		s.mu.Unlock()
	}
	return out, err
}

// executions is how often an agent got the task.
func (s *scripted) executions(task string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log[task]) - s.unsent[task]
}

func (s *scripted) callsAt(task string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log[task])
}

func (s *scripted) calls(task string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log[task])
}

func (s *scripted) count(m map[string]int, key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m[key]
}

// following is a scripted adapter whose agents can be asked and told to stop,
// asking one whose agents can only be asked.
type following struct{ *scripted }

type asking struct{ *scripted }

func (s *scripted) ask(ctx context.Context, task parley.Task, id string) (bridge.Outcome, error) {
	s.mu.Lock()
	s.polls[task.ID] = append(s.polls[task.ID], time.Now())
	n, script := len(s.polls[task.ID]), s.poll
	s.mu.Unlock()
	if id != "agent-"+task.ID {
		return bridge.Outcome{}, fmt.Errorf("asked about %q", id)
	}
	if script == nil {
		return answered(task, `"followed"`), nil
	}
	return script(ctx, task, n)
}

func (f asking) Poll(ctx context.Context, task parley.Task, _ parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	return f.ask(ctx, task, at.ID)
}

func (f following) Poll(ctx context.Context, task parley.Task, _ parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	return f.ask(ctx, task, at.ID)
}

func (f following) Cancel(ctx context.Context, task parley.Task, _ parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	f.mu.Lock()
	f.cancels[at.ID]++
	script := f.cancel
	f.mu.Unlock()
	if script == nil {
		return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{TaskID: task.ID, Outcome: parley.OutcomeCancelled}}, nil
	}
	return script(ctx, task, at.ID)
}

// What agents do.

func answered(task parley.Task, output string) bridge.Outcome {
	return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{TaskID: task.ID, Outcome: parley.OutcomeOK, Output: json.RawMessage(output)}}
}

func accepted(task parley.Task, state string) bridge.Outcome {
	return bridge.Outcome{Disposition: bridge.Accepted, AgentTaskID: "agent-" + task.ID, State: state}
}

// asks is an agent that waits for an answer to a question.
func asks(task parley.Task, question string) bridge.Outcome {
	out := accepted(task, "input-required "+question)
	out.Question = &parley.Question{Kind: parley.QuestionInput, Text: question}
	return out
}

func failed(d bridge.Disposition, code parley.Code, text string) bridge.Outcome {
	e := parley.Errorf(code, "%s", text)
	e.Retryable = true
	return bridge.Outcome{Disposition: d, Result: parley.Result{Outcome: parley.OutcomeError, Err: e}}
}

func lost() bridge.Outcome { return failed(bridge.Lost, parley.CodeAgentUnavailable, "reset") }
func notSent() bridge.Outcome {
	return failed(bridge.NotSent, parley.CodeAgentUnavailable, "refused")
}

// hang is an agent that got the request and says nothing until it is cut off.
func hang(ctx context.Context) bridge.Outcome {
	<-ctx.Done()
	return failed(bridge.Lost, parley.CodeCancelled, "cut: "+context.Cause(ctx).Error())
}

// hangsAtFirst is an agent that hangs when it is called first, and then answers.
func hangsAtFirst(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
	if n == 1 {
		return hang(ctx), nil
	}
	return answered(task, "2"), nil
}

// takes is an agent that answers after d, if it is let.
func takes(ctx context.Context, task parley.Task, d time.Duration) bridge.Outcome {
	select {
	case <-ctx.Done():
		return failed(bridge.Lost, parley.CodeCancelled, "cut")
	case <-time.After(d):
		return answered(task, `"slow"`)
	}
}

// What tests do.

// task adds an open attempt for an agent and gives its id.
func (r *rig) task(agent string, n int, adjust func(*store.Attempt)) string {
	run := fmt.Sprintf("run-%s-%d", agent, n)
	a := store.Attempt{
		Task: parley.Task{
			ID: run + ".a.1", Run: run, Step: "a", Attempt: 1, Agent: agent,
			Input: json.RawMessage(`{"text":"hello"}`), CorrelationID: "corr-" + run,
		},
		Policy: store.Policy{OutcomeUnknown: parley.OutcomeFail}, State: store.AttemptOpen,
	}
	if adjust != nil {
		adjust(&a)
	}
	r.ledger.add(a)
	return a.ID
}

func policy(p parley.OutcomePolicy) func(*store.Attempt) {
	return func(a *store.Attempt) { a.Policy.OutcomeUnknown = p }
}

// announce puts the task's record on the bus, as P2 does.
func (r *rig) announce(id string) {
	a := r.ledger.row(id)
	v, _ := json.Marshal(map[string]any{
		"run_id": a.Run, "task_id": a.ID, "agent_name": a.Agent, "input_data": a.Input,
		"correlation_id": a.CorrelationID, "timestamp": "2026-11-21T10:04:05.974607",
	})
	m := bus.Message{Subject: bus.SubjectTasks, Key: a.Run, Value: v}
	if !a.ScheduledAt.IsZero() {
		turn := a.ScheduledAt.Add(-time.Duration(a.Urgency) * parley.PriorityWait)
		m.Header = map[string]string{bus.HeaderTurn: fmt.Sprint(turn.UnixMicro())}
	}
	if p := a.Policy.OnOpen; p != "" {
		if m.Header == nil {
			m.Header = map[string]string{}
		}
		m.Header[bus.HeaderOnOpen] = string(p)
	}
	if err := r.bus.Publish(context.Background(), m); err != nil {
		r.t.Errorf("publish: %v", err)
	}
}

func (r *rig) hintCancel(id string) {
	if err := r.bus.Publish(r.t.Context(), bus.Message{Subject: bus.SubjectCancel, Key: id, Value: []byte(id)}); err != nil {
		r.t.Error(err)
	}
}

// wait lets virtual time pass.
func (r *rig) wait(d time.Duration) { time.Sleep(d); synctest.Wait() }

// settled gives the row once it is settled, waiting for at most limit.
func (r *rig) settled(id string, limit time.Duration) store.Attempt {
	r.t.Helper()
	step := 10 * time.Millisecond
	for begun, until := time.Now(), time.Now().Add(limit); ; r.wait(step) {
		if time.Since(begun) > 2*time.Minute {
			step = time.Second
		}
		if a := r.ledger.row(id); a.State == store.AttemptSettled || a.State == store.AttemptClosed {
			return a
		}
		if !time.Now().Before(until) {
			r.t.Fatalf("%s is %+v after %v", id, r.ledger.row(id), limit)
		}
	}
}

// want settles the test's question about one attempt.
func (r *rig) want(id string, outcome parley.Outcome, code parley.Code) store.Attempt {
	r.t.Helper()
	a := r.settled(id, 10*time.Minute)
	got := parley.Code("")
	if a.Result.Err != nil {
		got = a.Result.Err.Code
	}
	if a.Result.Outcome != outcome || got != code {
		r.t.Errorf("%s: outcome %s %s (%v), want %s %s", id, a.Result.Outcome, got, a.Result.Err, outcome, code)
	}
	return a
}

func (r *rig) wantCalls(s *scripted, id string, n int) {
	r.t.Helper()
	if got := s.calls(id); got != n {
		r.t.Errorf("%s was called %d times, want %d", id, got, n)
	}
}

func (r *rig) wakeups(run string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.woken[run]
}
