package breaker

import (
	"math"
	"time"

	"github.com/parley-project/parley"
)

// Verdict says what is to be done with a task of an agent.
type Verdict int

// The verdicts.
const (
	// Pass: the agent may be called.
	Pass Verdict = iota
	// Hold: it may not; the task waits.
	Hold
	// Refuse: it may not, and the task is not to wait for it.
	Refuse
)

// Circuit is the breaker of one agent as one bridge sees it. Methods must not be
// called concurrently.
type Circuit struct {
	me string
	// set is what the agent's record says, if that is known.
	set   parley.Breaker
	known bool
	// state is what holds here. It is ahead of what is stored if ahead is set.
	state parley.BreakerState
	ahead bool
	// stored is the newest state that is known to be stored.
	stored parley.BreakerState
	window window

	// mine is the version under which this bridge tries the agent, tried the one
	// under which it wanted to when it last asked for that; 0 is none.
	mine, tried int64
	// wanted: there are tasks for which the agent is to be tried.
	wanted bool
	// probes are the tokens of calls that may try it, passed how many have gone well.
	probes map[string]struct{}
	passed int
}

// New gives the closed circuit of an agent whose record is not known yet. Me is
// the name of the bridge.
func New(agent, me string) *Circuit {
	s := parley.BreakerState{Agent: agent, Circuit: parley.CircuitClosed}
	return &Circuit{me: me, set: parley.DefaultBreaker(), state: s, stored: s, probes: make(map[string]struct{})}
}

// Configure sets what the agent's record says; nil is no breaker. Without one
// the circuit is open only by hand.
func (c *Circuit) Configure(set *parley.Breaker) {
	to := parley.Breaker{}
	if set != nil {
		to = *set
	}
	if to != c.set && !c.ahead {
		c.window = window{}
	}
	c.set, c.known = to, true
}

// State is what holds for this bridge.
func (c *Circuit) State() parley.BreakerState { return c.state }

// Idle reports whether nothing but a count of calls would be lost if the circuit
// were forgotten.
func (c *Circuit) Idle() bool {
	return !c.ahead && c.state.Circuit == parley.CircuitClosed
}

// held reports whether the agent is not to be called, but to try it.
func (c *Circuit) held() bool {
	return c.state.Circuit != parley.CircuitClosed && (c.state.Manual || c.set.Enabled || !c.known)
}

// spare is how many more calls may try the agent.
func (c *Circuit) spare() int { return max(0, c.set.HalfOpenCalls-len(c.probes)-c.passed) }

// probing reports whether this bridge tries the agent.
func (c *Circuit) probing() bool {
	return c.mine != 0 && c.state.Version == c.mine && c.state.Circuit == parley.CircuitHalfOpen
}

// mayProbe reports whether calls of this bridge may try the agent: once its lease is
// over another bridge may, so it is to be renewed first.
func (c *Circuit) mayProbe(now time.Time) bool { return c.probing() && !Due(c.state, now) }

// Room is how many more calls may begin. If the agent may be tried it is noted
// that there are tasks for that.
func (c *Circuit) Room(now time.Time) int {
	switch {
	case !c.held():
		return math.MaxInt
	case c.mayProbe(now):
		if c.set.OnOpen == parley.OnOpenFail {
			return math.MaxInt // those that are too many end at once
		}
		return c.spare()
	case Due(c.state, now):
		c.wanted = true
		return 0
	case c.set.OnOpen == parley.OnOpenFail:
		return math.MaxInt
	}
	return 0
}

// Wanted reports whether there are tasks for which the agent is to be tried.
func (c *Circuit) Wanted() bool { return c.wanted }

// Held says what becomes of tasks that come now: Pass if they may wait here for
// their turn, which may be a turn to try the agent.
func (c *Circuit) Held(now time.Time) Verdict {
	if !c.held() || c.probing() || Due(c.state, now) {
		return Pass
	}
	return c.closedTo()
}

func (c *Circuit) closedTo() Verdict {
	if c.set.OnOpen == parley.OnOpenFail {
		return Refuse
	}
	return Hold
}

// Reserve notes that the call of that token will try the agent, if it is tried
// and there is room.
func (c *Circuit) Reserve(token string) {
	if c.held() && c.probing() && c.spare() > 0 {
		c.probes[token] = struct{}{}
	}
}

// Admit says whether the call of that token may begin now.
func (c *Circuit) Admit(token string, now time.Time) Verdict {
	if !c.held() {
		return Pass
	}
	if c.mayProbe(now) {
		if _, reserved := c.probes[token]; reserved {
			return Pass
		}
		if c.spare() > 0 {
			c.probes[token] = struct{}{}
			return Pass
		}
	}
	c.wanted = c.wanted || Due(c.state, now)
	return c.closedTo()
}

// Drop forgets the call of that token: nothing is known of how it ended.
func (c *Circuit) Drop(token string) { delete(c.probes, token) }

// Note counts the end of the call of that token, which began then. It reports whether
// the state has changed.
func (c *Circuit) Note(token string, failed bool, began, now time.Time) bool {
	_, probe := c.probes[token]
	delete(c.probes, token)
	if !c.known || !c.set.Enabled {
		return false
	}
	switch c.state.Circuit {
	case parley.CircuitClosed:
		if began.Before(c.state.Since) {
			return false // it tells how the agent was before the circuit was closed
		}
		c.window.note(&c.set, failed, now)
		why := ""
		if failed {
			why = c.window.verdict(&c.set)
		}
		if why == "" {
			return false
		}
		c.lead(Trip(c.state, c.set.OpenFor, why, now))
		return true
	case parley.CircuitHalfOpen:
		if !probe || !c.probing() {
			return false // it began before the circuit was opened
		}
		if failed {
			c.lead(Trip(c.state, c.set.OpenFor, "a call that tried the agent has failed", now))
			return true
		}
		if c.passed++; c.passed >= c.set.HalfOpenCalls {
			c.lead(c.closing(now))
			return true
		}
	}
	return false
}

func (c *Circuit) closing(now time.Time) parley.BreakerState {
	return Close(c.state, "the calls that tried the agent went well", now)
}

// lead takes a state that is not stored yet. It follows what is stored, whatever
// else this bridge has led to and not stored: that nobody else knows.
func (c *Circuit) lead(s parley.BreakerState) {
	c.state, c.ahead = s, true
	c.state.Version = c.stored.Version + 1
	c.rest()
}

// rest forgets what was tried.
func (c *Circuit) rest() {
	c.mine, c.passed, c.wanted = 0, 0, false
	clear(c.probes)
}

// Next is the change that is to be stored now, if any, from one state to the
// next. [Circuit.Stored] or [Circuit.Adopt] takes what came of it.
func (c *Circuit) Next(now time.Time) (from, to parley.BreakerState, ok bool) {
	s := c.state
	switch {
	case c.ahead:
		return c.stored, s, true
	case s.Circuit == parley.CircuitClosed || s.Manual:
		return s, s, false
	case c.known && !c.set.Enabled:
		c.lead(Close(s, "the agent has no breaker any more", now))
		return c.stored, c.state, true
	case c.probing():
		if now.Before(s.Until.Add(-Lease / 2)) {
			return s, s, false
		}
		if len(c.probes) == 0 && c.passed > 0 {
			c.lead(c.closing(now)) // there are no more tasks
			return s, c.state, true
		}
		if len(c.probes) == 0 && !c.wanted {
			return s, s, false // another bridge may have some
		}
	case !c.wanted || !Due(s, now):
		return s, s, false
	}
	to = Probe(s, c.me, now)
	c.tried = to.Version
	return s, to, true
}

// Stored says that s, as [Circuit.Next] gave it, stands in the store.
func (c *Circuit) Stored(s parley.BreakerState) {
	if s.Version < c.stored.Version {
		return // somebody has changed it since, which is known here
	}
	c.stored = s
	switch {
	case c.ahead && s == c.state:
		c.ahead = false
		c.settle()
	case c.ahead: // it went on while that was written
		c.state.Version = s.Version + 1
	case s.Circuit == parley.CircuitHalfOpen:
		c.state, c.mine, c.wanted = s, s.Version, false
	}
}

// Adopt takes what stands in the store. It reports whether the state has changed
// for this bridge.
func (c *Circuit) Adopt(s parley.BreakerState) (changed bool) {
	switch {
	case s.Version <= c.stored.Version:
		return false // nothing new, or read before what is known
	case s.Circuit == parley.CircuitHalfOpen && s.Holder == c.me && s.Version == c.tried:
		changed = !c.ahead && !c.probing()
		c.Stored(s) // nobody knew whether it was written
		return changed
	case c.ahead && c.state.Circuit == parley.CircuitOpen && s.Circuit == parley.CircuitClosed && s.Since.Before(c.window.since):
		// The calls that have opened it were made since.
		c.stored = s
		c.state.Version, c.state.Openings = s.Version+1, s.Openings+1
		return false
	}
	// Written by this bridge, which did not learn that, or by whomever.
	changed = s.Circuit != c.state.Circuit || s.Manual != c.state.Manual || c.probing()
	c.stored, c.state, c.ahead = s, s, false
	c.rest()
	c.settle()
	return changed
}

// settle begins a new window when the circuit is closed, and forgets the old one
// when it is opened.
func (c *Circuit) settle() { c.window = window{} }
