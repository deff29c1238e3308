package store

import "time"

// LeaseWatch judges leases by watching, not by clocks: a worker is dead when the
// same incarnation and beat were seen for a whole lease on the monotonic clock
// of the watcher (protocol.md §1). One goroutine uses it.
type LeaseWatch struct {
	lease time.Duration
	seen  map[string]sighting
}

type sighting struct {
	worker Worker
	since  time.Time
}

// NewLeaseWatch makes a watch that has seen nobody yet.
func NewLeaseWatch(lease time.Duration) *LeaseWatch {
	return &LeaseWatch{lease: lease, seen: make(map[string]sighting)}
}

// Saw notes the rows of all workers as they are now.
func (w *LeaseWatch) Saw(rows []Worker, now time.Time) {
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

// Silent gives the workers that have not moved for a lease.
func (w *LeaseWatch) Silent(now time.Time) []Worker {
	var dead []Worker
	for _, s := range w.seen {
		if now.Sub(s.since) >= w.lease {
			dead = append(dead, s.worker)
		}
	}
	return dead
}
