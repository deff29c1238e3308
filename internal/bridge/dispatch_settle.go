package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/admission"
	"github.com/parley-project/parley/internal/store"
)

// answer is P7: the agent ended the task, and may have its next one. The first
// answer wins, and it is written until that is known, whoever has the claim
// meanwhile.
func (c *call) answer() step {
	b := c.b
	if next := c.retry(); next != nil {
		return next
	}
	if b.failpoint("answer.before-P7") {
		return c.leave()
	}
	c.stopReports()
	if c.freesEarly() {
		b.mu.Lock()
		c.settlesLocked(true)
		c.vacateLocked()
		b.mu.Unlock()
	}
	a := store.Answer{Result: c.result(), At: b.now(), From: b.cfg.Worker}
	started := c.sentAt
	if started.IsZero() {
		started = c.since
	}
	if !started.IsZero() {
		a.Started = a.At.Add(-b.cfg.Now().Sub(started)).Truncate(time.Microsecond)
	}
	for wait := repeatAfter; ; wait = min(2*wait, repeatAtMost) {
		accepted, err := c.record(a)
		if err == nil {
			return c.answered(a, accepted)
		}
		b.log.LogAttrs(b.hard, slog.LevelWarn, "answer not known to be written; it is written again",
			c.attrs("bridge_answer", slog.Any("error", err))...)
		switch parley.CodeOf(err) {
		case parley.CodeNotFound, parley.CodeConflict:
			return nil // the row is gone
		case parley.CodeInvalid, parley.CodeLimit:
			// The ledger cannot hold it. The run must know how it ended all the same.
			a.Result = parley.Result{TaskID: c.row.ID, Outcome: parley.OutcomeError, Err: c.name(
				parley.Errorf(parley.CodeAgentError, "the answer of agent %q cannot be recorded: %w", c.row.Agent, err),
			)}
		}
		if !pause(b.hard, wait) {
			return c.leave()
		}
	}
}

// freesEarly reports whether the slot is given back before the answer is written.
// A map is written at once. And where the executor of the same process writes its
// run's next claim together with the answer, that run would take the slot before
// all those that wait for it.
func (c *call) freesEarly() bool {
	if c.foreign() {
		return !c.b.volatile
	}
	return !c.b.cfg.AnswerWakes
}

func (c *call) answered(a store.Answer, accepted bool) step {
	b := c.b
	if b.failpoint("P7.before-wakeup") {
		return c.leave()
	}
	if !accepted {
		b.cfg.Metrics.late(c.row.Agent)
		b.log.LogAttrs(b.hard, slog.LevelInfo, "answer came after the attempt's end", c.attrs("bridge_late", slog.String("outcome", string(a.Result.Outcome)))...)
		return nil
	}
	if !b.cfg.AnswerWakes {
		c.wake()
	}
	c.row.SettledAt = a.At
	c.handOn(&a.Result)
	if b.log.Enabled(b.hard, slog.LevelDebug) {
		b.log.LogAttrs(b.hard, slog.LevelDebug, "task answered", c.attrs("task_answered",
			slog.String("outcome", string(a.Result.Outcome)), slog.Duration("took", age(c.since, b.cfg.Now())))...)
	}
	return nil
}

// result is the outcome of a call in the form that the ledger takes: an output
// with ok, an error with everything else.
func (c *call) result() parley.Result {
	r := c.out.Result
	r.TaskID, r.Status = c.row.ID, c.status
	if r.AgentTaskID == "" {
		r.AgentTaskID = firstOf(c.out.AgentTaskID, c.row.AgentTaskID)
	}
	if r.ContextID == "" {
		r.ContextID = firstOf(c.out.ContextID, c.row.AgentContextID)
	}
	switch r.Outcome {
	case parley.OutcomeOK:
		r.Err = nil
		if len(r.Output) == 0 {
			r.Output = json.RawMessage("null")
		}
		return r
	case parley.OutcomeCancelled:
		if r.Err == nil {
			r.Err = parley.Errorf(parley.CodeCancelled, "the agent has cancelled the task")
		}
	default:
		r.Outcome = parley.OutcomeError
		if r.Err == nil {
			r.Err = parley.Errorf(parley.CodeAgentError, "agent %q failed without a word", c.row.Agent)
			r.Err.Retryable = true
		}
	}
	r.Output = nil
	r.Err = c.name(r.Err)
	return r
}

// name says in a copy of err whose error it is.
func (c *call) name(err *parley.Error) *parley.Error {
	if err == nil {
		err = parley.Errorf(parley.CodeInternal, "no reason was given")
	}
	e := *err
	e.Agent, e.Step, e.Attempt = c.row.Agent, c.row.Step, c.row.Attempt
	if c.foreign() {
		c.oldWords(&e)
		if c.uncalled {
			return uncalled(&e)
		}
	}
	return &e
}

// notSent: nothing was executed under this claim (P8).
func (c *call) notSent() step {
	limit, passed := errors.AsType[limitError](c.why)
	switch {
	case passed:
		c.out.Result.Err = c.passed(limit)
	case c.why != nil:
		return c.interrupted((*call).release)
	case c.row.Orphanings > 0:
		return (*call).sendLater
	}
	return (*call).fail
}

// interrupted is the next step after an interruption by anything but a limit;
// drained is that for a bridge that stops.
func (c *call) interrupted(drained step) step {
	switch {
	case errors.Is(c.why, errCancelled):
		return (*call).cancelled
	case errors.Is(c.why, errGone):
		return nil
	}
	return drained
}

// fail settles the attempt as an error: nothing reached the agent. If something
// was sent under an earlier claim, that is not the whole truth.
func (c *call) fail() step {
	if c.row.Orphanings > 0 {
		return (*call).unknown
	}
	if next := c.retry(); next != nil {
		return next
	}
	level := slog.LevelError
	if !c.sentAt.IsZero() {
		level = slog.LevelDebug // the adapter was asked and has said why
	}
	c.failed(level, "task failed before the agent was reached", c.out.Result.Err)
	c.out.Result.Outcome = parley.OutcomeError
	return c.settle(store.MoveFail, c.result())
}

// failed logs that an agent has failed, as [failures] does.
func (c *call) failed(level slog.Level, text string, e *parley.Error) {
	kind := failureKind{agent: c.row.Agent, class: string(e.Code), text: text, level: level}
	if c.b.log.Enabled(c.b.hard, level) {
		c.b.bad.note(c.b.hard, kind, c.attrs("agent_failure", slog.String("code", string(e.Code)), slog.String("error", e.Message)))
	}
}

// lost: bytes left and no answer is held. The policy decides (language rule R1).
func (c *call) lost() step {
	limit, passed := errors.AsType[limitError](c.why)
	switch {
	case passed:
		c.out.Result.Err = c.passed(limit)
	case errors.Is(c.why, errCancelled) && c.policy() == parley.OutcomeLookup:
		return (*call).lookUp // to tell the agent to stop
	case c.why != nil:
		return c.interrupted((*call).leave)
	}
	switch c.policy() {
	case parley.OutcomeResend:
		return (*call).again
	case parley.OutcomeLookup:
		return (*call).lookUp
	}
	return (*call).unknown
}

// policy is the one that was frozen for the attempt, or else the agent's, or
// else the protocol's. The ledger has the last word: it lets nothing be sent
// again whose row does not say so.
func (c *call) policy() parley.OutcomePolicy {
	return firstOf(c.row.Policy.OutcomeUnknown, c.agent.OutcomeUnknown, DefaultPolicy(c.agent.Protocol))
}

// passed is the error of a time limit (language rule T2).
func (c *call) passed(l limitError) *parley.Error {
	var e *parley.Error
	switch l.limit {
	case "silence":
		e = parley.Errorf(parley.CodeStalled, "agent %q gave no sign of life for %v", c.row.Agent, l.after)
	case "timeout":
		if c.foreign() {
			e = parley.Errorf(parley.CodeTimeout, "agent '%s' gave no answer in time: the executor waits no longer than %v", c.row.Agent, foreignPatience)
			break
		}
		e = parley.Errorf(parley.CodeTimeout, "the step's time is up")
	default:
		e = parley.Errorf(parley.CodeTimeout, "agent %q gave no answer within attempt_timeout (%v)", c.row.Agent, l.after)
	}
	e.Retryable = l.limit != "timeout"
	return c.name(e.WithDetails(errorDetails{Limit: l.limit}))
}

// unknown settles the attempt as one whose outcome nobody can find out.
func (c *call) unknown() step {
	e := parley.Errorf(parley.CodeOutcomeUnknown,
		"agent %q may have executed the task; what became of it cannot be found out (policy %s)", c.row.Agent, c.policy())
	if cause := c.out.Result.Err; cause != nil {
		e.Cause = cause
		e.Message += ": " + cause.Message
	}
	c.b.log.LogAttrs(c.b.hard, slog.LevelError, "outcome unknown", c.attrs("agent_outcome_unknown", slog.String("error", e.Message))...)
	return c.settle(store.MoveUnknown, parley.Result{Outcome: parley.OutcomeUnknown, Err: c.name(e), Status: c.status})
}

// cancelled settles the attempt as cancelled: before anything was sent, or, with
// nobody left to ask, after its connection was cut because of the cancel (decision
// 049). Then its error says so.
func (c *call) cancelled() step {
	e := parley.Errorf(parley.CodeCancelled, "the task was cancelled")
	// A task that is followed may have been sent by a bridge that is dead.
	sent := c.row.Orphanings > 0 || c.row.AgentTaskID != "" || !c.sentAt.IsZero() && c.out.Disposition != NotSent
	if sent {
		e.Message += fmt.Sprintf("; it had been sent: agent %q may have executed it, or be at it still", c.row.Agent)
	}
	return c.settle(store.MoveCancelled, parley.Result{Outcome: parley.OutcomeCancelled, Err: c.name(e)})
}

// settle writes the end of an attempt that has no answer. It is fenced: if the
// row is somebody else's by now, nothing is written.
func (c *call) settle(kind store.MoveKind, r parley.Result) step {
	r.TaskID = c.row.ID
	at := c.b.now()
	ok, known := c.move(store.Move{Kind: kind, Result: &r, At: at})
	if !known {
		return c.leave()
	}
	if ok {
		c.row.SettledAt = at
		c.wake()
		c.handOn(&r)
	}
	return nil
}

// release is P5: nothing was ever sent, somebody else may claim it. After it
// nothing is sent under this claim, whatever becomes of the write.
func (c *call) release() step {
	if c.row.Orphanings > 0 {
		return c.leave() // an orphan at the next life
	}
	if _, known := c.move(store.Move{Kind: store.MoveRelease}); !known {
		return c.leave()
	}
	return nil
}

// refused: the guard did not let the call begin.
func (c *call) refused() step {
	switch {
	case c.isAsked():
		return (*call).cancelled
	case c.row.Orphanings == 0:
		return (*call).release
	case c.incOf() != c.b.life():
		// The claim is of a former life, and the guard never lets it send again. It
		// gives way to whoever takes it over; that may be this bridge.
		return nil
	}
	return (*call).sendLater
}

// sendLater: something was sent under an earlier claim, nothing under this one.
// The attempt stays claimed and is tried again, after another look at the row,
// since the guard wants a fresh one.
func (c *call) sendLater() step {
	wait := max(min(againAfter<<min(c.later, 5), laterAtMost), min(c.out.Result.RetryAfter, laterAtMost))
	c.later++
	return c.claimAgain(wait)
}

// claimAgain waits, and sends under a fresh claim, which the guard wants.
func (c *call) claimAgain(wait time.Duration) step {
	if !c.wait(wait, true) {
		if l, ok := errors.AsType[limitError](c.why); ok {
			c.out.Result.Err = c.passed(l)
			return (*call).unknown
		}
		return c.interrupted((*call).leave)
	}
	began := c.b.cfg.Now()
	rows, err := c.b.cfg.Ledger.Claim(c.b.hard, c.row.Claim, []store.ClaimRequest{{TaskID: c.row.ID, Token: c.row.Claim.Token}}, c.b.now())
	if err != nil {
		return (*call).sendLater
	}
	if len(rows) == 0 {
		return nil
	}
	if rows[0].CancelRequested {
		c.requestCancel()
		return (*call).cancelled
	}
	c.began = began
	return (*call).send
}

// again is P8 under policy resend: a new token, one orphaning more, and the
// same attempt is sent once more under the same ids.
func (c *call) again() step {
	wait := againAfter << c.row.Orphanings
	if d := c.row.Deadline; c.row.Orphanings >= maxOrphanings || (!d.IsZero() && c.b.cfg.Clock().Add(wait).After(d)) {
		return (*call).unknown
	}
	if !c.wait(wait, false) {
		return c.interrupted((*call).leave)
	}
	if c.b.failpoint("again.before-P8") {
		return c.leave()
	}
	began := c.b.cfg.Now()
	to := c.b.freshClaim()
	ok, known := c.move(store.Move{Kind: store.MoveAgain, To: to})
	switch {
	case !known:
		return c.leave()
	case !ok:
		// Settled as unknown, or somebody else's; or the row names no policy,
		// and the ledger sends nothing again without one. It must not stay
		// claimed without a call: it would be taken for never sent.
		return (*call).unknown
	}
	c.row.Orphanings++
	c.row.State, c.row.AgentTaskID, c.row.AgentContextID = store.AttemptClaimed, "", ""
	c.forgetTalk()
	c.holdClaim(to, began)
	c.occupy()
	return (*call).send
}

// holdClaim notes a new claim; the attempt's limits start anew (language rule
// T2: they run from the claim).
func (c *call) holdClaim(to store.Claim, began time.Time) {
	c.row.Claim, c.began = to, began
	c.mu.Lock()
	c.since, c.stopped, c.state = c.b.cfg.Now(), time.Time{}, ""
	c.mu.Unlock()
	c.heard.Store(0)
	c.misses.Store(0)
	c.b.mu.Lock()
	c.inc = to.Inc
	c.b.mu.Unlock()
	c.mine.Store(true)
}

// wait lets time pass in which the call can be interrupted; true if it was not.
func (c *call) wait(d time.Duration, limits bool) bool {
	ctx := c.arm(phaseWaiting, limits)
	passed := pause(ctx, d)
	c.disarm(ctx)
	return passed
}

// move writes a transition until it is known whether it was committed (protocol.md
// §4.1). known is false if the bridge ends before that.
func (c *call) move(m store.Move) (ok, known bool) {
	b := c.b
	m.TaskID, m.From = c.row.ID, c.row.Claim
	if m.At.IsZero() {
		m.At = b.now()
	}
	inDoubt := false
	for wait := repeatAfter; ; wait = min(2*wait, repeatAtMost) {
		ok, err := b.cfg.Ledger.Move(b.hard, m)
		if err == nil {
			if !ok && inDoubt && m.Result != nil {
				// It may have been refused because it was written the first time.
				c.wake()
			}
			return ok, true
		}
		if code := parley.CodeOf(err); code == parley.CodeNotFound || code == parley.CodeConflict {
			return false, true // the row is gone
		}
		inDoubt = true
		b.log.LogAttrs(b.hard, slog.LevelWarn, "transition not known to be written; it is written again",
			c.attrs("bridge_move", slog.String("move", string(m.Kind)), slog.Any("error", err))...)
		if parley.CodeOf(err) == parley.CodeInvalid || !pause(b.hard, wait) {
			return false, false
		}
	}
}

// freshClaim is a claim of the present life under a new token. The token need
// not be noted as under way: its task has a call.
func (b *Bridge) freshClaim() store.Claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.issued++
	return store.Claim{Worker: b.cfg.Worker, Inc: b.inc, Token: appendToken(b.prefix, b.issued)}
}

// occupy takes slots for a call that had given them back; it may be one too
// many for a while.
func (c *call) occupy() {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.follows {
		c.follows = false
		b.following--
	}
	if c.slots&slotOwn == 0 {
		c.lane.inFlight++
	}
	if c.slots&slotShared == 0 {
		b.inFlight++
	}
	c.slots = slotOwn | slotShared
}

func (b *Bridge) isStopping() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopping
}

// refresh notes the limit of an agent's record as it is now.
func (b *Bridge) refresh(l *lane, agent parley.Agent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.capacity = agent.MaxConcurrent > 0
	l.limit = orDefault(agent.MaxConcurrent, b.cfg.Limits.PerAgent)
	l.policy = firstOf(agent.OutcomeUnknown, DefaultPolicy(agent.Protocol))
	agent.Name = l.agent
	b.configureLocked(agent)
	l.limits, l.weight = agent.Limits, agent.Priority
	l.gate.Configure(b.cfg.Now(), admission.Settings{
		Concurrency: l.limit, Fixed: agent.Limits.Fixed, Rate: agent.Limits.Rate, Burst: agent.Limits.Burst,
	})
}

// exchangeContext bounds one exchange beside the call itself.
func (c *call) exchangeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.b.calling, cancelWithin)
}
