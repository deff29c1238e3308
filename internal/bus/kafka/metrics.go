package kafka

import (
	"maps"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	parley "github.com/parley-project/parley"
)

// counters are the numbers of a bus.
type counters struct {
	publishes  *prometheus.CounterVec
	handlers   *prometheus.CounterVec
	fetches    *prometheus.CounterVec
	rebalances *prometheus.CounterVec
	lag        *prometheus.Desc
	open       *prometheus.Desc
}

func newCounters() *counters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_kafka_" + name, Help: help}, labels)
	}
	return &counters{
		publishes:  counter("publishes_total", "Records published, by how it went: ok or the code of the error.", "subject", "outcome"),
		handlers:   counter("handler_errors_total", "Records whose handler gave an error.", "subject"),
		fetches:    counter("fetch_errors_total", "Errors while records were fetched.", "topic"),
		rebalances: counter("rebalances_total", "Assignments of partitions to this process.", "group"),
		lag: prometheus.NewDesc("parley_kafka_consumer_lag", "Offsets between what is acknowledged and the end of a partition of this process.",
			[]string{"group", "topic", "partition"}, nil),
		open: prometheus.NewDesc("parley_kafka_open_bytes", "Bytes of records received and not acknowledged.", []string{"group"}, nil),
	}
}

func (c *counters) published(subject string, err error) {
	outcome := "ok"
	if err != nil {
		outcome = string(parley.CodeOf(err))
	}
	c.publishes.WithLabelValues(subject, outcome).Inc()
}

func (c *counters) failed(subject string)   { c.handlers.WithLabelValues(subject).Inc() }
func (c *counters) fetchError(topic string) { c.fetches.WithLabelValues(topic).Inc() }
func (c *counters) rebalanced(group string) { c.rebalances.WithLabelValues(group).Inc() }

// list gives the groups of this process.
func (b *Bus) list() map[string]*group {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.groups)
}

// Describe implements prometheus.Collector.
func (b *Bus) Describe(to chan<- *prometheus.Desc) {
	for _, v := range b.counts.vectors() {
		v.Describe(to)
	}
	to <- b.counts.lag
	to <- b.counts.open
}

// Collect implements prometheus.Collector. Lag is that of the partitions of this
// process, by what it has fetched and the ends that it asks for in the background;
// nobody is asked now.
func (b *Bus) Collect(to chan<- prometheus.Metric) {
	for _, v := range b.counts.vectors() {
		v.Collect(to)
	}
	for name, g := range b.list() {
		to <- prometheus.MustNewConstMetric(b.counts.open, prometheus.GaugeValue, float64(g.bytes.Load()), name)
		for _, p := range g.partitions() {
			if lag, known := p.lag(); known {
				to <- prometheus.MustNewConstMetric(b.counts.lag, prometheus.GaugeValue, float64(lag), name, p.topic, strconv.Itoa(int(p.partition)))
			}
		}
	}
}

func (c *counters) vectors() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{c.publishes, c.handlers, c.fetches, c.rebalances}
}

func portOf(meta kgo.BrokerMetadata) string { return strconv.Itoa(int(meta.Port)) }
