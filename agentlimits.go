package parley

import (
	"strconv"
	"strings"
	"time"
)

// AgentLimits say how much of an agent's tasks each bridge lets through, beside
// [Agent.MaxConcurrent]. The zero value of each member is its default.
type AgentLimits struct {
	// Fixed: MaxConcurrent alone bounds the calls in flight. Else the bound is
	// lowered while the agent has too much to do (429, 503, timeouts, no
	// connection) and raised again when it answers, and Retry-After holds all of
	// its calls.
	Fixed bool
	// Rate bounds the calls that begin, in calls per second: 1 in an hour to 10,000
	// a second; 0 is no bound.
	Rate float64
	// Burst is how many calls may begin at once after a pause, 1 to 100,000; 0 is a
	// tenth of a second's worth, at least 1. It is given only with Rate.
	Burst int
	// Queue bounds the tasks that wait in memory, 1 to 65,536; more wait in the
	// store. 0: as many as the agent does within 2 seconds, at least 1,024.
	Queue int
	// QueueBytes bounds their bytes, 64 KiB to 1 GiB; 0 is 16 MiB.
	QueueBytes int64
}

// DefaultPriority is the priority of an agent whose record names none. Of agents
// that wait for slots one of priority 10 gets twice as many.
const DefaultPriority = 5

// The priority of a run among those that wait for the same agents is 0 to
// MaxRunPriority, DefaultRunPriority if the start names none. Higher goes first;
// each level is worth [PriorityWait] of waiting, so nobody waits for ever.
const (
	DefaultRunPriority = 4
	MaxRunPriority     = 9
	PriorityWait       = 30 * time.Second
)

// MaxPriority is the highest priority of an agent; the lowest is 1.
const MaxPriority = 10

// The ranges of [AgentLimits].
const (
	MinRate       = 1.0 / 3600 // calls per second
	MaxRate       = 10_000
	MaxBurst      = 100_000 // calls
	MaxQueue      = 65_536  // tasks
	MinQueueBytes = 64 << 10
	MaxQueueBytes = 1 << 30
)

// ParseRate reads a rate as people write it, such as 10/s, 90/m or 1000/h, and
// gives it in calls per second; ok is false if it has none of these forms.
func ParseRate(text string) (perSecond float64, ok bool) {
	number, unit, ok := strings.Cut(text, "/")
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if !ok || seconds == 0 || err != nil || !(n > 0 && n < 1e9) {
		return 0, false
	}
	return n / seconds, true
}
