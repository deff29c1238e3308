package schedule

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
)

// Metrics are the numbers of a scheduler. Its methods may be called concurrently,
// and on nil, which counts nothing.
type Metrics struct {
	firings *prometheus.CounterVec
}

// NewMetrics makes the collectors and registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{firings: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "parley_schedule_firings_total", Help: "Firings of schedules that this process has settled, by what came of them.",
	}, []string{"state"})}
	reg.MustRegister(m.firings)
	return m
}

// settled counts those of firings for which nothing is left to do.
func (m *Metrics) settled(firings []parley.ScheduleFiring) {
	if m == nil {
		return
	}
	for _, f := range firings {
		if f.State != parley.FiringStarting && f.State != parley.FiringWaiting {
			m.firings.WithLabelValues(string(f.State)).Inc()
		}
	}
}
