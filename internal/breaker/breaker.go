// Package breaker decides when an agent is called no more, and when it is tried
// again. It is pure: time comes in as an argument, what is to be stored goes out
// as a value.
//
// The state of a circuit is shared by all bridges, as one row with a version;
// each change is a compare-and-set of that version. A [Circuit] is what one
// bridge knows of it, together with what only this bridge counts: its own calls
// of the window, and the probes that it has under way.
//
//	         Trip                    Probe
//	closed --------> open --------------------------> half-open
//	   ^              ^   (Until is over, one bridge)   |  |  ^
//	   |              '---------------------------------'  |  | Probe: renewed,
//	   |                 Reopen: a probe has failed        '--' or taken over
//	   '------------------------------------------------'       when Until is over
//	                     Close: the probes went well
//
// By hand a circuit is opened and closed in any state; one that was opened by
// hand stays so until it is closed by hand.
package breaker

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
)

// Lease is how long a bridge may try a half-open circuit without renewing that,
// before another may: the bridge may have died.
const Lease = 15 * time.Second

// Due reports whether the agent may be tried by whoever is the first to store
// that it does.
func Due(s parley.BreakerState, now time.Time) bool {
	return s.Circuit != parley.CircuitClosed && !s.Manual && !now.Before(s.Until)
}

// Trip opens a circuit because calls have failed.
func Trip(s parley.BreakerState, openFor time.Duration, why string, now time.Time) parley.BreakerState {
	return parley.BreakerState{
		Agent: s.Agent, Circuit: parley.CircuitOpen, Since: now, Until: now.Add(openFor), Reason: why,
		Openings: s.Openings + 1, Version: s.Version + 1,
	}
}

// Probe has a bridge try the agent, or go on with that.
func Probe(s parley.BreakerState, holder string, now time.Time) parley.BreakerState {
	next := s
	if s.Circuit != parley.CircuitHalfOpen {
		next.Since = now
	}
	next.Circuit, next.Holder, next.Until = parley.CircuitHalfOpen, holder, now.Add(Lease)
	next.Version++
	return next
}

// Close ends a circuit that was open.
func Close(s parley.BreakerState, why string, now time.Time) parley.BreakerState {
	return parley.BreakerState{
		Agent: s.Agent, Circuit: parley.CircuitClosed, Since: now, Reason: why, Openings: s.Openings, Version: s.Version + 1,
	}
}

// ByHand does as somebody says; changed is false if that is so already. A circuit that
// is held open by hand and opened again for another reason stays open since it was, and
// has the newer reason.
func ByHand(s parley.BreakerState, o parley.BreakerOrder, now time.Time) (next parley.BreakerState, changed bool) {
	switch {
	case !o.Open && s.Circuit == parley.CircuitClosed, o.Open && s.Manual && (o.Reason == "" || o.Reason == s.Reason):
		return s, false
	case o.Open && s.Manual:
		next = s
		next.Reason, next.Version = o.Reason, s.Version+1
	case !o.Open:
		next = Close(s, o.Reason, now)
	default:
		next = parley.BreakerState{
			Agent: s.Agent, Circuit: parley.CircuitOpen, Manual: true, Since: now, Reason: o.Reason, Openings: s.Openings, Version: s.Version + 1,
		}
	}
	next.By = o.By
	return next, true
}

// Event is the entry of the agent's log for a change from one state to the
// next; false if it is none of the circuit.
func Event(from, to parley.BreakerState, at time.Time) (e parley.AgentEvent, ok bool) {
	if from.Circuit == to.Circuit && from.Manual == to.Manual && to.Circuit != parley.CircuitOpen {
		return e, false
	}
	e = parley.AgentEvent{At: at, Agent: to.Agent}
	switch to.Circuit {
	case parley.CircuitOpen:
		e.Type = parley.EventBreakerOpened
	case parley.CircuitHalfOpen:
		e.Type = parley.EventBreakerHalfOpen
	default:
		e.Type = parley.EventBreakerClosed
	}
	data := struct {
		Reason string     `json:"reason,omitempty"`
		Manual bool       `json:"manual,omitempty"`
		By     string     `json:"by,omitempty"`
		Until  *time.Time `json:"until,omitempty"`
		Bridge string     `json:"bridge,omitempty"`
	}{Reason: to.Reason, Manual: to.Manual, By: to.By, Bridge: to.Holder}
	if to.Circuit == parley.CircuitOpen && !to.Manual {
		data.Until = new(to.Until.UTC())
	}
	if to.Circuit == parley.CircuitHalfOpen {
		data.Reason = ""
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(data) // texts and a time
	e.Data = bytes.TrimSpace(b.Bytes())
	return e, true
}
