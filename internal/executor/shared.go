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
	reserved := slices.ContainsFunc(slots, func(s Reservation) bool { return s.Start != nil })
	switch {
	case x.cfg.Guest:
		if !l.state.Status().Terminal() {
			x.post(bus.Message{Subject: bus.SubjectRuns, Key: l.state.RunID()})
		}
	case x.cfg.Reserve != nil && len(slots) > 0 && !reserved:
		l.leave = true
	}
}

// changed tells the watchers of a run, in this process and in others.
func (x *Executor) changed(l *liveRun) {
	run, status := l.state.RunID(), l.state.Status()
	x.hub.changed(run, status)
	if x.cfg.Shared {
		x.post(bus.Message{Subject: bus.SubjectChanged, Key: run, Value: fmt.Appendf(nil, "%d %s", l.state.Seq(), status)})
	}
}

// heardChanged is the handler of [bus.SubjectChanged].
func (x *Executor) heardChanged(_ context.Context, m bus.Message) error {
	first, status, _ := strings.Cut(string(m.Value), " ")
	seq, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return parley.Errorf(parley.CodeInvalid, "a message about a change of run %.100q cannot be read: %w", m.Key, err)
	}
	x.hub.changed(m.Key, parley.RunStatus(status))
	x.mu.Lock()
	l := x.live[m.Key]
	x.mu.Unlock()
	if l == nil || !l.mu.TryLock() {
		return nil
	}
	defer x.unlock(m.Key, l)
	if l.state != nil && l.state.Seq() < seq {
		l.state = nil // somebody else has decided
	}
	return nil
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
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.order[0]
	p.order = p.order[1:]
	m = p.waiting[k]
	delete(p.waiting, k)
	return m, true
}
