package bridge

import (
	"log/slog"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

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
		c.wake() // settled as unknown, perhaps
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
		c.setState("", c.row.Question != nil)
		c.resumeReply()
		return (*call).follow
	}
	c.out = Outcome{Result: parley.Result{Err: parley.Errorf(parley.CodeAgentUnavailable, "the bridge that called the agent has died")}}
	policy := c.policyOfRow()
	switch {
	case policy == parley.OutcomeLookup:
		return (*call).lookUp
	case c.isAsked():
		return (*call).cancelled
	case policy == parley.OutcomeResend:
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

// lookUp asks the agent what became of a message to which no answer is held
// (policy lookup). It sends nothing that could be executed, so it needs neither
// the send guard nor the attempt's time limits: a task that is found too late
// is told to stop when it is followed.
func (c *call) lookUp() step {
	b := c.b
	lost := c.out
	missed, failing := 0, ""
	for try := range lookUpTries {
		if try > 0 {
			wait := min(againAfter<<(try-1), laterAtMost)
			if c.outOfTime(wait) {
				break
			}
			if !pause(b.calling, wait) {
				return c.leave()
			}
		}
		if b.failpoint("lookup.before") {
			return c.leave()
		}
		out, known := c.find()
		switch {
		case !known:
			return c.undecided(lost, "this agent cannot be asked about it")
		case out.Disposition == Answered:
			c.out = out
			return (*call).answer
		case out.Disposition == Accepted:
			c.out = out
			return (*call).accept
		case out.Result.Err == nil:
		case out.Result.Err.Code == parley.CodeOutcomeUnknown:
			return c.undecided(lost, out.Result.Err.Message)
		case out.Result.Err.Code == parley.CodeNotFound:
			// The request may still be under way.
			if missed++; missed == lookUpMisses {
				return c.undecided(lost, "the agent knows of no such task")
			}
		default:
			failing = ": " + out.Result.Err.Message
		}
		if b.calling.Err() != nil {
			return c.leave()
		}
		b.log.LogAttrs(b.hard, slog.LevelInfo, "what became of the task is not known yet; the agent is asked again",
			c.attrs("agent_lookup", slog.Int("try", try+1), slog.Duration("since", age(c.since, b.cfg.Now())))...)
	}
	return c.undecided(lost, "the agent could not be asked about it"+failing)
}

const (
	// lookUpTries bounds how often one look-up asks, over about two minutes;
	// lookUpMisses how often of these the agent has to deny the task.
	lookUpTries  = 8
	lookUpMisses = 3
)

// find asks once. known is false if the agent has no way to be asked.
func (c *call) find() (out Outcome, known bool) {
	ctx, done := c.exchangeContext()
	defer done()
	if err := c.meet(ctx); err != nil && c.adapter == nil {
		return Outcome{Result: parley.Result{Err: err}}, err.Retryable
	}
	finder, ok := c.adapter.(Finder)
	if !ok {
		return Outcome{}, false
	}
	out, err := c.shielded("Find", func() (Outcome, error) { return finder.Find(ctx, c.task(), c.agent) })
	if err != nil {
		return Outcome{Result: parley.Result{Err: c.untranslatable(err)}}, false
	}
	return out, true
}

// undecided ends a look-up that has found nothing; lost is what it was made for.
func (c *call) undecided(lost Outcome, why string) step {
	c.out = lost
	if c.isAsked() {
		return (*call).cancelled
	}
	e := parley.Error{}
	if lost.Result.Err != nil {
		e = *lost.Result.Err
	}
	e.Message += " (looked up: " + why + ")"
	c.out.Result.Err = &e
	return (*call).unknown
}
