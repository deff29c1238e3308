package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// A foreign task is one that an executor of the existing platform has put on
// the bus: nothing else knows of it, so its record is acknowledged only when
// its row stands in the ledger (protocol.md §4.12), or, with a [MemoryLedger],
// when its result is on the bus.

const (
	// foreignPatience is how long such an executor waits for a result, and
	// foreignTime what of it a task may take: the rest is for telling the agent
	// to stop, or asking it what became of the task, and for the result.
	foreignPatience = 300 * time.Second
	foreignTime     = 270 * time.Second
	// foreignDoubt is how old a record may look and be believed: more is a
	// matter of clocks or time zones, since its timestamp names none.
	foreignDoubt = 30 * time.Minute
	// foreignAsks is how long after its time a task's agent may still be asked.
	foreignAsks = 10 * time.Second
	// foreignHope is how long after its time a task waits for the ledger to say whose it
	// is: then it is answered all the same, while somebody waits for that.
	foreignHope = 20 * time.Second
	// foreignKept is how long the row of an ended task tells a record that comes
	// again from a new one, and foreignPurge how many rows are removed in one go.
	foreignKept  = 24 * time.Hour
	foreignPurge = 1000
)

// queuedForeign is a foreign task that is to wait for a slot.
type queuedForeign struct {
	row store.Attempt
	// stored: the ledger has its row.
	stored bool
}

// subscribeTasks takes task records: foreign ones are acknowledged when they
// are safe, and all others at once.
func (b *Bridge) subscribeTasks(ctx context.Context) (stop func(), err error) {
	if b.foreign == nil {
		return b.cfg.Bus.Subscribe(ctx, bus.SubjectTasks, b.cfg.Group, b.take)
	}
	if d, ok := b.cfg.Bus.(bus.Deferred); ok {
		return d.SubscribeDeferred(ctx, bus.SubjectTasks, b.cfg.Group, b.takeAny)
	}
	return b.cfg.Bus.Subscribe(ctx, bus.SubjectTasks, b.cfg.Group, func(ctx context.Context, m bus.Message) error {
		safe := make(chan struct{})
		b.takeAny(ctx, m, func() { close(safe) })
		select {
		case <-safe:
		case <-ctx.Done():
		}
		return nil
	})
}

// takeAny is the handler of [bus.SubjectTasks] on a bus that executors of the
// existing platform use, too. It returns at once; done is called when the record
// need not come again.
func (b *Bridge) takeAny(ctx context.Context, m bus.Message, done func()) {
	if !b.volatile && m.Header[bus.HeaderTask] != "" {
		if err := b.take(ctx, m); err != nil {
			b.refuse(m, records.AgentTask{}, err, done)
			return
		}
		done()
		return
	}
	t, err := records.DecodeTask(m.Value)
	if err == nil && strings.ContainsFunc(t.CorrelationID, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		err = parley.Errorf(parley.CodeInvalid, `AgentTask, member "correlation_id": control characters cannot stand in it`)
	}
	if err != nil {
		b.cfg.Metrics.record(fateInvalid, 1)
		b.refuse(m, t, err, done)
		return
	}
	b.cfg.Metrics.record(b.enqueueForeign(queuedForeign{row: b.foreignRow(t, m)}, ack{done: done, moved: ctx.Done()}), 1)
	nudge(b.dispatch)
}

// foreignRow is the attempt that stands for a foreign task; its Step is the
// executor's task id. A replay has its time from now on.
func (b *Bridge) foreignRow(t records.AgentTask, m bus.Message) store.Attempt {
	now, replay := b.now(), m.Header[bus.HeaderReplay]
	from := now
	if age := now.Sub(t.At); age >= 0 && age < foreignDoubt && replay == "" {
		from = t.At
	}
	source := b.sourceOf(m)
	if source != nil && len(m.Header) > 0 {
		source.Headers = parley.DeadLetterHeaderList(m.All())
	}
	return store.Attempt{
		Task: parley.Task{
			ID: store.ForeignTaskID(t.RunID, t.TaskID, t.CorrelationID, replay), Run: t.RunID, Step: t.TaskID, Attempt: 1,
			Agent: t.AgentName, Input: t.Input, CorrelationID: t.CorrelationID,
			Deadline: from.Add(foreignTime).Truncate(time.Microsecond),
			Trace:    parley.TraceOf(m.Values(parley.HeaderTraceparent), m.Values(parley.HeaderTracestate)),
		},
		State: store.AttemptOpen, HandOff: store.HandOffForeign, VisibleAt: now, Source: source,
	}
}

// enqueueForeign lets a foreign task wait for a slot of its agent. Without a record of
// its own, a is empty.
func (b *Bridge) enqueueForeign(q queuedForeign, a ack) (fate string) {
	id := q.row.ID
	b.mu.Lock()
	stored, queued := b.queued[id]
	ended, ending := b.ending[id]
	working := b.calls[id] != nil
	if b.stopping && !working {
		b.mu.Unlock()
		return fateDuplicate // it was not acknowledged, or has its row: it comes again
	}
	if a.done != nil {
		b.noteAckLocked(id, a)
	}
	if queued || working || ending {
		b.mu.Unlock()
		if (working || stored || ended) && !b.volatile {
			// It has its row. Another bridge may end it, should this one put it off: then
			// nobody would acknowledge the record any more.
			b.acknowledge(id)
		}
		return fateDuplicate
	}
	l := b.laneLocked(q.row.Agent)
	q.row.Agent = l.agent // which is the same text, kept once
	size := int64(len(q.row.Input))
	why := b.fullLocked(l, b.foreignRoomLocked(l), size)
	turn := q.row.Deadline.Add(-foreignTime).UnixMicro()
	if why == whyQueue && b.giveWayLocked(l, turn) {
		why = ""
	}
	if why != "" {
		b.putOffLocked(l, q)
		b.cfg.Metrics.putOff(why, 1)
	} else {
		w := newWaiting(&q)
		w.task.turn, w.task.bytes, w.ack = turn, size, b.acks[id]
		b.waitLocked(l, &w.task)
	}
	learn := l.limit == 0 && !l.learning
	if learn {
		l.learning = true
		b.inHand.Add(1)
	}
	b.mu.Unlock()
	if learn {
		b.crew.do(func() { b.meetLane(l) })
	}
	if why != "" {
		return fateDeferred
	}
	return fateQueued
}

// meetLane looks an agent up before its first task is claimed, off the way of
// the tasks of others.
func (b *Bridge) meetLane(l *lane) {
	defer b.inHand.Done()
	if agent, err := b.cfg.Agents.Lookup(b.calling, l.agent); err == nil {
		b.refresh(l, agent)
	}
	b.mu.Lock()
	l.learning = false
	b.mu.Unlock()
	nudge(b.dispatch)
}

// putOffLocked has a foreign task wait in the ledger.
func (b *Bridge) putOffLocked(l *lane, q queuedForeign) {
	q.row.State, q.row.Claim = store.AttemptOpen, store.Claim{}
	q.row.Policy.OutcomeUnknown = l.frozenPolicy()
	if q.row.VisibleAt = b.putOffUntilLocked(l); q.row.VisibleAt.After(q.row.Deadline) {
		q.row.VisibleAt = q.row.Deadline
	}
	d := store.Deferral{TaskID: q.row.ID, At: q.row.VisibleAt, Attempt: q.row.Attempt}
	switch {
	case b.volatile:
	case !q.stored:
		b.rememberLocked(l, d)
	case b.heldLocked(l):
		b.deferred = append(b.deferred, d)
		return
	default: // it is given again by itself
		d.At = b.now().Add(foreignAgain)
		b.rememberLocked(l, d)
	}
	b.keepLocked(&q)
}

// keepLocked has a task wait to be written into the ledger. It counts as one that
// waits until that is done: its record may come again.
func (b *Bridge) keepLocked(q *queuedForeign) {
	b.queued[q.row.ID] = q.stored
	b.putOff = append(b.putOff, q)
}

// frozenPolicy is what the row of a foreign task of that lane says about lost
// outcomes: the agent's policy as it is known when the task is claimed.
func (l *lane) frozenPolicy() parley.OutcomePolicy { return firstOf(l.policy, parley.OutcomeFail) }

// writePutOff writes what waits to be deferred.
func (b *Bridge) writePutOff() {
	b.mu.Lock()
	list := b.putOff
	if b.putOff = nil; len(list) > putOffAtOnce {
		list, b.putOff = list[:putOffAtOnce:putOffAtOnce], list[putOffAtOnce:]
	}
	more := len(b.putOff) > 0
	b.mu.Unlock()
	rows := make([]store.Attempt, 0, len(list))
	for i := range list {
		if !list[i].stored {
			rows = append(rows, list[i].row)
		}
	}
	if len(rows) > 0 { // what has its row is given again by itself
		if err := b.foreign.DeferForeign(b.hard, rows, b.now()); err != nil {
			b.log.Warn("tasks not deferred; it is tried again", "event", "bridge_defer", "tasks", len(rows), "error", err)
			b.keepPutOff(list)
			return // also if there are more, which would fail at once, too
		}
	}
	if more {
		nudge(b.dispatch)
	}
	b.mu.Lock()
	for _, q := range list {
		delete(b.queued, q.row.ID)
	}
	b.mu.Unlock()
	for i := range rows {
		b.acknowledgeKept(rows[i].ID)
	}
}

// keepPutOff has what could not be written wait for the next try, but for tasks whose
// executor waits no longer.
func (b *Bridge) keepPutOff(list []*queuedForeign) {
	now := b.cfg.Clock()
	var over []*queuedForeign
	b.mu.Lock()
	b.putOff = slices.DeleteFunc(append(b.putOff, list...), func(q *queuedForeign) bool {
		late := !q.stored && !now.Before(q.row.Deadline.Add(foreignHope))
		if late {
			delete(b.queued, q.row.ID)
			if b.endLocked(q) {
				over = append(over, q)
			}
		}
		return late
	})
	b.mu.Unlock()
	for _, q := range over {
		b.endAside(q.row.ID, func() bool { return b.tellUnwritten(&q.row) })
	}
}

// foreignClaim is a foreign task that is about to be claimed. It has a slot of its
// lane.
type foreignClaim struct {
	task   *waitingForeign
	slot   slot
	token  string
	policy parley.OutcomePolicy
}

// row is the attempt as it is claimed.
func (c *foreignClaim) row(claim store.Claim, at time.Time) store.Attempt {
	row := c.task.queued().row
	row.State, row.Policy.OutcomeUnknown, row.Claim, row.ClaimedAt = store.AttemptClaimed, c.policy, claim, at
	if c.task.row == nil {
		row.VisibleAt = at
	}
	return row
}

// claimForeign is P4 for tasks whose rows it inserts. What is in doubt waits
// for the next try; what somebody else has, or has ended, needs nothing more. It
// reports whether the ledger has written.
func (b *Bridge) claimForeign(claim store.Claim, batch []foreignClaim) bool {
	began := b.cfg.Now()
	rows := make([]store.Attempt, len(batch))
	at := b.now()
	for i := range batch {
		claim.Token = batch[i].token
		rows[i] = batch[i].row(claim, at)
	}
	got, err := b.foreign.ClaimForeign(b.hard, rows, at)
	if err != nil {
		b.log.Warn("claims in doubt; they are made again", "event", "bridge_claim", "tasks", len(rows), "error", err)
		nudge(b.reconcile)
	}
	if errors.Is(err, store.ErrStale) {
		_ = b.beatOnce(b.hard) // begins a new life
	}
	mine := make(map[string]*store.Attempt, len(got))
	for i := range got {
		mine[got[i].ID] = &got[i]
	}
	for i := range batch {
		c := &batch[i]
		claim.Token = c.token
		r := Reservation{Claim: claim, b: b, slot: c.slot, began: began}
		switch row := mine[c.task.task.task]; {
		case row != nil:
			r.Start(*row)
			if !b.volatile {
				b.acknowledge(row.ID)
			}
		case err != nil:
			r.Release()
			b.enqueueForeign(c.task.queued(), ack{})
		default:
			r.Release()
			b.acknowledgeKept(c.task.task.task)
		}
	}
	if err == nil {
		b.cfg.Metrics.record(fateRefused, len(rows)-len(got))
	}
	return err == nil
}

// expireForeign takes tasks out of the queues whose time was over before they got a
// slot. One may be another bridge's meanwhile, which then has called the agent: so the
// ledger has the word. One that has its row is given again by it, if it is nobody's;
// one without gets a row first, like what is put off: were it answered while that is in
// doubt, and the row there, it would be answered a second time.
func (b *Bridge) expireForeign(now time.Time) {
	var over []queuedForeign
	b.mu.Lock()
	for l := range b.waiting.Flows {
		b.dropMovedLocked(l)
		for l.queue.Len() > 0 && l.queue.Head().foreign != nil && !now.Before(l.queue.Head().foreign.deadline()) {
			q := l.queue.Head().foreign.queued()
			q.row.Policy.OutcomeUnknown, q.row.VisibleAt = l.frozenPolicy(), now
			l.popLocked(b)
			switch {
			case !b.volatile && !q.stored:
				b.keepLocked(&q)
			case b.volatile && b.endLocked(&q):
				over = append(over, q)
			}
		}
	}
	b.mu.Unlock()
	for i := range over {
		b.endAside(over[i].row.ID, func() bool { return b.tooLate(&over[i]) })
	}
}

// aside does work beside the calls; a bridge that stops waits for it. It is not
// called after that has begun.
func (b *Bridge) aside(work func()) {
	b.inHand.Add(1)
	b.crew.do(func() {
		defer b.inHand.Done()
		work()
	})
}

// tooLate answers a task that was never claimed, unless its record came again after
// its end; false if that is not done.
func (b *Bridge) tooLate(q *queuedForeign) bool {
	if b.memory != nil && b.memory.over(q.row.ID) {
		return true
	}
	r, at := noTurn(&q.row), b.now()
	if q.stored {
		if ok, err := b.cfg.Ledger.Answer(b.hard, store.Answer{Result: r, Started: at, At: at, From: b.cfg.Worker}); err != nil || !ok {
			return false // it is looked at again
		}
	}
	q.row.SettledAt = at
	return b.conclude(&q.row, r)
}

// noTurn is the result of a task that was never claimed.
func noTurn(row *store.Attempt) parley.Result {
	e := parley.Errorf(parley.CodeTimeout, "agent '%s' had no time for the task: it waited too long for its turn, and the executor waits no longer than %v", row.Agent, foreignPatience)
	return parley.Result{TaskID: row.ID, Outcome: parley.OutcomeError, Err: uncalled(e)}
}

// tellUnwritten answers a task of which the ledger has not said in time whether it has
// its row. If it still does not, the task is answered without, and the row written with
// that answer as soon as it can be: else whoever found it open would answer the task
// once more. Somebody else's answer stays, and is for that bridge to tell. False if the
// row is not known to be written.
func (b *Bridge) tellUnwritten(row *store.Attempt) bool {
	r := noTurn(row)
	row.SettledAt = b.now()
	ours, err := b.settleUnwritten(row, r)
	told := err != nil
	if told && !b.insist(func() error { return b.publishResult(b.hard, row, &r) }) {
		return false
	}
	if err != nil && !b.insist(func() error {
		ours, err = b.settleUnwritten(row, r)
		return err
	}) {
		return false
	}
	switch {
	case !ours:
	case !told:
		b.conclude(row, r)
	case b.insist(func() error { return b.buryTask(b.hard, row, &r) }):
		b.delivered(row.ID)
	}
	return true
}

// settleUnwritten writes the row of a task with the answer that it had; false if it has
// another one. Nobody is given the row in between.
func (b *Bridge) settleUnwritten(row *store.Attempt, r parley.Result) (ours bool, err error) {
	fresh := *row
	fresh.VisibleAt, fresh.SettledAt = b.now().Add(foreignAgain), time.Time{}
	if err := b.foreign.DeferForeign(b.hard, []store.Attempt{fresh}, b.now()); err != nil {
		return false, err
	}
	return b.cfg.Ledger.Answer(b.hard, store.Answer{Result: r, Started: row.SettledAt, At: row.SettledAt, From: b.cfg.Worker})
}

// refuse deals with a record that is of no use: it is a dead letter, and answered
// if it says whom to answer. Neither holds up what comes behind it.
func (b *Bridge) refuse(m bus.Message, t records.AgentTask, why error, done func()) {
	b.mu.Lock()
	if b.stopping {
		b.mu.Unlock()
		return // it comes again
	}
	b.inHand.Add(1) // until it is counted aside
	b.mu.Unlock()
	defer b.inHand.Done()
	b.aside(func() {
		b.log.Error("task record refused", "event", "task_refused", "topic", m.At.Topic, "partition", m.At.Partition, "offset", m.At.Offset,
			"run", cut(t.RunID, maxNote), "task_id", cut(t.TaskID, maxNote), "error", why)
		fate, at := fateDeadLetter, b.now()
		if t.Answerable() {
			fate = fateRejected
			if !b.insist(func() error { return b.publishRefusal(t, at, why) }) {
				return
			}
		}
		if b.insist(func() error { return b.buryRecord(m, t, why) }) {
			b.cfg.Metrics.record(fate, 1)
			done()
		}
	})
}

// insist repeats f until it succeeds; false if the bridge ends before that. A bridge
// that stops has a grace for it beside that of its calls: what it gives up here was
// answered, and is called again.
func (b *Bridge) insist(f func() error) bool {
	for wait := repeatAfter; ; wait = min(2*wait, repeatAtMost) {
		err := f()
		if err == nil {
			return true
		}
		b.log.Warn("not written; it is tried again", "event", "bridge_insist", "error", err)
		if !pause(b.hard, wait) {
			return false
		}
	}
}
