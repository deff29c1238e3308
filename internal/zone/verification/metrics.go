package verification

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	questions, events, calls *prometheus.CounterVec
	seconds                  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_zone_" + name, Help: help}, labels)
	}
	m := &metrics{
		questions: counter("questions_total", "Questions of people that have ended, by what they came to.", "outcome"),
		events:    counter("events_total", "Events of Slack, by what was done with them.", "result"),
		calls:     counter("slack_calls_total", "Calls of Slack's Web API, by what they came to.", "method", "result"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "parley_zone_answer_seconds", Help: "Time from a question to the last message of its answer.",
			Buckets: []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 900},
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.questions, m.events, m.calls, m.seconds} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
