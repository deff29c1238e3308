package parley

import (
	"encoding/json"
	"time"
)

// Breaker is the circuit breaker of an agent record, with the names and defaults
// of the existing platform (formats.md, circuit_breaker_config). It opens when
// the newest FailureThreshold calls have failed, or when of at least MinimumCalls
// calls in Window the share FailureRate has. Calls fail by what they say about
// the agent's health: no connection, a timeout, a status of 500 or more.
type Breaker struct {
	Enabled bool
	// FailureThreshold is 1 to 1,000 calls; default 5.
	FailureThreshold int
	// FailureRate is more than 0 and at most 1; default 0.5.
	FailureRate float64
	// MinimumCalls is 1 to 100,000; 0 is FailureThreshold.
	MinimumCalls int
	// OpenFor is how long the circuit is open before the agent is tried again,
	// 1 s to 1 h; default 60 s.
	OpenFor time.Duration
	// HalfOpenCalls is how many calls try it at a time, and how many of them have
	// to go well, 1 to 100; default 3.
	HalfOpenCalls int
	// Window is 1 s to 1 h; default 120 s.
	Window time.Duration
	// OnOpen says what becomes of tasks meanwhile; "" is [OnOpenWait], but for a
	// bridge without a store [OnOpenFail].
	OnOpen OnOpen
}

// DefaultBreaker is what a record gets that names a breaker and none of its
// members.
func DefaultBreaker() Breaker {
	return Breaker{
		Enabled: true, FailureThreshold: 5, FailureRate: 0.5, OpenFor: time.Minute, HalfOpenCalls: 3, Window: 2 * time.Minute,
	}
}

// OnOpen says what becomes of tasks for an agent whose circuit is open.
type OnOpen string

// What may become of tasks for an agent whose circuit is open.
const (
	// OnOpenWait has them wait in the store, bounded by their deadlines.
	OnOpenWait OnOpen = "wait"
	// OnOpenFail ends their attempts with agent_unavailable; nothing is sent.
	OnOpenFail OnOpen = "fail"
)

// Circuit is where a breaker stands.
type Circuit string

// The states of a circuit.
const (
	CircuitClosed   Circuit = "closed"
	CircuitOpen     Circuit = "open"
	CircuitHalfOpen Circuit = "half_open"
)

// BreakerState is the state of one agent's circuit, which all bridges share.
// Each change raises Version by one; version 0 is closed and was never changed.
type BreakerState struct {
	Agent   string
	Circuit Circuit
	// Manual: somebody has opened it, and somebody has to close it.
	Manual bool
	// Since is when Circuit was reached.
	Since time.Time
	// Until is when an open circuit may be tried, and when a half-open one may be
	// tried by another bridge. Zero if closed or Manual.
	Until time.Time
	// Reason says why it was opened or closed, By who did so by hand.
	Reason, By string
	// Holder is the bridge that tries a half-open circuit.
	Holder string
	// Openings counts how often it was opened by failures.
	Openings int64
	Version  int64
}

// BreakerOrder is what somebody wants of a circuit.
type BreakerOrder struct {
	Open bool
	By   string
	// Reason may be empty; at most 500 characters.
	Reason string
}

// AgentEvent is one entry of the log of an agent, which holds what belongs to
// no run (interface.md, events). Seq starts at 1 and has no gaps; old entries are
// removed.
type AgentEvent struct {
	Seq   int64           `json:"seq"`
	At    time.Time       `json:"at"`
	Type  AgentEventType  `json:"type"`
	Agent string          `json:"agent"`
	Data  json.RawMessage `json:"data"`
}

// AgentEventType names what happened to an agent. Readers ignore types that
// they don't know.
type AgentEventType string

// The types of the entries that this version writes.
const (
	EventBreakerOpened   AgentEventType = "agent.breaker_opened"
	EventBreakerHalfOpen AgentEventType = "agent.breaker_half_open"
	EventBreakerClosed   AgentEventType = "agent.breaker_closed"
	EventHealthChanged   AgentEventType = "agent.health_changed"
	EventCardChanged     AgentEventType = "agent.card_changed"
)
