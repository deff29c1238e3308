package a2a

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// defaultPatience is the timeout of agents whose record has none.
const defaultPatience = 30 * time.Second

// patience is how long an exchange with agent may take.
func patience(agent parley.Agent) time.Duration {
	if agent.Timeout <= 0 {
		return defaultPatience
	}
	return agent.Timeout
}

// stream is the [bridge.Stream] of one task's events.
type stream struct {
	a      *Adapter
	e      *errand
	op     operation
	events eventSource
	// taskID and contextID are whose events it has.
	taskID, contextID string
	sum               assembly
	// state is where the task stood last.
	state string
	// ended is the first event, if it told that the task has ended.
	ended *answer
	// untold tells what the first event says, nil if that was told.
	untold func(bridge.Progress)
	// refused is the error that was told in place of an event.
	refused  *failure
	warnings []bridge.Warning
	close    sync.Once
}

// newStream continues the stream whose first event was first. fresh: it is of a new
// task, which has made nothing before.
func (a *Adapter) newStream(e *errand, ex *exchange, first *answer, fresh bool) *stream {
	s := &stream{a: a, e: e, op: ex.operation(), events: ex.events, state: stateWorking}
	s.taskID, s.contextID = first.ids()
	s.sum = assembly{version: e.to.Version, limit: a.opts.Exchange.Limits().MaxResponse, whole: true, late: !fresh}
	s.sum.begin(s.taskID, s.contextID)
	s.sum.take(first)
	if first.state != nil {
		s.state = first.stateName()
	}
	if first.sort == sortStatus && !goesOn(s.state) {
		s.ended = first
	}
	return s
}

// listening is the outcome of a subscription that has begun. What happened
// before it, and whether it says so, is not known yet.
func (a *Adapter) listening(e *errand, ex *exchange, at bridge.AgentTask) bridge.Outcome {
	s := &stream{a: a, e: e, op: ex.operation(), events: ex.events, taskID: at.ID, contextID: at.ContextID, state: stateWorking}
	s.sum = assembly{version: e.to.Version, limit: a.opts.Exchange.Limits().MaxResponse}
	s.sum.begin(at.ID, at.ContextID)
	out := e.going(at)
	out.Stream = s
	return out
}

// Close implements [bridge.Stream].
func (s *stream) Close() { s.close.Do(s.events.close) }

// Listen implements [bridge.Stream]. Events of other tasks and conversations
// and those that cannot be read are passed over, with a warning.
func (s *stream) Listen(ctx context.Context, progress bridge.Progress) bridge.Outcome {
	if progress == nil {
		progress = func(bridge.Report) {}
	}
	if s.untold != nil {
		s.untold(progress)
	}
	var out bridge.Outcome
	over := false
	if s.ended != nil {
		out, over = s.judge(s.ended)
	}
	for !over {
		event, err := s.events.next(ctx)
		if err != nil {
			out = s.broken(ctx, err)
			break
		}
		out, over = s.hear(event, progress)
	}
	s.Close()
	if out.Disposition != bridge.Answered {
		out.AgentTaskID, out.ContextID = s.taskID, s.contextID
	}
	return s.a.wire.Finish(ctx, s.e.task, s.e.agent, bridge.Stanza{
		Protocol: parley.ProtocolJSONRPC, Outcome: s.e.accepted(out), Warnings: s.warnings, Minor: undecided,
		Usual: func(bridge.Outcome) bool { return s.op.verb == verbSubscribe && s.refused.tellsNothing() },
	})
}

// broken says what the end of the stream means. Only a state does: an end
// without one leaves the task as it was.
func (s *stream) broken(ctx context.Context, err error) bridge.Outcome {
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return s.going(s.state)
	}
	return cutError(err).Outcome(s.e.task.ID)
}

// going is the outcome of a task that is not known to have ended.
func (s *stream) going(state string) bridge.Outcome {
	return bridge.Outcome{
		Disposition: bridge.Accepted, AgentTaskID: s.taskID, ContextID: s.contextID, State: state,
		Result: parley.Result{TaskID: s.e.task.ID, AgentTaskID: s.taskID, ContextID: s.contextID},
	}
}

// cutError is a stream that broke because of err.
func cutError(err error) *bridge.ExchangeError {
	if e, ok := errors.AsType[*bridge.ExchangeError](err); ok {
		return e
	}
	e := parley.Errorf(parley.CodeAgentUnavailable, "the stream broke: %w", err)
	e.Retryable = true
	return &bridge.ExchangeError{Disposition: bridge.Lost, Err: e}
}

// hear takes one event; over says that nothing more is to be heard.
func (s *stream) hear(event []byte, progress bridge.Progress) (out bridge.Outcome, over bool) {
	result, f, err := s.a.binding(s.op.to).open(s.op, event)
	if f != nil {
		// It may be about the task or about the stream: the task has to be asked for.
		s.refused = f
		out = failed(s.e.task.ID, f.asError(s.op))
		out.Disposition = bridge.Lost
		return out, true
	}
	var ans *answer
	if err == nil {
		ans, err = s.e.read(result)
	}
	if err != nil {
		s.warn("an event cannot be read: " + err.Error())
		return out, false
	}
	if !s.ours(ans) {
		return out, false
	}
	s.sum.take(ans)
	if ans.sort == sortTask || ans.sort == sortStatus {
		s.state = ans.stateName()
		out, over = s.judge(ans)
	}
	s.e.report(ans, bridge.Report{State: s.state}, progress)
	s.warnings = append(s.warnings, ans.warnings[:min(len(ans.warnings), maxWarnings-len(s.warnings))]...)
	return out, over
}

// maxWarnings bounds what is said about one stream.
const maxWarnings = 16

func (s *stream) warn(text string) {
	if len(s.warnings) < maxWarnings {
		s.warnings = append(s.warnings, bridge.Warning{Kind: "stream", Text: text})
	}
}

// ours says whether an event is about the task.
func (s *stream) ours(ans *answer) bool {
	id, contextID := ans.ids()
	switch {
	case id != s.taskID && (id != "" || ans.sort == sortTask):
		s.warn(fmt.Sprintf("an event of task %q came in the stream of task %q; it is not used", limited(id), limited(s.taskID)))
		return false
	case contextID != "" && s.contextID != "" && contextID != s.contextID:
		s.warn(fmt.Sprintf("an event of context %q came in the stream of context %q; it is not used", limited(contextID), limited(s.contextID)))
		return false
	}
	if s.contextID == "" {
		s.contextID = contextID
	}
	return true
}

// judge says what a state means: the agent goes on, waits, or has ended.
func (s *stream) judge(ans *answer) (out bridge.Outcome, over bool) {
	if goesOn(s.state) {
		out = s.going(ans.standing(s.state))
		out.Question = ans.question(s.state)
		return out, out.Question != nil
	}
	if !final(s.state) { // somebody's own word, which may be anything
		return s.going(bridge.Redact(s.e.agent, []byte(s.state), maxWords)), true
	}
	if s.state == stateCompleted && !s.sum.complete() {
		return s.going(s.state), true // the output has to be asked for
	}
	whole, err := s.e.read(s.sum.task())
	if err != nil {
		s.warn("the events do not make a task: " + err.Error())
		return s.going(s.state), true
	}
	out = whole.outcome(s.e.task.ID)
	out.Partial = s.sum.late && out.Result.Outcome == parley.OutcomeOK
	return out, true
}

// report tells progress what an event says, without secrets: chunks of output, or
// words.
func (e *errand) report(a *answer, r bridge.Report, progress bridge.Progress) {
	clean := func(text string) string { return bridge.Redact(e.agent, []byte(text), maxTold) }
	r.State = clean(r.State)
	switch a.sort {
	case sortArtifact:
		for _, c := range a.chunks() {
			c.Artifact, c.Name, c.Data = clean(c.Artifact), clean(c.Name), bridge.RedactJSON(e.agent, c.Data)
			r.Chunk = &c
			progress(r)
		}
		return
	case sortMessage:
		texts, _ := a.contents(a.parts, "event")
		r.Text, _ = bridge.Text(joined(texts))
	case sortTask, sortStatus:
		r.Text = a.statusText(maxTold)
	}
	r.Text = clean(r.Text)
	progress(r)
	if a.sort == sortTask && goesOn(a.stateName()) {
		e.reportPast(a, r.State, progress)
	}
}

// reportPast tells the output that a task has already when it is shown as a whole:
// whoever begins to listen has missed its pieces. That of a task that has ended comes
// with its end.
func (e *errand) reportPast(task *answer, state string, progress bridge.Progress) {
	n := 0
	for artifact := range bridge.Elements(task.artifacts) {
		if n++; n > maxArtifacts {
			return
		}
		event := &answer{sort: sortArtifact, version: task.version, bare: task.bare, agent: task.agent, artifact: artifact}
		e.report(event, bridge.Report{State: state, Past: true}, progress)
	}
}
