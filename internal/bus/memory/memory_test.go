package memory_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/bustest"
	"github.com/parley-project/parley/internal/bus/memory"
)

func TestContract(t *testing.T) {
	bustest.Run(t, func(t *testing.T) bus.Bus {
		b := memory.New(memory.Options{})
		t.Cleanup(func() { _ = b.Close() })
		return b
	})
}

// TestContractSmall runs the contract with queues that are nearly always full
// and a single worker.
func TestContractSmall(t *testing.T) {
	bustest.Run(t, func(t *testing.T) bus.Bus {
		b := memory.New(memory.Options{Queue: 2, Workers: 1})
		t.Cleanup(func() { _ = b.Close() })
		return b
	})
}

// TestBackPressure: a full queue makes Publish wait, until there is a place,
// the context ends, the group has gone, or the bus is closed.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{Queue: 1, Workers: 1})
		next := make(chan struct{})
		stop, err := b.Subscribe(t.Context(), "s", "g", func(ctx context.Context, _ bus.Message) error {
			select {
			case <-next:
			case <-ctx.Done():
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		m := bus.Message{Subject: "s", Key: "k"}
		for range 2 { // one is being handled, one waits
			if err := b.Publish(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Publish(ctx, m); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("full queue: %v, want the deadline", err)
		}
		var published atomic.Bool
		publish := func() <-chan error {
			published.Store(false)
			c := make(chan error, 1)
			go func() { c <- b.Publish(t.Context(), m); published.Store(true) }()
			synctest.Wait()
			if published.Load() {
				t.Fatal("Publish did not wait for a place")
			}
			return c
		}
		c := publish()
		next <- struct{}{}
		if err := <-c; err != nil {
			t.Fatalf("after a place was free: %v", err)
		}
		synctest.Wait()
		c = publish()
		stop()
		if err := <-c; err != nil {
			t.Fatalf("after the group had gone: %v", err)
		}
		_ = b.Close()
	})
}

// TestClose: Close ends waiting publishers, tells handlers, waits for them, and
// nothing works afterwards.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{Queue: 1, Workers: 1})
		var ended atomic.Bool
		_, err := b.Subscribe(t.Context(), "s", "g", func(ctx context.Context, _ bus.Message) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended.Store(true)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 1)
		go func() {
			for {
				if err := b.Publish(t.Context(), bus.Message{Subject: "s", Key: "k"}); err != nil {
					waiting <- err
					return
				}
			}
		}()
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if !ended.Load() {
			t.Error("Close returned before the handler")
		}
		if err := <-waiting; !errors.Is(err, memory.ErrClosed) {
			t.Errorf("waiting publisher: %v", err)
		}
		if _, err := b.Subscribe(t.Context(), "s", "", nil); !errors.Is(err, memory.ErrClosed) {
			t.Errorf("Subscribe after Close: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
	})
}

// TestSlowKey: a key whose handler hangs does not hold up other keys.
func TestSlowKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{Workers: 2})
		hang := make(chan struct{})
		var handled atomic.Int32
		stop, err := b.Subscribe(t.Context(), "s", "g", func(_ context.Context, m bus.Message) error {
			if m.Key == "slow" {
				<-hang
			}
			handled.Add(1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			for _, key := range []string{"slow", "quick"} {
				if err := b.Publish(t.Context(), bus.Message{Subject: "s", Key: key}); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		if n := handled.Load(); n != 100 {
			t.Errorf("%d messages of the quick key handled, want 100", n)
		}
		close(hang)
		stop()
		_ = b.Close()
	})
}

// TestWorkers: no more handlers of a group run at a time than may, whatever waits.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{Workers: 2})
		var running atomic.Int32
		_, err := b.Subscribe(t.Context(), "s", "g", func(ctx context.Context, _ bus.Message) error {
			running.Add(1)
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b", "c", "d"} {
			if err := b.Publish(t.Context(), bus.Message{Subject: "s", Key: key}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := running.Load(); n != 2 {
			t.Errorf("%d handlers run, want 2", n)
		}
		_ = b.Close()
	})
}

func BenchmarkPublish(b *testing.B) {
	m := memory.New(memory.Options{})
	defer m.Close()
	done := make(chan struct{}, 16_384)
	stop, err := m.Subscribe(b.Context(), "s", "g", func(context.Context, bus.Message) error { done <- struct{}{}; return nil })
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	keys := []string{"a", "b", "c", "d"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := m.Publish(b.Context(), bus.Message{Subject: "s", Key: keys[i%len(keys)]}); err != nil {
			b.Fatal(err)
		}
		<-done
	}
}
