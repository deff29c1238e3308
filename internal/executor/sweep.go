package executor

import (
	"context"
	"errors"
	"time"

	"github.com/parley-project/parley/internal/store"
)

// serveSweeps searches the store for whatever no wake-up told (protocol.md
// §4.11): nothing depends on a hint having arrived.
func (x *Executor) serveSweeps(ctx context.Context) {
	tick := time.NewTicker(x.cfg.SweepEvery)
	defer tick.Stop()
	watch := store.NewLeaseWatch(x.cfg.Lease)
	for {
		if err := x.sweep(ctx, watch); err != nil && ctx.Err() == nil {
			x.cfg.Logger.Error("sweep failed; it is repeated", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep does each of its parts, whatever becomes of the others: a run that cannot
// be read must not keep dead bridges from being found.
func (x *Executor) sweep(ctx context.Context, watch *store.LeaseWatch) error {
	x.old.lookAgain()
	return errors.Join(
		x.endOverdue(ctx), x.wakeWaiting(ctx), x.uncrowdAll(ctx), x.forgetSignals(ctx), x.watchBridges(ctx, watch),
	)
}

// wakeWaiting wakes the runs that want attention.
func (x *Executor) wakeWaiting(ctx context.Context) error {
	w, err := x.cfg.Store.Wakeups(ctx, x.now(), sweepBatch)
	if err != nil {
		return err
	}
	for _, found := range [][]string{w.Settled, w.News, w.Due, w.Signals, w.Turns, w.Children} {
		for _, run := range found {
			if !x.wakeups.has(run) { // whoever takes that sees this too, or the next sweep does
				x.wakeFound(run)
			}
		}
	}
	for _, run := range w.Late {
		if !x.wakeups.has(run) {
			x.wake(wakeup{run: run, late: true})
		}
	}
	return nil
}

// watchBridges declares bridges dead that were silent for too long.
func (x *Executor) watchBridges(ctx context.Context, watch *store.LeaseWatch) error {
	workers, err := x.cfg.Store.Sweep(ctx, watch.Silent(x.cfg.Now()), x.now())
	if err != nil {
		return err
	}
	watch.Saw(workers, x.cfg.Now())
	return nil
}
