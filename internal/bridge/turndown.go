package bridge

import (
	"slices"

	"github.com/parley-project/parley/internal/store"
)

// A task whose step has another agent does not wait for an open circuit (rule
// R5): it is claimed as any other, and turned down without a call.

// turnedDown is such a task.
type turnedDown struct {
	agent string
	*queuedTask
}

// turnDownLocked has a task claimed to be turned down. If too many wait for that
// it is dropped: it is announced again after 5 s (P2).
func (b *Bridge) turnDownLocked(l *lane, q *queuedTask) {
	if len(b.turnDowns) < 4*b.cfg.Limits.ClaimBatch {
		b.queued[q.task] = false
		b.turnDowns = append(b.turnDowns, turnedDown{l.agent, q})
	}
}

// takeTurnDownsLocked begins a batch with what is to be turned down. That needs
// no free slot, since nothing is sent.
func (b *Bridge) takeTurnDownsLocked() (own ownBatch) {
	if b.inc == 0 || b.stopping {
		return own
	}
	n := min(len(b.turnDowns), b.cfg.Limits.ClaimBatch)
	for _, t := range b.turnDowns[:n] {
		delete(b.queued, t.task)
		l := b.laneLocked(t.agent)
		b.occupyLocked(l)
		b.carryLocked(l, t.bytes)
		b.inHand.Add(1)
		own.reqs = append(own.reqs, store.ClaimRequest{TaskID: t.task, Token: b.tokenLocked(), Source: t.source})
		own.slots = append(own.slots, slot{lane: l, bytes: t.bytes, turnDown: true})
	}
	b.turnDowns = slices.Delete(b.turnDowns, 0, n)
	return own
}
