package bridge

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/breaker"
	"github.com/parley-project/parley/internal/store"
)

// health is what the outcome of a call says about its agent.
type health int

const (
	// healthUnknown: it was cancelled, or a limit of ours was passed.
	healthUnknown health = iota
	// healthGood: the agent has answered, whatever it said.
	healthGood
	// healthBad: it could not be reached, took too long, or failed with a status
	// of 500 or more.
	healthBad
)

// healthOf judges an outcome; why is what interrupted the call, or nil.
func healthOf(out *Outcome, why error) health {
	e := out.Result.Err
	answered := out.Disposition == Answered || out.Disposition == Accepted
	if limit, passed := errors.AsType[limitError](why); passed && !answered {
		if limit.limit == "timeout" {
			return healthUnknown // the step's, which may have waited for long
		}
		return healthBad
	}
	switch {
	case why != nil && !answered:
		return healthUnknown
	case e == nil && !answered:
		return healthUnknown
	case e == nil:
		return healthGood
	case detailsOf(e).Status == http.StatusTooManyRequests:
		return healthGood // it wants less, and is well
	case e.Code == parley.CodeAgentUnavailable && e.Retryable, e.Code == parley.CodeTimeout, e.Code == parley.CodeStalled:
		return healthBad
	case answered:
		return healthGood
	}
	return healthUnknown
}

// noteHealth counts how a call has ended for the breaker of its agent.
func (c *call) noteHealth(out *Outcome) {
	b, circuit := c.b, c.lane.circuit.Load()
	if circuit == nil {
		return
	}
	verdict := healthOf(out, c.why)
	b.mu.Lock()
	defer b.mu.Unlock()
	token := c.row.Claim.Token
	if verdict == healthUnknown {
		circuit.Drop(token)
		return
	}
	now := b.now()
	began := now.Add(-b.cfg.Now().Sub(c.sentAt)) // by the clock that circuits go by
	if circuit.Note(token, verdict == healthBad, began, now) {
		b.turnedLocked(c.lane.agent)
		nudge(b.breaking)
	}
}

// dropPermit gives back the permit to try the agent, if the call has one still.
func (c *call) dropPermit(token string) {
	if c.lane.circuit.Load() == nil {
		return
	}
	c.b.mu.Lock()
	c.lane.dropPermitLocked(token)
	c.b.mu.Unlock()
}

// admit asks the breaker of the agent. It gives the next step if the agent is
// not to be called now, else nil.
func (c *call) admit() step {
	b, circuit := c.b, c.lane.circuit.Load()
	if circuit == nil {
		return nil
	}
	b.mu.Lock()
	now := b.now()
	until := now
	verdict := b.verdictLocked(c, circuit)
	sent := c.row.Orphanings > 0 // then it cannot be put back, nor refused
	switch {
	case verdict == breaker.Pass:
	case sent:
		until = circuit.looks(now)
	case verdict == breaker.Hold && !c.turnDown:
		until = b.holdUntilLocked(c.lane)
	}
	if circuit.Wanted() {
		nudge(b.breaking)
	}
	b.mu.Unlock()
	switch {
	case verdict == breaker.Pass:
		return nil
	case sent:
		// Soon while the agent is being tried: a bridge that looks only after its lease of
		// that is over has kept all others from it.
		wait := min(until.Sub(now), laterAtMost)
		return func(c *call) step { return c.claimAgain(wait) }
	case verdict == breaker.Refuse:
		return (*call).refuseOpen
	}
	return func(c *call) step { return c.putBackUntil(until) }
}

// verdictLocked says whether a call may begin now. One that was claimed to be
// turned down does not, since it has no slot: it goes back at once if its agent
// may be called again.
func (b *Bridge) verdictLocked(c *call, circuit *circuit) breaker.Verdict {
	if c.turnDown {
		if b.heldLocked(c.lane) {
			return breaker.Refuse
		}
		return breaker.Hold
	}
	verdict := circuit.Admit(c.row.Claim.Token, b.now())
	if verdict == breaker.Hold && c.row.Policy.OnOpen == parley.OnOpenFail {
		return breaker.Refuse
	}
	return verdict
}

// putBackUntil is P5 for a call that has to wait for its agent's circuit.
func (c *call) putBackUntil(at time.Time) step {
	if d := c.row.Deadline; c.foreign() && at.After(d) {
		at = d
	}
	if _, known := c.move(store.Move{Kind: store.MoveRelease, At: at}); !known {
		return c.leave()
	}
	return nil
}

// refuseOpen ends an attempt because its agent's circuit is open.
func (c *call) refuseOpen() step {
	e := parley.Errorf(parley.CodeAgentUnavailable, "the circuit of agent %q is open after failures; nothing was sent", c.row.Agent)
	e.Retryable = true
	c.out = Outcome{Disposition: NotSent, Result: parley.Result{
		Outcome: parley.OutcomeError, Err: e.WithDetails(errorDetails{Circuit: string(parley.CircuitOpen)}),
	}}
	c.b.log.LogAttrs(c.b.hard, slog.LevelDebug, "task failed: the agent's circuit is open", c.attrs("agent_circuit_open")...)
	return c.settle(store.MoveFail, c.result())
}
