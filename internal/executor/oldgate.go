package executor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/parley-project/parley/internal/bus"
)

// gate knows up to which instant the results of an old bridge have been read:
// no timer closes an attempt that it works on before (protocol.md §4.12). It
// asks the bus only while a timer waits for it.
type gate struct {
	// offsets is nil on a bus that keeps no log: there is nothing to wait for.
	offsets bus.Offsets
	group   string
	now     func() time.Time
	logger  *slog.Logger
	// opened is told when the answer to an earlier no may have become a yes, with
	// the runs that wait for that.
	opened func(ctx context.Context, runs map[string]struct{})

	mu           sync.Mutex // protects what follows
	wanted, read time.Time
	// waiting are the runs whose timers wait.
	waiting map[string]struct{}
	kick    chan struct{}
}

const (
	// gateEvery is how often the group's progress is looked at; after an error
	// gateRest.
	gateEvery = 50 * time.Millisecond
	gateRest  = time.Second
	// gateAsk bounds one question to the bus.
	gateAsk = 10 * time.Second
	// gateLoud is when waiting for results that are not read is worth a warning.
	gateLoud = 30 * time.Second
	// maxWaiting bounds the runs that are woken at once.
	maxWaiting = 10_000
)

// upTo gives an instant such that every result that was on the bus then is in
// the store. If that is before due the gate begins to find out.
func (g *gate) upTo(due time.Time) time.Time {
	if g.offsets == nil {
		return g.now()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lookBackLocked()
	if due.After(g.read) && due.After(g.wanted) {
		g.wanted = due
		select {
		case g.kick <- struct{}{}:
		default:
		}
	}
	return g.read
}

// lookBackLocked forgets what was found out at a time that has not come: the clock was
// ahead then, and what has been told since may not have been read.
func (g *gate) lookBackLocked() {
	if g.read.After(g.now()) {
		g.wanted, g.read = time.Time{}, time.Time{}
	}
}

// await has a run woken when results have been read up to due; false says that
// they have been already.
func (g *gate) await(due time.Time, run string) bool {
	if g.offsets == nil {
		return false
	}
	g.mu.Lock()
	g.lookBackLocked()
	if !due.After(g.read) {
		g.mu.Unlock()
		return false
	}
	if g.waiting == nil {
		g.waiting = make(map[string]struct{})
	}
	if len(g.waiting) < maxWaiting { // a sweep wakes the others
		g.waiting[run] = struct{}{}
	}
	g.mu.Unlock()
	g.upTo(due)
	return true
}

// run serves until ctx ends.
func (g *gate) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.kick:
		}
		for ctx.Err() == nil && g.behind() {
			if err := g.advance(ctx); err != nil && ctx.Err() == nil {
				g.logger.Warn("whether all results were read is not known; timers of tasks at the old bridge wait", "error", err)
				sleep(ctx, gateRest)
			} else if g.behind() { // the clock has gone back
				sleep(ctx, gateEvery)
			}
		}
	}
}

func (g *gate) behind() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wanted.After(g.read)
}

// advance waits until everything that is on the bus now has been read.
func (g *gate) advance(ctx context.Context) error {
	at := g.now()
	asking, cancel := context.WithTimeout(ctx, gateAsk)
	ends, err := g.offsets.EndOffsets(asking, bus.SubjectResults)
	cancel()
	if err != nil {
		return err
	}
	for said := false; ; {
		asking, cancel := context.WithTimeout(ctx, gateAsk)
		ok, err := g.offsets.CaughtUp(asking, bus.SubjectResults, g.group, ends)
		cancel()
		if err != nil {
			return err
		}
		if ok {
			break
		}
		if waited := g.now().Sub(at); waited > gateLoud && !said {
			said = true
			g.logger.Warn("results have not been read; timers of tasks at the old bridge wait for them", "waiting_for", waited)
		}
		if !sleep(ctx, gateEvery) {
			return ctx.Err()
		}
	}
	g.mu.Lock()
	g.read = at
	waiting := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	g.opened(ctx, waiting)
	return nil
}

// sleep waits, and reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// resultsRead gives an instant such that every result that an old bridge had
// told of by then is in the store.
func (x *Executor) resultsRead() time.Time {
	if x.old == nil {
		return time.Time{}
	}
	return x.old.gate.upTo(time.Time{})
}
