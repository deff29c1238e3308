package bridge

import (
	"context"
	"log/slog"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// tellAgent asks the agent to stop, and follows it to its end.
func (c *call) tellAgent() step {
	c.mu.Lock()
	c.told = true
	c.mu.Unlock()
	out, told := c.insistStop()
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
		c.failed(slog.LevelError, "agent told to stop", late.Err)
		return c.settle(store.MoveFail, c.result())
	}
	c.out = Outcome{Result: late}
	return (*call).forgotten
}

// abandon: the attempt has ended without this bridge. The agent is told, best
// effort; an answer that it gives is recorded as late.
func (c *call) abandon() step {
	if out, _ := c.insistStop(); out.Disposition == Answered {
		c.out = out
		return (*call).answer
	}
	return nil
}

// stopAgent sends the protocol's cancel, once. told is false if the protocol has none.
func (c *call) stopAgent() (out Outcome, told bool) {
	ctx, done := c.exchangeContext()
	defer done()
	return c.tellStop(ctx)
}

// insistStop is stopAgent for an agent that would go on for nobody: it is told again,
// within the same time, while it is not known to have heard.
func (c *call) insistStop() (out Outcome, told bool) {
	ctx, done := c.exchangeContext()
	defer done()
	for wait := againAfter; ; wait *= 2 {
		out, told = c.tellStop(ctx)
		heard := out.Disposition != NotSent && out.Disposition != Lost
		if e := out.Result.Err; heard || e == nil || !e.Retryable || !pause(ctx, max(wait, out.Result.RetryAfter)) {
			return out, told
		}
	}
}

func (c *call) tellStop(ctx context.Context) (out Outcome, told bool) {
	if c.adapter == nil {
		if err := c.meet(ctx); err != nil {
			return Outcome{Disposition: NotSent, Result: parley.Result{Err: err}}, err.Retryable
		}
	}
	canceler, ok := c.adapter.(Canceler)
	if !ok {
		return out, false
	}
	out, err := c.shielded("Cancel", func() (Outcome, error) { return canceler.Cancel(ctx, c.task(), c.agent, c.agentTask()) })
	if err != nil {
		out = Outcome{Disposition: NotSent, Result: parley.Result{Err: c.untranslatable(err)}}
	}
	if out.Disposition == NotSent || out.Disposition == Lost {
		c.b.log.LogAttrs(ctx, slog.LevelWarn, "agent not known to be told to stop", c.attrs("agent_cancel",
			slog.String("agent_task_id", c.row.AgentTaskID), slog.String("error", c.name(out.Result.Err).Message))...)
	}
	return out, true
}
