package memory

import (
	"context"
	"slices"
	"sync"

	"github.com/parley-project/parley/internal/bus"
)

// member is one subscription.
type member struct {
	handle  bus.Handler
	ctx     context.Context //nolint:containedctx // a member's context ends with its subscription
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// group is everybody who shares the messages of one subject under one name.
type group struct {
	bus  *Bus
	name string
	// places holds one element per message that waits: a bounded queue whose
	// order stands elsewhere.
	places chan struct{}
	gone   chan struct{}

	mu      sync.Mutex // protects what follows
	members []*member
	next    int
	lines   map[string]*line
	// ready are the lines that have messages and no handler at work.
	ready   []*line
	workers int
	over    bool
}

// line is the messages of one key in their order.
type line struct {
	key  string
	wait []bus.Message
}

func newGroup(b *Bus, name string) *group {
	return &group{
		bus: b, name: name, lines: make(map[string]*line),
		places: make(chan struct{}, b.options.Queue), gone: make(chan struct{}),
	}
}

// enter waits for a place in the queue.
func (g *group) enter(ctx context.Context) error {
	select {
	case g.places <- struct{}{}:
		return nil
	default:
	}
	select {
	case g.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-g.gone:
		return nil // nobody is left to wait for; add drops the message
	case <-g.bus.ended:
		return ErrClosed
	}
}

// add puts a message, which has a place, into its line.
func (g *group) add(m bus.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	l := g.lines[m.Key]
	if l == nil {
		l = &line{key: m.Key}
		g.lines[m.Key] = l
		g.ready = append(g.ready, l)
	}
	l.wait = append(l.wait, m)
	if g.workers < g.bus.options.Workers && len(g.ready) > 0 {
		g.workers++
		g.bus.workers.Go(g.work)
	}
}

// work handles one message after the other until no line is ready.
func (g *group) work() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.ready) > 0 && !g.over {
		l := g.ready[0]
		g.ready[0] = nil // let go of the line
		g.ready = g.ready[1:]
		m := l.wait[0]
		l.wait[0] = bus.Message{} // let go of the value
		l.wait = l.wait[1:]
		<-g.places
		g.next++
		to := g.members[g.next%len(g.members)]
		to.running.Add(1) // under mu: a member that parts waits for it
		g.mu.Unlock()
		if err := to.handle(to.ctx, m); err != nil {
			g.bus.options.Logger.Warn("message not handled", "subject", m.Subject, "key", m.Key, "group", g.name, "error", err)
		}
		to.running.Done()
		g.mu.Lock()
		if len(l.wait) > 0 {
			g.ready = append(g.ready, l)
		} else {
			delete(g.lines, l.key)
		}
	}
	g.workers--
}

func (g *group) join(m *member) {
	g.mu.Lock()
	g.members = append(g.members, m)
	g.mu.Unlock()
}

// part takes a member out; empty is true when it was the last, and what waited
// is dropped then: nobody has subscribed to it.
func (g *group) part(m *member) (empty bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	if len(g.members) == 0 {
		g.endLocked()
		return true
	}
	return false
}

func (g *group) endLocked() {
	if g.over {
		return
	}
	g.over = true
	g.ready, g.lines = nil, nil
	close(g.gone)
}

// disband ends a group with all its members.
func (g *group) disband() {
	g.mu.Lock()
	members := g.members
	g.endLocked()
	g.mu.Unlock()
	for _, m := range members {
		m.cancel()
	}
}
