package deadletter

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
)

// Metrics are the numbers of a [Keeper]. Its methods may be called concurrently,
// and on nil, which counts nothing.
type Metrics struct {
	records, removed prometheus.Counter
	replays          *prometheus.CounterVec
	waits            prometheus.Gauge
}

// NewMetrics makes the collectors and registers them with reg; nil registers
// them nowhere. The error is that of reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "parley_dead_letter_records_total", Help: "Records of the bus that were stored as dead letters.",
		}),
		removed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "parley_dead_letters_removed_total", Help: "Dead letters that were removed because they were too old or too many.",
		}),
		replays: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_dead_letter_replays_total", Help: "Replays of dead letters, by the code of what failed, or ok.",
		}, []string{"result"}),
		waits: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "parley_dead_letters_waiting", Help: "Dead letters that nobody has replayed or discarded, as of the last minute.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.records), reg.Register(m.removed), reg.Register(m.replays), reg.Register(m.waits))
}

func (m *Metrics) kept() {
	if m != nil {
		m.records.Inc()
	}
}

func (m *Metrics) purged(n int) {
	if m != nil {
		m.removed.Add(float64(n))
	}
}

func (m *Metrics) waiting(n int) {
	if m != nil {
		m.waits.Set(float64(n))
	}
}

func (m *Metrics) replayed(err error) {
	if m == nil {
		return
	}
	result := "ok"
	if err != nil {
		result = string(parley.CodeOf(err))
	}
	m.replays.WithLabelValues(result).Inc()
}
