package bridge

import (
	"time"

	"github.com/parley-project/parley/internal/store"
)

// A task that finds no room waits in the ledger until its turn is expected. An
// agent may turn out to be faster than it looked then: so that its slots are not
// idle while its tasks wait, each lane remembers those that it has put off, and
// has them come back when it is about to run out of others.

const (
	// recallMost bounds the tasks that are remembered, recallAtOnce those of a lane
	// that come back in one go; recallLeast are worth it in any case.
	recallMost   = 131_072
	recallAtOnce = 4096
	recallLeast  = 64
	// recallAhead is how long what waits here is to last while others come back:
	// an executor announces them within a second. recallSpacing is the shortest
	// time between two goes: what they bring waits for less than QueueFor.
	recallAhead   = 750 * time.Millisecond
	recallSpacing = recallAhead / 2
)

// rememberLocked notes that a task of a lane waits in the ledger. No lane remembers
// more than others still may.
func (b *Bridge) rememberLocked(l *lane, d store.Deferral) {
	b.forgetPastLocked(l)
	if len(l.away) < recallMost-b.away {
		l.away = append(l.away, d)
		b.away++
	}
}

// forgetPastLocked drops what has come by itself.
func (b *Bridge) forgetPastLocked(l *lane) {
	if len(l.away) == 0 {
		return
	}
	n, now := 0, b.now()
	for n < len(l.away) && !l.away[n].At.After(now) {
		n++
	}
	b.forgetLocked(l, n)
}

// forgetLocked drops the first n that a lane remembers.
func (b *Bridge) forgetLocked(l *lane, n int) {
	b.away -= n
	if l.away = l.away[n:]; len(l.away) == 0 {
		l.away = nil // and what it was part of
	}
}

// recallLocked chooses tasks of a lane that are to come back, if there is going to
// be room for them.
func (b *Bridge) recallLocked(l *lane) {
	if len(l.away) == 0 || l.gate.Spacing() > 0 {
		return
	}
	now := b.cfg.Now()
	soon := int(l.pace.rate * recallAhead.Seconds())
	if l.queue.Len() > soon || now.Before(l.recallNext) || l.gate.Held().After(now) {
		return
	}
	// An agent with nothing to do is faster than it seems, if that is known at all.
	idle := l.queue.Len() == 0 && b.freeLocked(l) > 0
	switch {
	case idle:
		l.recallSize = min(max(2*l.recallSize, recallLeast), recallAtOnce)
	case soon == 0:
		return
	default:
		l.recallSize = 0
	}
	b.forgetPastLocked(l)
	at := b.now()
	n := min(len(l.away), max(soon, l.recallSize, recallLeast), recallAtOnce, b.recallRoomLocked(l))
	for _, d := range l.away[:n] {
		d.At = at
		b.recalled = append(b.recalled, d)
	}
	b.forgetLocked(l, n)
	l.recallNext = now.Add(recallSpacing)
}

// recallRoomLocked is how many more tasks may wait here; none while the agent's
// circuit is open.
func (b *Bridge) recallRoomLocked(l *lane) int {
	room := b.roomLocked(l)
	if b.foreign != nil {
		room = max(room, b.foreignRoomLocked(l))
	}
	return max(0, room-l.queue.Len())
}

// recall writes which tasks are to come back. It does not wait for that.
func (b *Bridge) recall() {
	b.mu.Lock()
	list := b.recalled
	b.recalled = nil
	b.mu.Unlock()
	if len(list) == 0 {
		return
	}
	b.aside(func() {
		if err := b.cfg.Ledger.Defer(b.hard, list); err != nil {
			b.log.Debug("tasks not called back; they come later", "event", "bridge_recall", "tasks", len(list), "error", err)
			return
		}
		if b.foreign != nil && !b.volatile {
			b.awaited.Add(int64(len(list)))
			nudge(b.fetch)
		}
	})
}
