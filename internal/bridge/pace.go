package bridge

import (
	"math"
	"time"
)

// pace is how fast the tasks of one agent end while others wait for its slots.
// It is protected by the bridge's mu.
type pace struct {
	// since is when the present measurement began; zero while nothing waits.
	since time.Time
	ended int
	// rate is in tasks per second; 0 until it is known. peak is the highest that it
	// was, of which half counts after each paceForgets: while a burst comes in, it is
	// this process that is slow, and not the agent.
	rate, peak float64
	// promised is when the last task that was put off is expected to get a slot;
	// nothing is promised any more once the queue is empty.
	promised time.Time
	// again is when the last task that was put off without a promise is to come
	// again at the earliest.
	again time.Time
}

// note counts a call that has ended; waiting says whether others wait for its
// slot: only then the agent's own speed is seen.
func (p *pace) note(now time.Time, waiting bool) {
	if !waiting {
		p.since = time.Time{}
		return
	}
	if p.since.IsZero() {
		p.since, p.ended = now, 0
		return
	}
	p.ended++
	took := now.Sub(p.since)
	if took < paceEvery && (took < paceLeast || p.ended < paceEnough) {
		return
	}
	rate := float64(p.ended) / took.Seconds()
	if p.rate > 0 {
		rate = (rate + p.rate) / 2
	}
	p.rate, p.since, p.ended = rate, now, 0
	p.peak = max(rate, p.peak*math.Exp2(-took.Seconds()/paceForgets.Seconds()))
}

// comeAgain is when the next task comes again that is to wait for a while between
// half and one and a half of patience, as share says: the later the more of them
// wait, so that looking at those that find no room does not become the work of the
// store.
func (p *pace) comeAgain(now time.Time, patience time.Duration, share float64) time.Time {
	first := now.Add(patience / 2)
	if p.again.Before(first) || p.again.After(now.Add(turnAtMost)) {
		p.again = first
	}
	p.again = p.again.Add(againSpacing)
	at := first.Add(time.Duration(share * float64(patience)))
	if at.Before(p.again) {
		at = p.again
	}
	return at.Truncate(time.Microsecond)
}

// roomLocked is how many records of a lane may wait unclaimed: as many as its
// agent does while a record may wait (protocol.md §4.9).
func (b *Bridge) roomLocked(l *lane) int {
	if b.heldLocked(l) {
		return 0
	}
	within := b.cfg.Limits.QueueFor
	return b.boundLocked(l, max(b.cfg.Limits.QueuePerAgent, min(int(l.pace.rate*within.Seconds()), queueMost)), within)
}

// foreignRoomLocked is the same for foreign tasks. Nobody publishes those again
// meanwhile, and their records are not acknowledged yet: so they may wait longer
// for an agent that will come to them. Without a store they have nowhere else to
// wait, and the bus limits what it hands out and is not acknowledged.
func (b *Bridge) foreignRoomLocked(l *lane) int {
	if b.heldLocked(l) {
		return 0
	}
	if b.volatile {
		return math.MaxInt
	}
	return b.boundLocked(l, max(b.cfg.Limits.QueuePerAgent, min(int(l.pace.peak*foreignQueueFor.Seconds()), foreignQueueMost)), foreignQueueFor)
}

// overdueLocked gives what reports whether a task of a lane has waited too long.
func (b *Bridge) overdueLocked(l *lane, now time.Time) func(*queuedTask) bool {
	own, foreign := b.cfg.Limits.QueueFor, b.cfg.Limits.QueueFor
	if l.queue.Len() <= b.foreignRoomLocked(l) && l.pace.rate > 0 {
		foreign = max(foreign, foreignQueueFor)
	}
	if l.gate.Spacing() > 0 { // no more were let in than have their turn by then
		own += own / 4
		foreign = max(foreign, foreignQueueFor+foreignQueueFor/4)
	}
	return func(q *queuedTask) bool {
		limit := own
		if q.foreign != nil && q.foreign.row == nil {
			if b.volatile {
				return false
			}
			limit = foreign
		}
		return now.Sub(q.since) >= limit
	}
}

// putOffUntilLocked is when the next record of a lane that finds no room is to
// come again. With a fast agent, and with one whose rate is bounded, that is when
// its turn is expected. With others it waits the longer the more often it came in
// vain: it must be there when a slot is, however rarely that happens.
func (b *Bridge) putOffUntilLocked(l *lane) time.Time {
	if b.heldLocked(l) {
		return b.holdUntilLocked(l)
	}
	now := b.now().Add(max(0, l.gate.Held().Sub(b.cfg.Now())))
	each, most := l.gate.Spacing(), turnAtMost
	switch fast := l.pace.rate*b.cfg.Limits.QueueFor.Seconds() > float64(b.cfg.Limits.QueuePerAgent); {
	case each > 0:
	case fast:
		each, most = time.Duration(float64(time.Second)/l.pace.rate), deferAtMost
	default:
		return l.pace.comeAgain(now, l.patience, b.cfg.Jitter())
	}
	if turn := now.Add(time.Duration(l.queue.Len()) * each); l.pace.promised.Before(turn) {
		l.pace.promised = turn
	}
	l.pace.promised = l.pace.promised.Add(each)
	latest := now.Add(most/2 + time.Duration(b.cfg.Jitter()*float64(most)))
	if l.pace.promised.After(latest) {
		return latest.Truncate(time.Microsecond)
	}
	return l.pace.promised.Truncate(time.Microsecond)
}
