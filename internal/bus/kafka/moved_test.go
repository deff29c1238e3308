package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// inHand is what one process has got and not acknowledged.
type inHand struct {
	mu  sync.Mutex
	ctx map[string]context.Context // by the message
}

func (h *inHand) take(ctx context.Context, m bus.Message, _ func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		h.ctx = make(map[string]context.Context)
	}
	h.ctx[string(m.Value)] = ctx //nolint:fatcontext // one beside the others
}

// ours gives the messages that are still this process's, and how many came.
func (h *inHand) ours() (ours map[string]bool, all int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ours = make(map[string]bool)
	for id, ctx := range h.ctx {
		if ctx.Err() == nil {
			ours[id] = true
		}
	}
	return ours, len(h.ctx)
}

// TestMoved: who has messages in hand hears which of them another process has got,
// since their partition has moved: of those, and of no others, the context ends. At the
// end of the subscription that of all does.
func TestMoved(t *testing.T) {
	for name, where := range map[string]func(*testing.T) ([]string, map[string]string){"fake": fake, "real": genuine} {
		t.Run(name, func(t *testing.T) {
			brokers, topics := where(t)
			const n = 60
			at := spotOf(t, "bustest.deferred")
			var first, second inHand
			a := open(t, kafka.Config{Brokers: brokers, Topics: topics})
			stop, err := a.SubscribeDeferred(t.Context(), at.subject, at.group, first.take)
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if err := a.Publish(t.Context(), bus.Message{Subject: at.subject, Key: fmt.Sprint(i), Value: fmt.Append(nil, i)}); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "all came", func() bool { ours, _ := first.ours(); return len(ours) == n })
			b := open(t, kafka.Config{Brokers: brokers, Topics: topics})
			stopSecond, err := b.SubscribeDeferred(t.Context(), at.subject, at.group, second.take)
			if err != nil {
				t.Fatal(err)
			}
			defer stopSecond()
			eventually(t, "each message is in one hand", func() bool {
				one, _ := first.ours()
				two, _ := second.ours()
				return len(two) > 0 && len(one) > 0 && len(one)+len(two) == n
			})
			one, _ := first.ours()
			two, _ := second.ours()
			for id := range one {
				if two[id] {
					t.Errorf("%s is in two hands", id)
				}
			}
			stop()
			if ours, all := first.ours(); len(ours) > 0 || all != n {
				t.Errorf("after the end %d of %d are in hand", len(ours), all)
			}
		})
	}
}
