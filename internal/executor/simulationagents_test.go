package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// simAgent is the record of an agent: of each policy one that can be followed, or
// one that cannot.
func simAgent(name string) (parley.Agent, bool) {
	a, ok := map[string]parley.Agent{
		"plain": {Protocol: parley.ProtocolSimpleA2A, OutcomeUnknown: parley.OutcomeFail},
		"sure":  {Protocol: parley.ProtocolSimpleA2A, OutcomeUnknown: parley.OutcomeResend, Idempotent: true},
		"swift": {Protocol: parley.ProtocolJSONRPC, OutcomeUnknown: parley.OutcomeResend, Idempotent: true},
		"long":  {Protocol: parley.ProtocolJSONRPC, OutcomeUnknown: parley.OutcomeLookup},
		"asked": {Protocol: parley.ProtocolJSONRPC, OutcomeUnknown: parley.OutcomeFail},
	}[name]
	a.Name = name
	return a, ok
}

type simAgentBook struct{}

func (simAgentBook) Lookup(_ context.Context, name string) (parley.Agent, error) {
	a, ok := simAgent(name)
	if !ok {
		return a, parley.Errorf(parley.CodeUnknownAgent, "there is no agent %q", name)
	}
	return a, nil
}

// simAgents are all agents and what they saw.
type simAgents struct {
	c     *chance
	mu    sync.Mutex
	tasks map[string]*simTask
}

// simTask is one task as its agent has it.
type simTask struct {
	agent string
	// sent are the calls that left a bridge, executions those that arrived.
	sent       []time.Time
	executions int
	ready      time.Time
	stopped    bool
	// given are the answers that a process was handed.
	given []givenAnswer
}

// givenAnswer is an answer that process p had in hand.
type givenAnswer struct {
	at     time.Time
	p      *simProc
	result parley.Result
}

func newSimAgents(c *chance) *simAgents { return &simAgents{c: c, tasks: map[string]*simTask{}} }

func (a *simAgents) sent(task parley.Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tasks[task.ID]
	if t == nil {
		t = &simTask{agent: task.Agent}
		a.tasks[task.ID] = t
	}
	t.sent = append(t.sent, time.Now())
}

// executes gives the number of an execution, and how long it takes. The agent
// carries out whatever comes, as often as it comes.
func (a *simAgents) executes(task parley.Task) (n int, works time.Duration) {
	works = a.c.upTo(5 * time.Second)
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tasks[task.ID]
	if t.executions++; t.executions == 1 {
		t.ready = time.Now().Add(works)
	}
	return t.executions, works
}

// hasDone reports whether an agent has carried a task out.
func (a *simAgents) hasDone(task parley.Task) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tasks[task.ID]
	return t != nil && t.executions > 0
}

// says is what the agent answers about one execution of a task: no two are alike.
func (a *simAgents) says(task parley.Task, n int) bridge.Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tasks[task.ID]
	r := parley.Result{TaskID: task.ID, Outcome: parley.OutcomeOK}
	switch h := len(task.ID) + int(task.ID[len(task.ID)-3]) + n; {
	case t.stopped:
		r.Outcome, r.Err = parley.OutcomeCancelled, parley.Errorf(parley.CodeCancelled, "stopped")
	case h%9 == 0:
		r.Outcome, r.Err = parley.OutcomeError, parley.Errorf(parley.CodeAgentError, "no")
		r.Err.Retryable = true
	default:
		r.Output = json.RawMessage(fmt.Sprintf("%q", fmt.Sprint(task.ID, "#", n)))
	}
	return bridge.Outcome{Disposition: bridge.Answered, Result: r}
}

// hands notes that a process has an answer in hand, if it lives.
func (p *simProc) hands(out bridge.Outcome) bridge.Outcome {
	if out.Disposition == bridge.Answered && !p.dead.Load() {
		p.w.agents.gives(p, out.Result)
	}
	return out
}

// gives notes that p has an answer in hand.
func (a *simAgents) gives(p *simProc, r parley.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tasks[r.TaskID]
	t.given = append(t.given, givenAnswer{time.Now(), p, r})
}

func simFailed(d bridge.Disposition, code parley.Code) bridge.Outcome {
	e := parley.Errorf(code, "it went wrong")
	e.Retryable = true
	return bridge.Outcome{Disposition: d, Result: parley.Result{Outcome: parley.OutcomeError, Err: e}}
}

// simAdapter is the way of one process to agents that cannot be asked.
type simAdapter struct {
	p        *simProc
	protocol string
}

func (s simAdapter) Protocol() string { return s.protocol }

func (s simAdapter) Call(ctx context.Context, task parley.Task, agent parley.Agent, _ bridge.Progress) (bridge.Outcome, error) {
	w := s.p.w
	if w.c.of(20) || time.Now().UnixNano() < s.p.cut.Load() {
		time.Sleep(w.c.upTo(8 * time.Second)) // for a connection
	}
	if e, ok := errors.AsType[*bridge.ExchangeError](bridge.Guarded(ctx, task, agent)); ok {
		return e.Outcome(task.ID), nil
	}
	if s.p.dead.Load() {
		return simFailed(bridge.Lost, parley.CodeAgentUnavailable), nil
	}
	fate := w.c.n(8)
	if fate == 0 {
		return simFailed(bridge.NotSent, parley.CodeAgentUnavailable), nil
	}
	w.agents.sent(task)
	switch fate {
	case 1: // it never arrives
		return simFailed(bridge.Lost, parley.CodeAgentUnavailable), nil
	case 2: // it arrives when its connection is dead
		after := w.c.upTo(4 * time.Second)
		w.late.Go(func() { time.Sleep(after); w.agents.executes(task) })
		return simFailed(bridge.Lost, parley.CodeAgentUnavailable), nil
	}
	n, works := w.agents.executes(task)
	switch {
	case fate == 3:
		return simFailed(bridge.Lost, parley.CodeAgentUnavailable), nil
	case s.protocol == parley.ProtocolJSONRPC && w.c.of(60):
		return bridge.Outcome{Disposition: bridge.Accepted, AgentTaskID: "agent-" + task.ID, State: "working"}, nil
	}
	select {
	case <-ctx.Done():
		return simFailed(bridge.Lost, parley.CodeCancelled), nil
	case <-time.After(works):
		return s.p.hands(w.agents.says(task, n)), nil
	}
}

// simFollower is the way to agents that can be asked and told to stop.
type simFollower struct{ simAdapter }

// state is what the agent says when it is asked.
func (s simFollower) state(task parley.Task) bridge.Outcome {
	a := s.p.w.agents
	a.mu.Lock()
	t := a.tasks[task.ID]
	unknown := t == nil || t.executions == 0
	working := !unknown && !t.stopped && time.Now().Before(t.ready)
	a.mu.Unlock()
	switch {
	case unknown:
		return simFailed(bridge.NotSent, parley.CodeNotFound)
	case working:
		return bridge.Outcome{Disposition: bridge.Accepted, AgentTaskID: "agent-" + task.ID, State: "working"}
	}
	return s.p.hands(a.says(task, 1))
}

func (s simFollower) Poll(_ context.Context, task parley.Task, _ parley.Agent, _ bridge.AgentTask) (bridge.Outcome, error) {
	if s.p.w.c.of(15) {
		return simFailed(bridge.Lost, parley.CodeAgentUnavailable), nil
	}
	return s.state(task), nil
}

func (s simFollower) Find(_ context.Context, task parley.Task, _ parley.Agent) (bridge.Outcome, error) {
	if s.p.w.c.of(15) {
		return simFailed(bridge.Lost, parley.CodeAgentUnavailable), nil
	}
	return s.state(task), nil
}

func (s simFollower) Cancel(_ context.Context, task parley.Task, _ parley.Agent, _ bridge.AgentTask) (bridge.Outcome, error) {
	a := s.p.w.agents
	a.mu.Lock()
	if t := a.tasks[task.ID]; t != nil && t.executions > 0 && time.Now().Before(t.ready) {
		t.stopped = true
	}
	a.mu.Unlock()
	if s.p.w.c.of(15) {
		return simFailed(bridge.Lost, parley.CodeAgentUnavailable), nil
	}
	return s.state(task), nil
}
