package kafka

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/parley-project/parley/internal/bus"
)

// TestQueueBeside: a handler that takes long holds up the records of its key only,
// as long as there are workers; never more run than may.
func TestQueueBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(3)
		release := make(chan struct{})
		begun := make(chan string, 10)
		q.join(newMember(t.Context(), func(_ context.Context, m bus.Message, _ func()) {
			begun <- m.Key
			if m.Key != "quick" {
				<-release
			}
		}))
		add := func(keys ...string) {
			var items []item
			for _, key := range keys {
				items = append(items, item{message: bus.Message{Key: key}, done: func() {}})
			}
			q.add(items)
			synctest.Wait()
		}
		add("slow")
		add("slower")
		if len(begun) != 2 {
			t.Error("with one handler that takes long, another key waits for it")
		}
		add("quick", "slowest")
		if len(begun) != 4 {
			t.Errorf("%d records have been begun, want 4", len(begun))
		}
		add("one too many", "slow")
		if len(begun) != 4 {
			t.Errorf("%d records have been begun, though all workers are busy", len(begun))
		}
		close(release)
		synctest.Wait()
		if n, bytes := q.length(); n != 0 || bytes != 0 || len(begun) != 6 || q.workers != 0 {
			t.Errorf("%d records wait, %d were handled, %d workers are left", n, len(begun), q.workers)
		}
	})
}
