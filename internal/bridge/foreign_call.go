package bridge

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// retry gives the step that opens another try of a foreign task, as its agent's
// retry_config has it (BR-N5), or nil. Only what is known to have failed is tried
// again, and only in the cases in which the bridge of the existing platform does
// so; what became of a lost call is for the agent's outcome policy to say.
func (c *call) retry() step {
	out := &c.out
	if !c.foreign() || c.row.Orphanings > 0 || out.Result.Outcome == parley.OutcomeOK || !again(out) ||
		c.row.Attempt >= c.agent.Retry.MaxRetries {
		return nil
	}
	wait := max(backoff(c.agent.Retry, c.row.Attempt), out.Result.RetryAfter)
	if !c.b.cfg.Clock().Add(wait).Before(c.row.Deadline) {
		return nil
	}
	return func(c *call) step { return c.tryAgain(wait) }
}

// again reports whether the failure is one that passes: no connection, 429, 5xx.
func again(out *Outcome) bool {
	e := out.Result.Err
	if e == nil || !e.Retryable {
		return false
	}
	return out.Disposition == NotSent || (out.Disposition == Answered && detailsOf(e).Status >= 500)
}

// backoff is the delay after the n-th try.
func backoff(r parley.RetryConfig, n int) time.Duration {
	d := float64(r.InitialDelay)
	for range n - 1 {
		d *= max(r.Multiplier, 1)
		if d >= float64(r.MaxDelay) {
			break
		}
	}
	return min(time.Duration(d), max(r.MaxDelay, r.InitialDelay))
}

// tryAgain opens the attempt for another try: from then on anybody may make it,
// and this bridge does when its time has come.
func (c *call) tryAgain(wait time.Duration) step {
	b := c.b
	c.stopReports()
	c.tellSpan()
	at, failed := b.now().Add(wait), b.firstFailure(&c.row)
	ok, known := c.move(store.Move{Kind: store.MoveRetry, At: at, Source: failed})
	switch {
	case !known:
		return c.leave()
	case !ok:
		return nil
	}
	b.log.LogAttrs(b.hard, slog.LevelInfo, "task is tried again", c.attrs("bridge_retry", slog.Int("try", c.row.Attempt+1),
		slog.Duration("after", wait), slog.String("error", messageOf(c.out.Result.Err)))...)
	c.mine.Store(false)
	c.row.State, c.row.Claim, c.row.VisibleAt = store.AttemptOpen, store.Claim{}, at
	c.row.AgentTaskID, c.row.AgentContextID, c.row.AgentEndpoint, c.row.AgentVersion = "", "", "", ""
	c.row.Attempt++
	c.row.Source = cmp.Or(failed, c.row.Source)
	b.mu.Lock()
	b.vacateLocked(c.lane, c.slots&slotOwn != 0, c.slots&slotShared != 0)
	c.slots = 0
	b.mu.Unlock()
	if c.wait(wait, false) {
		c.requeue = true
	}
	return nil
}

// mayCall refuses calls of foreign tasks that need not be made any more.
func (c *call) mayCall() *parley.Error {
	switch {
	case !c.foreign():
	case !c.b.cfg.Clock().Before(c.row.Deadline):
		return parley.Errorf(parley.CodeTimeout, "agent '%s' was not called: the task is too old, the executor waits no longer than %v", c.row.Agent, foreignPatience)
	case c.agent.Retry.MaxRetries == 0:
		return parley.Errorf(parley.CodeAgentError, "Operation failed after 0 attempts")
	}
	return nil
}

// unanswerable: the agent waits for a person, and nobody can answer a foreign task.
func (c *call) unanswerable() step {
	c.mu.Lock()
	state := stateWord(firstOf(c.out.State, c.state, "input-required"))
	c.mu.Unlock()
	out, _ := c.stopAgent()
	if out.Disposition == Answered && out.Result.Outcome == parley.OutcomeOK {
		c.out = out
		return (*call).answer
	}
	c.out = Outcome{Disposition: Answered, Result: parley.Result{
		Outcome: parley.OutcomeError, Err: parley.Errorf(parley.CodeAgentError, "Task state: %s", state),
	}}
	return (*call).answer
}

// outOfTime reports whether nobody would wait any more for what an agent says
// about a lost call after another d.
func (c *call) outOfTime(d time.Duration) bool {
	return c.foreign() && c.b.cfg.Clock().Add(d).After(c.row.Deadline.Add(foreignAsks))
}

// errNoLedger is why a bridge with a ledger in memory cannot begin.
var errNoLedger = errors.New("a bridge without a store needs a bus that waits with its acknowledgements (Kafka) and publishes results")
