package bridge

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
)

// Metrics are the numbers of a bridge (AD-11). It is a [TranslationObserver]:
// adapters measure what only they see, their translations, through that
// interface, so that they know neither the bridge nor its metrics library. All
// methods may be called concurrently, and on nil, which counts nothing.
type Metrics struct {
	requests     *prometheus.CounterVec
	translations *prometheus.HistogramVec
	failures     *prometheus.CounterVec
	records      *prometheus.CounterVec
	circuits     *prometheus.GaugeVec
	openings     *prometheus.CounterVec
	deferred     *prometheus.CounterVec
	limits       *prometheus.GaugeVec
	rateWaits    *prometheus.CounterVec
	took         *prometheus.HistogramVec
	inFlight     *prometheus.GaugeVec
	errors       *prometheus.CounterVec
	lateAnswers  *prometheus.CounterVec

	// A child is looked up by hashing its labels; calls look here first.
	mu        sync.RWMutex // protects the maps
	byAgent   map[pair]prometheus.Counter
	durations map[pair]prometheus.Observer
	series    map[string]*agentSeries
}

// agentSeries are the series of one agent, or of all that have none of their own.
type agentSeries struct {
	name     string
	took     prometheus.Observer
	inFlight prometheus.Gauge
}

const (
	// maxSeries bounds the agents with series of their own: a histogram each is
	// much. The others share one, of the name otherAgents.
	maxSeries   = 1000
	otherAgents = "_other"
)

type pair struct{ protocol, other string }

// maxCached bounds the children that are kept at hand.
const maxCached = 10_000

// NewMetrics makes the collectors and registers them with reg; nil registers
// them nowhere. Collectors of the same names that are there already are used.
// It panics if reg has others under these names, which is a mistake in the
// program.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		byAgent:   make(map[pair]prometheus.Counter),
		durations: make(map[pair]prometheus.Observer),
		series:    make(map[string]*agentSeries),
	}
	m.requests = register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "agent_protocol_requests_total", Help: "Calls sent to agents.",
	}, []string{"protocol", "agent_name"}))
	m.translations = register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "protocol_translation_duration_seconds", Help: "Time to translate a task or an answer.",
		Buckets: []float64{1e-6, 5e-6, 10e-6, 50e-6, 100e-6, 500e-6, 1e-3, 5e-3, 10e-3, 100e-3},
	}, []string{"protocol", "direction"}))
	m.failures = register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "protocol_translation_errors_total", Help: "Tasks and answers that could not be translated.",
	}, []string{"protocol", "direction", "error_type"}))
	m.records = register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "parley_bridge_records_total", Help: "What became of the task records from the bus.",
	}, []string{"fate"}))
	m.circuits = register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "parley_agent_circuit", Help: "Circuit of an agent as this bridge sees it: 0 closed, 1 half-open, 2 open.",
	}, []string{"agent_name"}))
	m.openings = register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "parley_agent_circuit_openings_total", Help: "How often failures seen by this bridge have opened the circuit of an agent.",
	}, []string{"agent_name"}))
	m.deferred = register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "parley_bridge_deferred_total", Help: "Tasks that wait in the store instead of the bridge: queue or queue_bytes (its agent's queue is full), bytes (the bridge is), circuit (its agent's is open), waited (for too long).",
	}, []string{"reason"}))
	m.limits = register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "parley_agent_concurrency_limit", Help: "Calls in flight that this bridge allows an agent, once that was adapted to what it can take.",
	}, []string{"agent_name"}))
	m.rateWaits = register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "parley_agent_rate_waits_total", Help: "How often the tasks of an agent began to wait for its rate, its Retry-After, or its first connections.",
	}, []string{"agent_name"}))
	m.took = register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "parley_agent_call_duration_seconds", Help: "Time from the claim of a call to its end, those included that failed.",
		Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
	}, []string{"agent_name"}))
	m.inFlight = register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "parley_agent_calls_in_flight", Help: "Calls that this bridge has in hand, with those that it follows or is to send again.",
	}, []string{"agent_name"}))
	m.errors = register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "parley_agent_call_errors_total", Help: "Calls that have failed, by the code of their error; cancelled ones are none.",
	}, []string{"agent_name", "code"}))
	m.lateAnswers = register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "parley_agent_late_answers_total", Help: "Answers of agents that came when nobody waited for them any more, as after a timeout.",
	}, []string{"agent_name"}))
	return m
}

// of gives the series of an agent.
func (m *Metrics) of(agent string) *agentSeries {
	m.mu.RLock()
	s := m.series[agent]
	if s == nil && len(m.series) >= maxSeries {
		s = m.series[otherAgents]
	}
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.series) >= maxSeries {
		agent = otherAgents
	}
	if s = m.series[agent]; s == nil {
		s = &agentSeries{agent, m.took.WithLabelValues(agent), m.inFlight.WithLabelValues(agent)}
		m.series[agent] = s
	}
	return s
}

// inHand counts a call until done is called.
func (m *Metrics) inHand(agent string) (done func()) {
	if m == nil {
		return func() {}
	}
	s := m.of(agent)
	s.inFlight.Inc()
	return s.inFlight.Dec
}

// ended measures a call that has ended so.
func (m *Metrics) ended(agent string, r *parley.Result, after time.Duration) {
	if m == nil || r.Outcome == parley.OutcomeCancelled {
		return
	}
	s := m.of(agent)
	s.took.Observe(max(after, 0).Seconds())
	if r.Err != nil {
		m.errors.WithLabelValues(s.name, string(r.Err.Code)).Inc()
	}
}

// late counts an answer that nobody waited for any more.
func (m *Metrics) late(agent string) {
	if m != nil {
		m.lateAnswers.WithLabelValues(m.of(agent).name).Inc()
	}
}

func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := there.ExistingCollector.(C); ok {
			return same
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}

// request counts one call sent to an agent.
func (m *Metrics) request(protocol, agent string) {
	if m == nil {
		return
	}
	key := pair{protocol, agent}
	m.mu.RLock()
	c := m.byAgent[key]
	m.mu.RUnlock()
	if c == nil {
		c = m.requests.WithLabelValues(protocol, agent)
		m.mu.Lock()
		if len(m.byAgent) < maxCached {
			m.byAgent[key] = c
		}
		m.mu.Unlock()
	}
	c.Inc()
}

// Translated measures one translation; direction is "request" or "response".
func (m *Metrics) Translated(protocol, direction string, took time.Duration) {
	if m == nil {
		return
	}
	key := pair{protocol, direction}
	m.mu.RLock()
	o := m.durations[key]
	m.mu.RUnlock()
	if o == nil {
		o = m.translations.WithLabelValues(protocol, direction)
		m.mu.Lock()
		if len(m.durations) < maxCached {
			m.durations[key] = o
		}
		m.mu.Unlock()
	}
	o.Observe(took.Seconds())
}

// TranslationError counts one task or answer that could not be translated.
func (m *Metrics) TranslationError(protocol, direction, errorType string) {
	if m == nil {
		return
	}
	m.failures.WithLabelValues(protocol, direction, errorType).Inc()
}

// The fates of a record from the bus.
const (
	fateQueued    = "queued"
	fateDuplicate = "duplicate"
	fateDeferred  = "deferred"
	fateInvalid   = "invalid"
	// fateRefused: the row is gone, held, or somebody else's.
	fateRefused = "refused"
	// fateRejected: answered with a failure; fateDeadLetter: not even that.
	fateRejected   = "rejected"
	fateDeadLetter = "dead_letter"
)

func (m *Metrics) record(fate string, n int) {
	if m != nil && n > 0 {
		m.records.WithLabelValues(fate).Add(float64(n))
	}
}

// circuit notes where the circuit of an agent stands.
func (m *Metrics) circuit(agent string, c parley.Circuit) {
	if m == nil {
		return
	}
	value := map[parley.Circuit]float64{parley.CircuitHalfOpen: 1, parley.CircuitOpen: 2}[c]
	m.circuits.WithLabelValues(agent).Set(value)
}

// opened counts an opening.
func (m *Metrics) opened(agent string) {
	if m != nil {
		m.openings.WithLabelValues(agent).Inc()
	}
}

// putOff counts tasks that wait in the ledger.
func (m *Metrics) putOff(why string, n int) {
	if m != nil && n > 0 {
		m.deferred.WithLabelValues(why).Add(float64(n))
	}
}

// limit notes how many calls an agent may have in flight.
func (m *Metrics) limit(agent string, n int) {
	if m != nil {
		m.limits.WithLabelValues(agent).Set(float64(n))
	}
}

// rateWait counts that an agent's tasks began to wait for a time.
func (m *Metrics) rateWait(agent string) {
	if m != nil {
		m.rateWaits.WithLabelValues(agent).Inc()
	}
}
