package bridge

import (
	"context"
	"errors"
	"log/slog"

	"github.com/parley-project/parley"
)

// meet finds the agent and the adapter that speaks its protocol.
func (c *call) meet(ctx context.Context) *parley.Error {
	b := c.b
	c.unread = false
	agent, err := b.cfg.Agents.Lookup(ctx, c.row.Agent)
	if err != nil {
		if e, ok := errors.AsType[*parley.Error](err); ok && (e.Code == parley.CodeUnknownAgent || e.Retryable) {
			return e
		}
		c.unread = unread(err)
		e := parley.Errorf(parley.CodeAgentUnavailable, "agent %q cannot be looked up: %w", c.row.Agent, err)
		e.Retryable = true
		return e
	}
	adapter := b.adapters[agent.Protocol]
	if adapter == nil {
		return parley.Errorf(parley.CodeUnsupportedProtocol, "Unsupported protocol: %s. %s", agent.Protocol, b.unsupported)
	}
	if agent.MaxConcurrent != c.agent.MaxConcurrent || c.adapter == nil {
		b.refresh(c.lane, agent)
	}
	c.agent = agent
	c.mu.Lock()
	c.adapter = adapter
	c.mu.Unlock()
	return nil
}

// unread reports whether the error of a look-up says nothing about the agent: what
// knows it did not answer.
func unread(err error) bool {
	code := parley.CodeOf(err)
	return code == parley.CodeUnavailable || code == parley.CodeInternal
}

// makeRoom gives the step of a call that was claimed before the limit of its agent was
// known, and is one too many now that it is; else nil. It is claimed again when there
// is a slot.
func (c *call) makeRoom() step {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if !c.unseen || c.lane.inFlight <= c.lane.gate.Limit(b.cfg.Now()) {
		c.unseen = false
		return nil
	}
	b.vacateLocked(c.lane, c.slots&slotOwn != 0, c.slots&slotShared != 0)
	c.slots = 0
	return (*call).release
}

// unmet: whom to call is not known at present. That says nothing about the agent,
// and no try of the step is spent for it.
func (c *call) unmet() step {
	c.b.log.LogAttrs(c.b.hard, slog.LevelWarn, "agent not looked up; that is tried again",
		c.attrs("agent_lookup", slog.Any("error", c.out.Result.Err))...)
	if c.row.Orphanings > 0 {
		return (*call).sendLater
	}
	return c.putBackUntil(c.b.cfg.Clock().Add(unmetPause))
}
