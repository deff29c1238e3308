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
	c.stream, c.out.Stream = c.out.Stream, nil
	if _, ok := c.adapter.(Follower); !ok || c.out.AgentTaskID == "" {
		return (*call).unfollowable
	}
	if b.failpoint("follow.before-P6") {
		return c.leave()
	}
	m := store.Move{
		Kind: store.MoveFollow, AgentTaskID: c.out.AgentTaskID, AgentContextID: c.out.ContextID,
		AgentEndpoint: c.out.Endpoint, AgentVersion: c.out.Version,
	}
	ok, known := c.move(m)
	if !known {
		return c.leave()
	}
	c.row.AgentTaskID, c.row.AgentContextID = m.AgentTaskID, m.AgentContextID
	c.row.AgentEndpoint, c.row.AgentVersion = m.AgentEndpoint, m.AgentVersion
	if !ok && b.beatOnce(b.hard) == nil && c.row.Claim.Inc == b.life() {
		return (*call).abandon // a living bridge's claim is not taken over
	}
	// If the claim was, this bridge is still the only one that knows the
	// agent's task: an answer is good whoever brings it.
	c.row.State = store.AttemptFollowing
	if b.failpoint("follow.after-P6") {
		return c.leave()
	}
	if !c.foreign() {
		c.reporter().accepted(c.agentTask())
	}
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

// agentTask is the agent's task as it is recorded.
func (c *call) agentTask() AgentTask {
	return AgentTask{
		ID: c.row.AgentTaskID, ContextID: c.row.AgentContextID, Endpoint: c.row.AgentEndpoint, Version: c.row.AgentVersion,
	}
}

// setState notes where the agent stands, and whether it waits for a person:
// silence and attempt timeout stand still meanwhile (language rule T2). It
// reports whether the state is new.
func (c *call) setState(s string, waits bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.b.cfg.Now()
	switch {
	case waits && c.stopped.IsZero():
		c.stopped = now
	case !waits && !c.stopped.IsZero():
		c.since = c.since.Add(now.Sub(c.stopped))
		c.stopped = time.Time{}
	}
	changed := s != "" && s != c.state
	if changed {
		c.state = s
	}
	c.rearmLocked()
	return changed
}

// follow goes with the agent's task to its end: it listens where the agent
// tells by itself, asks where it does not, and asks less and less often while
// nothing changes. What it is told is never more than a reason to ask.
func (c *call) follow() step {
	c.unslot()
	c.mu.Lock()
	if c.poke == nil {
		c.poke = make(chan struct{}, 1)
	}
	c.mu.Unlock()
	ctx := c.arm(phaseFollowing, true)
	var next step
	if c.out.Disposition == Accepted {
		_, next = c.stand(c.out)
	}
	for pace := pollFirst; next == nil; {
		var changed bool
		changed, next = c.look(ctx, pace)
		if changed {
			pace = pollFirst
		} else {
			pace = min(2*pace, c.pollAtMost())
		}
	}
	c.disarm(ctx)
	c.hangUp()
	return next
}

// pollAtMost is the longest delay between two polls: longer while it is a
// person that the agent waits for, unless an answer may be there.
func (c *call) pollAtMost() time.Duration {
	if c.inDoubt {
		return pollDoubt
	}
	if c.row.Question != nil {
		return pollWaiting
	}
	return pollAtMost
}

// look finds out once how the task stands, after pace or as soon as somebody
// says that there is something new.
func (c *call) look(ctx context.Context, pace time.Duration) (changed bool, next step) {
	if c.listens() {
		next, heard := c.listen(ctx)
		if next != nil || !heard && c.deaf >= deafAfter {
			return true, next
		}
	} else {
		pace = pace*8/10 + time.Duration(c.b.cfg.Jitter()*float64(pace*4/10))
		if !c.rested(ctx, max(pace, min(c.out.Result.RetryAfter, laterAtMost))) {
			return false, (*call).disturbed
		}
	}
	if c.b.failpoint("poll.before") {
		return false, (*call).leave
	}
	if next := c.reply(ctx); next != nil {
		return true, next
	}
	return c.poll(ctx)
}

// rested lets d pass, or less if somebody pokes; false if ctx has ended.
func (c *call) rested(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	case <-c.poke:
		return pause(ctx, pollSpacing) // however often it pokes
	}
}

// poll asks once and weighs the answer.
func (c *call) poll(ctx context.Context) (changed bool, next step) {
	if err := c.ask(ctx); err != nil {
		c.out = Outcome{Result: parley.Result{Err: err}}
		if err.Code == parley.CodeUnsupportedProtocol {
			return false, (*call).forgotten
		}
	}
	out := c.out
	switch {
	case out.Disposition == Answered && out.Result.Outcome != parley.OutcomeOK && c.partial != nil:
		return true, (*call).forgotten
	case out.Disposition == Answered:
		return true, (*call).answer
	case out.Disposition == Accepted:
		return c.stand(out)
	case forgot(out):
		return true, (*call).forgotten
	case out.Disposition == Lost && c.name(out.Result.Err).Code == parley.CodeLimit && c.stream == nil:
		return true, (*call).unreadable
	}
	if ctx.Err() == nil {
		c.b.log.LogAttrs(ctx, slog.LevelWarn, "agent not asked; it is asked again", c.attrs("agent_poll",
			slog.String("agent_task_id", c.row.AgentTaskID), slog.String("error", c.name(out.Result.Err).Message))...)
	}
	return false, nil
}

// ask puts one question about the task into c.out. The error says why that was
// not even tried.
func (c *call) ask(ctx context.Context) *parley.Error {
	// The record may have changed: another URL, another credential.
	if err := c.meet(ctx); err != nil && c.adapter == nil {
		return err
	}
	follower, ok := c.adapter.(Follower)
	if !ok {
		return parley.Errorf(parley.CodeUnsupportedProtocol,
			"the agent's protocol is %s now, in which it cannot be asked about a task", c.agent.Protocol)
	}
	out, err := c.shielded("Poll", func() (Outcome, error) { return follower.Poll(ctx, c.task(), c.agent, c.agentTask()) })
	if err != nil {
		out = Outcome{Disposition: NotSent, Result: parley.Result{Err: c.untranslatable(err)}}
	}
	c.out = out
	return nil
}

// forgot reports whether the agent says that it knows of no such task.
func forgot(out Outcome) bool {
	return out.Result.Err != nil && (out.Result.Err.Code == parley.CodeNotFound || out.Result.Err.Code == parley.CodeOutcomeUnknown)
}

// stand notes where the agent stands: its state, and what it waits for.
func (c *call) stand(out Outcome) (changed bool, next step) {
	question := c.standing(out)
	if question != nil && c.foreign() {
		return true, (*call).unanswerable
	}
	if !c.noteQuestion(question, out.State) {
		return false, (*call).leave
	}
	changed = c.setState(out.State, question != nil)
	if changed {
		c.progress(Report{State: out.State})
	}
	return changed, nil
}

// stateWord is a state without what an adapter puts behind it to tell one look
// from another.
func stateWord(s string) string {
	if i := strings.IndexAny(s, " ,"); i > 0 {
		return s[:i]
	}
	return s
}

// forgotten: the agent does not know its task any more (protocol.md §4.7).
func (c *call) forgotten() step {
	if c.partial != nil {
		c.out = *c.partial
		return (*call).answer
	}
	if c.isAsked() {
		return (*call).cancelled
	}
	if c.policy() == parley.OutcomeResend {
		return (*call).again
	}
	return (*call).unknown
}

// unreadable: what the agent has to say about its task is larger than answers may
// be, and will not get smaller. To send the task again would not help.
func (c *call) unreadable() step {
	if c.isAsked() {
		return (*call).cancelled
	}
	return (*call).unknown
}

// disturbed: something has interrupted the following.
func (c *call) disturbed() step {
	limit, passed := errors.AsType[limitError](c.why)
	switch {
	case passed && c.partial != nil:
		return (*call).forgotten
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
