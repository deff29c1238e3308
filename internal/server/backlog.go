package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

const (
	// backlogMost is up to how many are counted: a page of metrics has to stay
	// cheap when much waits.
	backlogMost   = 100_000
	backlogWithin = 5 * time.Second
)

// backlog reads what waits when somebody asks for the metrics. It is the same in
// every process.
type backlog struct {
	db                     *store.DB
	runs, attempts         *prometheus.Desc
	runsLate, attemptsLate *prometheus.Desc
	bridges                *prometheus.Desc
}

func newBacklog(db *store.DB) backlog {
	return backlog{
		db: db,
		runs: prometheus.NewDesc("parley_runs_open",
			"Runs that have not ended, by status; of all processes, up to 100000.", []string{"status"}, nil),
		attempts: prometheus.NewDesc("parley_attempts_open",
			"Attempts that are not closed, by state; of all processes, up to 100000.", []string{"state"}, nil),
		runsLate: prometheus.NewDesc("parley_runs_late_seconds",
			"For how long the timer of a run could have fired: the longest. Above a few seconds the executors fall behind.", nil, nil),
		attemptsLate: prometheus.NewDesc("parley_attempts_late_seconds",
			"For how long an attempt could have been announced to the bridges: the longest. Above a few seconds nobody does.", nil, nil),
		bridges: prometheus.NewDesc("parley_bridges_up",
			"Bridges that work with this database and are not known to be dead. With none, attempts stay open.", nil, nil),
	}
}

// Describe implements [prometheus.Collector].
func (b backlog) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{b.runs, b.attempts, b.runsLate, b.attemptsLate, b.bridges} {
		to <- d
	}
}

// Collect implements [prometheus.Collector]. What cannot be read now is left out.
func (b backlog) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), backlogWithin)
	defer cancel()
	waiting, err := b.db.Backlog(ctx, b.db.Now(), backlogMost)
	if err != nil {
		return
	}
	// None is told as 0: a series that comes and goes cannot be reckoned with.
	for _, status := range []parley.RunStatus{parley.RunPending, parley.RunRunning} {
		to <- prometheus.MustNewConstMetric(b.runs, prometheus.GaugeValue, float64(waiting.Runs[status]), string(status))
	}
	for _, state := range []store.AttemptState{store.AttemptOpen, store.AttemptClaimed, store.AttemptFollowing, store.AttemptSettled} {
		to <- prometheus.MustNewConstMetric(b.attempts, prometheus.GaugeValue, float64(waiting.Attempts[state]), string(state))
	}
	to <- prometheus.MustNewConstMetric(b.runsLate, prometheus.GaugeValue, waiting.RunsLate.Seconds())
	to <- prometheus.MustNewConstMetric(b.attemptsLate, prometheus.GaugeValue, waiting.AttemptsLate.Seconds())
	to <- prometheus.MustNewConstMetric(b.bridges, prometheus.GaugeValue, float64(waiting.Bridges))
}
