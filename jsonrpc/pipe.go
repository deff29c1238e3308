package jsonrpc

import (
	"io"
	"os"
	"sync"
	"time"
)

// pipeBufferSize is how many bytes wait in each direction of a Pipe until its
// writer waits too.
const pipeBufferSize = 64 << 10

// Pipe returns two Streams in memory, each of which reads what the other
// writes. They behave like the two ends of a socket: up to 64 KiB wait in each
// direction, TryWrite and SetReadDeadline work, a closed end gives its peer what was
// written before and then io.EOF, and io.ErrClosedPipe to those who write to
// it. Waiting is durable in the sense of testing/synctest.
func Pipe() (a, b Stream) {
	x, y := bytePipe()
	return NewLineStream(x), NewLineStream(y)
}

// bytePipe returns the ends under a Pipe, which carry bytes.
func bytePipe() (a, b *pipeEnd) {
	there, back := newPipeHalf(), newPipeHalf()
	return &pipeEnd{in: back, out: there}, &pipeEnd{in: there, out: back}
}

// A pipeEnd is one end of a connection in memory.
type pipeEnd struct{ in, out *pipeHalf }

func (e *pipeEnd) Read(p []byte) (int, error)        { return e.in.read(p) }
func (e *pipeEnd) Write(p []byte) (int, error)       { return e.out.write(p) }
func (e *pipeEnd) TryWrite(p []byte) (int, error)    { return e.out.tryWrite(p) }
func (e *pipeEnd) SetReadDeadline(t time.Time) error { return e.in.setDeadline(t) }

// CloseWrite ends one direction, as (*net.TCPConn).CloseWrite does.
func (e *pipeEnd) CloseWrite() error {
	e.out.closeWriter()
	return nil
}

func (e *pipeEnd) Close() error {
	e.out.closeWriter()
	e.in.closeReader()
	return nil
}

// A pipeHalf is one direction: at most pipeBufferSize bytes that were written
// and not read yet.
type pipeHalf struct {
	mu       sync.Mutex
	readable sync.Cond // bytes, the end or the deadline came
	writable sync.Cond // room or the end came
	buf      []byte    // guarded by mu, as all below
	r        int       // buf[r:] is unread
	noWriter bool
	noReader bool
	deadline time.Time
	timer    *time.Timer // wakes the reader at deadline; made when first needed
}

func newPipeHalf() *pipeHalf {
	h := new(pipeHalf)
	h.readable.L, h.writable.L = &h.mu, &h.mu
	return h
}

func (h *pipeHalf) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.noReader:
			return 0, io.ErrClosedPipe
		case !h.deadline.IsZero() && !time.Now().Before(h.deadline):
			return 0, os.ErrDeadlineExceeded
		case h.r < len(h.buf):
			n := copy(p, h.buf[h.r:])
			if h.r += n; h.r == len(h.buf) {
				h.buf, h.r = h.buf[:0], 0
			}
			h.writable.Signal()
			return n, nil
		case h.noWriter:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		h.readable.Wait()
	}
}

func (h *pipeHalf) write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	written := 0
	for {
		n, err := h.putLocked(p[written:])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
		h.writable.Wait()
	}
}

func (h *pipeHalf) tryWrite(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.putLocked(p)
}

// putLocked takes as much of p as there is room for.
func (h *pipeHalf) putLocked(p []byte) (int, error) {
	if h.noWriter || h.noReader {
		return 0, io.ErrClosedPipe
	}
	n := min(len(p), pipeBufferSize-(len(h.buf)-h.r))
	if n == 0 {
		return 0, nil
	}
	if h.r > 0 && len(h.buf)+n > cap(h.buf) {
		h.buf = h.buf[:copy(h.buf, h.buf[h.r:])]
		h.r = 0
	}
	h.buf = append(h.buf, p[:n]...)
	h.readable.Signal()
	return n, nil
}

func (h *pipeHalf) setDeadline(t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadline = t
	if h.timer != nil {
		h.timer.Stop()
	}
	switch d := time.Until(t); {
	case t.IsZero():
	case d <= 0:
		h.readable.Broadcast()
	case h.timer == nil:
		h.timer = time.AfterFunc(d, h.wakeReader)
	default:
		h.timer.Reset(d)
	}
	return nil
}

// wakeReader makes the reader look at the clock. It takes the lock so that it
// cannot come between a reader's look and its wait.
func (h *pipeHalf) wakeReader() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readable.Broadcast()
}

func (h *pipeHalf) closeWriter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noWriter = true
	h.readable.Broadcast()
	h.writable.Broadcast()
}

func (h *pipeHalf) closeReader() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noReader = true
	h.buf, h.r = nil, 0
	if h.timer != nil {
		h.timer.Stop()
	}
	h.readable.Broadcast()
	h.writable.Broadcast()
}
