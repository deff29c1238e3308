package jsonrpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// fullWriter is a writer that nobody writes for, with a full buffer of 100 bytes.
func fullWriter() *writer {
	cfg := Config{WriteBuffer: 100}
	w := newWriter(newBreaking(1), &cfg, func(error) {})
	w.buf = make([]byte, 100)
	return w
}

// waitForRoom has size bytes appended by another goroutine, which tells the result.
func waitForRoom(ctx context.Context, w *writer, timeout time.Duration, size int) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := w.lock(ctx, timeout, sendsCall, size)
		if err == nil {
			w.buf = append(w.buf, make([]byte, size)...)
			w.mu.Unlock()
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

// written is what a write of all but left bytes does.
func (w *writer) written(left int) {
	w.mu.Lock()
	w.buf = w.buf[:left]
	w.tellRoom()
	w.mu.Unlock()
	synctest.Wait()
}

func (w *writer) queued() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := w.room.first; r != nil && n < 100; r = r.next {
		n++
	}
	return n
}

// TestRoomForThoseThatFit: who waits for room gets it in the order of coming,
// and only as many are woken as there is room for.
func TestRoomForThoseThatFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fullWriter()
		var all []<-chan error
		for range 5 {
			all = append(all, waitForRoom(t.Context(), w, 0, 40))
		}
		for _, step := range []struct{ left, woken, waiting int }{{100, 0, 5}, {30, 2, 3}, {99, 1, 2}, {0, 2, 0}} {
			w.written(step.left)
			if n := w.queued(); n != step.waiting || len(w.buf) != step.left+40*step.woken {
				t.Fatalf("with %d bytes left %d wait and %d bytes are there", step.left, n, len(w.buf))
			}
			for _, done := range all[:step.woken] {
				select {
				case err := <-done:
					if err != nil {
						t.Fatal(err)
					}
				default:
					t.Fatal("others came before")
				}
			}
			all = all[step.woken:]
		}
	})
}

// TestRoomWaitersLeave: who waits no longer leaves nothing in the queue, wherever
// in it, and the others keep their order; a writer that failed lets all go.
func TestRoomWaitersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fullWriter()
		ctx, cancel := context.WithCancel(t.Context())
		first := waitForRoom(ctx, w, 0, 40)
		kept := waitForRoom(t.Context(), w, 0, 40)
		second := waitForRoom(t.Context(), w, time.Second, 40)
		failed := waitForRoom(t.Context(), w, time.Hour, 40)
		last := waitForRoom(ctx, w, 0, 40)
		cancel()
		for _, done := range []<-chan error{first, last} {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		start := time.Now()
		if err := <-second; !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if n := w.queued(); n != 2 {
			t.Errorf("%d wait", n)
		}
		w.written(80)
		if err := <-kept; err != nil {
			t.Error(err)
		}
		w.close(errStalled)
		if err := <-failed; !errors.Is(err, errStalled) {
			t.Error(err)
		}
		if w.queued() != 0 || w.room.spare != nil {
			t.Error("something is left")
		}
	})
}

// TestRoomIsPassedOn: room that was told of to somebody who had just given up is
// told to the next one; waiters are used again without what they were told
// before.
func TestRoomIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fullWriter()
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			first := waitForRoom(ctx, w, 0, 90)
			second := waitForRoom(t.Context(), w, time.Hour, 90)
			if n := w.queued(); n != 2 {
				t.Fatalf("%d wait", n)
			}
			w.mu.Lock()
			cancel() // first is woken by this, and cannot say so yet
			w.buf = w.buf[:20]
			w.tellRoom()
			w.mu.Unlock()
			if err := <-first; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case err := <-second:
				if err != nil {
					t.Fatal(err)
				}
			default:
				t.Fatal("the next one was not told")
			}
		}
	})
}
