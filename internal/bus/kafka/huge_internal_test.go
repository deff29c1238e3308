package kafka

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/parley-project/parley/internal/bus"
)

// A batch that is too large when unpacked is left out, and what is behind it is
// read: by a group, which does not come back to it even if it is the last, and without one.
func TestHugeBatch(t *testing.T) {
	for _, group := range []string{"", "g"} {
		t.Run("group "+group, func(t *testing.T) {
			var h heard
			broker, b := hearing(t, group, Config{}, &h)
			produceHuge(t, broker.ListenAddrs(), "parley.hints")
			send(t, b, bus.SubjectHint, 1, 2)
			h.wait(t, 2)
			if err := b.Health(t.Context()); err != nil {
				t.Errorf("after what was left out: %v", err)
			}
			if group != "" {
				produceHuge(t, broker.ListenAddrs(), "parley.hints")
				readToEnd(t, b, group)
			}
		})
	}
}

// readToEnd waits until a group has committed the ends of the hints.
func readToEnd(t *testing.T, b *Bus, group string) {
	t.Helper()
	ends, err := b.EndOffsets(t.Context(), bus.SubjectHint)
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if there, err := b.committed(t.Context(), "parley.hints", group); err == nil && maps.Equal(there, ends) {
			return
		} else if time.Since(began) > time.Minute {
			t.Fatalf("committed are %v, %v; the ends are %v", there, err, ends)
		}
	}
}

// produceHuge writes one batch of 72 MiB, a few KiB as it is stored.
func produceHuge(t *testing.T, brokers []string, topic string) {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.GzipCompression()),
		kgo.ProducerBatchMaxBytes(90<<20), kgo.BrokerMaxWriteBytes(100<<20), kgo.ManualFlushing(),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for range 72 {
		client.Produce(ctx, kgo.SliceRecord(make([]byte, 1<<20)), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}
