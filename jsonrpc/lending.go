package jsonrpc

import (
	"sync/atomic"
	"time"
)

// Bounds of lending.
const (
	// lendAfter is how many calls in a row have to be made alone before their
	// callers read for themselves.
	lendAfter = 32
	// lendTime is how long, at least, the connection is lent without being
	// read; twice of it at most. What the peer sends of itself waits as long.
	lendTime = 250 * time.Microsecond
	// askTime is how long a caller, whose call is over already, waits for the
	// goroutine to lend. That may be stuck with a peer that takes no answers.
	askTime = time.Millisecond
)

// The states of lending.ask. Who asked may withdraw until the goroutine answers.
const (
	notAsked = iota
	asked
	answering
)

// A lending lets the callers of a connection that also has a goroutine to read
// do that themselves, as with Config.CallerReads, for as long as calls are made
// one at a time and the peer does nothing but answer: then every change of
// goroutine that is saved counts. Two calls at once, a request of the peer, or
// half a millisecond without a call end it, and the goroutine reads again.
type lending struct {
	token *readToken
	// alone counts the calls in a row that nothing came beside.
	alone atomic.Int32
	// requests is how many the peer had sent when alone began to count.
	requests atomic.Uint64
	// ask is whether the goroutine is to lend: notAsked, asked, or answering.
	ask atomic.Int32
	// lent: callers read. recall: who has the token is to give it back.
	lent, recall atomic.Bool
	settled      chan struct{} // tells who asked that it is lent, or not
	back         chan struct{} // gives the token back to the goroutine
	// uses counts the calls that have read; the timer sees by it whether there
	// were any.
	uses  atomic.Uint64
	armed atomic.Bool
	timer *time.Timer
	seen  uint64 // uses, when the timer looked last
}

func newLending(t *readToken) *lending {
	l := &lending{token: t, settled: make(chan struct{}, 1), back: make(chan struct{}, 1)}
	l.timer = time.AfterFunc(time.Hour, l.tick)
	l.timer.Stop()
	return l
}

// called is told of each call that was answered while the goroutine read.
func (l *lending) called(c *Conn) {
	requests := c.report.requests.Load()
	if c.pending.count.Load() > 1 || l.requests.Load() != requests {
		l.alone.Store(0)
		l.requests.Store(requests)
		return
	}
	if l.alone.Add(1) < lendAfter || !l.ask.CompareAndSwap(notAsked, asked) {
		return
	}
	l.token.interrupt()
	// The next call has to know who reads.
	patience := time.NewTimer(askTime)
	defer patience.Stop()
	select {
	case <-l.settled:
	case <-c.down:
	case <-patience.C:
		l.alone.Store(0)
		if !l.ask.CompareAndSwap(asked, notAsked) {
			<-l.settled // which comes at once
		}
	}
}

// lend is called by the goroutine that reads, when it was interrupted. It
// returns when the goroutine is to read again.
func (l *lending) lend(c *Conn) {
	if !l.ask.CompareAndSwap(asked, answering) {
		return
	}
	l.alone.Store(0)
	l.recall.Store(false)
	// Said before looking for calls, so that one that begins meanwhile is
	// either seen or sees it. The one that is pending is who asked.
	l.lent.Store(true)
	alone := c.pending.count.Load() <= 1
	if alone {
		l.token.free <- struct{}{}
		l.arm()
	} else {
		l.lent.Store(false)
	}
	l.ask.Store(notAsked)
	l.settled <- struct{}{}
	if !alone {
		return
	}
	select {
	case <-l.back:
	case <-c.down:
		// Calls have failed, so that who reads gives the token back soon.
		l.recall.Store(true)
		l.token.interrupt()
		select {
		case <-l.back:
		case <-l.token.free:
		}
	}
	l.lent.Store(false)
}

// release gives the token on: to the next caller, or to the goroutine when there
// is more to read already, since the next call may take its time to come.
func (l *lending) release(c *Conn) {
	if c.in.more || l.recall.Load() || l.requests.Load() != c.report.requests.Load() {
		l.back <- struct{}{}
		return
	}
	l.uses.Add(1)
	l.token.free <- struct{}{}
	l.arm()
}

// arm sees to it that the token is looked after.
func (l *lending) arm() {
	if !l.armed.Load() && l.armed.CompareAndSwap(false, true) {
		l.timer.Reset(lendTime)
	}
}

// tick gives the token back to the goroutine when nobody has used it since the
// last tick. While a caller reads there is nothing to do: it arms the timer
// again when it is done. The timer says that it is not coming again before it
// looks, so that a token released meanwhile is either seen or makes it come.
func (l *lending) tick() {
	l.armed.Store(false)
	select {
	case <-l.token.free:
	default:
		return
	}
	if uses := l.uses.Load(); uses != l.seen {
		l.seen = uses
		l.token.free <- struct{}{}
		l.arm()
		return
	}
	l.back <- struct{}{}
}
