package workflow

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// consider looks at a step that has become ready: it is skipped, started, or
// taken over from the run that this one retries.
func (a *decider) consider(sc scope, step *Step) *execution {
	x := &execution{path: sc.prefix + step.ID, step: step, round: 1, status: parley.StepPending}
	a.execs[x.path] = x
	a.order = append(a.order, x.path)
	if len(a.order) > a.limits.Executions {
		a.failFinally(x, limitError("executions", int64(a.limits.Executions), int64(len(a.order))), attemptEnd{})
		return x
	}
	if c, ok := a.copied[x.path]; ok {
		a.record(parley.EventStepCompleted, x, stepCompleted{
			Kind: step.Kind, Output: c.Output, CopiedFrom: a.retriedFrom,
			Session: step.Session, ContextID: c.ContextID,
		})
		return x
	}
	if step.If != nil {
		run, err := step.If.Eval(a.newScope(a.at, nil))
		if err != nil {
			a.fail(x, asError(err), attemptEnd{})
			return x
		}
		if !run {
			a.record(parley.EventStepSkipped, x, stepEnded{Kind: step.Kind})
			return x
		}
	}
	a.begin(x)
	return x
}

// begin starts a step, or its next round after a retry.
func (a *decider) begin(x *execution) {
	switch x.step.Kind {
	case KindAgent:
		a.beginAgent(x)
	case KindGroup:
		round := x.round
		if !x.scheduledAt.IsZero() {
			round++
		}
		a.recordAt(parley.EventStepScheduled, x.path, x.attempts+1, stepScheduled{
			Kind: KindGroup, Round: round, Deadline: a.deadlineOf(x),
		})
	case KindSet:
		a.beginValue(x, x.step.Set)
	case KindFail:
		a.fail(x, a.authorError(x), attemptEnd{})
	case KindFinish:
		a.beginFinish(x)
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
	scope := a.newScope(a.at, nil)
	agent, err := a.agentOf(x.step, scope)
	if err == nil {
		var input json.RawMessage
		if input, err = x.step.Input.Eval(scope); err == nil {
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
	id := a.taskID(x.path, attempt)
	deadline := a.deadlineOf(x)
	a.recordAt(parley.EventStepScheduled, x.path, attempt, stepScheduled{
		Kind: KindAgent, Agent: agent, Input: input, TaskID: id, Deadline: deadline,
	})
	a.schedule(x, a.at)
}

// schedule hands the attempt that x has in flight to a bridge.
func (a *decider) schedule(x *execution, at time.Time) {
	task := parley.Task{
		ID: x.taskID, Run: a.run, Step: x.path, Attempt: x.attempts, Agent: x.agent,
		Input: x.input, CorrelationID: parley.CorrelationID(x.taskID), Deadline: a.earliest(x.deadline, a.deadline),
	}
	if x.step.Session != "" {
		task.ContextID = a.sessions[x.step.Session+"\x00"+x.agent]
	}
	a.d.Schedule = append(a.d.Schedule, Schedule{
		Task: task, At: at, AttemptTimeout: x.step.AttemptTimeout, Silence: x.step.Silence,
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
		return step.Agent, nil
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
	v, err := value.Eval(a.newScope(a.at, nil))
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
	scope := a.newScope(a.at, nil)
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

// beginFinish ends the run as COMPLETED with the step's value.
func (a *decider) beginFinish(x *execution) {
	v, err := x.step.Finish.Eval(a.newScope(a.at, nil))
	if err == nil {
		err = a.fits("finish", v)
	}
	if err != nil {
		a.fail(x, asError(err), attemptEnd{})
		return
	}
	a.record(parley.EventStepCompleted, x, stepCompleted{Kind: KindFinish, Output: v})
	a.cancelOpen(a.body())
	a.recordAt(parley.EventRunCompleted, "", 0, runCompleted{Output: v})
}

// finishAgentStep turns an agent's answer into the step's output: parse,
// output, schema (rule P1).
func (a *decider) finishAgentStep(x *execution, f Settled) {
	value := f.Result.Output
	if x.step.ParseJSON {
		parsed, err := parseAnswer(value)
		if err != nil {
			a.fail(x, parley.Errorf(parley.CodeInvalidOutput, "parse: %v", err),
				attemptEnd{started: f.Started, agentTaskID: f.Result.AgentTaskID, agentRetry: &f.AgentRetry})
			return
		}
		value = parsed
	}
	a.complete(x, value, completion{
		started: f.Started, contextID: f.Result.ContextID, agentTaskID: f.Result.AgentTaskID, agentRetry: &f.AgentRetry,
	})
}

// completion carries what complete needs besides the value.
type completion struct {
	started                time.Time
	contextID, agentTaskID string
	agentRetry             *RetryPolicy
}

// complete shapes and checks a step's value and records it as its output.
func (a *decider) complete(x *execution, value json.RawMessage, c completion) {
	err := a.fits("output", value)
	if err == nil && x.step.Output != nil {
		if value, err = x.step.Output.Eval(a.newScope(a.at, orNull(value))); err == nil {
			err = a.fits("output", value)
		}
	}
	end := attemptEnd{started: c.started, agentTaskID: c.agentTaskID, agentRetry: c.agentRetry}
	if err != nil {
		a.fail(x, asError(err), end)
		return
	}
	if x.step.Schema != nil {
		if err := x.step.Schema.Check(value); err != nil {
			a.fail(x, parley.Errorf(parley.CodeInvalidOutput, "The output does not fit the schema: %v", err), end)
			return
		}
	}
	p := stepCompleted{Kind: x.step.Kind, Output: orNull(value), Started: ptr(c.started), AgentTaskID: c.agentTaskID}
	if x.step.Session != "" && c.contextID != "" {
		p.Session, p.ContextID = x.step.Session, c.contextID
	}
	a.record(parley.EventStepCompleted, x, p)
}

// fits checks the limits on values (§10).
func (a *decider) fits(member string, value json.RawMessage) error {
	if n := int64(len(value)); n > a.limits.Value {
		return limitError(member, a.limits.Value, n)
	}
	if n := a.bytes + int64(len(value)); n > a.limits.RunValues {
		return limitError("all values of a run", a.limits.RunValues, n)
	}
	return nil
}

func limitError(name string, limit, got int64) *parley.Error {
	unit := " bytes"
	if name == "executions" || name == "attempts" || name == "questions" {
		unit = ""
	}
	return parley.Errorf(parley.CodeLimit, "%s: %d%s, the limit is %d", name, got, unit, limit).
		WithDetails(map[string]any{"limit": name, "value": limit, "got": got})
}

// parseAnswer is rule P1: a string, else its text, else its response.
func parseAnswer(value json.RawMessage) (json.RawMessage, error) {
	var text string
	if json.Unmarshal(value, &text) != nil {
		var o struct {
			Text     *string `json:"text"`
			Response *string `json:"response"`
		}
		if json.Unmarshal(value, &o) != nil || (o.Text == nil && o.Response == nil) {
			return nil, errors.New("the answer has neither text nor response to read")
		}
		if text = deref(o.Text); o.Text == nil {
			text = deref(o.Response)
		}
	}
	return expr.ParseJSON(text)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// attemptEnd carries what a failure needs besides the error.
type attemptEnd struct {
	started     time.Time
	retryAfter  time.Duration
	agentTaskID string
	agentRetry  *RetryPolicy
}

// fail retries a step as its policies say, or ends it.
func (a *decider) fail(x *execution, err *parley.Error, end attemptEnd) {
	err = recordable(err)
	if err.Step == "" {
		err.Step = x.path
	}
	if x.input != nil {
		err.Attempt, err.Agent = x.attempts, x.agent
	}
	if a.cancelling {
		a.failFinally(x, err, end)
		return
	}
	policies := x.step.Retry
	if policies == nil && x.step.Kind == KindAgent && end.agentRetry != nil {
		policies = []RetryPolicy{*end.agentRetry}
	}
	i := matching(policies, err)
	if i < 0 || x.granted[i] >= policies[i].Attempts-1 || x.attempts >= a.limits.Attempts {
		a.failFinally(x, err, end)
		return
	}
	delay := max(policies[i].delay(x.granted[i]+1, a.jitter), end.retryAfter.Truncate(time.Millisecond))
	at := a.at.Add(delay)
	if until := a.earliest(x.deadline, a.deadline); !until.IsZero() && !at.Before(until) {
		// Rule T1: a retry that could only begin too late is not waited for.
		a.failFinally(x, withLimit(err, "timeout"), end)
		return
	}
	p := stepRetrying{Error: err, Policy: i, DelayMS: delay.Milliseconds(), At: at}
	if x.input != nil {
		p.TaskID = a.taskID(x.path, x.attempts+1)
		a.record(parley.EventStepRetrying, x, p)
		a.schedule(x, at)
		return
	}
	a.retryWhole(x, p)
}

// retryWhole waits for the next round of a step that is no agent call.
func (a *decider) retryWhole(x *execution, p stepRetrying) {
	if x.step.Body != nil {
		a.cancelOpen(x.inside())
	}
	if x.scheduledAt.IsZero() {
		a.recordAt(parley.EventStepScheduled, x.path, 1, stepScheduled{Kind: x.step.Kind, Deadline: a.deadlineOf(x)})
	}
	a.record(parley.EventStepRetrying, x, p)
}

// failFinally ends a step as FAILED, handled if it says so (§6).
func (a *decider) failFinally(x *execution, err *parley.Error, end attemptEnd) {
	a.record(parley.EventStepFailed, x, stepFailed{
		Kind: x.step.Kind, Error: err, Handled: x.step.Continue, Started: ptr(end.started), AgentTaskID: end.agentTaskID,
	})
}

func ptr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// withLimit notes in the details which limit ended the retries.
func withLimit(err *parley.Error, limit string) *parley.Error {
	details := map[string]json.RawMessage{}
	if len(err.Details) > 0 && json.Unmarshal(err.Details, &details) != nil {
		details["details"] = err.Details
	}
	details["limit"] = json.RawMessage(`"` + limit + `"`)
	return err.WithDetails(details)
}

// matching gives the first policy whose codes match the error (rule R3), or -1.
func matching(policies []RetryPolicy, err *parley.Error) int {
	return slices.IndexFunc(policies, func(p RetryPolicy) bool { return p.matches(err) })
}

func (p RetryPolicy) matches(err *parley.Error) bool {
	if slices.Contains(p.NotOn, err.Code) {
		return false
	}
	if p.On == nil {
		return retriedByDefault(err)
	}
	if slices.Contains(p.On, "*") {
		return err.Code != parley.CodeCancelled && err.Code != parley.CodeLimit && err.Code != parley.CodeExpression &&
			err.Code != parley.CodeOutcomeUnknown
	}
	return slices.Contains(p.On, err.Code)
}

// retriedByDefault is the "yes" rows of the table of codes (§5).
func retriedByDefault(err *parley.Error) bool {
	switch err.Code {
	case parley.CodeAgentUnavailable, parley.CodeAgentError, parley.CodeStalled:
		return true
	case parley.CodeTimeout:
		var d struct {
			Limit string `json:"limit"`
		}
		return json.Unmarshal(err.Details, &d) == nil && (d.Limit == "attempt_timeout" || d.Limit == "exchange")
	}
	return false
}

// AgentRetry gives the policy of an agent's record (rule R4).
func AgentRetry(c parley.RetryConfig) RetryPolicy {
	return RetryPolicy{
		Attempts: 1 + c.MaxRetries, Delay: c.InitialDelay, Multiplier: c.Multiplier,
		MaxDelay: c.MaxDelay, FullJitter: true,
	}
}

// delay is rule R2 for the n-th retry that the policy grants.
func (p RetryPolicy) delay(n int, jitter float64) time.Duration {
	d := float64(p.Delay) * math.Pow(p.Multiplier, float64(n-1))
	d = min(d, float64(p.MaxDelay))
	if p.FullJitter {
		d *= jitter
	}
	return time.Duration(d).Truncate(time.Millisecond)
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
