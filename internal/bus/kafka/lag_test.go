package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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

// TestLagOfDeleted: records that were deleted before the group could read them are not
// behind: nobody will ever get them.
func TestLagOfDeleted(t *testing.T) {
	t.Parallel()
	brokers, topics := fake(t)
	at := spotOf(t, "bustest.deferred")
	config := kafka.Config{Brokers: brokers, Topics: topics, LagInterval: 20 * time.Millisecond}
	b := open(t, config)
	var got tally
	stop := subscribe(t, b, at, got.handle)
	publishMany(t, b, at.subject, 0, 30)
	eventually(t, "all is handled", func() bool { n, _ := got.count(); return n == 30 })
	stop()
	publishMany(t, b, at.subject, 30, 60)
	admin := administer(t, brokers)
	ends, err := admin.ListEndOffsets(t.Context(), at.subject)
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil || gone.Error() != nil {
		t.Fatal(err, gone.Error())
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(b)
	subscribeHung(t, b, at)
	eventually(t, "nothing is behind", func() bool { l := lags(t, reg); return len(l) == 3 && total(l) == 0 })
	publishMany(t, b, at.subject, 60, 70)
	eventually(t, "what comes is", func() bool { return total(lags(t, reg)) == 10 })
}

// TestLagOfLost: after a leader took over that lacks records the lag is that to the end that
// there is, not to the one that was.
func TestLagOfLost(t *testing.T) {
	t.Parallel()
	broker, config := oneTopic(t)
	config.LagInterval = 20 * time.Millisecond
	b := open(t, config)
	reg := prometheus.NewRegistry()
	reg.MustRegister(b)
	subscribeHung(t, b, spot{bus.SubjectRuns, "g"})
	publishMany(t, b, bus.SubjectRuns, 0, 30)
	eventually(t, "all is behind", func() bool { return total(lags(t, reg)) == 30 })
	broker.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		return endingAt(req.(*kmsg.ListOffsetsRequest), 7, 0), nil, true
	})
	eventually(t, "what is there is behind", func() bool { return total(lags(t, reg)) == 7 })
}

// endingAt answers that all partitions of a request end there, or with an error.
func endingAt(req *kmsg.ListOffsetsRequest, end int64, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset, rp.ErrorCode = p.Partition, end, code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
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

// TestHeldBack: a transaction of somebody else that does not end keeps what comes after
// it from everybody, in a group or without one. That is told, with what ends it, and that
// it is over; the process is well.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"", "g"} {
		t.Run("group "+group, func(t *testing.T) { t.Parallel(); heldBack(t, group) })
	}
}

func heldBack(t *testing.T, group string) {
	brokers, topics := genuine(t)
	at := spot{"bustest.now", group}
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	var log loggedLines
	b := open(t, kafka.Config{Brokers: brokers, Topics: topics, LagInterval: 20 * time.Millisecond, Logger: log.logger(), Now: now})
	var got tally
	subscribe(t, b, at, got.handle)
	publishMany(t, b, at.subject, 0, 10)
	eventually(t, "all is handled", func() bool { n, _ := got.count(); return n == 10 })
	held := func() string {
		for _, trouble := range b.State().Troubles {
			if trouble.Where == "transaction in "+topics[at.subject] {
				return trouble.Text
			}
		}
		return ""
	}
	peer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID(topics[at.subject]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	before := now()
	if err := peer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	first, err := peer.ProduceSync(t.Context(), &kgo.Record{Topic: topics[at.subject], Partition: 1, Key: []byte("10"), Value: []byte("10")}).First()
	if err != nil {
		t.Fatal(err)
	}
	publishMany(t, b, at.subject, 11, 40)
	if group != "" {
		reg := prometheus.NewRegistry()
		reg.MustRegister(b)
		eventually(t, "partition 1 alone is behind", func() bool { l := lags(t, reg); return l["1"] > 1 && l["0"]+l["2"] == 0 })
	}
	ahead.Store(int64(118 * time.Second))
	time.Sleep(200 * time.Millisecond) // several looks
	if text := held(); text != "" && now().Sub(before) < 2*time.Minute {
		t.Errorf("told after less than two minutes: %s", text)
	}
	eventually(t, "it is told", func() bool { ahead.Add(int64(time.Minute)); return held() != "" })
	want := fmt.Sprintf("kafka-transactions.sh --bootstrap-server BROKER abort --topic %s --partition 1 --start-offset %d", topics[at.subject], first.Offset)
	if text := held(); !strings.HasSuffix(text, want) {
		t.Errorf("told %q, want %q at its end", text, want)
	}
	if err := b.Health(t.Context()); err != nil {
		t.Errorf("not well: %v", err)
	}
	if n := strings.Count(log.String(), "holds partition 1 back"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if err := peer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is told that it is over", func() bool { return held() == "" && strings.Count(log.String(), "is over") == 1 })
	eventually(t, "nothing was lost", func() bool { return got.has(0, 40) })
}
