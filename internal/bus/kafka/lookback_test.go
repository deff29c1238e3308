package kafka_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
)

// TestLookbackFake and TestLookback: a group that has no offsets begins with the
// tasks and results that somebody may still be waiting for, and with nothing
// older; requests, which would be carried out again, it begins at the end. A group
// that has offsets goes on from them.
func TestLookbackFake(t *testing.T) {
	topics := named(t)
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, slices.Collect(maps.Values(topics))...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	lookBack(t, c.ListenAddrs(), topics)
}

func TestLookback(t *testing.T) {
	t.Parallel()
	brokers, topics := kafkatest.Brokers(t), named(t)
	kafkatest.Create(t, brokers, 3, slices.Collect(maps.Values(topics))...)
	lookBack(t, brokers, topics)
}

func lookBack(t *testing.T, brokers []string, topics map[string]string) {
	raw, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	subjects := []string{bus.SubjectTasks, bus.SubjectResults, bus.SubjectStartRequests, bus.SubjectCancelRequests, bus.SubjectRuns}
	now := time.Now()
	// Partition 0 has old and new records, 1 only old ones, 2 none.
	for _, s := range subjects {
		for _, r := range []struct {
			partition int32
			age       time.Duration
		}{{0, time.Hour}, {0, 6 * time.Minute}, {0, 4 * time.Minute}, {0, time.Second}, {1, time.Hour}} {
			err := raw.ProduceSync(t.Context(), &kgo.Record{
				Topic: topics[s], Partition: r.partition, Timestamp: now.Add(-r.age), Value: fmt.Appendf(nil, `{"age": "%v"}`, r.age),
			}).FirstErr()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	group := kafkatest.Topics(t)("new")
	cfg := kafka.Config{Brokers: brokers, Topics: topics, Lookback: 5 * time.Minute}
	first := taken{}
	b := open(t, cfg)
	for _, s := range subjects {
		first.from(t, b, s, group)
	}
	for _, s := range subjects {
		for partition := range int32(3) {
			r := &kgo.Record{Topic: topics[s], Partition: partition, Value: []byte(`{"age": "none"}`)}
			if err := raw.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	fresh := "none none none"
	want := map[string]string{
		bus.SubjectTasks: "1s 4m0s " + fresh, bus.SubjectResults: "1s 4m0s " + fresh,
		bus.SubjectStartRequests: fresh, bus.SubjectCancelRequests: fresh, bus.SubjectRuns: fresh,
	}
	first.want(t, want)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	again, none := taken{}, taken{}
	b = open(t, cfg)
	for _, s := range subjects {
		again.from(t, b, s, group)
	}
	cfg.Lookback = 0
	end := open(t, cfg)
	for _, s := range subjects {
		none.from(t, end, s, kafkatest.Topics(t)("end"))
	}
	for _, s := range subjects {
		if err := raw.ProduceSync(t.Context(), &kgo.Record{Topic: topics[s], Value: []byte(`{"age": "last"}`)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for s := range want {
		want[s] = "last"
	}
	again.want(t, want)
	none.want(t, want)
}

// taken is what was delivered of each subject.
type taken struct {
	mu   sync.Mutex
	list map[string][]string
}

func (k *taken) from(t *testing.T, b *kafka.Bus, subject, group string) {
	t.Helper()
	_, err := b.Subscribe(t.Context(), subject, group, func(_ context.Context, m bus.Message) error {
		age := strings.TrimSuffix(strings.TrimPrefix(string(m.Value), `{"age": "`), `"}`)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.list == nil {
			k.list = map[string][]string{}
		}
		k.list[subject] = append(k.list[subject], age)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// want waits for what is wanted; more than that must not come.
func (k *taken) want(t *testing.T, want map[string]string) {
	t.Helper()
	got := func() map[string]string {
		k.mu.Lock()
		defer k.mu.Unlock()
		out := map[string]string{}
		for s, list := range k.list {
			out[s] = strings.Join(slices.Sorted(slices.Values(list)), " ")
		}
		return out
	}
	for end := time.Now().Add(2 * time.Minute); !maps.Equal(got(), want) && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
	}
	if d := cmp.Diff(want, got()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestLookbackRefused: the past cannot be ahead.
func TestLookbackRefused(t *testing.T) {
	_, err := kafka.New(t.Context(), kafka.Config{Brokers: []string{"127.0.0.1:1"}, Lookback: -time.Second})
	if parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("%v", err)
	}
}
