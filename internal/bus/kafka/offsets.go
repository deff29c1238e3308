package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// entry is a record that has been received.
type entry struct {
	offset int64
	size   int64
	epoch  int32
	done   bool
	// gone: the log has lost the record, and nothing that is committed depends on it.
	gone bool
}

// partition follows which records of a partition are done, for as long as this
// process owns it: when the partition moves, it is closed and says no to
// everything, and a later ownership gets a partition of its own. What may be
// committed is the offset of the lowest record that is not done.
type partition struct {
	place

	mu      sync.Mutex // protects what follows
	halted  bool       // no handler may begin
	closed  bool       // nothing counts any more
	paused  bool
	entries []*entry // in order of their offsets, the first not done
	done    int      // of entries
	bytes   int64
	// mark is what may be committed; -1 until that is known.
	mark      int64
	epoch     int32 // of the record before mark
	committed int64
	end       int64 // the partition's last known end; -1 until that is known
	// fresh says that the group has no offset here; start is where the partition
	// starts, -1 until that had to be asked for.
	fresh bool
	start int64
	// stable is where an open transaction holds the partition back, stableSince since
	// when; no time if none does.
	stable      int64
	stableSince time.Time
	running     int
	idle        chan struct{} // closed when nothing runs; nil unless waited for
	// ours are the contexts of members' handlers for records of this partition; leave
	// ends them.
	ours  map[*member]context.Context
	leave []context.CancelFunc
}

func newPartition(p place) *partition {
	return &partition{place: p, mark: -1, epoch: -1, committed: -1, end: -1, start: -1}
}

// receive adds a record; it is false when the partition has moved.
func (p *partition) receive(r *kgo.Record, size int64) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.forgetFrom(r.Offset)
	switch {
	case p.mark < 0:
		p.mark, p.committed = r.Offset, r.Offset
	case len(p.entries) == 0:
		// There may be a gap; or a leader that lacked records took over, and the log goes on
		// from an earlier place.
		p.mark = r.Offset
	}
	e := &entry{offset: r.Offset, size: size, epoch: r.LeaderEpoch}
	p.entries = append(p.entries, e)
	p.bytes += size
	p.end = max(p.end, r.Offset+1)
	return e
}

// forgetFrom leaves out the records from an offset on, since the log has others there now: a
// leader that lacked them took over. What is in hand of them stays there, and holds its bytes.
func (p *partition) forgetFrom(offset int64) {
	n := len(p.entries)
	for ; n > 0 && p.entries[n-1].offset >= offset; n-- {
		e := p.entries[n-1]
		e.gone = true
		if e.done {
			p.done--
		}
		p.entries[n-1] = nil
	}
	p.entries = p.entries[:n]
}

// goneUpTo gives the place that reading went on from if the partition now starts behind
// it: the records between were deleted unread.
func (p *partition) goneUpTo(start int64) (from int64, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from = p.mark
	if n := len(p.entries); n > 0 {
		from = p.entries[n-1].offset + 1
	}
	return from, from >= 0 && from < start
}

// ack says that a record is done. advanced is true when more may be committed
// than before; freed are the bytes that are no longer held.
func (p *partition) ack(e *entry) (advanced bool, freed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || e.done {
		return false, 0
	}
	e.done = true
	p.bytes -= e.size
	if e.gone {
		return false, e.size
	}
	p.done++
	first := 0
	for first < len(p.entries) && p.entries[first].done {
		p.mark, p.epoch = p.entries[first].offset+1, p.entries[first].epoch
		p.entries[first] = nil
		first++
	}
	p.entries = p.entries[first:]
	p.done -= first
	if len(p.entries) > 0 && first > 0 {
		p.mark = p.entries[0].offset // over a gap that compaction left
	}
	p.thin()
	return first > 0, e.size
}

// entriesLeast are worth no thinning out.
const entriesLeast = 256

// thin leaves of records in a row that are done only the last one: a record that
// stays open for hours must not keep what it takes to follow all behind it.
func (p *partition) thin() {
	if p.done < max(entriesLeast, 2*(p.open()+1)) {
		return
	}
	kept := p.entries[:0]
	for i, e := range p.entries {
		if !e.done || i == len(p.entries)-1 || !p.entries[i+1].done {
			kept = append(kept, e)
		}
	}
	clear(p.entries[len(kept):])
	p.done -= len(p.entries) - len(kept)
	p.entries = kept
}

// open is the number of records that are not done.
func (p *partition) open() int { return len(p.entries) - p.done }

// startAt sets what may be committed before the first record.
func (p *partition) startAt(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && p.mark < 0 {
		p.mark = offset
	}
}

// resumeAt sets what was committed before this process had the partition.
func (p *partition) resumeAt(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && p.mark < 0 {
		p.mark, p.committed = offset, offset
	}
}

// beginFresh says that the partition is read from its start, wherever that is.
func (p *partition) beginFresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = true
}

// skip sets what may be committed past records that can never be received; it
// holds once those before are done.
func (p *partition) skip(r *kgo.Record) {
	if e := p.receive(r, 0); e != nil {
		p.ack(e)
	}
}

// due is what has to be committed.
func (p *partition) due() (kgo.EpochOffset, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return kgo.EpochOffset{Epoch: p.epoch, Offset: p.mark}, !p.closed && p.mark >= 0 && p.mark != p.committed
}

// lost says that the partition is not this process's any more.
func (p *partition) lost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// setCommitted notes what was committed. Commits follow each other.
func (p *partition) setCommitted(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committed = offset
}

// lag is how many offsets lie between what is done and the end, once both are known.
func (p *partition) lag() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.passedLocked()
	return max(p.end-done, 0), !p.closed && done >= 0 && p.end >= 0
}

// passedLocked is up to where nothing is left to do: where nothing is in hand, records that
// were deleted count, too, which nobody will ever get. It is -1 until that is known.
func (p *partition) passedLocked() int64 {
	if p.open() > 0 {
		return p.mark
	}
	return max(p.mark, p.start)
}

func (p *partition) sawEnd(end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = max(p.end, end)
}

// knownEnd is the last known end, -1 until there is one.
func (p *partition) knownEnd() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// listedEnd takes over an end that was asked for when before was known. It may be lower: a
// leader that lacked records took over. Of one that has grown meanwhile more is known.
func (p *partition) listedEnd(end, before int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == before {
		p.end = end
		return
	}
	p.end = max(p.end, end)
}

// startTells says that the partition's start may tell what is done.
func (p *partition) startTells() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closed && p.open() == 0 && (p.fresh || p.mark >= 0) && p.passedLocked() < p.end
}

func (p *partition) sawStart(start int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start = start
}

// begin says whether a handler may begin: not when the partition has moved.
func (p *partition) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.halted {
		return false
	}
	p.running++
	return true
}

// finished follows the handler.
func (p *partition) finished() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if p.running == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// during gives the context of a member's handlers for records of this partition: that
// of the member, until the partition moves.
func (p *partition) during(m *member) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx := p.ours[m]; ctx != nil {
		return ctx
	}
	ctx, cancel := context.WithCancel(m.ctx)
	if p.halted {
		cancel()
		return ctx
	}
	if p.ours == nil {
		p.ours = make(map[*member]context.Context)
	}
	p.ours[m], p.leave = ctx, append(p.leave, cancel) //nolint:fatcontext // one beside the others
	return ctx
}

// haltLocked lets no handler begin, and tells those that have records in hand.
func (p *partition) haltLocked() {
	p.halted = true
	for _, leave := range p.leave {
		leave()
	}
	p.leave = nil
}

// drain lets no handler begin, and waits until those that run have returned or
// limit is closed.
func (p *partition) drain(limit <-chan struct{}) {
	p.mu.Lock()
	p.haltLocked()
	if p.running == 0 {
		p.mu.Unlock()
		return
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
	case <-limit:
	}
}

// close makes the partition say no to everything; it gives the bytes that were
// held and whether fetching had been stopped.
func (p *partition) close() (held int64, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held, paused = p.bytes, p.paused
	p.haltLocked()
	p.closed, p.paused, p.entries, p.bytes, p.done = true, false, nil, 0, 0
	return held, paused
}

// only is the partition as the client library names it.
func (p *partition) only() map[string][]int32 { return map[string][]int32{p.topic: {p.partition}} }
