package executor

import (
	"context"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

// hub tells watchers of this process that a run has new events. It holds an
// entry only for runs that somebody watches.
type hub struct {
	mu      sync.Mutex // protects watched and its entries
	watched map[string]*watch
}

// watch is what the watchers of one run share.
type watch struct {
	watchers int
	// changed is nil until somebody waits for the next change.
	changed chan struct{}
	ended   chan struct{}
	status  parley.RunStatus
}

func newHub() *hub { return &hub{watched: make(map[string]*watch)} }

// join adds a watcher; leave must follow.
func (h *hub) join(run string) *watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.watched[run]
	if w == nil {
		w = &watch{ended: make(chan struct{})}
		h.watched[run] = w
	}
	w.watchers++
	return w
}

func (h *hub) leave(run string, w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.watchers--; w.watchers == 0 && h.watched[run] == w {
		delete(h.watched, run)
	}
}

// changed wakes the watchers of a run.
func (h *hub) changed(run string, status parley.RunStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.watched[run]
	if w == nil {
		return
	}
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
	if status.Terminal() && !w.status.Terminal() {
		w.status = status
		close(w.ended)
	}
}

// next gives the channel that is closed at the run's next change.
func (h *hub) next(w *watch) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}

// pollEvery is how often a watcher looks without having been told: another
// process may have written.
const pollEvery = time.Second

// Await calls look until it reports done, whenever the run may have changed.
// It returns the error of look or of ctx.
func (x *Executor) Await(ctx context.Context, run string, look func() (done bool, err error)) error {
	w := x.hub.join(run)
	defer x.hub.leave(run, w)
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		changed := x.hub.next(w)
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-poll.C:
		}
	}
}

// Wait blocks until the run has ended and gives its status. It returns early
// with the error of ctx, or with code not_found.
func (x *Executor) Wait(ctx context.Context, run string) (parley.RunStatus, error) {
	w := x.hub.join(run)
	defer x.hub.leave(run, w)
	for look := !x.holds(run); ; look = true {
		if look {
			row, err := x.cfg.Store.RunRow(ctx, run)
			if err != nil {
				return "", err
			}
			if row.Status.Terminal() {
				return row.Status, nil
			}
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-w.ended:
			return w.status, nil
		case <-time.After(pollEvery):
		}
	}
}

// holds reports whether the run is in memory, so that its end will be told.
func (x *Executor) holds(run string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.live[run] != nil
}
