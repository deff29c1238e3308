package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFlush: who has nothing to publish has nothing to wait for, however little time
// there is; what is left says so.
func TestFlush(t *testing.T) {
	t.Parallel()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1")) // where nobody is
	if err != nil {
		t.Fatal(err)
	}
	w := newWriter(client, nil, time.Now)
	t.Cleanup(client.Close)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := w.flush(ctx); err != nil {
			t.Fatalf("nothing was to be published: %v", err)
		}
	}
	client.Produce(t.Context(), &kgo.Record{Topic: "t", Value: []byte("v")}, nil)
	if err := w.flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("one record is left: %v", err)
	}
}
