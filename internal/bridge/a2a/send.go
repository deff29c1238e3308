package a2a

import (
	"context"
	"strconv"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// maxForms is in how many forms one message is sent at most. All but the last
// were refused before anything was executed.
const maxForms = 3

// Call implements [bridge.Adapter]. An agent that goes on working is reported to
// progress once, with its state and what it says.
func (a *Adapter) Call(ctx context.Context, task parley.Task, agent parley.Agent, progress bridge.Progress) (bridge.Outcome, error) {
	e, err := a.meet(ctx, task, agent)
	if err != nil {
		return a.untranslatable(ctx, task, agent, err)
	}
	out, ex, err := a.send(ctx, e, letter{id: task.MessageID(), rpcID: task.ID, contextID: task.ContextID, progress: progress})
	if err != nil || ex.refused == nil || out.Disposition != bridge.Lost {
		return out, err
	}
	// These are questions, which may always be asked.
	return a.unclear(bridge.WithSendGuard(ctx, func() bool { return true }), e, out), nil
}

// unclear finds out what an agent's error leaves open: whether it has made a
// task of the message all the same. Since the answer is there nothing is under
// way any more; so if none of its tasks was made of the message, or it lists
// none, the error is the end of it (protocol.md §4.4).
func (a *Adapter) unclear(ctx context.Context, e *errand, answered bridge.Outcome) bridge.Outcome {
	found, err := a.find(ctx, e)
	switch {
	case err != nil || found.Disposition == bridge.NotSent:
		return answered
	case found.Disposition == bridge.Answered, found.Disposition == bridge.Accepted:
		return found
	case found.Result.Err.Code == parley.CodeNotFound, found.Result.Err.Code == parley.CodeOutcomeUnknown:
		answered.Disposition = bridge.Answered
	}
	return answered
}

// meet says how agent is called about task.
func (a *Adapter) meet(ctx context.Context, task parley.Task, agent parley.Agent) (*errand, error) {
	to, err := a.resolve(ctx, agent)
	e := &errand{task: task, agent: agent, to: to}
	a.wish(e)
	return e, err
}

// wish notes where the agent may report on the task, if it can. The secret that it shows
// there is kept out of what is logged.
func (a *Adapter) wish(e *errand) {
	if a.opts.Push == nil || !e.to.Push || e.push.url != "" {
		return
	}
	if url, token, ok := a.opts.Push(e.task.ID); ok {
		e.push, e.agent.CallSecret = pushTarget{url, token}, parley.NewSecret([]byte(token))
	}
}

// about turns e to where the agent's task at was accepted.
func (e *errand) about(at bridge.AgentTask) {
	to := e.to.at(e.agent, at)
	e.moved, e.to = to.Endpoint != e.to.Endpoint, to
}

// learn notes what the agent of e turned out to speak, if that is another dialect than was
// known. What answers about a task at another place says nothing about the calls to come.
func (a *Adapter) learn(e *errand) {
	if e.switched && !e.moved {
		a.known.speaks(e.agent, e.to.Endpoint)
	}
}

// untranslatable reports a task that cannot be put into words.
func (a *Adapter) untranslatable(ctx context.Context, task parley.Task, agent parley.Agent, err error) (bridge.Outcome, error) {
	return a.wire.Call(ctx, task, agent, bridge.Conversation{
		Protocol: parley.ProtocolJSONRPC,
		Request:  func() ([]byte, error) { return nil, err },
	})
}

// letter is a message to be sent, whatever the dialect.
type letter struct {
	// id is the message's, rpcID the request's.
	id, rpcID         string
	contextID, taskID string
	// reply is the content if the letter is an answer; else it is the task's
	// input.
	reply    *parley.Reply
	progress bridge.Progress
}

// send sends l once, in the form that the agent is known to understand. A form
// that the agent says it does not understand, which means that nothing was
// executed, is followed by another one.
func (a *Adapter) send(ctx context.Context, e *errand, l letter) (bridge.Outcome, *exchange, error) {
	vb := verbSend
	if e.to.cfg.Send == SendStream && e.to.Streaming {
		vb = verbStream
	}
	for form := 1; ; form++ {
		ex := a.sending(e, vb, l)
		if form == maxForms {
			ex.minor = nil
		}
		out, err := a.run(ctx, ex)
		if err != nil || ex.refused == nil || form == maxForms {
			return out, ex, err
		}
		switch a.another(e, vb, ex.refused) {
		case meansNoStream:
			vb = verbSend
		case meansNoPush:
			a.known.pushesNot(e.agent)
			e.to.Push = false
		case meansOtherDialect:
			if !a.otherDialect(ctx, e) {
				return out, ex, nil
			}
		default:
			return out, ex, nil
		}
	}
}

// another says for which reason a refused message may be sent in another form,
// or 0.
func (a *Adapter) another(e *errand, vb verb, f *failure) meaning {
	switch m := f.meaning(vb); m {
	case meansNoStream:
		return m
	case meansNoPush:
		if e.to.Push && a.opts.Push != nil {
			return m
		}
	case meansOtherDialect:
		if e.to.open() && !e.switched {
			return m
		}
	case meansFailed, meansRefused, meansUnclear, meansUnknownTask, meansNotCancelable:
	}
	return 0
}

// otherDialect changes e, once, to the dialect that has not been tried: what the
// agent's card says by now, else what is known of it.
func (a *Adapter) otherDialect(ctx context.Context, e *errand) bool {
	if e.switched || !e.to.open() {
		return false
	}
	e.switched = true
	if a.opts.Detector != nil {
		d, err := a.opts.Detector.Renegotiate(ctx, e.agent, string(e.to.Version))
		if err == nil && d.Protocol == parley.ProtocolJSONRPC && belongs(d.URL, e.agent, e.to.cfg) {
			if t := detected(e.agent, e.to.cfg, d); t.Version != e.to.Version {
				e.to = t
				a.wish(e)
				return true
			}
		}
	}
	other, ok := e.to.other()
	if ok {
		e.to.plain, e.to.Endpoint = false, other
	}
	return ok
}

// sending makes the exchange of one letter in one form.
func (a *Adapter) sending(e *errand, vb verb, l letter) *exchange {
	ex := a.exchange(e, vb)
	ex.id = l.rpcID
	ex.minor = func(bridge.Outcome) bool { return ex.refused != nil && a.another(e, vb, ex.refused) != 0 }
	ex.write = func() ([]byte, error) {
		m := message{
			to: e.to.Endpoint, plain: e.to.plain, id: l.id, contextID: l.contextID, taskID: l.taskID,
			content: content{version: e.to.Version, mode: e.to.mode(), input: e.task.Input, reply: l.reply, python: e.task.Foreign},
			wait:    e.to.cfg.Send == SendBlocking,
		}
		if e.to.Push {
			m.push = e.push
		}
		return writeSend(vb, &m)
	}
	ex.result = func(result []byte) (bridge.Outcome, []bridge.Warning, error) {
		a.learn(e)
		out, warnings, err := a.begun(e, ex, l, result)
		ex.judged = err == nil
		return out, warnings, err
	}
	ex.failure = func(f *failure) bridge.Outcome {
		out := failed(e.task.ID, f.asError(ex.operation()))
		if f.meaning(vb) == meansUnclear && (e.to.Version == V10 || l.taskID != "") {
			out.Disposition = bridge.Lost // the agent can be asked what became of it
		}
		return out
	}
	return ex
}

// mode is how an input becomes message parts.
func (t *target) mode() PartsMode {
	switch {
	case t.cfg.Parts != PartsAuto:
		return t.cfg.Parts
	case t.json:
		return PartsData
	}
	return PartsText
}

// begun reads the answer to a send, or the first event of a stream.
func (a *Adapter) begun(e *errand, ex *exchange, l letter, result []byte) (bridge.Outcome, []bridge.Warning, error) {
	ans, err := e.read(result)
	if err != nil {
		ex.end()
		return bridge.Outcome{}, nil, err
	}
	out := e.accepted(ans.outcome(e.task.ID))
	ex.message = ans.sort == sortMessage
	if ans.sort == sortStatus && ex.events != nil && out.AgentTaskID != "" && out.Disposition == bridge.Answered {
		// An event that a task has ended is not the task: that is to be asked for.
		out = e.going(bridge.AgentTask{ID: out.AgentTaskID, ContextID: out.ContextID})
		out.State = bridge.Redact(e.agent, []byte(ans.stateName()), maxWords)
	}
	if out.Disposition != bridge.Accepted {
		ex.end()
		return out, ans.warnings, nil
	}
	if l.progress != nil {
		e.report(ans, bridge.Report{State: out.State}, l.progress)
	}
	if ex.events != nil {
		s := a.newStream(e, ex, ans, l.taskID == "")
		if l.progress == nil {
			s.untold = func(progress bridge.Progress) { e.report(ans, bridge.Report{State: out.State}, progress) }
		}
		out.Stream = s
	}
	return out, ans.warnings, nil
}

// end closes a stream that nobody will listen to.
func (ex *exchange) end() {
	if ex.events != nil {
		ex.events.close()
		ex.events = nil
	}
}

// Answer implements [bridge.Answerer]. The answer is a message of its own for the
// same task and conversation (A2A 1.0 §3.4.3, 0.3 §9.4).
func (a *Adapter) Answer(ctx context.Context, task parley.Task, agent parley.Agent, reply bridge.TaskReply) (bridge.Outcome, error) {
	e, err := a.meet(ctx, task, agent)
	if err != nil {
		return a.untranslatable(ctx, task, agent, err)
	}
	e.about(reply.At)
	suffix := ".answer-" + strconv.Itoa(reply.Number)
	l := letter{
		id: task.MessageID() + suffix, rpcID: task.ID + suffix, contextID: reply.At.ContextID, taskID: reply.At.ID,
		reply: &reply.Reply,
	}
	out, ex, err := a.send(ctx, e, l)
	switch {
	case err != nil || out.Disposition == bridge.NotSent || out.Disposition == bridge.Lost:
		return out, err
	case ex.judged && out.AgentTaskID == reply.At.ID && !ex.message:
		return out, nil
	case ex.judged:
		return a.afterAnswer(ctx, e, reply.At, out)
	}
	// The agent did not say anything about its task.
	out.Disposition = bridge.Lost
	if ex.refused != nil || out.Result.Err.Code == parley.CodeAgentRejected {
		out.Disposition = bridge.NotSent
		out.Result.Err.Code, out.Result.Err.Retryable = parley.CodeAgentRejected, false
	}
	return out, nil
}

// afterAnswer settles an answer to which the agent said something, but nothing
// about the task that waited: the task is asked for.
func (a *Adapter) afterAnswer(ctx context.Context, e *errand, at bridge.AgentTask, said bridge.Outcome) (bridge.Outcome, error) {
	if said.Stream != nil {
		said.Stream.Close()
	}
	out, _, err := a.ask(ctx, e, verbGet, at)
	switch {
	case err != nil || out.Disposition == bridge.Answered || out.Disposition == bridge.Accepted:
		return out, err
	case gone(out) && (said.AgentTaskID == "" || said.AgentTaskID == at.ID) && said.Result.Err == nil:
		return said, nil // the message was the end of it
	}
	return e.going(at), nil
}
