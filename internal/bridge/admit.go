package bridge

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/admission"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

// Why a task waits in the ledger instead of here.
const (
	whyQueue      = "queue"       // as many wait as may
	whyQueueBytes = "queue_bytes" // they are as large as they may be
	whyBytes      = "bytes"       // so are all of this bridge
	whyCircuit    = "circuit"     // the agent's circuit is open
	whyWaited     = "waited"      // it has waited here for too long
)

type queuedTask struct {
	task  string
	since time.Time
	// turn is since when the task counts as waiting for its agent, in microseconds:
	// who waits longest goes first.
	turn int64
	// bytes is how large the request is.
	bytes int64
	// source is the record that it was taken from, nil for foreign tasks.
	source *store.Source
	// foreign is set for foreign tasks.
	foreign *waitingForeign
	// moves: it does not wait while the agent's circuit is open.
	moves bool
}

// taskQueue holds the tasks that wait for one agent.
type taskQueue struct {
	// Pointers: who sorts many tasks is not to move them whole.
	admission.Queue[*queuedTask]
	bytes int64
}

// Weight is the lane's share among those that wait.
func (l *lane) Weight() int { return orDefault(l.weight, parley.DefaultPriority) }

// waitLocked lets a task wait for a slot of its lane.
func (b *Bridge) waitLocked(l *lane, q *queuedTask) {
	q.since = b.cfg.Now()
	if l.queue.Len() == 0 && l.gate.Idle(q.since) {
		l.pace.promised = time.Time{} // whoever was to come has come
	}
	b.queued[q.task] = q.foreign != nil && q.foreign.row != nil
	b.carryLocked(l, q.bytes)
	l.queue.bytes += q.bytes
	l.queue.Push(q, q.turn)
	if !l.listed {
		l.listed = true
		b.waiting.Add(l)
	}
}

// popLocked takes the first task out of the queue.
func (l *lane) popLocked(b *Bridge) *queuedTask {
	q := l.queue.Pop()
	b.leftLocked(l, q)
	return q
}

// leftLocked notes that a task has left the queue.
func (b *Bridge) leftLocked(l *lane, q *queuedTask) {
	if l.queue.Len() == 0 {
		l.paced = false
		if l.gate.Spacing() == 0 {
			l.pace.promised = time.Time{}
		}
	}
	delete(b.queued, q.task)
	l.queue.bytes -= q.bytes
	b.carryLocked(l, -q.bytes)
}

// giveWayLocked has the last task of a queue that has no room wait in the ledger in
// place of one that goes before it; false if there is none.
func (b *Bridge) giveWayLocked(l *lane, turn int64) bool {
	q, ok := l.queue.GiveWay(turn)
	if ok {
		b.leftLocked(l, q)
		b.backLocked(l, q)
	}
	return ok
}

// backLocked has a task that has left the queue wait in the ledger.
func (b *Bridge) backLocked(l *lane, q *queuedTask) {
	if q.foreign != nil {
		b.putOffLocked(l, q.foreign.queued())
		return
	}
	b.deferLocked(l, q.task)
}

// carryLocked counts the bytes of requests that wait or are in hand.
func (b *Bridge) carryLocked(l *lane, bytes int64) {
	l.bytes += bytes
	b.bytes += bytes
}

// fitsLocked reports whether a lane may have so many bytes more: fewer than are
// free then, so that no agent fills the bridge with its own.
func (b *Bridge) fitsLocked(l *lane, bytes int64) bool {
	return b.bytes == 0 || l.bytes+bytes < b.cfg.Limits.GlobalBytes-b.bytes
}

// fullLocked says why a task of so many bytes cannot wait in a lane that has room
// for so many tasks; "" if it can. What has no ledger waits here in any case.
func (b *Bridge) fullLocked(l *lane, room int, bytes int64) (why string) {
	switch {
	case b.heldLocked(l):
		return whyCircuit
	case l.queue.Len() >= room:
		return whyQueue
	case b.volatile:
		return ""
	case l.queue.Len() > 0 && l.queue.bytes+bytes > orDefault(l.limits.QueueBytes, b.cfg.Limits.QueueBytes):
		return whyQueueBytes
	case !b.fitsLocked(l, bytes):
		return whyBytes
	}
	return ""
}

// boundLocked is how many of the tasks for which there is room may wait for a lane
// whose record, or whose agent, says more: not more than have their turn within
// that time.
func (b *Bridge) boundLocked(l *lane, room int, within time.Duration) int {
	if l.limits.Queue > 0 {
		room = l.limits.Queue
	}
	if l.gate.Held().Sub(b.cfg.Now()) > within {
		return min(room, spare)
	}
	if every := l.gate.Spacing(); every > 0 {
		room = min(room, max(spare, int(within/every)))
	}
	return room
}

// costLocked is what the next task of a lane costs its turn, 0 if it has to wait.
func (b *Bridge) costLocked(l *lane, now time.Time) int {
	b.dropMovedLocked(l)
	if l.queue.Len() == 0 {
		return 0
	}
	if b.freeLocked(l) > 0 {
		return admission.Cost(l.queue.Head().bytes)
	}
	at := l.gate.Next(now, l.inFlight, l.queue.Len())
	if at.IsZero() {
		return 0
	}
	if !l.paced {
		l.paced = true
		b.cfg.Metrics.rateWait(l.agent)
	}
	if b.turn.IsZero() || at.Before(b.turn) {
		b.turn = at
	}
	return 0
}

// setTurn sets the timer to when the next lane may go on by itself.
func (b *Bridge) setTurn(timer *time.Timer) {
	b.mu.Lock()
	at := b.turn
	b.mu.Unlock()
	if at.IsZero() {
		timer.Stop()
		return
	}
	timer.Reset(at.Sub(b.cfg.Now()))
}

// reacquaint looks at the records of agents whose tasks wait for a time: no call
// of theirs sees that somebody has changed them. It does not wait for that: what knows
// the agents may take its time, in which the tasks of others are claimed.
func (b *Bridge) reacquaint(ctx context.Context) {
	var names []string
	b.mu.Lock()
	for l := range b.waiting.Flows {
		if l.paced {
			names = append(names, l.agent)
		}
	}
	b.mu.Unlock()
	if len(names) == 0 || !b.looking.CompareAndSwap(false, true) {
		return
	}
	b.aside(func() {
		defer b.looking.Store(false)
		for _, name := range names {
			if agent, err := b.cfg.Agents.Lookup(ctx, name); err == nil {
				agent.Name = name
				b.learn(agent)
			}
		}
		nudge(b.dispatch)
	})
}

// takeTurn notes that the call is sent now, and gives nil; or the step that waits
// until the agent's rate lets it. To look and to take is one: of several that were
// late, each would see room for itself.
func (c *call) takeTurn() step {
	b := c.b
	now := b.cfg.Now()
	b.mu.Lock()
	due := c.dueLocked(now)
	if !due.After(now) {
		c.reserved, c.due, c.sentAt = false, time.Time{}, now
		c.lane.gate.Send(now, c.lane.inFlight)
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()
	wait := due.Sub(now)
	if c.row.Orphanings > 0 {
		return func(c *call) step { return c.claimAgain(wait) }
	}
	return func(c *call) step { return c.putBackUntil(b.now().Add(wait)) }
}

// dueLocked is when the call may be sent. It keeps one of the agent's rate for a
// call that is sent again.
func (c *call) dueLocked(now time.Time) time.Time {
	if !c.reserved {
		c.reserved, c.due = true, c.lane.gate.Reserve(now)
	}
	if c.due.After(now) {
		return c.due
	}
	return c.lane.gate.Due(now)
}

// loadOf says what the outcome of a call tells about how much its agent can take;
// why is what interrupted the call, or nil.
func loadOf(out *Outcome, why error) admission.Outcome {
	status := 0
	if e := out.Result.Err; e != nil {
		status = detailsOf(e).Status
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return admission.Overloaded
	case http.StatusGatewayTimeout:
		return admission.Unreached
	}
	switch h := healthOf(out, why); {
	case h == healthGood:
		return admission.Answered
	case h == healthBad && status == 0:
		return admission.Unreached
	}
	return admission.Unclear
}

// noteLoad adapts the limit of the agent. What it asks for with 429 or 503 and
// Retry-After it asks of this bridge as a whole, not of one task.
func (c *call) noteLoad(out *Outcome) {
	b, load := c.b, loadOf(out, c.why)
	if load == admission.Unclear {
		return
	}
	now := b.cfg.Now()
	b.mu.Lock()
	l := c.lane
	before := l.gate.Limit(now)
	l.gate.Note(admission.Call{Outcome: load, Began: c.sentAt, Ended: now})
	if d := out.Result.RetryAfter; load == admission.Overloaded && d > 0 {
		l.gate.Hold(now.Add(min(d, holdAtMost)))
	}
	after := l.gate.Limit(now)
	b.mu.Unlock()
	if before != after {
		b.cfg.Metrics.limit(l.agent, after)
	}
}

// turnOf is since when the task of a record counts as waiting.
func (b *Bridge) turnOf(m bus.Message) int64 {
	if turn, err := strconv.ParseInt(m.Header[bus.HeaderTurn], 10, 64); err == nil {
		return turn
	}
	return b.now().UnixMicro()
}

// sizeOf is how large the request is that a task record stands for, in bytes.
func sizeOf(m bus.Message) int64 {
	if n, err := strconv.ParseInt(m.Header[bus.HeaderBytes], 10, 64); err == nil && n > 0 {
		return n
	}
	return int64(len(m.Value))
}
