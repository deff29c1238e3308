package executor

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// Metrics are the numbers of an executor beside programs of the existing
// platform. All methods may be called concurrently, and on nil, which counts
// nothing.
type Metrics struct {
	handOffs, results, requests, monitoring, retries, turns, triggers *prometheus.CounterVec
}

// NewMetrics makes the collectors and registers them with reg; nil registers
// them nowhere. Collectors of the same names that are there already are used.
// It panics if reg has others under these names, which is a mistake in the
// program.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		if reg == nil {
			return c
		}
		err := reg.Register(c)
		if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			if same, ok := there.ExistingCollector.(*prometheus.CounterVec); ok {
				return same
			}
		}
		if err != nil {
			panic(err)
		}
		return c
	}
	return &Metrics{
		handOffs:   counter("parley_executor_hand_offs_total", "What became of attempts that were handed to an old bridge.", "fate"),
		results:    counter("parley_executor_result_records_total", "What became of the result records from the bus.", "fate"),
		requests:   counter("parley_executor_request_records_total", "What became of the request records from the bus.", "kind", "fate"),
		retries:    counter("parley_executor_retries_total", "Retries of agent calls: within the agent's budget, or put off by it.", "agent", "budget"),
		turns:      counter("parley_executor_turns_total", "What became of runs of workflows with concurrency.", "fate"),
		triggers:   counter("parley_trigger_firings_total", "What became of webhook deliveries, events and records that met a trigger.", "trigger", "fate"),
		monitoring: counter("parley_executor_monitoring_records_total", "What became of records about steps for watchers.", "fate"),
	}
}

// The fates of attempts that are handed over.
const (
	fatePublished = "published"
	fateRefused   = "refused" // the bus does not take such a record
	fateDoubtful  = "doubtful"
	fateSentAgain = "sent again"
	fateUnknown   = "unknown"
)

// The fates of result records.
const (
	fateTaken    = "taken"
	fateLate     = "late"
	fateRepeated = "repeated"
	fateForeign  = "foreign"
)

// The kinds and fates of request records.
const (
	kindStart     = "start"
	kindCancel    = "cancel"
	fateStarted   = "started"
	fateCancelled = "cancelled"
	fateEnded     = "ended"
	fateNoSuchRun = "unknown run"
	fateDropped   = "dropped"
)

// The fates of runs that share a bound.
const (
	fateBegan    = "began"
	fateQueued   = "queued"
	fateAdmitted = "admitted"
)

func (m *Metrics) turn(fate string) {
	if m != nil {
		m.turns.WithLabelValues(fate).Inc()
	}
}

// refusedTurn counts a start that was refused since others run.
func (m *Metrics) refusedTurn(t *store.Turn, err error) {
	if c := parley.CodeOf(err); t != nil && (c == parley.CodeConflict || c == parley.CodeLimit) {
		m.turn(fateRefused)
	}
}

// The fates of what meets a trigger, beside those of request records.
const (
	fateIgnored  = "ignored"
	fateFailed   = "failed"
	fateUnsigned = "unsigned"
	fateTooLong  = "chain too long"
)

func (m *Metrics) handOff(fate string) {
	if m != nil {
		m.handOffs.WithLabelValues(fate).Inc()
	}
}

func (m *Metrics) result(fate string) {
	if m != nil {
		m.results.WithLabelValues(fate).Inc()
	}
}

func (m *Metrics) request(kind, fate string) {
	if m != nil {
		m.requests.WithLabelValues(kind, fate).Inc()
	}
}

func (m *Metrics) trigger(by, fate string) {
	if m != nil {
		m.triggers.WithLabelValues(by, fate).Inc()
	}
}

func (m *Metrics) retried(agent string, within bool) {
	if m == nil {
		return
	}
	fate := "put off"
	if within {
		fate = "within"
	}
	m.retries.WithLabelValues(agent, fate).Inc()
}

func (m *Metrics) monitored(fate string) {
	if m != nil {
		m.monitoring.WithLabelValues(fate).Inc()
	}
}
