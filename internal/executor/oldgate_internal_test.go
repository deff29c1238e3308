package executor

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// countedOffsets is a bus all of whose results have been read.
type countedOffsets struct{ asked atomic.Int64 }

func (o *countedOffsets) EndOffsets(ctx context.Context, _ string) (map[int32]int64, error) {
	if o.asked.Add(1) > 10_000 { // virtual time would stand still for ever
		<-ctx.Done()
	}
	return nil, ctx.Err()
}

func (*countedOffsets) CaughtUp(context.Context, string, string, map[int32]int64) (bool, error) {
	return true, nil
}

// The clock of the database goes back behind the timer that the gate is asked
// about: the bus is not asked without a pause until it is there again.
func TestGateClockGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		bus := &countedOffsets{}
		g := &gate{
			offsets: bus, now: func() time.Time { return time.Now().Add(-10 * time.Second) }, logger: slog.New(slog.DiscardHandler),
			opened: func(context.Context, map[string]struct{}) {}, kick: make(chan struct{}, 1),
		}
		go g.run(ctx)
		due := time.Now()
		g.upTo(due)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := bus.asked.Load(); n > 300 {
			t.Errorf("the bus was asked %d times in 10 s", n)
		}
		if read := g.upTo(time.Time{}); read.Before(due) {
			t.Errorf("results are read up to %v, the timer is of %v", read, due)
		}
	})
}

// The clock of the database was ahead when results were read, and is set right: what has
// come since is waited for, also by a timer that is due before the clock was to be.
func TestGateClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		bus := &countedOffsets{}
		var ahead atomic.Int64
		var opened atomic.Int64
		g := &gate{
			offsets: bus, now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }, logger: slog.New(slog.DiscardHandler),
			opened: func(_ context.Context, runs map[string]struct{}) { opened.Add(int64(len(runs))) }, kick: make(chan struct{}, 1),
		}
		go g.run(ctx)
		ahead.Store(int64(time.Hour))
		g.upTo(time.Now().Add(time.Hour))
		synctest.Wait()
		ahead.Store(0)
		before := bus.asked.Load()
		time.Sleep(time.Minute)
		due := time.Now()
		if read := g.upTo(time.Time{}); !read.Before(due) {
			t.Errorf("results are read up to %v, and it is %v", read, due)
		}
		if !g.await(due, "run-1") {
			t.Error("nobody waits for the results of the last minute")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := bus.asked.Load() - before; n == 0 || n > 20 || opened.Load() != 1 {
			t.Errorf("the bus was asked %d times, %d runs go on", n, opened.Load())
		}
		if read := g.upTo(time.Time{}); read.Before(due) {
			t.Errorf("results are read up to %v, the timer is of %v", read, due)
		}
	})
}
