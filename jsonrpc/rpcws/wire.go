package rpcws

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readBuffer  = 32 << 10 // bytes read from the socket at once
	writeBuffer = 64 << 10 // bytes of frames after which a Write goes to the socket
	keepBuffer  = 64 << 10 // bytes of an emptied write buffer that are kept for the next
	maxControl  = 64 << 10 // bytes of control frames that wait for a peer that reads nothing
	maxHeader   = 14       // bytes of the longest frame header (RFC 6455 section 5.2)
)

// A wire lies between the WebSocket library and the socket. The library writes
// every frame by itself; the wire collects the frames of one Stream.Write and
// hands them over together. Control frames, which the library writes whenever
// it likes, go out at once, or behind the frames that are being written, and
// never wait for a peer that does not read.
//
// On the other side it reads as much as there is, and gives the library one
// frame at a time: thus it knows whether another message is there already when
// one has been read.
type wire struct {
	rwc        io.ReadWriteCloser
	try        tryWriter      // writes to rwc without waiting; may be nil
	bare       bool           // the peer is a server, which must not mask
	background sync.WaitGroup // writes control frames

	mu       sync.Mutex
	idle     sync.Cond // flushing became false
	out      []byte    // whole frames to be written, guarded by mu
	spare    []byte    // the buffer that out is swapped with, guarded by mu
	corked   bool      // frames are being collected, guarded by mu
	flushing bool      // one goroutine is writing, guarded by mu
	err      error     // of the first failed write, guarded by mu

	// Told when the peer has taken something, guarded by mu; may be nil.
	watch func(on bool)

	// Used by whoever reads: the library sees to it that it is one goroutine.
	in      []byte
	r, w    int    // in[r:w] was received and not given to the library
	left    uint64 // bytes of the frame at hand that were not given to the library
	readErr error  // to be given to the library after in

	more    atomic.Bool   // a message begins in in[r:w]
	failed  atomic.Bool   // readErr is set
	reads   atomic.Uint64 // successful reads from the socket
	taken   atomic.Uint64 // bytes written to the socket
	waiting atomic.Bool   // a read from the socket is under way
}

// newWire returns a wire over rwc, of which received was read already.
func newWire(rwc io.ReadWriteCloser, received []byte) *wire {
	w := &wire{rwc: rwc, in: make([]byte, max(readBuffer, len(received)))}
	w.w = copy(w.in, received)
	w.idle.L = &w.mu
	return w
}

// Write takes a frame, or a part of one, from the library.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// While a message is corked as well: who wrote it may be waiting in relieve.
	for w.flushing && len(w.out) >= maxControl {
		w.idle.Wait()
	}
	if w.err != nil {
		return 0, w.err
	}
	w.out = append(w.out, p...)
	if !w.corked && !w.flushing {
		// A control frame. It is written beside its writer, which may be the
		// goroutine that reads: a pong must not keep it from reading.
		w.flushing = true
		w.background.Go(func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.flushLocked()
		})
	}
	return len(p), nil
}

// cork makes Write collect frames until uncork.
func (w *wire) cork() {
	w.mu.Lock()
	w.corked = true
	w.mu.Unlock()
}

// uncork writes what was collected, and returns when nothing is left.
func (w *wire) uncork() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corked = false
	return w.drainLocked()
}

// relieve writes what was collected if it is enough for one write.
func (w *wire) relieve() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.out) < writeBuffer {
		return w.err
	}
	return w.drainLocked()
}

// drainLocked returns when everything is written.
func (w *wire) drainLocked() error {
	for w.flushing {
		w.idle.Wait()
	}
	w.flushing = true
	w.flushLocked()
	return w.err
}

// flushLocked writes until out is empty. The caller has set flushing.
func (w *wire) flushLocked() {
	for len(w.out) > 0 && w.err == nil {
		buf := w.out
		w.out = w.spare[:0]
		w.writeLocked(buf)
		if w.spare = buf; cap(buf) > 2*keepBuffer {
			w.spare = nil
		}
	}
	w.flushing = false
	w.idle.Broadcast()
}

// writeLocked writes buf in pieces, each of which is a sign of life of a peer that is
// slow. It lets go of mu while it waits.
func (w *wire) writeLocked(buf []byte) {
	for len(buf) > 0 && w.err == nil {
		piece := buf[:min(len(buf), writeBuffer)]
		w.mu.Unlock()
		n, err := w.rwc.Write(piece)
		w.mu.Lock()
		w.taken.Add(uint64(n))
		w.err = err
		if buf = buf[len(piece):]; w.watch != nil {
			w.watch(true)
		}
	}
}

// observe has watch told of what the peer takes from now on; nil: nobody.
func (w *wire) observe(watch func(on bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch = watch
}

// Close closes the socket when what is being written is written, or after
// linger: the library calls it right after it wrote a close frame, which may
// still stand behind other frames.
func (w *wire) Close() error {
	w.mu.Lock()
	if w.flushing {
		timer := time.AfterFunc(linger, w.abort)
		for w.flushing {
			w.idle.Wait()
		}
		timer.Stop()
	}
	w.mu.Unlock()
	return w.rwc.Close()
}

// linger is how long the last frames of a connection have to leave.
const linger = time.Second

// abort closes the socket at once. Every blocked call returns.
func (w *wire) abort() { _ = w.rwc.Close() }

// Read gives the library the next bytes of the frame at hand. It never gives
// it bytes of two frames.
func (w *wire) Read(p []byte) (int, error) {
	if w.left == 0 {
		if err := w.nextFrame(); err != nil {
			return 0, err
		}
	}
	if uint64(len(p)) > w.left {
		p = p[:w.left]
	}
	var n int
	switch {
	case w.r < w.w:
		n = copy(p, w.in[w.r:w.w])
		w.r += n
	case w.readErr == nil && len(p) >= len(w.in):
		// Straight into the library's buffer, which is the caller's.
		if n, w.readErr = w.receive(p); n == 0 {
			return 0, w.readErr
		}
	default:
		if !w.fill() {
			return 0, w.readErr
		}
		n = copy(p, w.in[w.r:w.w])
		w.r += n
	}
	if w.left -= uint64(n); w.left == 0 {
		w.more.Store(beginsMessage(w.in[w.r:w.w]))
	}
	return n, nil
}

// beginsMessage says whether b is the beginning of a frame with the beginning
// of a message: its opcode is text or binary, and it is not empty, since empty
// messages are skipped.
func beginsMessage(b []byte) bool {
	return len(b) >= 2 && (b[0]&0xf == 1 || b[0]&0xf == 2) && b[1]&0x7f > 0
}

// nextFrame reads the header of the next frame, which stays in the buffer, and
// sets left to the size of the whole frame. If the connection ends within the
// header, the frame is what there is of it.
func (w *wire) nextFrame() error {
	for {
		if n, ok := frameSize(w.in[w.r:w.w]); ok {
			if w.bare && w.in[w.r+1]&0x80 != 0 {
				return errMasked // the library would take the bytes as they are
			}
			w.left = n
			return nil
		}
		if !w.fill() {
			if w.r == w.w {
				return w.readErr
			}
			w.left = uint64(w.w - w.r)
			return nil
		}
	}
}

// errMasked is for a client alone: the library does the opposite for servers.
var errMasked = errors.New("received masked frame from server")

// fill adds to in what the socket has, at least one byte. It is called with at
// most a header in the buffer, so that there is room.
func (w *wire) fill() bool {
	if w.readErr != nil {
		return false
	}
	if w.r == w.w {
		w.r, w.w = 0, 0
	} else if len(w.in)-w.w < maxHeader {
		w.w = copy(w.in, w.in[w.r:w.w])
		w.r = 0
	}
	n, err := w.receive(w.in[w.w:])
	w.w += n
	w.readErr = err
	return n > 0
}

// receive reads from the socket.
func (w *wire) receive(p []byte) (n int, err error) {
	w.waiting.Store(true)
	for n == 0 && err == nil {
		n, err = w.rwc.Read(p)
	}
	w.waiting.Store(false)
	if n > 0 {
		w.reads.Add(1)
	}
	if err != nil {
		w.failed.Store(true)
	}
	if errors.Is(err, io.EOF) {
		// Who ends says so in a frame. The library takes io.EOF between two fragments, or
		// behind the header of one, for the end of their message.
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// frameSize returns the size of the frame that begins with b, header and
// payload (RFC 6455 section 5.2), and false if that cannot be said yet.
func frameSize(b []byte) (uint64, bool) {
	if len(b) < 2 {
		return 0, false
	}
	size := uint64(2)
	if b[1]&0x80 != 0 {
		size += 4 // the masking key
	}
	switch n := b[1] & 0x7f; n {
	case 126:
		if len(b) < 4 {
			return 0, false
		}
		return size + 2 + uint64(binary.BigEndian.Uint16(b[2:])), true
	case 127:
		if len(b) < 10 {
			return 0, false
		}
		// A payload of more than 2^63 bytes is refused by the library when it
		// reads the header.
		return size + 8 + min(binary.BigEndian.Uint64(b[2:]), math.MaxInt64), true
	default:
		return size + uint64(n), true
	}
}
