package a2a

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Poll implements [bridge.Follower] by tasks/get or GetTask.
func (a *Adapter) Poll(ctx context.Context, task parley.Task, agent parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	e, err := a.meet(ctx, task, agent)
	if err != nil {
		return a.untranslatable(ctx, task, agent, err)
	}
	e.about(at)
	out, _, err := a.ask(ctx, e, verbGet, at)
	return out, err
}

// Cancel implements [bridge.Canceler] by tasks/cancel or CancelTask. An agent
// that says canceled gives Answered with OutcomeCancelled. One that says
// something else than its task's state, or nothing in time, is asked for it.
func (a *Adapter) Cancel(ctx context.Context, task parley.Task, agent parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	e, err := a.meet(ctx, task, agent)
	if err != nil {
		return a.untranslatable(ctx, task, agent, err)
	}
	e.about(at)
	e.cancels = true
	if until, ok := ctx.Deadline(); ok {
		// Some agents answer a cancel when the task has ended: that has to leave
		// time for the look.
		e.agent.Timeout = min(patience(agent), time.Until(until)/2)
	}
	out, _, err := a.ask(ctx, e, verbCancel, at)
	if err != nil || out.Disposition != bridge.Lost || ctx.Err() != nil {
		return out, err
	}
	return a.confirmed(ctx, e, at, out)
}

// confirmed asks for the agent's task where something else was said about it.
// Only an agent that says twice that it does not know the task is believed.
func (a *Adapter) confirmed(ctx context.Context, e *errand, at bridge.AgentTask, first bridge.Outcome) (bridge.Outcome, error) {
	out, ex, err := a.ask(ctx, e, verbGet, at)
	switch {
	case err != nil:
		return out, err
	case out.Disposition == bridge.Answered && ex.refused != nil:
		// It cannot be asked, which says nothing about the task.
	case out.Disposition == bridge.Answered, out.Disposition == bridge.Accepted, gone(out):
		return out, nil
	}
	return first, nil
}

// gone says that the agent does not know the task any more.
func gone(out bridge.Outcome) bool {
	return out.Result.Err != nil && out.Result.Err.Code == parley.CodeNotFound
}

// ask makes the request vb about the agent's task. What the agent did not say
// about its task itself is never Answered: it would end an attempt that goes on.
func (a *Adapter) ask(ctx context.Context, e *errand, vb verb, at bridge.AgentTask) (bridge.Outcome, *exchange, error) {
	spoken := e.to
	var said bridge.Outcome // of the exchange before, in the dialect that was spoken
	var before *exchange
	for {
		ex := a.asking(e, vb, at)
		out, err := a.run(ctx, ex)
		if ex.refused != nil && ex.refused.meaning(vb) == meansOtherDialect {
			if before == nil && a.otherDialect(ctx, e) {
				said, before = out, ex
				continue
			}
			e.to = spoken // it is the request that the agent does not know
			if before != nil && before.judged {
				out, ex = said, before
			}
		}
		if err == nil && out.Disposition == bridge.Answered && !ex.judged {
			out.Disposition = bridge.Lost
		}
		return out, ex, err
	}
}

// asking makes the exchange of one question.
func (a *Adapter) asking(e *errand, vb verb, at bridge.AgentTask) *exchange {
	ex := a.exchange(e, vb)
	ex.minor = func(bridge.Outcome) bool { return !ex.judged }
	ex.write = func() ([]byte, error) { return writeTask(vb, e.to.Endpoint, at.ID, 0) }
	ex.result = func(result []byte) (bridge.Outcome, []bridge.Warning, error) {
		a.learn(e)
		if result == nil {
			ex.judged = true
			return a.listening(e, ex, at), nil, nil
		}
		out, warnings, err := e.standing(vb, at, result)
		ex.judged = err == nil
		return out, warnings, err
	}
	ex.failure = func(f *failure) bridge.Outcome {
		err, over := unheard(ex.operation(), f)
		ex.judged = over
		return failed(e.task.ID, err)
	}
	return ex
}

// standing judges a result that tells the state of the agent's task.
func (e *errand) standing(vb verb, at bridge.AgentTask, result []byte) (bridge.Outcome, []bridge.Warning, error) {
	a, err := e.read(result)
	if err != nil {
		return bridge.Outcome{}, nil, err
	}
	name := method(e.to.Endpoint, vb)
	id, contextID := a.ids()
	switch {
	case id != at.ID:
		return bridge.Outcome{}, nil, bridge.Defectf("wrong_task", "%s for task %q was answered with task %q", name, at.ID, limited(id))
	case a.state == nil:
		return bridge.Outcome{}, nil, bridge.Defectf("missing_state", "%s was answered without a status.state", name)
	case a.sort == sortMessage, a.sort == sortArtifact:
		return bridge.Outcome{}, nil, bridge.Defectf("wrong_kind", "%s was answered with a message, or a piece of output, in place of the task", name)
	case at.ContextID != "" && contextID != "" && contextID != at.ContextID:
		a.warn(fmt.Sprintf("task %q is in context %q now, not %q", limited(id), limited(contextID), limited(at.ContextID)))
	}
	out := e.accepted(a.outcome(e.task.ID))
	if e.cancels && a.stateName() == stateCanceled {
		out.Result.Outcome = parley.OutcomeCancelled
		e := parley.Errorf(parley.CodeCancelled, "the agent has cancelled its task")
		e.Details = out.Result.Err.Details
		out.Result.Err = e
	}
	return out, a.warnings, nil
}

// method names a request in texts for people.
func method(to Endpoint, vb verb) string {
	if to.Binding == BindingREST || to.Binding == BindingGRPC {
		return V10.method(vb)
	}
	return to.Version.method(vb)
}

// undecided says of an outcome that it leaves the task as it was.
func undecided(out bridge.Outcome) bool { return out.Disposition != bridge.Answered }

// unheard judges an error that was answered to a question; over is whether it
// ends the attempt. An agent that has no tasks/get cannot be followed, which
// does so as it did in the old bridge (all of 1.0 have GetTask, A2A 1.0 §3.1.3);
// one that knows no such task leaves the outcome unknown; anything else is about
// the question and not about the task.
func unheard(op operation, f *failure) (e *parley.Error, over bool) {
	out := f.asError(op)
	switch {
	case op.verb == verbGet && f.code == codeMethodNotFound && op.to.Version == V03:
		out.Code, out.Retryable = parley.CodeAgentError, true
		out.Message = fmt.Sprintf("Task state: unknown (the agent cannot be asked: %s)", f.text(op.to.Binding))
		return out, true
	case f.meaning(op.verb) == meansUnknownTask:
		out.Code, out.Retryable = parley.CodeNotFound, false
		out.Message = "the agent knows no such task any more: " + f.text(op.to.Binding)
	}
	return out, false
}

// openPatience is how long an agent may take to begin a stream of a task that
// was handed over: nothing else is asked meanwhile.
const openPatience = 10 * time.Second

// Subscribe implements [bridge.Subscriber] by tasks/resubscribe or
// SubscribeToTask. An agent that does not declare streams is not asked. What is
// answered instead of a stream is confirmed by a get: agents refuse to stream
// tasks that have ended, or wait, with errors of many kinds. One that does not
// even begin to answer within openPatience, since its task has nothing to tell
// (Java 0.3.3 while it waits for a person), gives Lost, so that it is asked.
func (a *Adapter) Subscribe(ctx context.Context, task parley.Task, agent parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	e, err := a.meet(ctx, task, agent)
	if err != nil {
		return a.untranslatable(ctx, task, agent, err)
	}
	e.about(at)
	if !e.to.Streaming {
		return e.going(at), nil
	}
	e.agent.Timeout = min(patience(agent), openPatience)
	out, ex, err := a.ask(ctx, e, verbSubscribe, at)
	if err != nil || ex.refused == nil {
		return out, err
	}
	return a.confirmed(ctx, e, at, out)
}

// going is a task of which nothing is known but that it was accepted.
func (e *errand) going(at bridge.AgentTask) bridge.Outcome {
	return e.accepted(bridge.Outcome{
		Disposition: bridge.Accepted, AgentTaskID: at.ID, ContextID: at.ContextID,
		Result: parley.Result{TaskID: e.task.ID, AgentTaskID: at.ID, ContextID: at.ContextID},
	})
}
