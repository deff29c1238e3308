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
	watch := newLeaseWatch(x.cfg.Lease)
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

func (x *Executor) sweep(ctx context.Context, watch *leaseWatch) error {
	x.publishSoon()
	w, err := x.cfg.Store.Wakeups(ctx, x.now(), sweepBatch)
	if err != nil {
		return err
	}
	for _, run := range w.Settled {
		x.wake(wakeup{run: run})
	}
	for _, run := range w.News {
		x.wake(wakeup{run: run})
	}
	for _, run := range w.Due {
		x.wake(wakeup{run: run})
	}
	workers, err := x.cfg.Store.Sweep(ctx, watch.silent(x.cfg.Now()), x.now())
	if err != nil {
		return err
	}
	watch.saw(workers, x.cfg.Now())
	return nil
}

// leaseWatch judges leases by watching, not by clocks: a worker is dead when
// the same incarnation and beat were seen for a whole lease on the monotonic
// clock of the watcher (protocol.md §1).
type leaseWatch struct {
	lease time.Duration
	seen  map[string]sighting
}

type sighting struct {
	worker store.Worker
	since  time.Time
}

func newLeaseWatch(lease time.Duration) *leaseWatch {
	return &leaseWatch{lease: lease, seen: make(map[string]sighting)}
}

// saw notes the rows as they are now.
func (w *leaseWatch) saw(rows []store.Worker, now time.Time) {
	seen := make(map[string]sighting, len(rows))
	for _, r := range rows {
		if r.Dead {
			continue
		}
		s, ok := w.seen[r.Name]
		if !ok || s.worker != r {
			s = sighting{worker: r, since: now}
		}
		seen[r.Name] = s
	}
	w.seen = seen
}

// silent gives the workers that have not moved for a lease.
func (w *leaseWatch) silent(now time.Time) []store.Worker {
	var dead []store.Worker
	for _, s := range w.seen {
		if now.Sub(s.since) >= w.lease {
			dead = append(dead, s.worker)
		}
	}
	return dead
}
