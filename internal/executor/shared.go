package executor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// What several executors of one store do so that they rarely decide about the
// same run at once (protocol.md §4.10). Correctness is the run's sequence number
// alone; here is only what saves refused decisions.
//
//   - The bus hands the wake-ups of one run to one executor: that one holds it.
//   - Who has started a run holds it until it hears that somebody else has
//     decided about it; who is refused forgets it.
//   - What a sweep finds of runs that are not held here is left to others for a
//     moment: only if nobody has attended to it by then it is looked at.

const (
	// strangersAfter is how long a run that somebody else may hold is left alone,
	// and again as much by chance, so that two executors rarely look together.
	strangersAfter = 150 * time.Millisecond

	maxPosts     = 16_384
	postWorkers  = 32
	postDeadline = 5 * time.Second
	// changesEnough is how many bytes of changes fill a message: a notification of
	// PostgreSQL has 8,000 at most.
	changesEnough = 4000
)

// wakeFound queues a run that a sweep, or a timer of a run that is not held
// here any more, has found.
func (x *Executor) wakeFound(run string) {
	if !x.cfg.Shared || x.holds(run) {
		x.wake(wakeup{run: run})
		return
	}
	wait := strangersAfter + time.Duration(x.cfg.Jitter()*float64(strangersAfter))
	x.at(timer{at: x.cfg.Clock().Add(wait), run: run, stranger: true})
}

// followShared does what a durable decision asks for where others share the
// store: a guest tells whoever holds the run, and who has a bridge but no slot
// for what it has scheduled leaves the run to whoever calls the agents.
func (x *Executor) followShared(l *liveRun, slots []Reservation) {
	switch {
	case x.cfg.Guest:
		if !l.state.Status().Terminal() {
			x.post(bus.Message{Subject: bus.SubjectRuns, Key: l.state.RunID()})
		}
	case x.cfg.Reserve != nil && len(slots) > 0 && !reserved(slots):
		l.leave = true
	}
}

// reserved reports whether any of slots is one.
func reserved(slots []Reservation) bool {
	return slices.ContainsFunc(slots, func(s Reservation) bool { return s.Start != nil })
}

// changed tells the watchers of a run, in this process and in others.
func (x *Executor) changed(l *liveRun) {
	run, status := l.state.RunID(), l.state.Status()
	x.hub.changed(run, status)
	if x.cfg.Shared {
		x.changes.add(bus.Message{Key: run, Value: fmt.Appendf(nil, "%d %s %s\n", l.state.Seq(), status, run)})
	}
}

// serveChanges tells others what has changed until ctx ends, all of it that waits
// in one message: while one is on its way, more comes together.
func (x *Executor) serveChanges(ctx context.Context) {
	for {
		m, ok := x.changes.take(ctx)
		if !ok {
			return
		}
		m.Subject = bus.SubjectChanged
		for len(m.Value) < changesEnough {
			next, ok := x.changes.tryTake()
			if !ok {
				break
			}
			m.Value = append(m.Value, next.Value...)
		}
		x.postNow(ctx, m)
	}
}

// heardChanged is the handler of [bus.SubjectChanged].
func (x *Executor) heardChanged(_ context.Context, m bus.Message) error {
	var bad error // of the lines around it nothing is lost
	for line := range strings.Lines(string(m.Value)) {
		last, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		status, run, _ := strings.Cut(rest, " ")
		seq, err := strconv.ParseInt(last, 10, 64)
		if err != nil {
			bad = parley.Errorf(parley.CodeInvalid, "a message about changes of runs cannot be read: %.100q: %w", line, err)
			continue
		}
		x.othersChanged(run, seq, parley.RunStatus(status))
	}
	return bad
}

// othersChanged is told that a run has gone on, here or elsewhere.
func (x *Executor) othersChanged(run string, seq int64, status parley.RunStatus) {
	x.hub.changed(run, status)
	x.mu.Lock()
	l := x.live[run]
	x.mu.Unlock()
	if l == nil || !l.mu.TryLock() {
		return
	}
	defer x.unlock(run, l)
	if l.state != nil && l.state.Seq() < seq {
		l.state = nil // somebody else has decided
	}
}

// post puts a hint on the bus. In a store that is shared that is done beside
// whoever decides: a bus between processes takes its time. Of hints with one
// subject and key that wait, only the last one goes out.
func (x *Executor) post(m bus.Message) {
	if x.cfg.Shared {
		x.posts.add(m)
		return
	}
	x.postNow(context.Background(), m)
}

func (x *Executor) postNow(ctx context.Context, m bus.Message) {
	ctx, cancel := context.WithTimeout(ctx, postDeadline)
	defer cancel()
	if err := x.cfg.Bus.Publish(ctx, m); err != nil {
		x.cfg.Logger.Debug("hint not published", "subject", m.Subject, "key", m.Key, "error", err)
	}
}

// servePosts publishes what waits until ctx ends.
func (x *Executor) servePosts(ctx context.Context) {
	for {
		m, ok := x.posts.take(ctx)
		if !ok {
			return
		}
		x.postNow(ctx, m)
	}
}

// posts are hints that wait to go out: at most maxPosts, more are dropped, since
// nothing depends on them.
type posts struct {
	mu      sync.Mutex // protects what follows
	waiting map[postKey]bus.Message
	order   []postKey
	// ready holds one value for each of order.
	ready chan struct{}
}

type postKey struct{ subject, key string }

func newPosts() *posts {
	return &posts{waiting: make(map[postKey]bus.Message), ready: make(chan struct{}, maxPosts)}
}

func (p *posts) add(m bus.Message) {
	k := postKey{m.Subject, m.Key}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, waits := p.waiting[k]; !waits {
		select {
		case p.ready <- struct{}{}:
		default:
			return
		}
		p.order = append(p.order, k)
	}
	p.waiting[k] = m
}

// take waits for the next hint; ok is false when ctx has ended.
func (p *posts) take(ctx context.Context) (m bus.Message, ok bool) {
	select {
	case <-ctx.Done():
		return m, false
	case <-p.ready:
	}
	return p.next(), true
}

// tryTake is take for what waits already.
func (p *posts) tryTake() (m bus.Message, ok bool) {
	select {
	case <-p.ready:
		return p.next(), true
	default:
		return m, false
	}
}

// next gives the first hint, which is ready.
func (p *posts) next() bus.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.order[0]
	p.order = p.order[1:]
	m := p.waiting[k]
	delete(p.waiting, k)
	return m
}
