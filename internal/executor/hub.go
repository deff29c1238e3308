package executor

import "sync"

// hub tells watchers of this process that a run has new events. It holds an
// entry only for runs that somebody watches.
type hub struct {
	mu      sync.Mutex // protects watched
	watched map[string]chan struct{}
}

func newHub() *hub { return &hub{watched: make(map[string]chan struct{})} }

// watch gives a channel that is closed at the run's next change.
func (h *hub) watch(run string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.watched[run]
	if c == nil {
		c = make(chan struct{})
		h.watched[run] = c
	}
	return c
}

func (h *hub) changed(run string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.watched[run]; c != nil {
		close(c)
		delete(h.watched, run)
	}
}

// Changed gives a channel that is closed when the run next has new events in
// this process. Look at the store after taking it, not before.
func (x *Executor) Changed(run string) <-chan struct{} { return x.hub.watch(run) }
