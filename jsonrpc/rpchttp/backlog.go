package rpchttp

import "sync"

const (
	maxEvents  = 4096     // events kept, whatever their size
	eventBatch = 64 << 10 // bytes of events written at once
)

// A backlog holds what the server has to say in a session: events that wait to
// be sent, and, as long as there is room, those that were sent and may have to
// be sent again.
type backlog struct {
	limit int           // bytes
	room  chan struct{} // one signal: events were sent

	mu     sync.Mutex
	events [][]byte
	first  uint64 // id of events[0]; ids begin with 1
	bytes  int
	sent   uint64        // id of the last event that was given out to who is attached
	more   chan struct{} // one signal, to who is attached: events were added
	kick   chan struct{} // closed when somebody else is attached
}

func newBacklog(limit int) *backlog {
	return &backlog{
		limit: limit, first: 1,
		room: make(chan struct{}, 1), more: make(chan struct{}, 1), kick: make(chan struct{}),
	}
}

// add keeps msg, if there is room, and takes it over. A message larger than the
// limit has room when nothing else waits.
func (b *backlog) add(msg []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.events) > 0 && (b.bytes+len(msg) > b.limit || len(b.events) >= maxEvents) {
		if b.first > b.sent {
			return false
		}
		b.bytes -= len(b.events[0])
		b.events[0] = nil
		b.events = b.events[1:]
		b.first++
	}
	b.events = append(b.events, msg)
	b.bytes += len(msg)
	signal(b.more)
	return true
}

// attach makes the caller the one who sends: whoever was it before is kicked.
// The events behind the one with the id after are next, and kept until they are
// sent again; without one (resume false) those that were never sent. False: some
// of them are gone, or after is an id that was never given.
func (b *backlog) attach(after uint64, resume bool) (cursor uint64, more, kick <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !resume {
		after = b.sent
	}
	if after+1 < b.first || after >= b.first+uint64(len(b.events)) {
		return 0, nil, nil, false
	}
	close(b.kick)
	if after > b.sent { // more of them need not be kept
		signal(b.room)
	}
	b.sent, b.more, b.kick = after, make(chan struct{}, 1), make(chan struct{})
	return after, b.more, b.kick, true
}

// appendAfter appends the events behind the one with the id cursor, a bounded
// number of bytes of them, and returns the id of the last one. more is what attach
// gave the caller: who was kicked gets nothing, since it would count as sent.
func (b *backlog) appendAfter(dst []byte, cursor uint64, more <-chan struct{}) ([]byte, uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if more != b.more {
		return dst, cursor
	}
	last := b.first + uint64(len(b.events)) - 1
	for cursor < last && len(dst) < eventBatch {
		cursor++
		dst = appendEvent(dst, cursor, b.events[cursor-b.first])
	}
	if cursor > b.sent {
		b.sent = cursor
		signal(b.room)
	}
	return dst, cursor
}

// signal leaves a signal unless one is there.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
