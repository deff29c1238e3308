package bridge

// ack acknowledges the records of a foreign task. moved is closed when the newest of
// them is in the hands of another bridge; nil: it never is.
type ack struct {
	done  func()
	moved <-chan struct{}
}

// noteAckLocked keeps what acknowledges a record. One that came again is
// acknowledged together with the first.
func (b *Bridge) noteAckLocked(id string, a ack) {
	before := b.acks[id]
	if before == nil {
		b.acks[id] = &a
		return
	}
	first := before.done
	before.done, before.moved = func() { first(); a.done() }, a.moved
}

// acknowledge lets go of a task's records.
func (b *Bridge) acknowledge(id string) {
	b.mu.Lock()
	a := b.acks[id]
	delete(b.acks, id)
	b.mu.Unlock()
	if a != nil {
		a.done()
	}
}

// acknowledgeKept lets go of the records of a task that the ledger has: it has its row.
// In memory that is worth nothing to who comes after a crash, so there it has to have
// ended.
func (b *Bridge) acknowledgeKept(id string) {
	if b.memory == nil || b.memory.over(id) {
		b.acknowledge(id)
	}
}

// movedLocked reports whether a task is another bridge's by now, which has its record
// and, without a store, knows nothing of this one. A task without records is nobody
// else's.
func (b *Bridge) movedLocked(a *ack) bool {
	if !b.volatile || a == nil {
		return false // the ledger gives it to one of them
	}
	select {
	case <-a.moved:
		return true
	default:
		return false
	}
}

// dropMovedLocked drops the tasks at the head of a queue that are another bridge's by
// now: else both would call the agent.
func (b *Bridge) dropMovedLocked(l *lane) {
	for l.queue.Len() > 0 && l.queue.Head().foreign != nil && b.movedLocked(l.queue.Head().foreign.ack) {
		q := l.popLocked(b)
		delete(b.acks, q.task)
		b.memory.forget(q.task)
		b.cfg.Metrics.record(fateRefused, 1)
	}
}

// moved is movedLocked for a task that waits in the ledger, which forgets it then.
func (b *Bridge) moved(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.movedLocked(b.acks[id]) {
		return false
	}
	delete(b.acks, id)
	b.memory.forget(id)
	return true
}
