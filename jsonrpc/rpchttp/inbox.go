package rpchttp

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

const (
	partSize   = 256 << 10 // bytes: messages up to here are handed over whole, longer ones in parts
	keptBuffer = 64 << 10  // bytes: larger buffers are left to the garbage collector
	firstRead  = 2 << 10   // bytes: size of a new buffer
)

// An item is a message, or a part of one, on its way to Read.
type item struct {
	buf  []byte
	end  bool
	void bool       // with end: the rest of the message is lost
	rest chan *item // where the other parts come from; nil in a whole message and in later parts
	err  error      // instead of bytes: an *jsonrpc.UndeliveredError

	counted bool // in the inbox's bytes
}

// An inbox is the reading half of a Stream: many goroutines put messages in,
// Read takes them out one after the other.
type inbox struct {
	ready  chan *item
	closed chan struct{} // by close: nothing is read any more
	dead   chan struct{} // by fail: what is in there is read, then the error
	free   sync.Pool     // of *item
	faults atomic.Int32  // items in ready that are errors
	bytes  atomic.Int64  // of messages that offer left in ready
	room   chan struct{} // one signal: offer may try again

	mu    sync.Mutex
	err   error   // set before dead is closed
	lost  []error // see lostAnswer and unread
	limit deadline

	lostMore chan struct{} // one signal: there is more in lost

	// used by Read only
	last *item
	rest chan *item
}

func newInbox(size int) *inbox {
	return &inbox{
		ready:  make(chan *item, size),
		closed: make(chan struct{}),
		dead:   make(chan struct{}),
		room:   make(chan struct{}, 1),
		limit:  newDeadline(),

		lostMore: make(chan struct{}, 1),
	}
}

// item returns an empty one with room for size bytes.
func (in *inbox) item(size int) *item {
	it, ok := in.free.Get().(*item)
	if !ok {
		it = new(item)
	}
	if cap(it.buf) < size {
		it.buf = make([]byte, 0, size)
	}
	return it
}

func (in *inbox) recycle(it *item) {
	if it == nil || cap(it.buf) > keptBuffer {
		return
	}
	*it = item{buf: it.buf[:0]}
	in.free.Put(it)
}

// put hands over it; false when nobody will read it any more.
func (in *inbox) put(to chan *item, it *item) bool {
	select {
	case to <- it:
		return true
	default:
	}
	select {
	case to <- it:
		return true
	case <-in.closed:
	case <-in.dead:
	}
	return false
}

// offer puts a copy of msg in, if there is room: fewer than most bytes before it.
// Each message that is read leaves one signal in room, for one of those who wait
// to offer again: as long as messages go in, they are read, and signals come.
func (in *inbox) offer(msg []byte, most int64) bool {
	size := int64(len(msg))
	// In one step: many POSTs may come at the same time.
	for before := in.bytes.Load(); ; before = in.bytes.Load() {
		if before >= most {
			return false
		}
		if in.bytes.CompareAndSwap(before, before+size) {
			break
		}
	}
	it := in.item(len(msg))
	it.buf, it.end, it.counted = append(it.buf, msg...), true, true
	select {
	case in.ready <- it:
		return true
	default:
		in.bytes.Add(-size)
		in.recycle(it)
		return false
	}
}

// undelivered reports that msg, which the inbox may keep, did not arrive.
func (in *inbox) undelivered(msg []byte, err error) {
	in.faults.Add(1)
	lost := undelivered(msg, err)
	if !in.put(in.ready, &item{err: lost}) {
		in.keepLost(lost)
	}
}

// lostAnswer is undelivered for an answer of a Conn. It waits for nothing: whoever reads
// may be waiting for answers to be taken. There are no more than those that it waits for,
// since they are read before all else.
func (in *inbox) lostAnswer(msg []byte, err error) {
	in.keepLost(undelivered(msg, err))
	signal(in.lostMore)
}

func (in *inbox) keepLost(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lost = append(in.lost, err)
}

// unread returns the first error that nobody has read of a message without calls, which nobody
// is told of in another way; nil when there is none. Nothing is put in or read any more.
func (in *inbox) unread() error {
	for more := true; more; {
		select {
		case it := <-in.ready:
			if it.err != nil {
				in.keepLost(it.err)
			}
		default:
			more = false
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, err := range in.lost {
		if lost, ok := errors.AsType[*jsonrpc.UndeliveredError](err); ok && peek(lost.Message).calls == 0 {
			return lost.Err
		}
	}
	return nil
}

// nextLost takes the first of the answers that were lost; nil when there is none.
func (in *inbox) nextLost() (err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.lost) > 0 {
		err, in.lost = in.lost[0], in.lost[1:]
	}
	return err
}

func undelivered(msg []byte, err error) error {
	lost := &jsonrpc.UndeliveredError{Message: msg, Err: err}
	if e, ok := errors.AsType[*Error](err); ok {
		lost.NotSent, lost.RetryAfter = e.NotSent, e.RetryAfter
	}
	return lost
}

// fail ends the inbox with err after what it holds already.
func (in *inbox) fail(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		in.err = err
		close(in.dead)
	}
}

// failure returns what fail was called with, nil before.
func (in *inbox) failure() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.err
}

// close makes Read and put return at once. Only the first call counts, which
// is for the caller to see to.
func (in *inbox) close() { close(in.closed) }

// read is Stream.Read.
func (in *inbox) read() (jsonrpc.Part, error) {
	in.recycle(in.last)
	in.last = nil
	it, err := in.next()
	if err != nil {
		return jsonrpc.Part{}, err
	}
	if it.err != nil {
		in.faults.Add(-1)
		return jsonrpc.Part{}, it.err
	}
	if it.counted {
		in.bytes.Add(-int64(len(it.buf)))
		signal(in.room)
	}
	if it.rest != nil {
		in.rest = it.rest
	}
	if it.end {
		in.rest = nil
	}
	in.last = it
	return jsonrpc.Part{Data: it.buf, End: it.end, Void: it.void, More: it.end && len(in.ready) > int(in.faults.Load())}, nil
}

// next waits for an item. Between messages, an error may be that of an answer that was lost.
func (in *inbox) next() (*item, error) {
	from, lostMore := in.rest, chan struct{}(nil)
	select {
	case <-in.closed:
		return nil, net.ErrClosed
	default:
	}
	if from == nil {
		if err := in.nextLost(); err != nil {
			return nil, err
		}
		from, lostMore = in.ready, in.lostMore
	}
	select {
	case it := <-from:
		return it, nil
	default:
	}
	select {
	case it := <-from:
		return it, nil
	case <-lostMore:
		return in.next()
	case <-in.closed:
		return nil, net.ErrClosed
	case <-in.limit.passed():
		return nil, os.ErrDeadlineExceeded
	case <-in.dead:
	}
	select {
	case it := <-from:
		return it, nil
	default:
	}
	if in.rest != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return nil, in.failure()
}

// errNoReader says that nobody reads any more: no failure, but an end.
var errNoReader = errors.New("rpchttp: nobody reads")

// A receiver puts one message after the other into an inbox, as their bytes
// arrive. It belongs to one goroutine.
type receiver struct {
	in    *inbox
	limit int // bytes of one message; negative: none
	// inParts is told when a message begins to be handed over in parts, and when
	// it ended; may be nil.
	inParts func(bool)

	it    *item
	size  int        // bytes of the message at hand so far
	parts chan *item // the message at hand is being handed over in parts
}

// reserve makes room for a message of about size bytes.
func (r *receiver) reserve(size int) {
	if r.it == nil {
		r.it = r.in.item(min(max(size, firstRead), partSize))
	}
}

// add takes the next bytes of the message at hand.
func (r *receiver) add(p []byte) error {
	if r.size += len(p); r.limit >= 0 && r.size > r.limit {
		return tooLarge(r.limit)
	}
	for len(p) > 0 {
		r.reserve(len(p))
		n := min(len(p), partSize-len(r.it.buf))
		r.it.buf = append(r.it.buf, p[:n]...)
		if p = p[n:]; len(r.it.buf) >= partSize {
			if err := r.flush(false); err != nil {
				return err
			}
		}
	}
	return nil
}

// readFrom takes bytes from body until its end, a whole message.
func (r *receiver) readFrom(body io.Reader) error {
	for {
		r.reserve(firstRead)
		if len(r.it.buf) == cap(r.it.buf) {
			r.it.buf = append(r.it.buf, 0)[:len(r.it.buf)]
		}
		n, err := body.Read(r.it.buf[len(r.it.buf):cap(r.it.buf)])
		r.it.buf = r.it.buf[:len(r.it.buf)+n]
		if r.size += n; r.limit >= 0 && r.size > r.limit {
			return tooLarge(r.limit)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && len(r.it.buf) >= partSize {
			err = r.flush(false)
		}
		if err != nil {
			return err
		}
	}
}

// whole returns the message at hand as long as nothing of it has been handed
// over.
func (r *receiver) whole() ([]byte, bool) {
	if r.parts != nil || r.it == nil {
		return nil, r.parts == nil
	}
	return r.it.buf, true
}

// end hands over what there is of the message at hand as its end. Blank
// messages are dropped.
func (r *receiver) end() error {
	if text, ok := r.whole(); ok && skipSpace(text, 0) == len(text) {
		r.drop()
		return nil
	}
	return r.flush(true)
}

// drop forgets the message at hand. When parts of it were handed over, it ends
// here, and its reader is told to forget them.
func (r *receiver) drop() {
	if r.parts != nil {
		r.reserve(0)
		r.it.buf, r.it.void = r.it.buf[:0], true
		_ = r.flush(true) // nobody reading is what drop wants
		return
	}
	r.in.recycle(r.it)
	r.it, r.size = nil, 0
}

func (r *receiver) flush(end bool) error {
	it := r.it
	if it == nil {
		it = r.in.item(0)
	}
	r.it = nil
	it.end = end
	to := r.parts
	if to == nil {
		to = r.in.ready
		if !end {
			it.rest = make(chan *item)
			r.parts = it.rest
			r.tell(true)
		}
	}
	last := end && r.parts != nil
	if end {
		r.parts, r.size = nil, 0
	}
	if !r.in.put(to, it) {
		return errNoReader
	}
	if last {
		r.tell(false)
	}
	return nil
}

func (r *receiver) tell(inParts bool) {
	if r.inParts != nil {
		r.inParts(inParts)
	}
}

// A deadline is a channel that is closed at a time that may be changed.
type deadline struct {
	mu    *sync.Mutex
	timer *time.Timer
	done  chan struct{}
}

func newDeadline() deadline { return deadline{mu: new(sync.Mutex), done: make(chan struct{})} }

// set moves the deadline to t; the zero time means none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.done // it fired: its function closes the channel, if it has not yet
	}
	d.timer = nil
	select {
	case <-d.done:
		d.done = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	done := d.done
	if left := time.Until(t); left > 0 {
		d.timer = time.AfterFunc(left, func() { close(done) })
	} else {
		close(done)
	}
}

func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}
