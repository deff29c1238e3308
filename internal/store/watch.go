package store

import "time"

// LeaseWatch judges leases by watching, not by clocks: a worker is dead when the
// same incarnation and beat were seen for a whole lease on the monotonic clock
// of the watcher (protocol.md §1). Only time in which it looked counts: while the
// database could not be reached nobody could write a beat, and a watcher that was
// stopped with everybody else has seen nothing. One goroutine uses it.
type LeaseWatch struct {
	lease  time.Duration
	looked time.Time // at the rows, the last time
	seen   map[string]sighting
}

// sighting is a worker as it was last seen, and for how long it has been so.
type sighting struct {
	worker Worker
	silent time.Duration
}

// NewLeaseWatch makes a watch that has seen nobody yet.
func NewLeaseWatch(lease time.Duration) *LeaseWatch {
	return &LeaseWatch{lease: lease, seen: make(map[string]sighting)}
}

// Saw notes the rows of all workers as they are now.
func (w *LeaseWatch) Saw(rows []Worker, now time.Time) {
	passed := w.passed(now)
	w.looked = now
	seen := make(map[string]sighting, len(rows))
	for _, r := range rows {
		if r.Dead {
			continue
		}
		s := w.seen[r.Name]
		if s.worker == r {
			s.silent += passed
		} else {
			s = sighting{worker: r}
		}
		seen[r.Name] = s
	}
	w.seen = seen
}

// Silent gives the workers that have not moved for a lease.
func (w *LeaseWatch) Silent(now time.Time) []Worker {
	var dead []Worker
	for _, s := range w.seen {
		if s.silent+w.passed(now) >= w.lease {
			dead = append(dead, s.worker)
		}
	}
	return dead
}

// passed is how much of the time since the last look counts as watched: a fifth of
// a lease at most. A worker beats each third of it, so that after a longer gap it
// has time for a beat, and one that does not is dead some looks later.
func (w *LeaseWatch) passed(now time.Time) time.Duration {
	return min(now.Sub(w.looked), w.lease/5)
}
