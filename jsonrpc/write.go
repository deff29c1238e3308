package jsonrpc

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"time"
)

// Messages are appended to one buffer and written together: what a write costs
// is mostly paid per write, not per byte, so that this is what makes a busy
// connection fast. Who appends and finds nobody writing writes for all.

const (
	// writePiece is how much is given to a Stream at once when that may block,
	// in bytes: a peer that takes one within the StallTimeout is alive.
	writePiece = 64 << 10
	// inlineRounds is how many buffers a sender writes for all before it leaves
	// the rest to the writer goroutine and goes on with its own work.
	inlineRounds = 4
	// keepWriteBuffer is the size, in bytes, above which an empty write buffer
	// is given up.
	keepWriteBuffer = 512 << 10
)

// errStalled ends a connection whose peer takes nothing.
var errStalled = errors.New("jsonrpc: the peer has taken nothing, or too little, for too long")

// A writer is the sending half of a connection.
type writer struct {
	stream Stream
	try    tryWriter     // nil: only the writer goroutine writes
	slow   watchedWriter // nil: a Write of stream is for the peer to take, and no more
	turns  turnTaker     // nil: what stream takes goes out in that order
	limit  int           // bytes that may wait before senders do
	extra  int           // bytes that answers of the reader may wait beyond
	stall  time.Duration
	broken func(error) // told once when the Stream fails or stalls
	wake   chan struct{}
	dead   chan struct{} // closed with err set

	mu      sync.Mutex
	buf     []byte // messages waiting
	held    []byte // answers of the reader, waiting for the end of a streamed message
	spare   []byte // the other buffer, while it is not being written
	out     []byte // the buffer being written
	rest    []byte // what a sender left to the writer goroutine, of out
	flying  int    // bytes being written, rest included
	writing bool   // somebody writes, or the writer goroutine is about to go on
	handed  bool   // the latter
	owned   bool   // a streamed message has begun and not ended; nobody else may append
	err     error  // why nothing is written any more
	room    roomQueue
}

func newWriter(s Stream, cfg *Config, broken func(error)) *writer {
	w := &writer{
		stream: s,
		limit:  cfg.WriteBuffer,
		extra:  4 * min(cfg.MaxMessage, math.MaxInt/4),
		stall:  cfg.StallTimeout,
		broken: broken,
		wake:   make(chan struct{}, 1),
		dead:   make(chan struct{}),
	}
	w.try, _ = s.(tryWriter)
	w.slow, _ = s.(watchedWriter)
	if w.turns, _ = s.(turnTaker); w.turns != nil {
		w.turns.OnRoom(w.roomMade)
	}
	return w
}

// lockNow takes w.mu if there is room to append a message.
func (w *writer) lockNow(what sending) bool {
	w.mu.Lock()
	if w.err == nil && w.hasRoom(what) {
		return true
	}
	w.mu.Unlock()
	return false
}

// lockAnswer takes w.mu for an answer of the goroutine that reads. It may go
// beyond the limit: if both ends stopped reading until the other one reads,
// neither ever would. It waits only for a peer that leaves megabytes of
// answers lying.
func (w *writer) lockAnswer() error {
	w.mu.Lock()
	for w.err == nil {
		if w.waiting()-w.extra < w.limit { // a sum of two limits could be more than an int holds
			return nil
		}
		if !w.writing && len(w.buf) > 0 { // answers that waited for more of their kind
			w.signal()
		}
		_ = w.waitChange(context.Background()) // which does not end
	}
	w.mu.Unlock()
	return w.err
}

// lockBeyond takes w.mu for what may go beyond the limit as answers of the reader do, if
// that needs no waiting.
func (w *writer) lockBeyond() bool {
	w.mu.Lock()
	if w.err == nil && w.waiting()-w.extra < w.limit {
		return true
	}
	w.mu.Unlock()
	return false
}

// answers is the buffer that the reader appends to; w.mu is held.
func (w *writer) answers() *[]byte {
	if w.owned {
		return &w.held
	}
	return &w.buf
}

func (w *writer) waiting() int { return len(w.buf) + len(w.held) + w.flying }

// flush sees to it that what was appended gets written, by this goroutine when
// that goes without waiting, and unlocks w.mu. With yield it lets others append
// first, who are known to be about to.
func (w *writer) flush(yield bool) {
	if w.writing || len(w.buf) == 0 || w.err != nil {
		w.mu.Unlock()
		return
	}
	if w.try == nil {
		w.mu.Unlock()
		w.signal()
		return
	}
	w.writing = true
	if yield {
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
	}
	for range inlineRounds {
		if len(w.buf) == 0 {
			w.writing = false
			w.mu.Unlock()
			return
		}
		p := w.swap()
		w.mu.Unlock()
		n, err := w.try.TryWrite(p)
		w.mu.Lock()
		w.flying -= n
		switch {
		case err != nil:
			w.fail(err)
			return
		case n < len(p):
			w.handOver(p[n:])
			return
		}
		w.recycle()
	}
	w.handOver(nil)
}

// handOver leaves rest, and the writing, to the writer goroutine, and unlocks
// w.mu.
func (w *writer) handOver(rest []byte) {
	w.rest, w.handed = rest, true
	if w.waiting() < w.limit {
		w.tellRoom()
	}
	w.mu.Unlock()
	w.signal()
}

// flushLater unlocks w.mu and leaves the writing to the writer goroutine, which
// takes along what others append until it runs.
func (w *writer) flushLater() {
	idle := !w.writing
	w.mu.Unlock()
	if idle {
		w.signal()
	}
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// swap takes the waiting bytes, for writing; w.mu is held.
func (w *writer) swap() []byte {
	w.out, w.buf, w.spare = w.buf, w.spare[:0], nil
	w.flying = len(w.out)
	return w.out
}

// recycle makes the buffer that was written the spare one; w.mu is held.
func (w *writer) recycle() {
	if w.spare == nil && cap(w.out) <= keepWriteBuffer {
		w.spare = w.out[:0]
	}
	w.out = nil
	w.tellRoom()
}

// run is the writer goroutine: it writes what senders leave to it, until stop
// is closed.
func (w *writer) run(stop <-chan struct{}) {
	timer := time.AfterFunc(time.Hour, func() { w.broken(errStalled) })
	defer timer.Stop()
	watch := func(on bool) {
		if on && w.stall > 0 {
			timer.Reset(w.stall)
		} else {
			timer.Stop()
		}
	}
	watch(false)
	for {
		select {
		case <-w.wake:
			w.drain(watch)
		case <-stop:
			return
		}
	}
}

// drain writes until nothing waits, or until the Stream fails.
func (w *writer) drain(watch func(on bool)) {
	w.mu.Lock()
	var p []byte
	switch {
	case w.handed:
		p, w.rest, w.handed = w.rest, nil, false
	case w.writing || w.err != nil: // a sender writes, and comes round to everything
		w.mu.Unlock()
		return
	default:
		p = w.swap()
	}
	w.writing = true
	for {
		for left := p; len(left) > 0; {
			w.mu.Unlock()
			n, err := w.write(left[:min(len(left), writePiece)], watch)
			w.mu.Lock()
			if err != nil {
				w.fail(err)
				return
			}
			left = left[n:]
			w.flying -= n
			if w.waiting() < w.limit {
				w.tellRoom()
			}
		}
		w.recycle()
		if len(w.buf) == 0 || w.err != nil {
			w.writing = false
			w.mu.Unlock()
			return
		}
		p = w.swap()
	}
}

// write writes one piece, watched for a peer that takes nothing.
func (w *writer) write(p []byte, watch func(on bool)) (n int, err error) {
	watch(true)
	defer watch(false)
	if w.slow != nil {
		n, err = w.slow.WriteWatched(p, watch)
	} else {
		n, err = w.stream.Write(p)
	}
	if err == nil && n < len(p) {
		err = errors.New("jsonrpc: the Stream wrote less than it was given")
	}
	return n, err
}

// fail unlocks w.mu and tells that the Stream has failed; it is closed for that.
// Until then writing stays set, so that nobody tries again.
func (w *writer) fail(err error) {
	w.mu.Unlock()
	w.broken(err)
}

// close makes everything fail with err from now on, for those who wait too.
func (w *writer) close(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	w.err = err
	w.buf, w.held, w.spare, w.out, w.rest, w.flying = nil, nil, nil, nil, nil, 0
	w.room = roomQueue{} // all who wait see dead
	close(w.dead)
}

// idle says that nothing waits to be written; flushed waits for it.
func (w *writer) idle() bool { return w.err != nil || !w.writing && w.waiting() == 0 && !w.owned }

// flushed waits until everything is written, or ctx ends, or writing has, and says
// whether it is the first.
func (w *writer) flushed(ctx context.Context) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.idle() {
		if !w.writing && len(w.buf) > 0 { // else the signal would come back as news of room
			w.signal()
		}
		if w.waitChange(ctx) != nil {
			break
		}
	}
	return w.err == nil && w.idle()
}

// endLine ends the message that begins at start: line breaks in raw values,
// which mean nothing in JSON outside of strings and cannot be inside, become
// spaces, since a line break ends the message for the Stream.
func endLine(buf []byte, start int) []byte {
	spaceOut(buf[start:])
	return append(buf, '\n')
}
