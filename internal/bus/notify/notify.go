// Package notify carries hints between the processes of one PostgreSQL
// database, by LISTEN and NOTIFY, over a bus that each of them has for itself.
// Tasks stay within a process; what concerns others (runs to look at, changes,
// hints, cancels, progress, open attempts) goes to all of them.
//
// A subscription of a group gets the messages of a key in one process only:
// every process tells each second which groups it is a member of, and all of
// them choose the same member by the key (rendezvous hashing). While members
// come and go a message may reach two of them or none: it is a hint (package
// bus).
package notify

import (
	"context"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley/internal/bus"
)

// Database is what a [Bus] asks of the database. *store.DB implements it.
type Database interface {
	// Notify sends a payload of at most 7,900 bytes to everybody who listens, the
	// sender too. Payloads of one process arrive in their order.
	Notify(ctx context.Context, payload string) error
	// Listen gives every payload to each, until ctx ends. It reconnects by
	// itself; what was sent in between is lost.
	Listen(ctx context.Context, each func(payload string)) error
}

const (
	// maxQueue bounds the messages that wait to be sent.
	maxQueue = 16_384
	// presenceEvery is how often a process tells its memberships; a process that
	// was not heard for absentAfter is no member any more.
	presenceEvery = time.Second
	absentAfter   = 3 * time.Second
	// silentAfter is how long nothing may be heard, not even oneself, before the
	// bus counts as broken.
	silentAfter = 5 * time.Second
	// askEvery is how often a new process asks until it hears itself.
	askEvery = 100 * time.Millisecond
	// notifyWithin bounds one payload's way into the database.
	notifyWithin = 5 * time.Second
	// restAfter is the pause after a payload that could not be sent.
	restAfter = 100 * time.Millisecond
)

// Config of a [Bus]. All members but Logger are required.
type Config struct {
	DB Database
	// Local carries messages within the process. The caller closes it, after Run
	// has returned.
	Local bus.Bus
	// Process names this process; no other has the same name.
	Process string
	Now     func() time.Time
	Logger  *slog.Logger
}

// Bus is a [bus.Bus] over a database. Nothing goes to or comes from other
// processes before Run and after it.
type Bus struct {
	cfg   Config
	queue chan bus.Message
	// ready is closed when the process has heard itself.
	ready     chan struct{}
	readyOnce sync.Once
	// announce asks for the memberships to be told now.
	announce chan struct{}

	dropped, sent, received atomic.Int64

	sending sync.Mutex // held while a letter is sent; protects number
	number  int64

	mu sync.Mutex // protects what follows
	// groups counts the own subscriptions of each group.
	groups map[membership]int
	// members are the other processes and when each was last heard of.
	members map[membership]map[string]time.Time
	// parts are the frames of messages that are not whole yet, by process.
	parts map[string]*part
	// heard is when the process has heard itself last, company another one, or
	// itself for the first time.
	heard, company time.Time
}

// membership is one group of one subject.
type membership struct{ subject, group string }

// New makes a Bus.
func New(cfg Config) *Bus {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Bus{
		cfg: cfg, queue: make(chan bus.Message, maxQueue), ready: make(chan struct{}), announce: make(chan struct{}, 1),
		groups: make(map[membership]int), members: make(map[membership]map[string]time.Time), parts: make(map[string]*part),
	}
}

var _ bus.Bus = (*Bus)(nil)

// relayed reports whether other processes are told.
func relayed(subject string) bool {
	switch subject {
	case bus.SubjectRuns, bus.SubjectChanged, bus.SubjectOpen, bus.SubjectHint, bus.SubjectCancel, bus.SubjectProgress:
		return true
	}
	return false
}

// Run connects the processes until ctx ends, and returns when everything it
// started has ended.
func (b *Bus) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.listen(ctx) })
	g.Go(func() error { b.serveQueue(ctx); return nil })
	g.Go(func() error { b.servePresence(ctx); return nil })
	return g.Wait()
}

func (b *Bus) listen(ctx context.Context) error {
	err := b.cfg.DB.Listen(ctx, func(payload string) { b.take(ctx, payload) })
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// Publish implements [bus.Bus]. For other processes m waits in a queue; if that
// is full m is dropped for them, counted, and accepted all the same. Nothing is
// sent while there is nobody else: each payload is a transaction of the database.
func (b *Bus) Publish(ctx context.Context, m bus.Message) error {
	if !relayed(m.Subject) {
		return b.cfg.Local.Publish(ctx, m)
	}
	if b.accompanied() {
		select {
		case b.queue <- m:
		default:
			b.dropped.Add(1)
		}
	}
	return b.deliver(ctx, m)
}

// accompanied reports whether there may be another process: one was heard of
// late, since each of them says something every second, or it is too soon to
// know.
func (b *Bus) accompanied() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.company.IsZero() || b.cfg.Now().Sub(b.company) < absentAfter
}

// Subscribe implements [bus.Bus]. For what comes from other processes it waits
// until this one hears them.
func (b *Bus) Subscribe(ctx context.Context, subject, group string, h bus.Handler) (stop func(), err error) {
	if !relayed(subject) {
		return b.cfg.Local.Subscribe(ctx, subject, group, h)
	}
	local := subject
	if group != "" {
		local = groupSubject(membership{subject, group})
	}
	stopLocal, err := b.cfg.Local.Subscribe(ctx, local, group, h)
	if err != nil {
		return nil, err
	}
	if group == "" {
		return stopLocal, b.await(ctx, stopLocal)
	}
	g := membership{subject, group}
	b.join(g, 1)
	leave := sync.OnceFunc(func() { b.join(g, -1) })
	stop = func() {
		leave()
		stopLocal()
	}
	return stop, b.await(ctx, stop)
}

// groupSubject is where the messages of a group go within the process.
func groupSubject(g membership) string { return g.subject + " for " + g.group }

// await waits until this process hears others; after an error the subscription
// has ended.
func (b *Bus) await(ctx context.Context, stop func()) error {
	select {
	case <-b.ready:
		return nil
	case <-ctx.Done():
		stop()
		return context.Cause(ctx)
	}
}

// join counts the own subscriptions of a group and tells the others.
func (b *Bus) join(g membership, n int) {
	b.mu.Lock()
	b.groups[g] += n
	if b.groups[g] == 0 {
		delete(b.groups, g)
	}
	b.mu.Unlock()
	select {
	case b.announce <- struct{}{}:
	default:
	}
}

// deliver gives a message to the subscriptions of this process that it is for.
func (b *Bus) deliver(ctx context.Context, m bus.Message) error {
	err := b.cfg.Local.Publish(ctx, m)
	for _, g := range b.chosen(m) {
		to := m
		to.Subject = groupSubject(g)
		if e := b.cfg.Local.Publish(ctx, to); err == nil {
			err = e
		}
	}
	return err
}

// chosen are the own groups whose member for m this process is.
func (b *Bus) chosen(m bus.Message) []membership {
	now := b.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	var mine []membership
	for g := range b.groups {
		if g.subject != m.Subject {
			continue
		}
		best, self := weight(m.Key, b.cfg.Process), true
		for process, heard := range b.members[g] {
			if now.Sub(heard) < absentAfter && weight(m.Key, process) > best {
				self = false
				break
			}
		}
		if self {
			mine = append(mine, g)
		}
	}
	return mine
}

// weight orders the members for a key: the heaviest gets its messages.
func weight(key, process string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(process + "\x00" + key))
	// The last bytes change few bits of the sum alone.
	v := h.Sum64()
	v ^= v >> 33
	v *= 0xff51afd7ed558ccd
	v ^= v >> 33
	return v
}

// hear notes the memberships that another process tells.
func (b *Bus) hear(process string, groups []membership) {
	now := b.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for g, members := range b.members {
		if !slices.Contains(groups, g) {
			delete(members, process)
		}
		for other, heard := range members {
			if now.Sub(heard) >= absentAfter {
				delete(members, other)
			}
		}
	}
	for _, g := range groups {
		if b.members[g] == nil {
			b.members[g] = make(map[string]time.Time)
		}
		b.members[g][process] = now
	}
}

// Ready is closed once Run hears what processes say.
func (b *Bus) Ready() <-chan struct{} { return b.ready }

// Healthy reports whether the process hears itself through the database.
func (b *Bus) Healthy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.heard.IsZero() && b.cfg.Now().Sub(b.heard) < silentAfter
}

// Counts are what went over the database so far, in messages: sent, received
// from other processes, and dropped because too many waited (to be sent, or for
// a subscription of this process), they were too large, or the database did not
// take them.
func (b *Bus) Counts() (sent, received, dropped int64) {
	return b.sent.Load(), b.received.Load(), b.dropped.Load()
}
