package jsonrpc

import (
	"context"
	"time"
)

// Senders wait in a queue when the write buffer is full, or when the Stream has no
// room for what they send. Those that fit are told when room is made, and no others:
// were all told, a thousand callers would come for the room of a few hundred, again
// and again.

// A sending is what a message is for the Stream that may have no room for it.
type sending uint8

const (
	sendsAnswer sending = iota // which has room always
	sendsNotification
	sendsCall
)

// A roomQueue is who waits for room in a write buffer. It is part of its writer,
// and used with w.mu held.
type roomQueue struct {
	first, last *roomWaiter
	spare       *roomWaiter // waiters to be used again, linked by next
	// change is closed when there is less to be written, for the few that wait
	// for something else than room for their message; nil when nobody does.
	change chan struct{}
}

// A roomWaiter is a sender that waits until its message fits.
type roomWaiter struct {
	prev, next *roomWaiter
	queued     bool
	what       sending
	size       int           // of the message, in bytes, about
	told       chan struct{} // that there is room; holds one
	timer      *time.Timer   // nil as long as there was no need for one
}

// waiter returns a waiter that is not queued.
func (q *roomQueue) waiter(what sending, size int) *roomWaiter {
	r := q.spare
	if r == nil {
		r = &roomWaiter{told: make(chan struct{}, 1)}
	} else {
		q.spare, r.next = r.next, nil
	}
	r.what, r.size = what, size
	return r
}

// free takes back a waiter that is not queued and was not told.
func (q *roomQueue) free(r *roomWaiter) { q.spare, r.next = r, q.spare }

// push queues r behind all others.
func (q *roomQueue) push(r *roomWaiter) {
	r.queued = true
	if r.prev = q.last; r.prev == nil {
		q.first = r
	} else {
		r.prev.next = r
	}
	q.last = r
}

// pushFirst queues r before all others, who was the first already.
func (q *roomQueue) pushFirst(r *roomWaiter) {
	r.queued = true
	if r.next = q.first; r.next == nil {
		q.last = r
	} else {
		r.next.prev = r
	}
	q.first = r
}

// remove takes r out of the queue.
func (q *roomQueue) remove(r *roomWaiter) {
	if r.prev == nil {
		q.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		q.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next, r.queued = nil, nil, false
}

// lock takes w.mu when there is room to append a message of about size bytes,
// and waits for it with ctx, and no longer than timeout when that is positive.
func (w *writer) lock(ctx context.Context, timeout time.Duration, what sending, size int) error {
	if w.lockNow(what) {
		return nil
	}
	w.mu.Lock()
	if w.err == nil && !w.hasRoom(what) {
		r := w.room.waiter(what, size)
		w.room.push(r)
		if err := w.waitRoom(ctx, timeout, r); err != nil {
			w.mu.Unlock()
			return err
		}
	}
	if w.err != nil {
		w.mu.Unlock()
		return w.err
	}
	return nil
}

// hasRoom says that a message may be appended; w.mu is held.
func (w *writer) hasRoom(what sending) bool {
	return !w.owned && w.waiting() < w.limit && (w.turns == nil || w.roomBehind().has(what))
}

// A streamRoom says what a Stream has room for.
type streamRoom struct{ calls, notifications bool }

// roomBehind asks the Stream.
func (w *writer) roomBehind() streamRoom {
	if w.turns == nil {
		return streamRoom{true, true}
	}
	calls, notifications := w.turns.Room()
	return streamRoom{calls, notifications}
}

func (r streamRoom) has(what sending) bool {
	switch what {
	case sendsCall:
		return r.calls
	case sendsNotification:
		return r.notifications
	case sendsAnswer:
	}
	return true
}

// waitRoom waits until there is room for r, who is queued, or w has failed; w.mu
// is held before and after.
func (w *writer) waitRoom(ctx context.Context, timeout time.Duration, r *roomWaiter) error {
	over := r.startTimer(timeout)
	if over != nil {
		defer r.timer.Stop()
	}
	for {
		w.mu.Unlock()
		err := r.wait(ctx, w.dead, over)
		w.mu.Lock()
		switch {
		case w.err != nil: // the queue is gone
			return nil
		case err == nil && w.hasRoom(r.what):
			w.room.free(r)
			return nil
		case err == nil: // somebody who did not wait was faster
			w.room.pushFirst(r)
			continue
		case r.queued:
			w.room.remove(r)
		default: // told too late: the room is for others
			<-r.told
			w.tellRoom()
		}
		w.room.free(r)
		return err
	}
}

// startTimer returns what tells that timeout is over; nil: never.
func (r *roomWaiter) startTimer(timeout time.Duration) <-chan time.Time {
	if timeout <= 0 {
		return nil
	}
	if r.timer == nil {
		r.timer = time.NewTimer(timeout)
	} else {
		r.timer.Reset(timeout)
	}
	return r.timer.C
}

// wait waits until r is told, or dead is closed.
func (r *roomWaiter) wait(ctx context.Context, dead <-chan struct{}, over <-chan time.Time) error {
	select {
	case <-r.told:
	case <-dead:
	case <-over:
		return context.DeadlineExceeded
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// tellRoom tells those whose messages fit that there is room; w.mu is held.
func (w *writer) tellRoom() {
	q := &w.room
	if q.change != nil {
		close(q.change)
		q.change = nil
	}
	if w.owned {
		return
	}
	behind := w.roomBehind()
	free := w.limit - w.waiting()
	for r := q.first; r != nil && free > 0; {
		next := r.next
		if behind.has(r.what) { // others may pass those that wait for the Stream
			q.remove(r)
			free -= r.size
			r.told <- struct{}{}
		}
		r = next
	}
}

// roomMade tells those who waited for room in the Stream.
func (w *writer) roomMade() {
	w.mu.Lock()
	w.tellRoom()
	w.mu.Unlock()
}

// waitChange waits until there may be less to be written; w.mu is held before
// and after.
func (w *writer) waitChange(ctx context.Context) error {
	q := &w.room
	if q.change == nil {
		q.change = make(chan struct{})
	}
	change := q.change
	w.mu.Unlock()
	defer w.mu.Lock()
	select {
	case <-change:
	case <-w.dead:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
