package a2a

import (
	"context"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

const (
	// probeTimeout bounds a look at an agent when its own timeout is longer.
	probeTimeout = 10 * time.Second
	// maxHealthText bounds what is said about an agent's health, in bytes.
	maxHealthText = 1 << 10
)

// Probe looks at an agent on stdio or WebSocket; any other agent is none of its
// business, and ok is false. An agent is healthy if its process runs or can be
// started, or its server takes the connection, which is kept for the calls to
// come. No request is sent. What is wrong is said in the health's message.
func (a *Adapter) Probe(ctx context.Context, agent parley.Agent) (h parley.AgentHealth, ok bool) {
	if !streamless(agent.URL) {
		return parley.AgentHealth{}, false
	}
	begun := a.opts.Now()
	h = parley.AgentHealth{At: begun}
	err := a.reach(ctx, agent)
	h.ResponseTime = max(a.opts.Now().Sub(begun), 0)
	if err != nil {
		h.Message = bridge.Redact(agent, []byte("The agent could not be reached: "+err.Error()), maxHealthText)
		return h, true
	}
	h.Healthy, h.Message = true, "The WebSocket is open"
	if linkScheme(agent.URL) == schemeStdio {
		h.Message = "The process runs"
	}
	return h, true
}

// reach sees to it that there is a link to agent.
func (a *Adapter) reach(ctx context.Context, agent parley.Agent) error {
	to, err := a.resolve(ctx, agent)
	if err != nil {
		return err
	}
	links, ok := a.link.(*links)
	if !ok || !streamless(to.URL) {
		return parley.Errorf(parley.CodeInvalid, "the agent is called at %s", linkPlace(to.URL))
	}
	c := &oneCall{op: operation{verb: verbGet, to: to.Endpoint, agent: agent}, outer: ctx, timeout: probeTimeout}
	if agent.Timeout > 0 {
		c.timeout = min(agent.Timeout, probeTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	k, _, err := links.acquire(ctx, c)
	if err != nil {
		return err
	}
	links.release(k)
	return nil
}
