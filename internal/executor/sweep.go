package executor

import (
	"context"
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

func (x *Executor) sweep(ctx context.Context, watch *store.LeaseWatch) error {
	x.old.lookAgain()
	if err := x.endOverdue(ctx); err != nil {
		return err
	}
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
	if err := x.uncrowdAll(ctx); err != nil {
		return err
	}
	if err := x.forgetSignals(ctx); err != nil {
		return err
	}
	workers, err := x.cfg.Store.Sweep(ctx, watch.Silent(x.cfg.Now()), x.now())
	if err != nil {
		return err
	}
	watch.Saw(workers, x.cfg.Now())
	return nil
}
