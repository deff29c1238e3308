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

type timer struct {
	at  time.Time
	run string
}

func newTimers(now func() time.Time) *timers {
	return &timers{now: now, kick: make(chan struct{}, 1)}
}

// at asks for run to be fired at t.
func (t *timers) at(when time.Time, run string) {
	if when.Sub(t.now()) > timerHorizon {
		return
	}
	t.mu.Lock()
	first := len(t.heap) == 0 || when.Before(t.heap[0].at)
	if len(t.heap) < maxTimers {
		heap.Push(&t.heap, timer{at: when, run: run})
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
func (t *timers) run(ctx context.Context, fire func(run string)) {
	clock := time.NewTimer(time.Hour)
	defer clock.Stop()
	for {
		entry, wait := t.due()
		if wait <= 0 {
			fire(entry.run)
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
