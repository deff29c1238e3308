package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// lags gives the lag of each partition of the only group of a registry.
func lags(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != "parley_kafka_consumer_lag" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "partition" {
					all[l.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return all
}

func total(lags map[string]float64) (all float64) {
	for _, lag := range lags {
		all += lag
	}
	return all
}

// TestLagOfPaused: the lag grows while nothing is fetched, since too much is open, and
// each partition has one from the beginning, also when nothing comes.
func TestLagOfPaused(t *testing.T) {
	for name, where := range map[string]func(*testing.T) ([]string, map[string]string){"fake": fake, "real": genuine} {
		t.Run(name, func(t *testing.T) {
			brokers, topics := where(t)
			at := spotOf(t, "bustest.deferred")
			config := kafka.Config{Brokers: brokers, Topics: topics, OpenRecords: 4, LagInterval: 50 * time.Millisecond}
			publisher := open(t, kafka.Config{Brokers: brokers, Topics: topics})
			publishMany(t, publisher, at.subject, 0, 10) // before the group: no lag
			b := open(t, config)
			reg := prometheus.NewRegistry()
			reg.MustRegister(b)
			subscribeHung(t, b, at)
			eventually(t, "each partition has a lag of 0", func() bool { l := lags(t, reg); return len(l) == 3 && total(l) == 0 })
			for n := range 4 { // the later ones while the partitions are paused
				publishMany(t, publisher, at.subject, n*100, n*100+100)
				eventually(t, "what was published is behind", func() bool { return total(lags(t, reg)) == float64(n*100+100) })
			}
		})
	}
}

// TestLagAfterRestart: the lag is known, though nothing comes, from the offset that the
// group committed, and where it has none, since the partition is new, from its start.
func TestLagAfterRestart(t *testing.T) {
	brokers, topics := fake(t)
	at := spotOf(t, "bustest.deferred")
	config := kafka.Config{Brokers: brokers, Topics: topics, LagInterval: time.Hour}
	b := open(t, config)
	var got tally
	subscribe(t, b, at, got.handle)
	publishMany(t, b, at.subject, 0, 30)
	eventually(t, "all is handled", func() bool { n, _ := got.count(); return n == 30 })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if answer, err := kadm.NewClient(client).UpdatePartitions(t.Context(), 4, at.subject); err != nil || answer.Error() != nil {
		t.Fatal(err, answer)
	}
	reg := prometheus.NewRegistry()
	b = open(t, config)
	reg.MustRegister(b)
	subscribeHung(t, b, at)
	eventually(t, "all partitions have a lag of 0", func() bool { l := lags(t, reg); return len(l) == 4 && total(l) == 0 })
}

// subscribeHung takes messages and acknowledges none.
func subscribeHung(t *testing.T, b *kafka.Bus, at spot) {
	t.Helper()
	stop, err := b.SubscribeDeferred(t.Context(), at.subject, at.group, func(context.Context, bus.Message, func()) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}
