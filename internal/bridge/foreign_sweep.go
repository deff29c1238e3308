package bridge

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/parley-project/parley/internal/store"
)

// serveForeign looks once a second after foreign tasks that nobody has in hand:
// those that wait in the ledger, results that were not published, claims of
// bridges that died. Beside an executor of the existing platform nobody else
// does.
func (b *Bridge) serveForeign(ctx context.Context) {
	var looking sync.WaitGroup
	looking.Go(func() { b.fetchForeign(ctx) })
	defer looking.Wait()
	watch := store.NewLeaseWatch(b.cfg.Lease)
	n := 0
	b.every(ctx, watchEvery, func(ctx context.Context) {
		if err := b.sweepForeign(ctx, watch); err != nil && ctx.Err() == nil {
			b.log.Warn("foreign tasks not looked after; it is tried again", "event", "bridge_foreign", "error", err)
		}
		if n++; n%60 == 0 {
			if _, err := b.foreign.PurgeForeign(ctx, b.now().Add(-foreignKept), foreignPurge); err != nil && ctx.Err() == nil {
				b.log.Warn("ended foreign tasks not removed; it is tried again", "event", "bridge_foreign", "error", err)
			}
		}
	})
}

// fetchForeign takes up what waits in the ledger as soon as the queues have run
// out while more is known to be there: one look gives a limited number.
func (b *Bridge) fetchForeign(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.fetch:
		}
		if err := b.lookForeign(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("foreign tasks not fetched; it is tried again", "event", "bridge_foreign", "error", err)
		}
		if !pause(ctx, fetchSpacing) {
			return
		}
	}
}

// lookForeign takes up what waits in the ledger, one limited look at it.
func (b *Bridge) lookForeign(ctx context.Context) error {
	rows, err := b.foreign.Foreign(ctx, b.now(), takeovers)
	if err != nil {
		return err
	}
	b.moreForeign.Store(len(rows) == takeovers)
	if left := b.awaited.Add(-int64(len(rows))); left <= 0 || len(rows) == 0 {
		b.awaited.Store(0)
	} else {
		nudge(b.fetch)
	}
	for i := range rows {
		b.lookAfter(rows[i])
	}
	if len(rows) > 0 {
		nudge(b.dispatch)
	}
	return nil
}

func (b *Bridge) sweepForeign(ctx context.Context, watch *store.LeaseWatch) error {
	if err := b.closeDone(ctx); err != nil {
		return err
	}
	if err := b.lookForeign(ctx); err != nil {
		return err
	}
	workers, err := b.foreign.Sweep(ctx, watch.Silent(b.cfg.Now()), b.now())
	if err == nil {
		watch.Saw(workers, b.cfg.Now())
	}
	return err
}

// lookAfter goes on with a foreign task as the ledger has it.
func (b *Bridge) lookAfter(row store.Attempt) {
	b.mu.Lock()
	_, published := b.done[row.ID] // and not closed yet: the ledger is slow
	_, ending := b.ending[row.ID]  // and not published yet: the bus is
	busy := published || ending || b.calls[row.ID] != nil
	b.mu.Unlock()
	q := queuedForeign{row: row, stored: true}
	switch {
	case busy:
	case row.State == store.AttemptSettled && row.Result != nil:
		b.endStored(&q, func() bool { return b.conclude(&row, *row.Result) })
	case row.State != store.AttemptOpen:
	case b.moved(row.ID):
		b.cfg.Metrics.record(fateRefused, 1)
	case !b.cfg.Clock().Before(row.Deadline):
		b.endStored(&q, func() bool { return b.tooLate(&q) })
	default:
		b.cfg.Metrics.record(b.enqueueForeign(q, ack{}), 1)
	}
}

// endStored ends a task that has its row without a call.
func (b *Bridge) endStored(q *queuedForeign, end func() bool) {
	b.mu.Lock()
	first := b.endLocked(q)
	b.mu.Unlock()
	if first {
		b.endAside(q.row.ID, end)
	}
}

// endLocked notes that a task is being ended without a call; false if it is already.
func (b *Bridge) endLocked(q *queuedForeign) bool {
	if _, again := b.ending[q.row.ID]; again {
		return false
	}
	b.ending[q.row.ID] = q.stored
	return true
}

// endAside ends a task of which that was noted. end reports whether its records need
// not come again.
func (b *Bridge) endAside(id string, end func() bool) {
	b.aside(func() {
		safe := end()
		b.mu.Lock()
		delete(b.ending, id)
		b.mu.Unlock()
		if safe {
			b.acknowledge(id) // also a record that came again meanwhile
		}
	})
}

// closeDone notes which results were published.
func (b *Bridge) closeDone(ctx context.Context) error {
	b.mu.Lock()
	ids := slices.Collect(maps.Keys(b.done))
	b.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	if err := b.foreign.CloseForeign(ctx, ids); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		delete(b.done, id)
	}
	return nil
}
