package retention

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the numbers of a sweeper. Its methods may be called on nil, which
// counts nothing.
type Metrics struct {
	sweeps *prometheus.CounterVec
	runs   *prometheus.CounterVec
}

// NewMetrics makes the collectors and registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_retention_sweeps_total", Help: "Sweeps for runs that have been over for long enough, by what came of them.",
		}, []string{"outcome"}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_retention_runs_total", Help: "Runs that were written to the archive, and runs that were removed.",
		}, []string{"what"}),
	}
	reg.MustRegister(m.sweeps, m.runs)
	return m
}

func (m *Metrics) swept(r Report, err error) {
	if m == nil {
		return
	}
	outcome := "done"
	switch {
	case err != nil:
		outcome = "failed"
	case r.Busy:
		outcome = "elsewhere"
	}
	m.sweeps.WithLabelValues(outcome).Inc()
	m.runs.WithLabelValues("removed").Add(float64(r.Removed))
	m.runs.WithLabelValues("archived").Add(float64(r.Archived))
}
