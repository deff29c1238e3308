package executor

import (
	"context"
	"sync"
)

// wakeups are the runs that want attention, first come, first served. A look at a
// run as a whole waits in it once only: with more to do than can be done, the
// sweeps would otherwise ask for the same looks each second, until those who look
// do nothing but find that there is nothing left to decide. Nobody gets a run that
// another one has: whoever looks need not wait for others.
type wakeups struct {
	ready chan wakeup

	mu sync.Mutex // protects what follows
	// waiting holds the runs of what is ready, or kept.
	waiting map[string]waitingRun
	// kept are the runs that are being looked at, with what came for each
	// meanwhile, at most keptMost.
	kept map[string][]wakeup
}

const keptMost = 1024

// waitingRun is how often a run waits, and whether as a whole.
type waitingRun struct {
	entries int
	whole   bool
}

func newWakeups() *wakeups {
	return &wakeups{ready: make(chan wakeup, wakeupQueue), waiting: make(map[string]waitingRun), kept: make(map[string][]wakeup)}
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

// take waits for the next one; ok is false when ctx has ended. Nobody else gets its
// run before done; what is told about it from then on is queued again.
func (q *wakeups) take(ctx context.Context) (w wakeup, ok bool) {
	for {
		select {
		case <-ctx.Done():
			return w, false
		case w = <-q.ready:
		}
		if q.begin(w) {
			return w, true
		}
	}
}

// begin reports whether w may be looked at now. Else it is kept, unless too much is:
// a sweep finds the run later.
func (q *wakeups) begin(w wakeup) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	list, busy := q.kept[w.run]
	if busy && len(list) < keptMost {
		q.kept[w.run] = append(list, w)
		return false
	}
	q.leftLocked(w)
	if !busy {
		q.kept[w.run] = nil
	}
	return !busy
}

// leftLocked notes that w does not wait any more.
func (q *wakeups) leftLocked(w wakeup) {
	r := q.waiting[w.run]
	if r.entries--; r.entries == 0 {
		delete(q.waiting, w.run)
		return
	}
	r.whole = r.whole && !w.whole()
	q.waiting[w.run] = r
}

// done says that the look at a run has ended that take began.
func (q *wakeups) done(run string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.kept[run] {
		select {
		case q.ready <- w:
		default:
			q.leftLocked(w)
		}
	}
	delete(q.kept, run)
}

// has reports whether anything about a run waits.
func (q *wakeups) has(run string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waits := q.waiting[run]
	return waits
}

// whole reports whether w is about everything that the store holds of a run.
func (w wakeup) whole() bool { return w.task == "" && !w.child && !w.late }
