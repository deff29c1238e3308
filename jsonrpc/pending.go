package jsonrpc

import (
	"encoding/json"
	"io"
	"math/bits"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Calls that wait for an answer live in slots. The id of a call is the number
// of its slot and how many calls the slot has had before, so that an answer is
// found by an index instead of a map, an answer that comes late cannot be taken
// for another call's, and the bound on pending calls comes for nothing (RPC-7,
// RPC-11, RPC-19).

// A slot waits for the answer to one call after another.
type slot struct {
	// state is generation<<1, plus one while an answer is awaited. Whoever takes
	// that one away settles the call, and nobody else: the reader with an
	// answer, the sweeper, the end of the connection, or the caller giving up.
	state atomic.Uint64
	index uint32
	// done is told once per call that is settled by another goroutine than the
	// caller's.
	done chan struct{}
	// deadline is when the sweeper settles the call, on the Conn's clock; zero:
	// never.
	deadline atomic.Int64

	// What the caller wants; written before the call waits.
	raw  *json.RawMessage // append the result to its storage
	sink *sink            // write the result to it
	keep bool             // keep the result in answer, to be decoded

	// What came; written by who settles, before done is told.
	answer *buffer // the result, when keep is set
	err    error

	// cut is the id of the last call whose response was cut off; guarded by
	// pending.mu.
	cut uint64
	// sent is the message that the call with its id went out in, or one before;
	// guarded by writer.mu.
	sent extent
}

// An extent is how much a message of ours is, by what a peer may have limits for.
type extent struct {
	id      uint64 // of the call that it is about
	bytes   int    // so far, while its params are streamed; without the newline
	entries int    // of the batch; 0 when it is none
}

// add counts what was appended to the message. A nil extent is nobody's.
func (e *extent) add(n int) {
	if e != nil {
		e.bytes += n
	}
}

// beyond says whether the message is more than a peer takes.
func (e *extent) beyond(limit int64, unit string) bool {
	switch unit {
	case unitBytes:
		return int64(e.bytes) > limit
	case unitEntries:
		return int64(e.entries) > limit
	}
	return false
}

// awaiting says how the result of a call is wanted.
type awaiting struct {
	deadline int64
	raw      *json.RawMessage
	sink     *sink
	keep     bool
}

const slotsPerChunk = 32

type chunk [slotsPerChunk]slot

// pending is the table of slots of a connection.
type pending struct {
	max    int
	shift  int    // bits of an id that number the slot
	genMax uint64 // generations wrap around here, to keep ids below 2^53
	chunks []atomic.Pointer[chunk]
	count  atomic.Int32 // slots in use

	mu    sync.Mutex
	free  []uint32 // used before and free again; the last freed is the warmest
	fresh int      // slots from here on were never used
	err   error    // why no call may wait any more
}

func newPending(maxPending int) *pending {
	shift := max(bits.Len(uint(maxPending-1)), 1)
	return &pending{
		max:    maxPending,
		shift:  shift,
		genMax: 1<<(53-shift) - 1,
		chunks: make([]atomic.Pointer[chunk], (maxPending+slotsPerChunk-1)/slotsPerChunk),
	}
}

// take gives out a free slot that waits from now on, and its id.
func (p *pending) take(w awaiting) (*slot, uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, 0, p.err
	}
	var index uint32
	switch n := len(p.free); {
	case n > 0:
		index = p.free[n-1]
		p.free = p.free[:n-1]
	case p.fresh < p.max:
		index = p.grow()
	default:
		return nil, 0, &ResourceError{What: "pending calls", Limit: p.max, Unit: "calls"}
	}
	p.count.Add(1)
	s := p.at(index)
	s.deadline.Store(w.deadline)
	s.raw, s.sink, s.keep = w.raw, w.sink, w.keep
	gen := s.state.Load()>>1 + 1
	if gen > p.genMax {
		gen = 1
	}
	s.state.Store(gen<<1 | 1)
	return s, gen<<p.shift | uint64(index), nil
}

// grow makes the next fresh slot; p.mu is held.
func (p *pending) grow() uint32 {
	index := uint32(p.fresh)
	p.fresh++
	at := &p.chunks[index/slotsPerChunk]
	if at.Load() == nil {
		at.Store(new(chunk))
	}
	s := p.at(index)
	s.index, s.done = index, make(chan struct{}, 1)
	return index
}

// at returns the slot with the index, which was in use before.
func (p *pending) at(index uint32) *slot {
	return &p.chunks[index/slotsPerChunk].Load()[index%slotsPerChunk]
}

// release gives back a slot that was settled.
func (p *pending) release(s *slot) {
	p.mu.Lock()
	s.raw, s.sink, s.answer, s.err = nil, nil, nil, nil
	p.free = append(p.free, s.index)
	p.mu.Unlock()
	p.count.Add(-1)
}

// settle takes the right to settle the call with the id. Without one, late
// says that it was given up before, rather than never made.
func (p *pending) settle(id uint64) (s *slot, late bool) {
	index, gen := id&(1<<p.shift-1), id>>p.shift
	if index >= uint64(p.max) || p.chunks[index/slotsPerChunk].Load() == nil {
		return nil, false
	}
	s = p.at(uint32(index))
	if s.state.CompareAndSwap(gen<<1|1, gen<<1) {
		return s, false
	}
	return nil, gen != 0 && gen <= s.state.Load()>>1
}

// sink returns where the call with the id wants its result written as it
// arrives; nil when it does not, or does not wait any more.
func (p *pending) sink(id uint64) *sink {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.waiting(id); s != nil {
		return s.sink
	}
	return nil
}

// waiting returns the slot of the call with the id; nil when that does not wait any
// more, or never did. p.mu is held.
func (p *pending) waiting(id uint64) *slot {
	index, gen := id&(1<<p.shift-1), id>>p.shift
	if index >= uint64(p.fresh) {
		return nil
	}
	if s := p.at(uint32(index)); s.state.Load() == gen<<1|1 {
		return s
	}
	return nil
}

// cut notes that the response to the call with the id was cut off. It says whether
// the call waits, and whether that is news.
func (p *pending) cut(id uint64) (waits, news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.waiting(id)
	if s == nil {
		return false, false
	}
	news = s.cut != id
	s.cut = id
	return true, news
}

// fail settles the call with err; the caller finds it.
func (s *slot) fail(err error) {
	s.err = err
	s.done <- struct{}{}
}

// refuse makes calls to come fail with err.
func (p *pending) refuse(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
}

// refused returns what refuse was given.
func (p *pending) refused() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// failAll settles all calls with err, and refuses those to come.
func (p *pending) failAll(err error) {
	p.refuse(err)
	p.each(func(s *slot, _ int64) bool { return true }, err)
}

// expire settles the calls whose deadline is before now with err, and says
// whether there is any other call with a deadline.
func (p *pending) expire(now int64, err error) (more bool) {
	p.each(func(_ *slot, deadline int64) bool {
		if deadline == 0 {
			return false
		}
		more = more || deadline > now
		return deadline <= now
	}, err)
	return more
}

// each settles those waiting calls with err that pick picks.
func (p *pending) each(pick func(s *slot, deadline int64) bool, err error) {
	p.mu.Lock()
	fresh := p.fresh
	p.mu.Unlock()
	for i := range fresh {
		s := p.at(uint32(i))
		state := s.state.Load()
		if state&1 != 0 && pick(s, s.deadline.Load()) && s.state.CompareAndSwap(state, state&^1) {
			s.fail(err)
		}
	}
}

// failBeyond settles those calls with err whose message is beyond the limit;
// writer.mu is held. One that was not sent has the extent of another in its slot.
func (p *pending) failBeyond(limit int64, unit string, err error) {
	p.mu.Lock()
	fresh := p.fresh
	p.mu.Unlock()
	for i := range fresh {
		s := p.at(uint32(i))
		state := s.state.Load()
		id := state>>1<<p.shift | uint64(i)
		if state&1 != 0 && s.sent.id == id && s.sent.beyond(limit, unit) && s.state.CompareAndSwap(state, state&^1) {
			s.fail(err)
		}
	}
}

// A clock counts nanoseconds since a connection began, from one, which is
// cheaper than asking for the time of day.
type clock struct{ start time.Time }

func (c clock) now() int64 { return int64(time.Since(c.start)) + 1 }

// at is the time of day at n.
func (c clock) at(n int64) time.Time { return c.start.Add(time.Duration(n - 1)) }

// A sink takes a result as it arrives, for a caller that wants it in a Writer.
type sink struct {
	mu     sync.Mutex
	w      io.Writer
	closed bool  // the caller is gone: w must not be used
	err    error // what w returned
	n      int64
}

// write gives p to the Writer, unless the caller is gone. Its error is the
// caller's, not the connection's: the rest of the result is dropped.
func (k *sink) write(p []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.err != nil {
		return
	}
	// On the goroutine that reads, a panic would be the end of the process.
	defer func() {
		if v := recover(); v != nil {
			k.err = &PanicError{Value: v, Stack: debug.Stack(), writer: true}
		}
	}()
	n, err := k.w.Write(p)
	k.n += int64(n)
	k.err = err
}

// fail makes sure that nothing more is written, and that the result counts as
// broken, whatever comes.
func (k *sink) fail(err error) {
	k.mu.Lock()
	if k.err == nil {
		k.err = err
	}
	k.mu.Unlock()
}

// close makes sure that the Writer is not used any more.
func (k *sink) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
}
