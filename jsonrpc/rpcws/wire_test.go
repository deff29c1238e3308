package rpcws

import (
	"bytes"
	"io"
	"math"
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

// TestPiecesBounded proves that a message that is written piece by piece is kept up
// to a bound only, and that the memory of a large one is not kept.
func TestPiecesBounded(t *testing.T) {
	s := serverStream(t, new(script))
	piece := bytes.Repeat([]byte("x"), 10<<10)
	for range 100 {
		if _, err := s.Write(piece); err != nil {
			t.Fatal(err)
		}
		if len(s.partial) > fragment {
			t.Fatalf("%d bytes are kept", len(s.partial))
		}
	}
	if _, err := s.Write([]byte("\n")); err != nil || s.parts != nil || len(s.partial) != 0 {
		t.Errorf("at the end: %v, %d bytes are kept", err, len(s.partial))
	}
	large := append(bytes.Repeat([]byte("x"), wholeMessage), '\n')
	for range 3 {
		if _, err := s.Write(large); err != nil {
			t.Fatal(err)
		}
	}
	if n := cap(s.wire.spare); n > 2*keepBuffer {
		t.Errorf("a buffer of %d bytes is kept", n)
	}
}

// TestHeaderArrives: a header that arrives byte by byte has a size as soon as its length
// is there, and not before.
func TestHeaderArrives(t *testing.T) {
	for _, c := range []struct {
		frame []byte
		bytes int    // of the header, up to its length
		size  uint64 // of the frame
	}{
		{[]byte{0x81, 5}, 2, 7},
		{[]byte{0x81, 0x80 | 5}, 2, 11},
		{[]byte{0x81, 0x80 | 126, 1, 2}, 4, 8 + 0x102},
		{[]byte{0x81, 127, 0, 0, 0, 0, 0, 1, 2, 3}, 10, 10 + 0x10203},
		{[]byte{0x81, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf6}, 10, 10 + math.MaxInt64}, // which is refused
	} {
		for n := range len(c.frame) + 1 {
			size, ok := frameSize(c.frame[:n])
			if whole := n >= c.bytes; ok != whole || ok && size != c.size {
				t.Errorf("% x: %d, %t", c.frame[:n], size, ok)
			}
		}
	}
}
