package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
)

// named gives every subject a topic of this test.
func named(t *testing.T) map[string]string {
	t.Helper()
	name := kafkatest.Topics(t)
	topics := kafka.DefaultTopics()
	for subject, topic := range topics {
		topics[subject] = name(topic)
	}
	return topics
}

func TestTopics(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	b := open(t, kafka.Config{Brokers: brokers, Topics: named(t)})
	r, err := b.CheckTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text := r.String(); strings.Count(text, "does not exist") != len(kafka.DefaultTopics()) {
		t.Errorf("before:\n%s", text)
	}
	if err := r.Err(); parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), "orchestrator.tasks.http") ||
		strings.Contains(err.Error(), "workflow.monitoring.updates") {
		t.Errorf("before: %v", err)
	}
	for _, state := range []string{"created", "ok     "} {
		if r, err = b.CreateTopics(t.Context()); err != nil {
			t.Fatal(err)
		}
		if text := r.String(); strings.Count(text, state) != len(kafka.DefaultTopics()) || r.Err() != nil {
			t.Errorf("created:\n%s%v", text, r.Err())
		}
	}
	if err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "r"}); err != nil {
		t.Error(err)
	}
}

// TestTopicsWrong: what would lose records, stop peers or refuse records is
// named.
func TestTopicsWrong(t *testing.T) {
	brokers, topics := kafkatest.Brokers(t), named(t)
	b := open(t, kafka.Config{Brokers: brokers, Topics: topics, MaxRecord: 2 << 20})
	admin := administer(t, brokers)
	for subject, settings := range map[string]map[string]string{
		bus.SubjectTasks:         {"cleanup.policy": "compact", "compression.type": "zstd"},
		bus.SubjectResults:       {"min.insync.replicas": "2", "max.message.bytes": "1000000"},
		bus.SubjectStartRequests: {"retention.ms": "60000", "max.message.bytes": "3000000"},
		bus.SubjectHint:          {"compression.type": "zstd", "max.message.bytes": "3000000"},
	} {
		values := make(map[string]*string)
		for name, value := range settings {
			values[name] = &value
		}
		if _, err := admin.CreateTopic(t.Context(), 3, 1, values, topics[subject]); err != nil {
			t.Fatal(err)
		}
	}
	var r kafka.Report
	eventually(t, "the topics are known", func() bool {
		var err error
		if r, err = b.CheckTopics(t.Context()); err != nil {
			t.Fatal(err)
		}
		return strings.Count(r.String(), "does not exist") == len(kafka.DefaultTopics())-4
	})
	findings := make(map[string]string)
	for _, topic := range r.Topics {
		for _, f := range topic.Findings {
			if f.Fatal {
				findings[topic.Plan.Subject] += "fatal "
			}
			findings[topic.Plan.Subject] += f.Text + "\n"
		}
	}
	for subject, want := range map[string][]string{
		bus.SubjectTasks:         {"fatal cleanup.policy is compact", "fatal compression.type is zstd", "fatal max.message.bytes is 1048588", "it has 3 partitions"},
		bus.SubjectResults:       {"fatal min.insync.replicas is 2 with 1 copies: nothing can be published", "fatal max.message.bytes is 1000000"},
		bus.SubjectStartRequests: {"retention.ms is 60000 (1m0s)"},
	} {
		for _, text := range want {
			if !strings.Contains(findings[subject], text) {
				t.Errorf("%s: %q is not among\n%s", subject, text, findings[subject])
			}
		}
	}
	if strings.Contains(findings[bus.SubjectHint], "fatal") {
		t.Errorf("hints: %s", findings[bus.SubjectHint])
	}
}

func administer(t *testing.T, brokers []string, opts ...kgo.Opt) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(250*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

func TestPlan(t *testing.T) {
	for brokers, want := range map[int][2]string{1: {"1", "1"}, 2: {"2", "1"}, 3: {"3", "2"}, 9: {"3", "2"}} {
		plan, err := kafka.Plan(kafka.Config{Brokers: []string{"h:1"}}, brokers)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range plan {
			if got := [2]string{string('0' + rune(p.Replicas)), p.Settings["min.insync.replicas"]}; got != want || p.Partitions != 12 {
				t.Errorf("%d brokers: %s has %d partitions, copies and in sync %v, want %v", brokers, p.Topic, p.Partitions, got, want)
			}
		}
	}
}

// TestCaughtUp: a group has caught up when it has acknowledged what was there,
// and also when that is no longer kept.
func TestCaughtUp(t *testing.T) {
	brokers, topics := genuine(t)
	const subject, group = "bustest.now", "g"
	b := open(t, kafka.Config{Brokers: brokers, Topics: topics})
	release := make(chan struct{})
	stop, err := b.Subscribe(t.Context(), subject, group, func(ctx context.Context, _ bus.Message) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	caught := func() bool {
		t.Helper()
		ends, err := b.EndOffsets(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		ok, err := b.CaughtUp(t.Context(), subject, group, ends)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !caught() {
		t.Error("nothing has been published, and the group has not caught up")
	}
	for _, key := range []string{"a", "b", "c"} {
		if err := b.Publish(t.Context(), bus.Message{Subject: subject, Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	if caught() {
		t.Error("caught up before anything was acknowledged")
	}
	close(release)
	eventually(t, "the group catches up", caught)
	stop()
	if err := b.Publish(t.Context(), bus.Message{Subject: subject, Key: "d"}); err != nil {
		t.Fatal(err)
	}
	if caught() {
		t.Error("caught up with what nobody has read")
	}
	admin := administer(t, brokers)
	ends, err := admin.ListEndOffsets(t.Context(), topics[subject])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what is no longer kept counts", caught)
}

// TestCaughtUpTransactions: the marks at the end of transactions, which are no records for
// anybody, keep no group from having read all, and are no lag. What was taken back is no
// message.
func TestCaughtUpTransactions(t *testing.T) {
	t.Parallel()
	brokers, topics := genuine(t)
	at := spotOf(t, "bustest.now")
	b := open(t, kafka.Config{Brokers: brokers, Topics: topics, LagInterval: 50 * time.Millisecond})
	reg := prometheus.NewRegistry()
	reg.MustRegister(b)
	var group, tail tally
	subscribe(t, b, at, group.handle)
	subscribe(t, b, spot{at.subject, ""}, tail.handle)
	peer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID(topics[at.subject]), kgo.DefaultProduceTopic(topics[at.subject]))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	for n, ends := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		if err := peer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := n * 10; i < n*10+10; i++ {
			peer.Produce(t.Context(), &kgo.Record{Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)}, nil)
		}
		if err := peer.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := peer.EndTransaction(t.Context(), ends); err != nil {
			t.Fatal(err)
		}
	}
	ends, err := b.EndOffsets(t.Context(), at.subject)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the group has read all", func() bool {
		ok, err := b.CaughtUp(t.Context(), at.subject, at.group, ends)
		return ok && err == nil
	})
	eventually(t, "nothing is behind", func() bool { l := lags(t, reg); return len(l) == 3 && total(l) == 0 })
	eventually(t, "who has no group hears of what was not taken back", func() bool { return tail.has(10, 20) })
	for what, c := range map[string]*tally{"the group": &group, "who has none": &tail} {
		if n, twice := c.count(); n != 10 || twice > 0 || !c.has(10, 20) {
			t.Errorf("%s got %d messages, %d of them again, want the 10 that were not taken back", what, n, twice)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 2 min it is not so that %s", what)
		}
	}
}
