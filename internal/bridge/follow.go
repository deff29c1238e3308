package bridge

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// accept is P6: the agent works on the task under a name of its own, which is
// durable before it is asked about for the first time.
func (c *call) accept() step {
	b := c.b
	if _, ok := c.adapter.(Follower); !ok || c.out.AgentTaskID == "" {
		return (*call).unfollowable
	}
	if b.failpoint("follow.before-P6") {
		return c.leave()
	}
	ok, known := c.move(store.Move{Kind: store.MoveFollow, AgentTaskID: c.out.AgentTaskID, AgentContextID: c.out.ContextID})
	if !known {
		return c.leave()
	}
	c.row.AgentTaskID, c.row.AgentContextID = c.out.AgentTaskID, c.out.ContextID
	if !ok && b.beatOnce(b.hard) == nil && c.row.Claim.Inc == b.life() {
		return (*call).abandon // a living bridge's claim is not taken over
	}
	// If the claim was, this bridge is still the only one that knows the
	// agent's task: an answer is good whoever brings it.
	c.row.State = store.AttemptFollowing
	c.setState(c.out.State)
	return (*call).follow
}

// unfollowable: the agent works on, and there is no way to ask how far it is.
func (c *call) unfollowable() step {
	c.mu.Lock()
	state := firstOf(c.out.State, c.state, "unknown")
	c.mu.Unlock()
	e := parley.Errorf(parley.CodeAgentError, "Task state: %s", state)
	e.Retryable = true
	c.out.Result.Outcome, c.out.Result.Err = parley.OutcomeError, e
	return (*call).answer
}

func (b *Bridge) life() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inc
}

// inputRequired begins the State of an agent that waits for a person. Silence
// and attempt timeout stop meanwhile (language rule T2).
const inputRequired = "input-required"

// setState notes where the agent stands; it reports whether that is new.
func (c *call) setState(s string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == "" || s == c.state {
		return false
	}
	c.state = s
	now := c.b.cfg.Now()
	switch waits := strings.HasPrefix(s, inputRequired); {
	case waits && c.stopped.IsZero():
		c.stopped = now
	case !waits && !c.stopped.IsZero():
		c.since = c.since.Add(age(c.stopped, now))
		c.stopped = time.Time{}
	}
	c.rearmLocked()
	return true
}

// unslot gives back what a task does not need while it is only followed.
func (c *call) unslot() {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if !c.follows {
		c.follows = true
		b.following++
	}
	own := c.slots&slotOwn != 0 && !c.lane.capacity
	b.vacateLocked(c.lane, own, c.slots&slotShared != 0)
	c.slots &^= slotShared
	if own {
		c.slots &^= slotOwn
	}
}

// follow asks the agent until its task has ended, less and less often while
// nothing changes.
func (c *call) follow() step {
	b := c.b
	c.unslot()
	ctx := c.arm(phaseFollowing, true)
	next := step(nil)
	for wait := pollFirst; next == nil; {
		d := wait*8/10 + time.Duration(b.cfg.Jitter()*float64(wait*4/10))
		if !pause(ctx, max(d, min(c.out.Result.RetryAfter, laterAtMost))) {
			next = (*call).disturbed
			break
		}
		if b.failpoint("poll.before") {
			next = (*call).leave
			break
		}
		var changed bool
		if changed, next = c.poll(ctx); changed {
			wait = pollFirst
		} else {
			wait = min(2*wait, pollAtMost)
		}
	}
	c.disarm(ctx)
	return next
}

// poll asks once. A poll that fails says nothing about the task: it is just
// repeated.
func (c *call) poll(ctx context.Context) (changed bool, next step) {
	// The record may have changed: another URL, another credential.
	if err := c.meet(ctx); err != nil && c.adapter == nil {
		c.out = Outcome{Result: parley.Result{Err: err}}
		return false, nil
	}
	follower, ok := c.adapter.(Follower)
	if !ok {
		c.out = Outcome{Result: parley.Result{Err: parley.Errorf(parley.CodeUnsupportedProtocol,
			"the agent's protocol is %s now, in which it cannot be asked about a task", c.agent.Protocol)}}
		return false, (*call).forgotten
	}
	out, err := follower.Poll(ctx, c.row.Task, c.agent, c.agentTask())
	if err != nil {
		out = Outcome{Disposition: NotSent, Result: parley.Result{Err: c.untranslatable(err)}}
	}
	c.out = out
	switch {
	case out.Disposition == Answered:
		return true, (*call).answer
	case out.Disposition == Accepted:
		changed = c.setState(out.State)
		if changed {
			c.progress(Report{State: out.State})
		}
		return changed, nil
	case out.Result.Err != nil && (out.Result.Err.Code == parley.CodeNotFound || out.Result.Err.Code == parley.CodeOutcomeUnknown):
		return true, (*call).forgotten
	}
	if ctx.Err() == nil {
		c.b.log.LogAttrs(ctx, slog.LevelWarn, "agent not asked; it is asked again", c.attrs("agent_poll",
			slog.String("agent_task_id", c.row.AgentTaskID), slog.String("error", c.name(out.Result.Err).Message))...)
	}
	return false, nil
}

// agentTask is the agent's task as it is recorded.
func (c *call) agentTask() AgentTask {
	return AgentTask{
		ID: c.row.AgentTaskID, ContextID: c.row.AgentContextID, Endpoint: c.row.AgentEndpoint, Version: c.row.AgentVersion,
	}
}

// forgotten: the agent does not know its task any more (protocol.md §4.7).
func (c *call) forgotten() step {
	if c.isAsked() {
		return (*call).cancelled
	}
	if c.policy() == parley.OutcomeResend {
		return (*call).again
	}
	return (*call).unknown
}

// disturbed: something has interrupted the following.
func (c *call) disturbed() step {
	limit, passed := errors.AsType[limitError](c.why)
	switch {
	case passed:
		c.out = Outcome{Result: parley.Result{Err: c.passed(limit)}}
		return (*call).overdue
	case errors.Is(c.why, errCancelled):
		return (*call).tellAgent
	case errors.Is(c.why, errGone):
		return (*call).abandon
	}
	return c.leave() // anybody goes on with it
}

// tellAgent asks the agent to stop, and follows it to its end.
func (c *call) tellAgent() step {
	c.mu.Lock()
	c.told = true
	c.mu.Unlock()
	out, told := c.stopAgent()
	switch {
	case out.Disposition == Answered:
		c.out = out
		return (*call).answer
	case !told:
		return (*call).cancelled
	}
	return (*call).follow
}

// overdue: the time for the attempt is up, and the agent has not ended. If it
// could be told so, the attempt has failed; else nobody knows what becomes of
// it (protocol.md §4.8).
func (c *call) overdue() step {
	late := c.out.Result
	out, told := c.stopAgent()
	switch {
	case out.Disposition == Answered && out.Result.Outcome == parley.OutcomeOK:
		c.out = out
		return (*call).answer
	case told && out.Disposition != NotSent:
		late.Outcome = parley.OutcomeError
		c.out = Outcome{Result: late}
		c.b.log.LogAttrs(c.b.hard, slog.LevelError, "agent told to stop", c.attrs("agent_failure",
			slog.String("code", string(late.Err.Code)), slog.String("error", late.Err.Message))...)
		return c.settle(store.MoveFail, c.result())
	}
	c.out = Outcome{Result: late}
	return (*call).forgotten
}

// abandon: the attempt has ended without this bridge. The agent is told, best
// effort; an answer that it gives is recorded as late.
func (c *call) abandon() step {
	if out, _ := c.stopAgent(); out.Disposition == Answered {
		c.out = out
		return (*call).answer
	}
	return nil
}

// stopAgent sends the protocol's cancel. told is false if the protocol has none.
func (c *call) stopAgent() (out Outcome, told bool) {
	ctx, done := c.exchangeContext()
	defer done()
	if c.adapter == nil {
		if err := c.meet(ctx); err != nil {
			return out, false
		}
	}
	canceler, ok := c.adapter.(Canceler)
	if !ok {
		return out, false
	}
	out, err := canceler.Cancel(ctx, c.row.Task, c.agent, c.agentTask())
	if err != nil {
		out = Outcome{Disposition: NotSent, Result: parley.Result{Err: c.untranslatable(err)}}
	}
	if out.Disposition == NotSent || out.Disposition == Lost {
		c.b.log.LogAttrs(ctx, slog.LevelWarn, "agent not known to be told to stop", c.attrs("agent_cancel",
			slog.String("agent_task_id", c.row.AgentTaskID), slog.String("error", c.name(out.Result.Err).Message))...)
	}
	return out, true
}

// takeOver is P9: the attempt's bridge is dead, or was a former life of this
// one. Nobody sends under the former claim any more, or its guard has failed.
func (c *call) takeOver() step {
	b := c.b
	to := b.freshClaim()
	b.mu.Lock()
	c.inc = to.Inc
	b.mu.Unlock()
	began := b.cfg.Now()
	ok, known := c.move(store.Move{Kind: store.MoveTakeover, To: to, AgentTaskID: c.row.AgentTaskID})
	switch {
	case !known:
		return c.leave()
	case !ok:
		b.wake(c.row.Run, c.row.ID) // settled as unknown, perhaps
		return nil
	}
	b.log.LogAttrs(b.hard, slog.LevelInfo, "attempt taken over", c.attrs("bridge_takeover", slog.String("from", c.row.Claim.Worker))...)
	if c.row.State == store.AttemptClaimed {
		c.row.Orphanings++
	}
	c.holdClaim(to, began)
	return (*call).resume
}

// resume goes on with an attempt whose earlier claims may have been sent.
func (c *call) resume() step {
	if c.since.IsZero() {
		c.holdClaim(c.row.Claim, c.began)
	}
	if c.row.CancelRequested {
		c.mu.Lock()
		c.asked = true
		c.mu.Unlock()
	}
	if c.row.State == store.AttemptFollowing {
		return (*call).follow
	}
	c.out = Outcome{Result: parley.Result{Err: parley.Errorf(parley.CodeAgentUnavailable, "the bridge that called the agent has died")}}
	switch {
	case c.isAsked():
		return (*call).cancelled
	case c.policyOfRow() == parley.OutcomeResend:
		return (*call).send
	}
	return (*call).unknown
}

// policyOfRow is policy for a call that has not met its agent yet.
func (c *call) policyOfRow() parley.OutcomePolicy {
	if c.row.Policy.OutcomeUnknown == "" && c.agent.Name == "" {
		_ = c.meet(c.b.hard) // an agent that is gone has no policy
	}
	return c.policy()
}
