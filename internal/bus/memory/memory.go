// Package memory is the bus within one process. It keeps nothing beyond the
// process and needs to keep nothing: what is lost with it is published again
// from the store (design.md, promise 1).
//
// Each group of a subject has one bounded queue. Messages of one key stand in
// line behind each other and are handled one at a time; lines of other keys do
// not wait for them. A full queue makes publishers wait, no longer than their
// context.
package memory

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/parley-project/parley/internal/bus"
)

// ErrClosed is what Publish and Subscribe say after Close.
var ErrClosed = errors.New("bus: closed")

// Options adjust a [Bus]. The zero value of each member is its default.
type Options struct {
	// Queue bounds the messages that wait in each group; default 16,384.
	Queue int
	// Workers bounds the handlers of one group that run at a time; default 8.
	Workers int
	// Logger gets the errors of handlers; default none.
	Logger *slog.Logger
}

// Bus is a [bus.Bus]. The caller closes it.
type Bus struct {
	options Options
	ended   chan struct{}
	workers sync.WaitGroup

	mu       sync.RWMutex // protects what follows
	closed   bool
	subjects map[string][]*group
}

// New makes a Bus.
func New(o Options) *Bus {
	if o.Queue <= 0 {
		o.Queue = 16_384
	}
	if o.Workers <= 0 {
		o.Workers = 8
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Bus{options: o, ended: make(chan struct{}), subjects: make(map[string][]*group)}
}

var _ bus.Bus = (*Bus)(nil)

// Publish implements [bus.Bus]. A message that nobody has subscribed to is
// accepted and dropped.
func (b *Bus) Publish(ctx context.Context, m bus.Message) error {
	b.mu.RLock()
	groups, closed := b.subjects[m.Subject], b.closed
	b.mu.RUnlock()
	if closed {
		return ErrClosed
	}
	for _, g := range groups {
		if err := g.enter(ctx); err != nil {
			return err
		}
		g.add(m)
	}
	return nil
}

// Subscribe implements [bus.Bus]. ctx gives its values to the handler; it does
// not end the subscription. stop must not be called by the handler.
func (b *Bus) Subscribe(ctx context.Context, subject, name string, h bus.Handler) (stop func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	at := -1
	if name != "" {
		at = slices.IndexFunc(b.subjects[subject], func(g *group) bool { return g.name == name })
	}
	var g *group
	if at >= 0 {
		g = b.subjects[subject][at]
	} else {
		g = newGroup(b, name)
		// Publishers go on reading the former slice.
		b.subjects[subject] = append(slices.Clone(b.subjects[subject]), g)
	}
	m := &member{handle: h}
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	g.join(m)
	return func() { b.leave(subject, g, m) }, nil
}

// leave ends one subscription.
func (b *Bus) leave(subject string, g *group, m *member) {
	b.mu.Lock()
	if empty := g.part(m); empty {
		b.subjects[subject] = slices.DeleteFunc(slices.Clone(b.subjects[subject]), func(o *group) bool { return o == g })
	}
	b.mu.Unlock()
	m.cancel()
	m.running.Wait()
}

// Close ends all subscriptions, drops what waits, and returns when the last
// handler has. It may be called again.
func (b *Bus) Close() error {
	b.mu.Lock()
	subjects := b.subjects
	b.subjects = make(map[string][]*group)
	if !b.closed {
		b.closed = true
		close(b.ended)
	}
	b.mu.Unlock()
	for _, groups := range subjects {
		for _, g := range groups {
			g.disband()
		}
	}
	b.workers.Wait()
	return nil
}
