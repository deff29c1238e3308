package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/parley-project/parley/internal/bus"
)

// A batch that is too large when unpacked is left out, and what is behind it is
// read: by a group, and without one.
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
		})
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
