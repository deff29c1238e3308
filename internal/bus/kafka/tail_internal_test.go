package kafka

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/parley-project/parley/internal/bus"
)

type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) handle(_ context.Context, m bus.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, string(m.Value))
	return nil
}

func (h *heard) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

func (h *heard) wait(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); h.len() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d messages arrived", h.len(), n)
		}
	}
}

func tailBus(t *testing.T, c Config) *Bus {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "parley.hints", "parley.cancels"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	c.Brokers = broker.ListenAddrs()
	b, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func send(t *testing.T, b *Bus, subject string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := b.Publish(t.Context(), bus.Message{Subject: subject, Key: fmt.Sprint(i), Value: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTailPartitions: who listens without a group also hears partitions that
// were made since, from their first record, once.
func TestTailPartitions(t *testing.T) {
	b := tailBus(t, Config{})
	var h heard
	stop, err := b.Subscribe(t.Context(), bus.SubjectHint, "", h.handle)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := b.admin.CreatePartitions(t.Context(), 10, "parley.hints"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * 250 * time.Millisecond) // the producer hears of them, too
	send(t, b, bus.SubjectHint, 0, 100)
	if n := h.len(); n == 100 {
		t.Fatal("the test does not reach the new partitions")
	}
	b.tail.look(t.Context())
	h.wait(t, 100)
	b.tail.look(t.Context())
	send(t, b, bus.SubjectHint, 100, 200)
	h.wait(t, 200)
	if n := h.len(); n != 200 {
		t.Errorf("%d of 200 messages came", n)
	}
}

// TestTailAgain: listening may end and begin again, for one subject while
// another is listened to, and for the last.
func TestTailAgain(t *testing.T) {
	b := tailBus(t, Config{})
	var cancels heard
	stopCancels, err := b.Subscribe(t.Context(), bus.SubjectCancel, "", cancels.handle)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		var h heard
		stop, err := b.Subscribe(t.Context(), bus.SubjectHint, "", h.handle)
		if err != nil {
			t.Fatal(err)
		}
		send(t, b, bus.SubjectHint, 0, 10)
		h.wait(t, 10)
		stop()
		send(t, b, bus.SubjectHint, 0, 10) // nobody hears these
		if round == 1 {
			stopCancels()
			if b.tail != nil {
				t.Error("nobody listens, and the client is still there")
			}
		}
		if n := h.len(); n != 10 {
			t.Errorf("round %d: %d messages, want 10", round, n)
		}
	}
}

// TestTailSlow: who is slow gets everything, and holds no more than allowed, be it of
// records or of bytes.
func TestTailSlow(t *testing.T) {
	for name, c := range map[string]Config{"records": {OpenRecords: 50}, "bytes": {OpenBytes: 50 * 256}} {
		t.Run(name, func(t *testing.T) {
			b := tailBus(t, c)
			var h heard
			release := make(chan struct{})
			stop, err := b.Subscribe(t.Context(), bus.SubjectHint, "", func(ctx context.Context, m bus.Message) error {
				select {
				case <-release:
				case <-ctx.Done():
				}
				return h.handle(ctx, m)
			})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			send(t, b, bus.SubjectHint, 0, 1000)
			queued := func() (waiting int, paused bool) {
				b.tail.mu.Lock()
				defer b.tail.mu.Unlock()
				waiting, _ = b.tail.listeners["parley.hints"][0].queue.length()
				return waiting, b.tail.paused["parley.hints"]
			}
			for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
				if _, paused := queued(); paused {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("it goes on to be read")
				}
			}
			time.Sleep(300 * time.Millisecond) // more would come
			if waiting, paused := queued(); waiting > 50+pollRecords || !paused {
				t.Errorf("%d wait (paused: %v), at most %d may", waiting, paused, 50+pollRecords)
			}
			close(release)
			h.wait(t, 1000)
		})
	}
}

// TestTailSlowLeaves: who is slow and leaves holds up nobody else any more.
func TestTailSlowLeaves(t *testing.T) {
	b := tailBus(t, Config{OpenRecords: 50})
	leave, err := b.Subscribe(t.Context(), bus.SubjectHint, "", func(ctx context.Context, _ bus.Message) error {
		<-ctx.Done()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var quick heard
	stop, err := b.Subscribe(t.Context(), bus.SubjectHint, "", quick.handle)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	paused := func() bool {
		b.tail.mu.Lock()
		defer b.tail.mu.Unlock()
		return b.tail.paused["parley.hints"]
	}
	sent := 0
	for deadline := time.Now().Add(2 * time.Minute); !paused(); sent += 50 {
		if time.Now().After(deadline) {
			t.Fatal("it goes on to be read")
		}
		send(t, b, bus.SubjectHint, sent, sent+50)
	}
	send(t, b, bus.SubjectHint, sent, sent+1000)
	leave()
	quick.wait(t, sent+1000)
}

// TestGroupAgain: a subject of a group may be left and taken up again while
// others of the group go on, and what came meanwhile is delivered.
func TestGroupAgain(t *testing.T) {
	b := tailBus(t, Config{InstanceID: "one"})
	var cancels, hints heard
	stopCancels, err := b.Subscribe(t.Context(), bus.SubjectCancel, "g", cancels.handle)
	if err != nil {
		t.Fatal(err)
	}
	defer stopCancels()
	for round := range 4 {
		stop, err := b.Subscribe(t.Context(), bus.SubjectHint, "g", hints.handle)
		if err != nil {
			t.Fatal(err)
		}
		send(t, b, bus.SubjectHint, 0, 10)
		send(t, b, bus.SubjectCancel, 0, 10)
		hints.wait(t, 20*round+10)
		stop()
		send(t, b, bus.SubjectHint, 0, 10) // delivered when it is taken up again
		cancels.wait(t, 10*(round+1))
	}
	if n := hints.len(); n != 70 {
		t.Errorf("%d messages, want 70", n)
	}
}
