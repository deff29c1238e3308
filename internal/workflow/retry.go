package workflow

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// attemptEnd carries what a failure needs besides the error.
type attemptEnd struct {
	// call is the attempt that ends; nil if no agent was called.
	call *flight
	// ended is what a retry's delay is counted from; zero is now.
	started, ended time.Time
	retryAfter     time.Duration
	// notBefore is as in Settled.
	notBefore   time.Time
	agentTaskID string
	agentRetry  *RetryPolicy
}

// endOf is the end of an attempt that was settled.
func endOf(call *flight, f Settled) attemptEnd {
	return attemptEnd{
		call: call, started: f.Started, ended: f.Ended,
		retryAfter: f.Result.RetryAfter, notBefore: f.NotBefore, agentTaskID: f.Result.AgentTaskID, agentRetry: &f.AgentRetry,
	}
}

// fail retries a step as its policies say, or ends it.
func (a *decider) fail(x *execution, err *parley.Error, end attemptEnd) {
	err = recordable(err)
	if err.Step == "" {
		err.Step = x.path
	}
	if end.call != nil {
		err.Attempt, err.Agent = end.call.attempt, end.call.agent
	}
	switch {
	case end.call != nil && a.goesOn(x):
		a.loseOne(x, err, end.call)
	case a.cancelling || a.exhausted():
		a.failFinally(x, err, end)
	default:
		a.retryOrEnd(x, err, end)
	}
}

func (a *decider) retryOrEnd(x *execution, err *parley.Error, end attemptEnd) {
	policies := x.step.Retry
	if policies == nil && x.step.Kind == KindAgent && end.agentRetry != nil {
		policies = []RetryPolicy{*end.agentRetry}
	}
	i := matching(policies, err)
	switch {
	case end.call != nil && circuitOpen(err) && a.fallsBack(x, err):
		return // what cannot be called is not waited for while another agent can
	case i < 0 || x.granted[i] >= policies[i].Attempts-1:
		if end.call == nil || i < 0 || !a.fallsBack(x, err) {
			a.failFinally(x, err, end)
		}
		return
	case x.attempts >= a.limits.Attempts:
		limit := limitError("attempts", int64(a.limits.Attempts), int64(x.attempts)+1)
		limit.Step, limit.Attempt, limit.Agent, limit.Cause = err.Step, err.Attempt, err.Agent, err
		a.failFinally(x, limit, end)
		return
	}
	delay := max(policies[i].delay(x.granted[i]+1, a.jitter), end.retryAfter.Truncate(time.Millisecond))
	at := a.retryAt(end.ended, delay)
	var putOff time.Duration
	if end.notBefore.After(at) {
		at, putOff = end.notBefore, end.notBefore.Sub(at)
	}
	if until := a.until(x); !until.IsZero() && !at.Before(until) {
		// Rule T1: a retry that could only begin too late is not waited for.
		if end.call == nil || !a.fallsBack(x, err) {
			a.failFinally(x, withDetail(err, "limit", "timeout"), end)
		}
		return
	}
	p := stepRetrying{Error: err, Policy: i, DelayMS: delay.Milliseconds(), PutOffMS: putOff.Milliseconds(), At: at}
	if end.call != nil {
		p.TaskID = a.taskID(x.path, x.attempts+1)
		if x.step.Hedged {
			p.Agent, p.HedgeAt = x.step.Agents[0], a.nextHedge(x, 1, at)
		}
		a.record(parley.EventStepRetrying, x, p)
		a.schedule(x, at)
		a.d.Schedule[len(a.d.Schedule)-1].Retry = true
		a.hedgeDue(x)
		return
	}
	a.retryWhole(x, p)
}

// unmet ends a step whose condition could not be evaluated. That is not done again
// (rule S2), so no policy grants another attempt: a step never runs of which the
// condition did not hold.
func (a *decider) unmet(x *execution, err error) {
	e := recordable(asError(err))
	if e.Step == "" {
		e.Step = x.path
	}
	a.failFinally(x, e, attemptEnd{})
}

// retryAt is when a retry begins: its delay counts from the failure (rule R2),
// which may have been some time ago, and nothing begins in the past.
func (a *decider) retryAt(failed time.Time, delay time.Duration) time.Time {
	if failed.IsZero() || failed.After(a.at) {
		failed = a.at
	}
	if at := failed.Add(delay); at.After(a.at) {
		return at
	}
	return a.at
}

// until is when the time of x is up: its own, that of a step around it, or the
// run's. Zero is never.
func (a *decider) until(x *execution) time.Time {
	own := x.deadline
	if t := a.deadlineOf(x); t != nil { // it has failed as it began
		own = *t
	}
	until := a.earliest(own, a.deadline)
	if a.phase != phaseBody {
		until = a.earliest(own, a.cleanupUntil)
	}
	for r := x.region; r.owner != nil; r = r.around() {
		switch {
		case !r.bounded(): // What has ended bounds nothing, such as what undoes it.
		case r.begun.IsZero() && r.block.Timeout > 0: // x is the first of it
			until = a.earliest(until, a.at.Add(r.block.Timeout))
		default:
			until = a.earliest(until, r.deadline)
		}
		if r.owner.status == parley.StepRunning {
			until = a.earliest(until, r.owner.deadline)
		}
	}
	return until
}

// retryWhole waits for the next round of a step that is no agent call.
func (a *decider) retryWhole(x *execution, p stepRetrying) {
	for r := range x.regions {
		a.cancelOpen(r)
	}
	if x.scheduledAt.IsZero() {
		a.recordAt(parley.EventStepScheduled, x.path, 1, stepScheduled{Kind: x.step.Kind, Deadline: a.deadlineOf(x)})
	}
	a.record(parley.EventStepRetrying, x, p)
}

func ptr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// withDetail adds a member to the details of an error, such as which limit
// ended the retries.
func withDetail(err *parley.Error, name string, value any) *parley.Error {
	details := map[string]any{}
	var old map[string]json.RawMessage
	if len(err.Details) > 0 && json.Unmarshal(err.Details, &old) != nil {
		details["details"] = err.Details
	}
	for k, v := range old {
		details[k] = v
	}
	details[name] = value
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
	d := float64(p.Delay)
	for i := 1; i < n && d > 0 && d < float64(p.MaxDelay); i++ {
		d *= p.Multiplier
	}
	d = min(d, float64(p.MaxDelay))
	if p.FullJitter {
		d *= jitter
	}
	return time.Duration(d).Truncate(time.Millisecond)
}
