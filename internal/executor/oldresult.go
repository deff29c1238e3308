package executor

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

const (
	resultWorkers = 64
	overdueBatch  = 100
	// maxResends is how often an attempt is published again.
	maxResends = 2
	// maxErrorText bounds what is kept of an error_message, in bytes.
	maxErrorText = 64 << 10
	// maxAgentID bounds an agent's own id for a task or a context, in bytes.
	maxAgentID = 2 << 10
)

// takeResult stores what a result record says (P7). Like an old executor it
// goes by the correlation id alone; a record about no attempt of ours is counted
// and skipped.
func (o *oldBridge) takeResult(ctx context.Context, m bus.Message, _ time.Time) error {
	r, unfit := records.DecodeResult(m.Value)
	if r.CorrelationID == "" && unfit != nil {
		return parley.Errorf(parley.CodeOf(unfit), "a result record cannot be read: %w", unfit)
	}
	task, ours := strings.CutPrefix(r.CorrelationID, parley.CorrelationID(""))
	if !ours || !strings.Contains(task, ".") {
		o.x.cfg.Metrics.result(fateForeign)
		return nil
	}
	a, late, ok, err := o.x.cfg.HandOffs.ForResult(ctx, task)
	if err != nil {
		return err
	}
	if !ok {
		o.x.cfg.Metrics.result(fateForeign)
		return nil
	}
	if r.TaskID != a.ID || r.RunID != a.Run {
		o.x.cfg.Logger.Warn("a result names another task than its correlation id; the correlation id counts",
			"task_id", a.ID, "named_task", clip(r.TaskID, 256), "named_run", clip(r.RunID, 256))
	}
	answered := a.Result != nil && (a.Result.Outcome == parley.OutcomeOK || a.Result.Outcome == parley.OutcomeError)
	waits := a.State != store.AttemptClosed && !answered
	if !waits && (a.HandOff != store.HandOffBus || answered || late > 0) {
		// The bridge has done the task again, or tells of one of our own.
		o.x.cfg.Metrics.result(fateRepeated)
		return nil
	}
	accepted, err := o.x.Answer(ctx, store.Answer{
		Result: oldResult(&a, r, unfit), Started: a.ClaimedAt, At: o.x.now(), From: "bus",
	})
	switch {
	case err != nil:
		return err
	case accepted:
		o.x.cfg.Metrics.result(fateTaken)
	default:
		o.x.cfg.Metrics.result(fateLate)
	}
	return nil
}

// oldResult is what a result record says about an attempt. unfit is what an
// old executor would not take of it, and fail the step for.
func oldResult(a *store.Attempt, r records.AgentResult, unfit error) parley.Result {
	res := parley.Result{TaskID: a.ID, Outcome: parley.OutcomeError}
	output := r.Output
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	var ids struct {
		Task    any `json:"task_id"`
		Context any `json:"context_id"`
	}
	switch {
	case unfit != nil:
		res.Err = parley.Errorf(parley.CodeAgentError, "The result of the bridge cannot be used: %s", messageOf(unfit))
	case r.Status == records.StatusSuccess && json.Unmarshal(output, &ids) == nil:
		res.Outcome, res.Output = parley.OutcomeOK, output
		res.AgentTaskID, res.ContextID = agentID(ids.Task), agentID(ids.Context)
	case r.Status == records.StatusSuccess:
		res.Err = parley.Errorf(parley.CodeAgentError, "The output of the agent, as the bridge gives it, is no JSON")
	case r.Status == records.StatusFailure:
		res.Err = oldFailure(r.Error)
	default:
		res.Err = parley.Errorf(parley.CodeAgentError, "The result of the bridge has status %q, which is neither SUCCESS nor FAILURE", clip(r.Status, 256))
	}
	if res.Err != nil {
		res.Err.Agent, res.Err.Step, res.Err.Attempt = a.Agent, a.Step, a.Attempt
	}
	return res
}

func agentID(v any) string {
	if s, ok := v.(string); ok && len(s) <= maxAgentID {
		return s
	}
	return ""
}

// noText is what an old executor says for a failure without a text, which is
// how an old bridge tells of a timeout.
const noText = "Agent execution failed"

// oldFailure turns the text of a failure into an error: the text is all that
// an old bridge tells (formats.md, "The call to the agent"). It has made the
// agent's own tries by then. Where bytes were sent and no answer came, the agent
// may have done the task, which is never repeated silently (rule R1).
func oldFailure(text string) *parley.Error {
	text = clip(strings.ToValidUTF8(text, "\uFFFD"), maxErrorText)
	code, doubt := oldFailureCode(text)
	if text == "" {
		text = noText
	}
	e := parley.Errorf(code, "%s", text)
	if doubt != "" {
		e.Message += " (" + doubt + ", so it is not sent again: look at the agent, then retry the run)"
		e = e.WithDetails(map[string]string{"error_message": text})
	}
	e.Retryable = code == parley.CodeAgentError || code == parley.CodeAgentUnavailable
	return e
}

// oldFailureCode tells failures apart by their text. doubt is not empty if the
// agent may have done the task, or still be at it.
func oldFailureCode(text string) (code parley.Code, doubt string) {
	const maybe = "the agent may have done the task"
	starts := func(prefix string) bool { return strings.HasPrefix(text, prefix) }
	switch {
	case text == "":
		return parley.CodeOutcomeUnknown, "the bridge tells of a timeout like this; " + maybe
	case starts("HTTP "):
		return oldStatus(text, maybe)
	case starts("JSON-RPC Error "):
		return oldErrorCode(text), ""
	case text == "Task state: rejected":
		return parley.CodeAgentRejected, ""
	case text == "Task state: working", text == "Task state: submitted", text == "Task state: input-required", text == "Task state: auth-required":
		return parley.CodeOutcomeUnknown, "the bridge does not follow tasks; the agent may go on with this one"
	case text == "Server disconnected without sending a response.", starts("peer closed connection without "):
		return parley.CodeOutcomeUnknown, maybe
	case starts("All connection attempts failed"), starts("Circuit breaker is OPEN "):
		return parley.CodeAgentUnavailable, ""
	case starts("Operation failed after 0 attempts"):
		return parley.CodeAgentRejected, ""
	case starts("Agent '") && strings.HasSuffix(text, "not found in API database or registry"):
		return parley.CodeUnknownAgent, ""
	}
	return parley.CodeAgentError, ""
}

// oldStatus judges "HTTP 404: …" as the bridges of ours judge the status.
func oldStatus(text, maybe string) (code parley.Code, doubt string) {
	status, _, _ := strings.Cut(strings.TrimPrefix(text, "HTTP "), ":")
	switch n, err := strconv.Atoi(status); {
	case err != nil:
		return parley.CodeAgentError, ""
	case n == 502 || n == 504:
		return parley.CodeOutcomeUnknown, maybe
	case n == 429 || n >= 500 && n <= 599:
		return parley.CodeAgentUnavailable, ""
	case n >= 300 && n <= 499:
		return parley.CodeAgentRejected, ""
	}
	return parley.CodeAgentError, ""
}

// oldErrorCode judges "JSON-RPC Error -32602: …": what says that the call
// itself is wrong is not tried again.
func oldErrorCode(text string) parley.Code {
	number, _, _ := strings.Cut(strings.TrimPrefix(text, "JSON-RPC Error "), ":")
	switch number {
	case "-32600", "-32601", "-32602", "-32004", "-32005":
		return parley.CodeAgentRejected
	}
	return parley.CodeAgentError
}

// endOverdue ends the attempts that were handed to an old bridge and whose
// result has not come in time: under resend they are published again, at most
// twice, else what became of them is unknown. It serves what an old bridge has
// left, too, after the executors have changed to bridges of ours.
func (x *Executor) endOverdue(ctx context.Context) error {
	if x.cfg.HandOffs == nil {
		return nil
	}
	now := x.now()
	list, err := x.cfg.HandOffs.Overdue(ctx, now, overdueBatch)
	if err != nil || len(list) == 0 {
		return err
	}
	if x.old != nil {
		end := func(a *store.Attempt) time.Time { return a.ClaimedAt.Add(patience(a)) }
		upTo := x.old.gate.upTo(end(&list[len(list)-1]))
		list = slices.DeleteFunc(list, func(a store.Attempt) bool { return end(&a).After(upTo) })
	}
	for i := range list {
		if err := x.endOne(ctx, &list[i]); err != nil {
			return err
		}
	}
	return nil
}

// patience is how long the result of an attempt is waited for (rule T2).
func patience(a *store.Attempt) time.Duration {
	if t := a.Policy.AttemptTimeout; t > 0 && (a.Policy.Silence == 0 || t < a.Policy.Silence) {
		return t
	}
	return a.Policy.Silence
}

func (x *Executor) endOne(ctx context.Context, a *store.Attempt) error {
	if x.old != nil && a.Policy.OutcomeUnknown == parley.OutcomeResend && a.Orphanings < maxResends {
		return x.old.publishAgain(ctx, *a)
	}
	limit := "silence"
	if patience(a) == a.Policy.AttemptTimeout {
		limit = "attempt_timeout"
	}
	e := parley.Errorf(parley.CodeOutcomeUnknown,
		"No result came from the bridge of the existing platform within %s; whether agent %q has done the task is not known, so it is not sent again: look at that bridge and the agent, then retry the run",
		patience(a), a.Agent).WithDetails(map[string]string{"limit": limit})
	e.Agent, e.Step, e.Attempt = a.Agent, a.Step, a.Attempt
	ok, err := x.cfg.HandOffs.Move(ctx, store.Move{
		Kind: store.MoveUnknown, TaskID: a.ID, From: a.Claim, At: x.now(),
		Result: &parley.Result{TaskID: a.ID, Outcome: parley.OutcomeUnknown, Err: e},
	})
	if ok {
		x.cfg.Metrics.handOff(fateUnknown)
		x.wake(wakeup{run: a.Run})
	}
	return err
}

// publishAgain gives an attempt a new token and publishes it once more; without
// a free place it waits for the next sweep.
func (o *oldBridge) publishAgain(ctx context.Context, a store.Attempt) error {
	r, ok := o.reserveAgain()
	if !ok {
		return nil
	}
	now := o.x.now()
	ok, err := o.x.cfg.HandOffs.Move(ctx, store.Move{Kind: store.MoveAgain, TaskID: a.ID, From: a.Claim, To: r.Claim, At: now})
	if err != nil || !ok {
		r.Release()
		return err
	}
	o.x.cfg.Metrics.handOff(fateSentAgain)
	o.x.cfg.Logger.Info("a task without a result is published again", "task_id", a.ID, "agent", a.Agent, "times", a.Orphanings+1)
	a.Claim, a.Orphanings, a.ClaimedAt = r.Claim, a.Orphanings+1, now
	r.Start(a)
	return nil
}
