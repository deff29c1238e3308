package parley

import "time"

// HealthStatus says whether an agent is well, by the looks that are taken at it
// in the background.
type HealthStatus string

// The states of an agent's health.
const (
	// HealthUnknown: nobody has looked yet, or nobody can: a program on stdio is
	// known by its calls alone.
	HealthUnknown   HealthStatus = "unknown"
	HealthHealthy   HealthStatus = "healthy"
	HealthUnhealthy HealthStatus = "unhealthy"
)

// HealthCheck says how an agent is looked at in the background.
type HealthCheck struct {
	// Off: it is not looked at.
	Off bool
	// Interval is the time between two looks, 1 s to 1 h; 0 is the server's.
	Interval time.Duration
	// Timeout bounds one look, 100 ms to 30 s, and never more than Interval; 0 is
	// the server's.
	Timeout time.Duration
}

// HealthState is what the looks at an agent have come to.
type HealthState struct {
	Agent  string
	Status HealthStatus
	// Message says what the newest look showed, at most 1 KiB.
	Message string
	// Took is how long the newest look took.
	Took time.Duration
	// CheckedAt is the newest look, ChangedAt when Status was reached; zero for
	// never.
	CheckedAt, ChangedAt time.Time
	// Failures counts the newest looks that have failed in a row.
	Failures int
	// CardHash is that of the agent card that was seen last, see [Detection].
	CardHash string
}

// CallStats are the newest calls of an agent that have ended: those within the
// time that was asked for, and of them at most as many as were asked for.
// Cancelled ones don't count.
type CallStats struct {
	Count, Errors int
	// P50, P95 and P99 are percentiles of the time from the claim of a call to its
	// end, those that failed included; 0 without calls.
	P50, P95, P99 time.Duration
	// Window is the time that the calls are of.
	Window time.Duration
}

// ErrorRate is the share of the calls that have failed, 0 without calls.
func (s CallStats) ErrorRate() float64 {
	if s.Count == 0 {
		return 0
	}
	return float64(s.Errors) / float64(s.Count)
}

// AgentCondition is how an agent does.
type AgentCondition struct {
	Health HealthState
	Calls  CallStats
	// InFlight counts the calls that all bridges have under way at it.
	InFlight int
	Circuit  Circuit
}
