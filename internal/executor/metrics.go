package executor

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Metrics are the numbers of an executor. What it has written is counted once
// the store has said so: a write whose answer was lost is not. All methods may be
// called concurrently, and on nil, which counts nothing.
type Metrics struct {
	handOffs, results, requests, monitoring, retries, turns, triggers, events *prometheus.CounterVec

	durations *prometheus.HistogramVec
	mu        sync.Mutex // protects workflows
	// workflows are those with series of their own.
	workflows map[string]struct{}
}

const (
	// maxSeries bounds the workflows with series of their own: a histogram for each
	// end is much. The others share those of otherWorkflows.
	maxSeries      = 200
	otherWorkflows = "_other"
)

// NewMetrics makes the collectors and registers them with reg; nil registers
// them nowhere. It panics if reg has some of these names already, which is a
// mistake in the program.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	registered := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return registered.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Metrics{
		workflows: make(map[string]struct{}),
		durations: registered.NewHistogramVec(prometheus.HistogramOpts{
			Name: "parley_run_duration_seconds", Help: "Time from the start of a run, as it was accepted, to its end.",
			Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600},
		}, []string{"workflow", "status"}),
		events:     counter("parley_run_events_total", "Events that this process has added to the histories of runs.", "type"),
		handOffs:   counter("parley_executor_hand_offs_total", "What became of attempts that were handed to an old bridge.", "fate"),
		results:    counter("parley_executor_result_records_total", "What became of the result records from the bus.", "fate"),
		requests:   counter("parley_executor_request_records_total", "What became of the request records from the bus.", "kind", "fate"),
		retries:    counter("parley_executor_retries_total", "Retries of agent calls: within the agent's budget, or put off by it.", "agent", "budget"),
		turns:      counter("parley_executor_turns_total", "What became of runs of workflows with concurrency.", "fate"),
		triggers:   counter("parley_trigger_firings_total", "What became of webhook deliveries, events and records that met a trigger.", "trigger", "fate"),
		monitoring: counter("parley_executor_monitoring_records_total", "What became of records about steps for watchers.", "fate"),
	}
}

// decided counts what was written of a run, whose state it is afterwards.
func (m *Metrics) decided(s *workflow.State, events []parley.Event) {
	if m == nil {
		return
	}
	for i := range events {
		m.events.WithLabelValues(string(events[i].Type)).Inc()
		switch events[i].Type {
		case parley.EventRunCompleted, parley.EventRunFailed, parley.EventRunCancelled:
			took := events[i].At.Sub(s.CreatedAt())
			m.durations.WithLabelValues(m.workflow(s.Definition().ID), string(s.Status())).Observe(max(took, 0).Seconds())
		}
	}
}

// workflow gives the label of a workflow.
func (m *Metrics) workflow(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.workflows[id]; !known {
		if len(m.workflows) >= maxSeries {
			return otherWorkflows
		}
		m.workflows[id] = struct{}{}
	}
	return id
}

// The fates of attempts that are handed over.
const (
	fatePublished = "published"
	fateRefused   = "refused"  // the bus does not take such a record
	fateReturned  = "returned" // it may not be published now, and is handed over again
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
