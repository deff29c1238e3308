package executor

import (
	"context"
	"sync"
)

// wakeups are the runs that want attention, first come, first served. A look at a
// run as a whole waits in it once only: with more to do than can be done, the
// sweeps would otherwise ask for the same looks each second, until those who look
// do nothing but find that there is nothing left to decide.
type wakeups struct {
	ready chan wakeup

	mu sync.Mutex // protects waiting
	// waiting holds the runs of what is ready.
	waiting map[string]waitingRun
}

// waitingRun is how often a run waits, and whether as a whole.
type waitingRun struct {
	entries int
	whole   bool
}

func newWakeups() *wakeups {
	return &wakeups{ready: make(chan wakeup, wakeupQueue), waiting: make(map[string]waitingRun)}
}

// add queues w, unless that makes no difference. A full queue drops it: a sweep
// finds the run later.
func (q *wakeups) add(w wakeup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.waiting[w.run]
	if r.whole && w.whole() {
		return
	}
	select {
	case q.ready <- w:
		q.waiting[w.run] = waitingRun{r.entries + 1, r.whole || w.whole()}
	default:
	}
}

// take waits for the next one; ok is false when ctx has ended. What is told about
// the run from then on is queued again.
func (q *wakeups) take(ctx context.Context) (w wakeup, ok bool) {
	select {
	case <-ctx.Done():
		return w, false
	case w = <-q.ready:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.waiting[w.run]
	if r.entries--; r.entries == 0 {
		delete(q.waiting, w.run)
		return w, true
	}
	r.whole = r.whole && !w.whole()
	q.waiting[w.run] = r
	return w, true
}

// has reports whether anything about a run waits.
func (q *wakeups) has(run string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waits := q.waiting[run]
	return waits
}

// whole reports whether w is about everything that the store holds of a run.
func (w wakeup) whole() bool { return w.task == "" && !w.child }
