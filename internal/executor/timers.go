package executor

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// timers wakes runs at their time, so that a sweep is only the second line.
// Entries are hints: one too many does no harm, and at most maxTimers are held.
type timers struct {
	now func() time.Time

	mu   sync.Mutex // protects heap
	heap timerHeap
	kick chan struct{}
}

const (
	maxTimers = 100_000
	// timerHorizon bounds what is held in memory; sweeps find what is later.
	timerHorizon = time.Minute
)

// timer is one entry: run is "" for attempts that become visible, stranger says
// that somebody else may hold the run.
type timer struct {
	at       time.Time
	run      string
	stranger bool
}

func newTimers(now func() time.Time) *timers {
	return &timers{now: now, kick: make(chan struct{}, 1)}
}

// at asks for e to be fired at its time.
func (t *timers) at(e timer) {
	if e.at.Sub(t.now()) > timerHorizon {
		return
	}
	t.mu.Lock()
	first := len(t.heap) == 0 || e.at.Before(t.heap[0].at)
	if len(t.heap) < maxTimers {
		heap.Push(&t.heap, e)
	}
	t.mu.Unlock()
	if first {
		select {
		case t.kick <- struct{}{}:
		default:
		}
	}
}

// run fires entries until ctx ends.
func (t *timers) run(ctx context.Context, fire func(timer)) {
	clock := time.NewTimer(time.Hour)
	defer clock.Stop()
	for {
		entry, wait := t.due()
		if wait <= 0 {
			fire(entry)
			continue
		}
		clock.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-t.kick:
		case <-clock.C:
		}
	}
}

// due takes the first entry if its time has come; otherwise it says how long
// that will be.
func (t *timers) due() (timer, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) == 0 {
		return timer{}, time.Hour
	}
	first := t.heap[0]
	wait := first.at.Sub(t.now())
	if wait <= 0 {
		heap.Pop(&t.heap)
	}
	return first, wait
}

// at asks for e to be fired at its time, if this executor has timers.
func (x *Executor) at(e timer) {
	if !x.cfg.Guest {
		x.timers.at(e)
	}
}

// fire is called by the timers: attempts have become visible, or a run wants to
// be looked at.
func (x *Executor) fire(e timer) {
	switch {
	case e.run == "":
		x.cfg.Publish()
	case e.stranger:
		x.wake(wakeup{run: e.run, stranger: true})
	default:
		x.wakeFound(e.run)
	}
}

type timerHeap []timer

func (h *timerHeap) Len() int           { return len(*h) }
func (h *timerHeap) Less(i, j int) bool { return (*h)[i].at.Before((*h)[j].at) }
func (h *timerHeap) Swap(i, j int)      { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }
func (h *timerHeap) Push(v any)         { *h = append(*h, v.(timer)) }
func (h *timerHeap) Pop() any {
	old := *h
	v := old[len(old)-1]
	*h = old[:len(old)-1]
	return v
}
