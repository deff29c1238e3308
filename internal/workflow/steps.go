package workflow

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// consider looks at a step that has become ready: it is skipped, started, or
// taken over from the run that this one retries.
func (a *decider) consider(r *region, step *Step) *execution {
	x := a.enter(r, step)
	if r.passes(step) {
		a.record(parley.EventStepSkipped, x, stepEnded{Kind: step.Kind})
		return x
	}
	if a.exhausted() {
		a.fail(x, a.exhaustion(), attemptEnd{})
		return x
	}
	if n, most := len(x.path), maxKeyBytes-len(a.run); n > most {
		a.failFinally(x, limitError("path of a step", int64(most), int64(n)), attemptEnd{})
		return x
	}
	c, ok := a.copied[x.path]
	if ok && !c.Entered {
		a.takeOver(x, c)
		return x
	}
	if step.If != nil && !ok {
		run, err := step.If.Eval(a.scope(x))
		if err != nil {
			a.unmet(x, err)
			return x
		}
		if !run {
			a.record(parley.EventStepSkipped, x, stepEnded{Kind: step.Kind})
			return x
		}
	}
	// What was taken over or skipped has not run: it takes no place from what runs.
	if n := a.leaves + x.leaf(); n > a.limits.Running {
		a.failFinally(x, limitError("running", int64(a.limits.Running), int64(n)), attemptEnd{})
		return x
	}
	a.begin(x)
	return x
}

// maxKeyBytes is how long the id of a run and the path of an execution in it may be: with
// the number of an attempt they are a key of the database, and PostgreSQL takes 2,704
// bytes. With ids of the list form they come to that only if all is as long as may be.
const maxKeyBytes = 2_650

// exhausted reports whether the phase under way has more executions than it may. Then no
// handler, no retry and no tolerance of a loop makes up for a failure: each of them would
// go on with the next execution, and the limit would bound nothing. What undoes a run, and
// finally, have the same bound for themselves: a body that has used up its own must not
// keep them from their work (rule C1).
func (s *State) exhausted() bool { return s.executions() > s.limits.Executions }

// executions counts those of the phase under way.
func (s *State) executions() int { return len(s.order) - s.earlier }

func (s *State) exhaustion() *parley.Error {
	return limitError("executions", int64(s.limits.Executions), int64(s.executions()))
}

// begin starts a step, or its next round after a retry.
func (a *decider) begin(x *execution) {
	switch x.step.Kind {
	case KindAgent:
		a.beginAgent(x)
	case KindGroup, KindParallel, KindConditional, KindSwitch, KindForkJoin, KindLoop, KindPlan:
		a.beginComposite(x)
	case KindWait:
		a.beginWait(x)
	case KindSet:
		a.beginValue(x, x.step.Set)
	case KindFail:
		a.fail(x, a.authorError(x), attemptEnd{})
	case KindFinish:
		a.beginFinish(x)
	case KindValidate:
		a.beginValidate(x)
	case KindAwait:
		a.beginAwait(x)
	case KindEmit:
		a.beginEmit(x)
	case KindApproval:
		a.beginApproval(x)
	case KindSubWorkflow:
		a.beginChild(x)
	}
}

// deadlineOf gives the end of the step's timeout the first time it is asked.
func (a *decider) deadlineOf(x *execution) *time.Time {
	if x.step.Timeout == 0 || !x.deadline.IsZero() {
		return nil
	}
	t := a.at.Add(x.step.Timeout)
	return &t
}

// beginAgent evaluates agent and input, once (rule S2), and schedules the
// first attempt.
func (a *decider) beginAgent(x *execution) {
	scope := a.scope(x)
	agent, err := a.agentOf(x.step, scope)
	if err == nil {
		var input json.RawMessage
		edited, ok := a.editedInput(x)
		if input = edited; !ok {
			input, err = x.step.Input.Eval(scope)
		}
		if err == nil {
			err = a.fits("input", input)
		}
		if err == nil {
			a.launch(x, agent, input)
			return
		}
	}
	a.fail(x, asError(err), attemptEnd{})
}

func (a *decider) launch(x *execution, agent string, input json.RawMessage) {
	attempt := x.attempts + 1
	a.recordAt(parley.EventStepScheduled, x.path, attempt, stepScheduled{
		Kind: KindAgent, Agent: agent, Input: input, TaskID: a.taskID(x.path, attempt), Deadline: a.deadlineOf(x),
		HedgeAt: a.nextHedge(x, 1, a.at),
	})
	a.schedule(x, a.at)
	a.hedgeDue(x)
}

// schedule hands the newest attempt of x to a bridge.
func (a *decider) schedule(x *execution, at time.Time) {
	call := x.flights[len(x.flights)-1]
	task := parley.Task{
		ID: call.task, Run: a.run, Step: x.path, Attempt: call.attempt, Agent: call.agent,
		Input: x.input, CorrelationID: parley.CorrelationID(call.task), Deadline: a.until(x), Trace: a.trace,
	}
	if x.step.Session != "" {
		task.ContextID = a.sessions[x.step.Session+"\x00"+call.agent]
	}
	a.d.Schedule = append(a.d.Schedule, Schedule{
		Task: task, At: at, AttemptTimeout: x.step.AttemptTimeout, Silence: x.step.Silence, HasNext: a.hasNext(x), Held: a.paused,
	})
}

func (a *decider) earliest(t, u time.Time) time.Time {
	if t.IsZero() || (!u.IsZero() && u.Before(t)) {
		return u
	}
	return t
}

func (a *decider) agentOf(step *Step, scope *expr.Scope) (string, error) {
	if step.AgentExpr == nil {
		return step.firstAgent(), nil
	}
	v, err := step.AgentExpr.Eval(scope)
	if err != nil {
		return "", err
	}
	var name string
	if json.Unmarshal(v, &name) != nil || !slices.Contains(step.Among, name) {
		return "", parley.Errorf(parley.CodeInvalidInput, "agent: %s is not among %q", capText(v), step.Among)
	}
	return name, nil
}

// beginValue ends a set step in the event in which it starts.
func (a *decider) beginValue(x *execution, value *expr.Template) {
	v, err := value.Eval(a.scope(x))
	if err == nil {
		err = a.fits("set", v)
	}
	if err != nil {
		a.fail(x, asError(err), attemptEnd{})
		return
	}
	a.complete(x, v, completion{})
}

// authorError is the error of a fail step.
func (a *decider) authorError(x *execution) *parley.Error {
	scope := a.scope(x)
	spec := x.step.Fail
	e := parley.Errorf(spec.Code, "Step %s failed the run", x.path)
	if spec.Message != nil {
		v, err := spec.Message.Eval(scope)
		if err != nil {
			return asError(err)
		}
		var text string
		if json.Unmarshal(v, &text) != nil {
			text = string(v)
		}
		e.Message = text
	}
	if spec.Details != nil {
		v, err := spec.Details.Eval(scope)
		if err != nil {
			return asError(err)
		}
		e.Details = v
	}
	return e
}

// beginFinish ends the run as COMPLETED with the step's value; behind its body it ends
// finally, and is a value in what compensates.
func (a *decider) beginFinish(x *execution) {
	v, err := x.step.Finish.Eval(a.scope(x))
	if err == nil {
		err = a.fits("finish", v)
	}
	if err != nil {
		a.fail(x, asError(err), attemptEnd{})
		return
	}
	a.record(parley.EventStepCompleted, x, stepCompleted{Kind: KindFinish, Output: v})
	a.finished(x)
}

// finished ends what a finish step that has completed ends.
func (a *decider) finished(x *execution) {
	switch {
	case x.region.undoes(): // also for a handler, while the body goes on
	case a.phase == phaseBody:
		a.cancelOpen(a.body)
		a.conclude(outcome{status: parley.RunCompleted, output: x.output})
	case a.phase == phaseFinally: // how the run ends was decided before (rule C4)
		a.cancelOpen(a.finally)
		a.end(a.outcome)
	}
}

// finishAgentStep turns an agent's answer into the step's output: parse,
// output, schema (rule P1).
func (a *decider) finishAgentStep(x *execution, call *flight, f Settled) {
	value := f.Result.Output
	if x.step.ParseJSON {
		parsed, err := parseAnswer(value)
		if err != nil {
			a.fail(x, parley.Errorf(parseCode(err), "parse: %v", err), endOf(call, f))
			return
		}
		value = parsed
	}
	a.complete(x, value, completion{attemptEnd: endOf(call, f), contextID: f.Result.ContextID})
}

// completion carries what complete needs besides the value.
type completion struct {
	attemptEnd
	contextID string
}

// complete shapes and checks a step's value and records it as its output.
func (a *decider) complete(x *execution, value json.RawMessage, c completion) {
	err := a.fits("output", value)
	if err == nil && x.step.Output != nil {
		if value, err = x.step.Output.Eval(a.shaping(x, value)); err == nil {
			err = a.fits("output", value)
		}
	}
	if err != nil {
		a.fail(x, asError(err), c.attemptEnd)
		return
	}
	if x.step.Schema != nil && x.step.Kind != KindValidate {
		if err := x.step.Schema.Check(value); err != nil {
			a.fail(x, parley.Errorf(parley.CodeInvalidOutput, "The output does not fit the schema: %v", err), c.attemptEnd)
			return
		}
	}
	p := stepCompleted{Kind: x.step.Kind, Output: orNull(value), Started: ptr(c.started), AgentTaskID: c.agentTaskID}
	if x.step.Session != "" && c.contextID != "" {
		p.Session, p.ContextID = x.step.Session, c.contextID
	}
	if c.call == nil {
		a.record(parley.EventStepCompleted, x, p)
		return
	}
	if x.step.Agents != nil {
		p.Agent = c.call.agent
	}
	a.closeOthers(x, c.call)
	a.recordOf(c.call, parley.EventStepCompleted, x, p)
}

// fits checks the limits on values (§10).
func (s *State) fits(member string, value json.RawMessage) error {
	n := int64(len(value))
	return s.room(member, n, n)
}

// room checks the limits for a value of so many bytes, with which all values of the run
// grow by so many. As executions do, they count for the phase under way (rule C1).
func (s *State) room(member string, value, all int64) error {
	if value > s.limits.Value {
		return limitError(member, s.limits.Value, value)
	}
	if n := s.bytes - s.earlierBytes + all; n > s.limits.RunValues {
		return limitError("all values of a run", s.limits.RunValues, n)
	}
	return nil
}

func limitError(name string, limit, got int64) *parley.Error {
	unit := " bytes"
	switch name {
	case "executions", "running", "items", "attempts", "questions", "waiting events", "open approvals", "to", nestingOfRuns:
		unit = ""
	}
	return parley.Errorf(parley.CodeLimit, "%s: %d%s, the limit is %d", name, got, unit, limit).
		WithDetails(map[string]any{"limit": name, "value": limit, "got": got})
}

// parseAnswer is rule P1: a string, else its text, else its response. What else the
// answer holds may be anything, also under names that differ in case alone.
func parseAnswer(value json.RawMessage) (json.RawMessage, error) {
	text := stringOf(value)
	if text == nil {
		var members map[string]json.RawMessage
		_ = json.Unmarshal(value, &members) // what is no object has none
		if text = stringOf(members["text"]); text == nil {
			text = stringOf(members["response"])
		}
	}
	if text == nil {
		return nil, errors.New("the answer has neither text nor response to read")
	}
	return expr.ParseJSON(*text)
}

// stringOf gives the text of a JSON string, nil for any other value.
func stringOf(value json.RawMessage) (text *string) {
	if json.Unmarshal(value, &text) != nil {
		return nil
	}
	return text
}

// parseCode gives the code of an answer that cannot be parsed: it is no JSON, or
// larger than a value may be.
func parseCode(err error) parley.Code {
	if parley.CodeOf(err) == parley.CodeLimit {
		return parley.CodeLimit
	}
	return parley.CodeInvalidOutput
}

// asError gives the error of an evaluation as one that can be recorded.
func asError(err error) *parley.Error {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e
	}
	return parley.Errorf(parley.CodeExpression, "%v", err)
}

// recordable gives an error as the history will give it back: without the Go
// error that led to it, its details spelled as they are recorded.
func recordable(err *parley.Error) *parley.Error {
	if err == nil {
		return nil
	}
	c := parley.Error{
		Code: err.Code, Message: strings.ToValidUTF8(err.Message, "\uFFFD"), Step: err.Step, Attempt: err.Attempt, Agent: err.Agent,
		Retryable: err.Retryable, Cause: recordable(err.Cause),
	}
	if len(err.Details) > 0 {
		if b, e := json.Marshal(err.Details); e == nil {
			c.Details = b
		}
	}
	return &c
}

func capText(v json.RawMessage) string {
	const limit = 200
	if len(v) > limit {
		return string(v[:limit]) + "…"
	}
	return string(v)
}
