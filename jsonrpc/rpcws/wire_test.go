package rpcws

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
)

// TestControlBounded proves that control frames for a peer that reads nothing
// take a bounded amount of memory behind a message that is being written, too.
func TestControlBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		w := newWire(here, nil)
		w.cork()
		if _, err := w.Write(make([]byte, writeBuffer)); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() {
			err := w.relieve()
			if e := w.uncork(); err == nil {
				err = e
			}
			written <- err
		}()
		synctest.Wait()
		const frames, size = 10_000, 127
		go func() {
			for range frames {
				if _, err := w.Write(make([]byte, size)); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		w.mu.Lock()
		if n := len(w.out); n >= maxControl+size {
			t.Errorf("%d bytes of control frames wait, want %d at most", n, maxControl)
		}
		w.mu.Unlock()
		if _, err := io.CopyN(io.Discard, there, writeBuffer+frames*size); err != nil {
			t.Error(err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		w.background.Wait()
	})
}
