package bridge

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

// register is P16: it begins a life of this bridge. It is repeated only if
// there was one before; a bridge that cannot begin says so.
func (b *Bridge) register(ctx context.Context) error {
	began := b.cfg.Now()
	b.mu.Lock()
	b.begun = false
	b.mu.Unlock()
	inc, err := b.cfg.Ledger.Register(ctx, b.cfg.Worker, b.now())
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.begun, b.replaced = true, false
	b.inc, b.beat, b.prefix, b.issued = inc, began, b.cfg.NewToken(), 0
	b.mu.Unlock()
	b.log.Info("bridge registered", "event", "bridge_registered", "worker", b.cfg.Worker, "inc", inc)
	nudge(b.dispatch)
	return nil
}

// beatPause is the least pause between two beats.
const beatPause = 100 * time.Millisecond

// serveBeats renews the lease three times as often as it runs out, and sooner
// after a failure. One that took its time is renewed at once: it runs from the start
// of that beat.
func (b *Bridge) serveBeats(ctx context.Context) {
	wait := b.cfg.Lease / 3
	for pause(ctx, wait) {
		began := b.cfg.Now()
		err := b.beatOnce(ctx)
		wait = max(b.cfg.Lease/3-age(began, b.cfg.Now()), beatPause)
		if err != nil && ctx.Err() == nil {
			b.log.Warn("lease not renewed", "event", "bridge_beat", "error", err)
			if !b.Replaced() { // that takes its time
				wait = min(time.Second, wait)
			}
		}
	}
}

// beatOnce renews the lease, or begins a new life if it was lost. Calls do not
// overlap, so that one loss is one new life.
func (b *Bridge) beatOnce(ctx context.Context) error {
	select {
	case b.beating <- struct{}{}:
		defer func() { <-b.beating }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.mu.Lock()
	inc, begun := b.inc, b.begun
	b.mu.Unlock()
	// The lease runs from the start of the beat: when it was written is not known.
	began := b.cfg.Now()
	err := b.cfg.Ledger.Beat(ctx, b.cfg.Worker, inc)
	if begun && errors.Is(err, store.ErrReplaced) {
		// To take the name back would make orphans of what the other has in hand,
		// and it would do the same: nothing begins here until it is dead.
		b.mu.Lock()
		b.replaced, b.beat = true, time.Time{}
		b.mu.Unlock()
		return parley.Errorf(parley.CodeConflict, "another process has taken the instance id %s over: "+
			"give every process its own bus.kafka.instance_id; this one begins nothing until that one has ended", b.cfg.Worker)
	}
	if errors.Is(err, store.ErrStale) {
		// Taken for dead, while it was stopped or cut off. What it has in hand
		// stays under the old claims, which others may take over; its answers
		// are good all the same.
		b.log.Warn("the bridge was taken for dead", "event", "bridge_dead", "inc", inc)
		return b.register(ctx)
	}
	if err == nil {
		b.mu.Lock()
		b.beat = began
		b.mu.Unlock()
		nudge(b.dispatch) // what waited for a good lease
	}
	return err
}

// Replaced reports whether another process goes by the name of this bridge, which
// begins nothing then.
func (b *Bridge) Replaced() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.replaced
}

// age is the time between two instants, by the clock that says more: a machine
// that was suspended stops the monotonic one, somebody may set the other back.
func age(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// mayBegin is the send guard (protocol.md §4.3) for a claim that was begun at
// the given time: its incarnation is the present one, which is surely not taken
// for dead yet, and the claim is fresh.
func (b *Bridge) mayBegin(inc int64, began time.Time) bool {
	now := b.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leadsLocked(inc, now) && age(began, now) < claimWindow
}

// Reservation is a slot for one call, with a claim that is not written yet.
// Exactly one of Start and Release is called; a second call of either does
// nothing.
type Reservation struct {
	// Claim is written on the attempt: worker, incarnation, and a token that
	// was never used.
	Claim store.Claim

	b     *Bridge
	slot  slot
	began time.Time
}

// Reserve takes a slot for a call of agent, if one is free now: then whoever
// schedules the next attempt writes it as claimed by Claim at once, and saves a
// write (protocol.md §6). It is false before Run and while the bridge stops.
func (b *Bridge) Reserve(agent string) (Reservation, bool) {
	_ = b.acquaint(b.hard, agent) // see makeRoom
	began := b.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.laneLocked(agent)
	// What waits for the agent's rate comes first.
	if b.freeLocked(l) == 0 || !b.fitsLocked(l, 0) || (l.gate.Spacing() > 0 && l.queue.Len() > 0) {
		return Reservation{}, false
	}
	b.occupyLocked(l)
	b.inHand.Add(1)
	claim := store.Claim{Worker: b.cfg.Worker, Inc: b.inc, Token: b.tokenLocked()}
	l.reserveLocked(claim.Token, began)
	return Reservation{Claim: claim, b: b, slot: slot{lane: l, unseen: l.limit == 0}, began: began}, true
}

// Start begins the call of a, which is known to be committed as claimed by
// Claim. It returns at once.
func (r Reservation) Start(a store.Attempt) {
	b := r.b
	a.Claim = r.Claim
	c := &call{
		b: b, lane: r.slot.lane, row: a, inc: r.Claim.Inc, began: r.began, slots: slotOwn | slotShared,
		bytes: int64(len(a.Input)), reserved: !r.slot.turnDown, turnDown: r.slot.turnDown, unseen: r.slot.unseen,
	}
	b.mu.Lock()
	_, pending := b.pending[r.Claim.Token]
	if pending {
		delete(b.pending, r.Claim.Token)
		b.carryLocked(c.lane, c.bytes-r.slot.bytes)
		b.calls[a.ID] = c
	}
	b.mu.Unlock()
	if pending {
		b.crew.do(func() { c.run((*call).begin) })
	}
}

// Release gives the slot back: the write was refused, or it is not known
// whether it was committed. Nothing is ever sent under the claim's token.
func (r Reservation) Release() {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, pending := b.pending[r.Claim.Token]; !pending {
		return
	}
	delete(b.pending, r.Claim.Token)
	r.slot.lane.dropPermitLocked(r.Claim.Token)
	if !r.slot.turnDown {
		r.slot.lane.gate.Release()
	}
	b.carryLocked(r.slot.lane, -r.slot.bytes)
	b.vacateLocked(r.slot.lane, true, true)
	b.inHand.Done()
}

// appendToken makes the n-th token of a life.
func appendToken(prefix string, n uint64) string {
	buf := make([]byte, 0, len(prefix)+14)
	buf = append(append(buf, prefix...), '-')
	return string(strconv.AppendUint(buf, n, 36))
}

// serveWatch reads the own rows: each second for cancels and for attempts that
// have ended without this bridge, and every fifth time, or at once after a
// claim in doubt, for claims that it does not know of.
func (b *Bridge) serveWatch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		inDoubt := false
		select {
		case <-ctx.Done():
			return
		case <-b.reconcile:
			inDoubt = true
		case <-tick.C:
		}
		if err := b.watch(ctx, inDoubt || n%5 == 0); err != nil && ctx.Err() == nil {
			b.log.Warn("own claims not read", "event", "bridge_watch", "error", err)
		}
	}
}

// incOf is the incarnation under which the call's claim was made.
func (c *call) incOf() int64 {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return c.inc
}

// watch looks at the rows of this bridge's incarnations that still have calls.
func (b *Bridge) watch(ctx context.Context, reconcile bool) error {
	b.mu.Lock()
	current := b.inc
	incs := map[int64]bool{current: true}
	seen := make(map[string]*call, len(b.calls))
	for id, c := range b.calls {
		if c.mine.Load() {
			incs[c.inc] = true
			seen[id] = c
		}
	}
	b.mu.Unlock()
	owned := make(map[string]store.Owned)
	for inc := range incs {
		rows, err := b.cfg.Ledger.Owned(ctx, b.cfg.Worker, inc)
		if err != nil {
			return err
		}
		for _, o := range rows {
			owned[o.TaskID] = o
			if reconcile && inc == current {
				b.reconcileRow(ctx, inc, o)
			}
		}
	}
	var missing []*call
	for id, c := range seen {
		o, there := owned[id]
		if there && o.Reply != nil {
			c.offer(o.Reply, o.Questions)
		}
		switch {
		case there && o.CancelRequested:
			c.requestCancel()
		case there || c.incOf() != current:
			c.misses.Store(0)
		case c.misses.Add(1) > 1:
			missing = append(missing, c)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	// A claim of a bridge that lives now was not taken over before. Then these
	// attempts have ended; else they are somebody else's, and go on here too,
	// since whoever gets the answer may give it.
	if err := b.beatOnce(ctx); err != nil {
		return err
	}
	for _, c := range missing {
		if c.incOf() == b.life() {
			c.endedElsewhere()
		}
	}
	return nil
}

// reconcileRow deals with a claim that this bridge does not know of: it was in
// doubt, was given up, and has arrived after all. Nothing was sent under its
// token (protocol.md §4.2). Without this it would hang for ever, since its owner
// lives.
func (b *Bridge) reconcileRow(ctx context.Context, inc int64, o store.Owned) {
	claim := store.Claim{Worker: b.cfg.Worker, Inc: inc, Token: o.Token}
	b.mu.Lock()
	_, pending := b.pending[o.Token]
	known := pending || b.calls[o.TaskID] != nil
	b.mu.Unlock()
	if known || o.State != store.AttemptClaimed {
		return
	}
	b.log.Info("claim that was in doubt released", "event", "bridge_reconcile", "task_id", o.TaskID)
	ok, err := b.cfg.Ledger.Move(ctx, store.Move{Kind: store.MoveRelease, TaskID: o.TaskID, From: claim, At: b.now()})
	if err != nil {
		b.log.Warn("claim not released; it is tried again", "event", "bridge_reconcile", "task_id", o.TaskID, "error", err)
		return
	}
	if !ok && o.Orphanings > 0 {
		b.goOn(ctx, claim, o.TaskID)
	}
}

// goOn takes up an attempt whose earlier claims may have been sent: it cannot
// be released.
func (b *Bridge) goOn(ctx context.Context, claim store.Claim, task string) {
	began := b.cfg.Now()
	rows, err := b.cfg.Ledger.Claim(ctx, claim, []store.ClaimRequest{{TaskID: task, Token: claim.Token}}, b.now())
	if err != nil || len(rows) == 0 {
		return
	}
	b.adopt(ctx, rows[0], began, (*call).resume)
}

// takeOrphans is P9 for everything that dead bridges, and former lives of this
// one, have left behind and that this one does not have in hand.
func (b *Bridge) takeOrphans(ctx context.Context) {
	b.mu.Lock()
	inc := b.inc
	b.mu.Unlock()
	rows, err := b.cfg.Ledger.Orphans(ctx, b.cfg.Worker, inc, takeovers)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("orphans not read", "event", "bridge_orphans", "error", err)
		}
		return
	}
	for i := range rows {
		b.adopt(ctx, rows[i], b.cfg.Now(), (*call).takeOver)
	}
}

// adopt begins a call for a row that is somebody else's, or was in doubt, if
// there is a slot for it. Tasks that are followed need none. How many slots there are
// is not known while what knows the agents does not answer, and what may have been sent
// cannot be given back: then it is left for the next look.
func (b *Bridge) adopt(ctx context.Context, row store.Attempt, began time.Time, first step) {
	if err := b.acquaint(ctx, row.Agent); err != nil && unread(err) {
		return
	}
	c := &call{b: b, row: row, began: began}
	b.mu.Lock()
	c.lane, c.inc = b.laneLocked(row.Agent), b.inc
	_, queued := b.queued[row.ID]
	free := b.freeLocked(c.lane) > 0 || (row.State == store.AttemptFollowing && !c.lane.capacity && !b.stopping)
	if queued || b.calls[row.ID] != nil || !free {
		b.mu.Unlock()
		return
	}
	if row.State == store.AttemptClaimed || c.lane.capacity {
		c.slots = slotOwn | slotShared
		b.occupyLocked(c.lane)
	}
	b.inHand.Add(1)
	c.bytes = int64(len(row.Input))
	b.carryLocked(c.lane, c.bytes)
	b.calls[row.ID] = c
	b.mu.Unlock()
	b.crew.do(func() { c.run(first) })
}

// cancelHint is the handler of [bus.SubjectCancel].
func (b *Bridge) cancelHint(_ context.Context, m bus.Message) error {
	b.mu.Lock()
	c := b.calls[m.Key]
	b.mu.Unlock()
	if c != nil {
		c.requestCancel()
	}
	return nil
}
