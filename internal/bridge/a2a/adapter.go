package a2a

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Adapter is the [bridge.Adapter] for A2A 0.2 and 0.3 over JSON-RPC. Its agents
// can be asked about a task and told to stop one.
type Adapter struct{ wire *bridge.Wire }

var (
	_ bridge.Adapter       = (*Adapter)(nil)
	_ bridge.Follower      = (*Adapter)(nil)
	_ bridge.Canceler      = (*Adapter)(nil)
	_ bridge.ConfigChecker = (*Adapter)(nil)
)

// New makes an Adapter that posts through x; log and obs may be nil.
func New(x *bridge.Exchange, log *slog.Logger, obs bridge.TranslationObserver) *Adapter {
	return &Adapter{wire: bridge.NewWire(x, log, obs)}
}

// Protocol is "jsonrpc-2.0".
func (a *Adapter) Protocol() string { return parley.ProtocolJSONRPC }

// Call implements [bridge.Adapter]. An agent that goes on working is reported to
// progress once, with its state and what it says.
func (a *Adapter) Call(ctx context.Context, task parley.Task, agent parley.Agent, progress bridge.Progress) (bridge.Outcome, error) {
	return a.wire.Call(ctx, task, agent, bridge.Conversation{
		Protocol: parley.ProtocolJSONRPC,
		Request: func() ([]byte, error) {
			cfg, faults := ReadConfig(agent.ProtocolConfig)
			if len(faults) > 0 {
				return nil, errors.Join(faults...)
			}
			return Request(task, cfg)
		},
		Answer: func(body []byte) (bridge.Outcome, []bridge.Warning, error) {
			return respond(body, task.ID, progress)
		},
		Refusal: func(body []byte, e *bridge.ExchangeError) bridge.Outcome {
			return refusal(body, task.ID, e)
		},
	})
}

// refusal prefers the JSON-RPC error in a response outside 2xx to its status.
func refusal(body []byte, taskID string, e *bridge.ExchangeError) bridge.Outcome {
	env, err := open(body, taskID)
	if err != nil || env.failure == nil {
		return e.Outcome(taskID)
	}
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		e.Err.Message += ": " + env.failure.text()
		return e.Outcome(taskID)
	}
	out := failed(taskID, env.failure.asError(e.Status))
	out.Result.RetryAfter = e.RetryAfter
	return out
}

// Poll implements [bridge.Follower] by tasks/get.
func (a *Adapter) Poll(ctx context.Context, task parley.Task, agent parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	return a.ask(ctx, task, agent, question{method: "tasks/get", agentTaskID: at.ID, refused: pollRefused})
}

// Cancel implements [bridge.Canceler] by tasks/cancel. An agent that says
// canceled gives Answered with OutcomeCancelled.
func (a *Adapter) Cancel(ctx context.Context, task parley.Task, agent parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	return a.ask(ctx, task, agent, question{method: "tasks/cancel", agentTaskID: at.ID, refused: cancelRefused})
}

// question is a request about a task that the agent has.
type question struct {
	method, agentTaskID string
	// refused judges a JSON-RPC error; ended is whether it ends the task.
	refused func(*rpcError) (e *parley.Error, ended bool)
}

// ask puts q to the agent. What the agent did not say about its task itself is
// never Answered: it would end an attempt that goes on.
func (a *Adapter) ask(ctx context.Context, task parley.Task, agent parley.Agent, q question) (bridge.Outcome, error) {
	ended := false
	answer := func(body []byte) (bridge.Outcome, []bridge.Warning, error) {
		env, err := open(body, task.ID)
		if err != nil {
			return bridge.Outcome{}, nil, err
		}
		if env.failure != nil {
			e, over := q.refused(env.failure)
			ended = over
			return failed(task.ID, e), nil, nil
		}
		out, warnings, err := q.read(env.result, task.ID)
		ended = err == nil
		return out, warnings, err
	}
	out, err := a.wire.Call(ctx, task, agent, bridge.Conversation{
		Protocol: parley.ProtocolJSONRPC,
		Request:  func() ([]byte, error) { return aboutTask(task, q.method, q.agentTaskID) },
		Answer:   answer,
		Refusal: func(body []byte, e *bridge.ExchangeError) bridge.Outcome {
			env, err := open(body, task.ID)
			if err != nil || env.failure == nil {
				return e.Outcome(task.ID)
			}
			err2, over := q.refused(env.failure)
			ended = over
			return failed(task.ID, err2)
		},
	})
	if err == nil && out.Disposition == bridge.Answered && !ended {
		out.Disposition = bridge.Lost
	}
	return out, err
}

// read judges the task in result.
func (q question) read(result []byte, taskID string) (bridge.Outcome, []bridge.Warning, error) {
	a, err := readAnswer(result)
	if err != nil {
		return bridge.Outcome{}, nil, err
	}
	if id, _ := bridge.Text(a.id); id != q.agentTaskID {
		return bridge.Outcome{}, nil, bridge.Defectf("wrong_task", "%s for task %q was answered with task %q", q.method, q.agentTaskID, limited(id))
	}
	if a.state == nil {
		return bridge.Outcome{}, nil, bridge.Defectf("missing_state", "%s was answered without a status.state", q.method)
	}
	out := a.outcome(taskID)
	if q.method == "tasks/cancel" && a.stateName() == "canceled" {
		out.Result.Outcome = parley.OutcomeCancelled
		e := parley.Errorf(parley.CodeCancelled, "the agent has cancelled its task")
		e.Details = out.Result.Err.Details
		out.Result.Err = e
	}
	return out, a.warnings, nil
}

// pollRefused: an agent that has no tasks/get cannot be followed, which ends the
// attempt as it did in the old bridge; one that knows no such task leaves the
// outcome unknown; anything else is about the question and not about the task.
func pollRefused(e *rpcError) (*parley.Error, bool) {
	switch {
	case e.number == codeMethodNotFound:
		out := e.asError(0)
		out.Code, out.Retryable = parley.CodeAgentError, true
		out.Message = fmt.Sprintf("Task state: unknown (the agent cannot be asked: %s)", e.text())
		return out, true
	case e.notFound():
		return unknownTask(e), false
	}
	return e.asError(0), false
}

// cancelRefused: whatever the agent says, the task may go on.
func cancelRefused(e *rpcError) (*parley.Error, bool) {
	if e.notFound() {
		return unknownTask(e), false
	}
	return e.asError(0), false
}

func unknownTask(e *rpcError) *parley.Error {
	out := e.asError(0)
	out.Code, out.Retryable = parley.CodeOutcomeUnknown, false
	out.Message = "the agent knows no such task any more: " + e.text()
	return out
}
