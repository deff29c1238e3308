package bridge

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/admission"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

// lane is everything about the tasks of one agent: what is in flight, and what
// waits for that. All fields are protected by the bridge's mu.
type lane struct {
	agent string
	// limit bounds the calls in flight; 0 until the agent's record was seen.
	// capacity is true if the record names it: then it bounds the tasks that
	// are followed, too.
	limit    int
	capacity bool
	inFlight int
	queue    taskQueue
	// gate holds the agent to its limits; bytes are those of its requests that
	// wait or are in hand. The others are what its record says.
	gate   admission.Gate
	bytes  int64
	limits parley.AgentLimits
	weight int
	// paced: tasks wait for the agent's rate.
	paced bool
	// listed: the lane stands in Bridge.waiting. learning: its agent is being
	// looked up, and nothing is claimed until that is done.
	listed, learning bool
	// policy is the agent's for lost outcomes, "" until its record was seen.
	policy parley.OutcomePolicy
	// patience is how long the next record without a slot is deferred.
	patience time.Duration
	pace     pace
	// away are tasks that wait in the ledger; before recallNext none is called back.
	// recallSize is how many at least come back at once.
	away       []store.Deferral
	recallNext time.Time
	recallSize int
	// circuit is nil for an agent without a breaker. What it points to is
	// protected by the bridge's mu, too.
	circuit atomic.Pointer[circuit]
}

// laneLocked gives the lane of an agent.
func (b *Bridge) laneLocked(agent string) *lane {
	l := b.lanes[agent]
	if l != nil {
		return l
	}
	now := b.cfg.Now()
	if len(b.lanes) >= idleLanes {
		for name, o := range b.lanes {
			if o.inFlight == 0 && o.bytes == 0 && !o.listed && o.gate.Idle(now) {
				b.forgetLocked(o, len(o.away))
				delete(b.lanes, name)
			}
		}
	}
	l = &lane{agent: agent, patience: deferFirst}
	l.gate.Configure(now, admission.Settings{Concurrency: b.cfg.Limits.PerAgent})
	l.circuit.Store(b.circuits[agent])
	b.lanes[agent] = l
	return l
}

// freeLocked is how many more calls of a lane may begin now.
func (b *Bridge) freeLocked(l *lane) int {
	now := b.cfg.Now()
	// What the guard would refuse is not claimed: it would be released and come back
	// at once, again and again.
	if !b.leadsLocked(b.inc, now) {
		return 0
	}
	if b.inc == 0 || b.stopping || l.learning || b.following >= b.cfg.Limits.Following || b.settling >= settlingMost {
		return 0
	}
	// A further call needs more free slots than the lane has: with another weight
	// than the default one, as many more or less.
	if l.inFlight*parley.DefaultPriority >= (b.cfg.Limits.Global-b.inFlight)*l.Weight() {
		return 0
	}
	return b.breakerRoomLocked(l, l.gate.Room(now, l.inFlight))
}

// learn notes the limit of an agent's record.
func (b *Bridge) learn(agent parley.Agent) {
	b.mu.Lock()
	l := b.laneLocked(agent.Name)
	b.mu.Unlock()
	b.refresh(l, agent)
}

// acquaint looks the limit of an agent up if it was never seen, and gives the error
// of that. An agent that cannot be found gets the default: its call will say what is
// wrong. One whose credential cannot be had has its own.
func (b *Bridge) acquaint(ctx context.Context, name string) error {
	b.mu.Lock()
	known := b.lanes[name] != nil && b.lanes[name].limit > 0
	b.mu.Unlock()
	if known {
		return nil
	}
	agent, err := b.cfg.Agents.Lookup(ctx, name)
	if err != nil && agent.Name == "" {
		return err
	}
	agent.Name = name
	b.learn(agent)
	return err
}

// take is the handler of [bus.SubjectTasks]. It returns as soon as the record
// is queued, deferred or dropped; no acknowledgement waits for a slot
// (protocol.md §4.9).
func (b *Bridge) take(ctx context.Context, m bus.Message) error {
	r, err := decodeTask(m.Value)
	if err != nil {
		b.cfg.Metrics.record(fateInvalid, 1)
		return parley.Errorf(parley.CodeInvalid, "task record with key %.200q dropped: %w", m.Key, err)
	}
	_ = b.acquaint(ctx, r.Agent) // see makeRoom
	b.cfg.Metrics.record(b.enqueue(r, queuedTask{
		task: r.TaskID, bytes: sizeOf(m), turn: b.turnOf(m), source: b.sourceOf(m),
		moves: m.Header[bus.HeaderOnOpen] == string(parley.OnOpenFail),
	}), 1)
	nudge(b.dispatch)
	return nil
}

func (b *Bridge) enqueue(r taskRecord, q queuedTask) (fate string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, queued := b.queued[r.TaskID]; queued || b.calls[r.TaskID] != nil || b.stopping {
		return fateDuplicate
	}
	l := b.laneLocked(r.Agent)
	if q.moves && b.heldLocked(l) {
		b.turnDownLocked(l, &q)
		return fateQueued
	}
	if why := b.fullLocked(l, b.roomLocked(l), q.bytes); why != "" && (why != whyQueue || !b.giveWayLocked(l, q.turn)) {
		b.deferLocked(l, r.TaskID)
		b.cfg.Metrics.putOff(why, 1)
		return fateDeferred
	}
	b.waitLocked(l, &q)
	return fateQueued
}

// deferLocked has a task announced again later. If too many wait to be written
// it is just dropped: it is announced again after 5 s anyway (P2).
func (b *Bridge) deferLocked(l *lane, task string) {
	if len(b.deferred) < 4*b.cfg.Limits.ClaimBatch {
		d := store.Deferral{TaskID: task, At: b.putOffUntilLocked(l)}
		b.deferred = append(b.deferred, d)
		b.rememberLocked(l, d)
	}
}

// serveClaims claims what waits as soon as there are slots, one batch after
// the other: what arrives while one is being written is the next.
func (b *Bridge) serveClaims(ctx context.Context) {
	stale := time.NewTicker(b.cfg.Limits.QueueFor / 4)
	defer stale.Stop()
	turn := time.NewTimer(b.cfg.Limits.QueueFor)
	defer turn.Stop()
	wait := repeatAfter
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.dispatch:
		case <-turn.C:
		case <-stale.C:
			b.expire()
			b.reacquaint(ctx)
		}
		for ctx.Err() == nil {
			b.writeDeferrals()
			claim, own, foreign := b.batch()
			b.recall()
			if len(own.reqs)+len(foreign) == 0 {
				break
			}
			if len(own.reqs) > 0 {
				b.claimBatch(claim, own)
			}
			if len(foreign) == 0 || b.claimForeign(claim, foreign) {
				wait = repeatAfter
				if len(foreign) > 1 && !b.volatile {
					pause(ctx, gather)
				}
				continue
			}
			pause(ctx, wait) // nobody else has these tasks
			wait = min(2*wait, repeatAtMost)
			b.expire()
		}
		b.setTurn(turn)
	}
}

// expire defers what has waited too long for a slot, but for a few that the
// next free slots are for.
func (b *Bridge) expire() {
	now := b.cfg.Now()
	b.mu.Lock()
	n := 0
	for l := range b.waiting.Flows {
		late := l.queue.Expire(spare, b.overdueLocked(l, now))
		for _, q := range late {
			b.leftLocked(l, q)
			b.backLocked(l, q)
		}
		if n += len(late); len(late) > 0 {
			l.patience = min(2*l.patience, deferAtMost)
		}
	}
	for _, l := range b.lanes {
		b.recallLocked(l)
	}
	b.mu.Unlock()
	b.recall()
	b.cfg.Metrics.record(fateDeferred, n)
	b.cfg.Metrics.putOff(whyWaited, n)
	b.expireForeign(b.cfg.Clock())
}

func (b *Bridge) writeDeferrals() {
	b.writePutOff()
	b.mu.Lock()
	ds := b.deferred
	b.deferred = nil
	b.mu.Unlock()
	if len(ds) == 0 {
		return
	}
	if err := b.cfg.Ledger.Defer(b.hard, ds); err != nil {
		b.log.Warn("tasks not deferred; they are announced again after 5 s", "event", "bridge_defer", "tasks", len(ds), "error", err)
	}
}

// ownBatch is attempts of ours that are about to be claimed; each has a slot of
// its lane.
type ownBatch struct {
	reqs  []store.ClaimRequest
	slots []slot
}

// slot is what a task occupies that is about to be claimed.
type slot struct {
	lane  *lane
	bytes int64
	// turnDown: it is claimed to be turned down, so nothing of the agent's rate is
	// kept for it.
	turnDown bool
	// unseen: the limit of the lane's agent was not known yet.
	unseen bool
}

// batch takes from the queues what there are slots for, from each lane its
// share, and occupies the slots.
func (b *Bridge) batch() (claim store.Claim, own ownBatch, foreign []foreignClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	claim = store.Claim{Worker: b.cfg.Worker, Inc: b.inc}
	own = b.takeTurnDownsLocked()
	now := b.cfg.Now()
	b.turn = time.Time{}
	b.waiting.Serve(b.cfg.Limits.ClaimBatch-len(own.reqs), func(l *lane) int { return b.costLocked(l, now) }, func(l *lane) {
		b.occupyLocked(l)
		b.inHand.Add(1)
		token := b.tokenLocked()
		l.reserveLocked(token, now)
		q := l.popLocked(b)
		b.recallLocked(l)
		b.carryLocked(l, q.bytes)
		s := slot{lane: l, bytes: q.bytes, unseen: l.limit == 0}
		if q.foreign == nil {
			own.reqs, own.slots = append(own.reqs, store.ClaimRequest{TaskID: q.task, Token: token, Source: q.source}), append(own.slots, s)
			return
		}
		foreign = append(foreign, foreignClaim{task: q.foreign, slot: s, token: token, policy: l.frozenPolicy()})
	})
	b.waiting.Remove(func(l *lane) bool {
		if l.queue.Len() > 0 {
			return false
		}
		l.listed = false
		if b.moreForeign.Load() {
			nudge(b.fetch)
		}
		return true
	})
	return claim, own, foreign
}

// tokenLocked gives a token that no claim had before, and notes it as under way.
func (b *Bridge) tokenLocked() string {
	b.issued++
	token := appendToken(b.prefix, b.issued)
	b.pending[token] = struct{}{}
	return token
}

// claimBatch is P4. Whatever is not known to be ours is forgotten, and nothing
// is sent under its token: if the claim arrives later all the same, the
// reconciliation of own rows releases it.
func (b *Bridge) claimBatch(claim store.Claim, own ownBatch) {
	reqs := own.reqs
	began := b.cfg.Now()
	rows, err := b.cfg.Ledger.Claim(b.hard, claim, reqs, b.now())
	if err != nil {
		b.log.Warn("claims in doubt; they are given up", "event", "bridge_claim", "tasks", len(reqs), "error", err)
		rows = nil
		nudge(b.reconcile)
	}
	byTask := make(map[string]*store.Attempt, len(rows))
	for i := range rows {
		byTask[rows[i].ID] = &rows[i]
	}
	for i, q := range reqs {
		r := Reservation{Claim: store.Claim{Worker: claim.Worker, Inc: claim.Inc, Token: q.Token}, b: b, slot: own.slots[i], began: began}
		if row := byTask[q.TaskID]; row != nil {
			r.Start(*row)
		} else {
			r.Release()
		}
	}
	b.cfg.Metrics.record(fateRefused, len(reqs)-len(rows))
}

// putBack has everything that waits announced again, since this bridge takes
// nothing more.
func (b *Bridge) putBack() {
	b.mu.Lock()
	at := b.now()
	var ds []store.Deferral
	for _, t := range b.turnDowns {
		delete(b.queued, t.task)
		ds = append(ds, store.Deferral{TaskID: t.task, At: at})
	}
	b.turnDowns = nil
	for l := range b.waiting.Flows {
		for l.queue.Len() > 0 {
			// Foreign tasks were not acknowledged, or have their rows.
			if q := l.popLocked(b); q.foreign == nil {
				ds = append(ds, store.Deferral{TaskID: q.task, At: at})
			}
		}
		l.listed = false
	}
	b.waiting = admission.Ring[*lane]{}
	b.mu.Unlock()
	if len(ds) == 0 {
		return
	}
	if err := b.cfg.Ledger.Defer(b.hard, ds); err != nil && !errors.Is(err, context.Canceled) {
		b.log.Debug("queue not put back", "error", err)
	}
}
