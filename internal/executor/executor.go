// Package executor is the durable rim around the pure core: it loads a run,
// lets [workflow.State.Apply] decide, and saves the decision in one
// transaction before anything follows from it. It owns timers, retries and
// sweeps; it never calls an agent.
//
// Any number of executors may share a store: what keeps them apart is the
// run's sequence number, which every decision names (protocol.md P11). In one
// process with a bridge, answer, decision and the next claim are one
// transaction, so that a run of k steps costs k + 1 synced writes
// (protocol.md §6).
package executor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/tracing"
	"github.com/parley-project/parley/internal/workflow"
)

// Store is what an executor asks of the database. *store.DB implements it; the
// methods and their refusals are described there.
type Store interface {
	Reader
	StartRun(ctx context.Context, s store.Start) (existing string, err error)
	Decide(ctx context.Context, d store.Decision) error
	Answer(ctx context.Context, a store.Answer) (accepted bool, err error)
	Sweep(ctx context.Context, dead []store.Worker, at time.Time) ([]store.Worker, error)
}

// Reader is what of a [Store] changes nothing.
type Reader interface {
	History(ctx context.Context, run string) (store.History, error)
	RunRow(ctx context.Context, run string) (store.Run, error)
	RunByKey(ctx context.Context, workflow, key string) (run string, err error)
	Begun(ctx context.Context, run string) ([]store.Attempt, error)
	Attempt(ctx context.Context, id string) (a store.Attempt, ok bool, err error)
	Wakeups(ctx context.Context, now time.Time, limit int) (store.Wakeups, error)
	Definition(ctx context.Context, ref string) (store.Definition, error)
}

// Reservation is a call slot of the bridge in the same process. Exactly one of
// Start and Release is called.
type Reservation struct {
	// Claim is written on the attempt together with the decision.
	Claim store.Claim
	// Start begins the call once the write is known to be committed.
	Start func(store.Attempt)
	// Release gives the slot back: the write was refused or is in doubt, and
	// nothing may ever be sent under its token.
	Release func()
}

// AgentInfo is what an executor wants to know of an agent.
type AgentInfo struct {
	Protocol string
	Retry    parley.RetryConfig
	Policy   parley.OutcomePolicy
	// Idempotent: the agent may be hedged (rule R5).
	Idempotent bool
	// Err is why the agent could not be looked up, which may pass; then nothing else
	// is set, and it may be known.
	Err error
}

// Config of an executor. Store, Bus, Now, NewID and Jitter are required.
type Config struct {
	Store Store
	Bus   bus.Bus
	// Now is the clock of this process, with its monotonic reading. Clock gives
	// the time that rows are written in and compared with, which all processes
	// of the store agree about: [store.DB.Now]; default Now.
	Now    func() time.Time
	Clock  func() time.Time
	NewID  func() string
	Jitter func() float64
	Logger *slog.Logger
	// Reserve takes a slot of the bridge in the same process, if one is free
	// now; nil where there is no bridge.
	Reserve func(agent string) (Reservation, bool)
	// Agent looks an agent up; ok is false for unknown ones.
	Agent func(ctx context.Context, name string) (info AgentInfo, ok bool)
	// Group shares the runs among executors; default "parley-executor".
	Group string
	// Take gives open attempts to be announced: [store.DB.Publish]. This executor
	// announces them (see [Publisher]), unless Publish asks somebody else to.
	Take    func(ctx context.Context, now time.Time, limit int) ([]store.Attempt, error)
	Publish func()
	// Shared: others may decide about runs of this store, too. Then runs that
	// somebody else decides about are not kept in memory, and who waits for a run
	// elsewhere is told.
	Shared bool
	// Guest, which implies Shared: the executor only does what its methods are
	// asked for; everything that happens by itself is left to others.
	Guest bool
	// CancelGrace is how long agents in flight get to end when a run is
	// cancelled (rule C3); default 30 s.
	CancelGrace time.Duration
	// SweepEvery is how often the store is searched for what no wake-up told;
	// default 1 s. Lease is how long a bridge may be silent; default 15 s.
	SweepEvery, Lease time.Duration
	// MaxLive bounds the runs whose state is kept in memory; default 20,000.
	MaxLive int
	Limits  workflow.RunLimits
	// Documents bounds the workflows that are deployed; zero members have the
	// defaults of language.md §10.
	Documents workflow.ParseLimits

	// HandOffs is required with OldBridge. Without OldBridge it ends what an old
	// bridge has left; nil leaves that in the store.
	HandOffs HandOffs
	// LateAnswers, if set, are recorded in the histories of their runs.
	LateAnswers LateAnswers
	// OldBridge, if set, hands attempts to a bridge of the existing platform;
	// Reserve is not asked then.
	OldBridge *OldBridge
	// Requests, if set, starts and cancels runs by records.
	Requests *Requests
	// Signals keeps the events that runs wait for; without it none come.
	Signals Signals
	// Turns counts the runs of workflows with concurrency; without it they are not
	// started.
	Turns Turns
	// Children keeps the runs that steps of other runs ask for; without it none is
	// started.
	Children Children
	// Triggers knows what starts runs by itself; without it nothing does. Secret
	// reads what webhooks are signed with, by its reference. KafkaTopic says why the
	// records of a topic cannot start runs; nil where there is no Kafka. EventChain
	// bounds the runs that follow from each other by events; default
	// [DefaultEventChain].
	Triggers   Triggers
	Secret     func(ref string) (parley.Secret, error)
	KafkaTopic func(topic string) error
	EventChain int
	// Monitoring tells [bus.SubjectMonitoring] what becomes of agent steps.
	Monitoring bool
	// DeadLetters keeps result and request records that cannot be handled; nil
	// leaves them to the log.
	DeadLetters bus.DeadLetters
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer records runs and steps; nil records none.
	Tracer *tracing.Tracer
	// Failpoint is that of the [Publisher], for crash tests; nil in production.
	Failpoint func(name string) error
}

// Executor runs workflows. Its methods may be called concurrently, also before
// Run, which does what happens by itself.
type Executor struct {
	cfg  Config
	defs *definitions
	hub  *hub

	mu   sync.Mutex // protects live
	live map[string]*liveRun

	taking  chan struct{} // closed once everything is subscribed to
	wakeups *wakeups
	timers  *timers
	posts   *posts
	changes *posts
	budgets *budgets
	// publisher is nil where somebody else publishes.
	publisher *Publisher
	old       *oldBridge // nil with bridges of ours
	monitor   *monitor   // nil without watchers
	spreading chan struct{}
	lanes     chan laneHint
	parenting chan struct{}
	starting  chan struct{}
	deployed  chan struct{}
	early     earlyCancels
	// refusing is cancelled when no more runs are started by records.
	refusing context.Context //nolint:containedctx // it belongs to the executor's life
	refuse   context.CancelFunc

	accepted, refused atomic.Int64
}

// liveRun is one run that this executor has touched. mu is held while a
// decision about the run is under way.
type liveRun struct {
	mu sync.Mutex
	// state is nil until it is loaded, and after a write that was refused or
	// is in doubt.
	state *workflow.State
	// gone: the entry has left the map; look again.
	gone bool
	// leave: somebody else will decide next; the entry leaves the map.
	leave bool
	// full are the events that the last decisions could not publish.
	full []*store.SignalsFullError
	// refused: the last decision was. The next one claims nothing for the own
	// bridge, since that may be what was refused.
	refused bool
}

// wakeup says that a run wants attention. If task is set, only if that task is
// still in flight.
type wakeup struct {
	run, task string
	// stranger: somebody else may hold the run.
	stranger bool
	// child: it is about a run that a step has asked for; late: about an answer that
	// came too late.
	child, late bool
}

// executorGroup shares the subjects that executors read among them.
const executorGroup = "parley-executor"

const (
	wakeupQueue   = 16_384
	wakeupWorkers = 32
	publishBatch  = 500
	sweepBatch    = 1_000
)

// New makes an executor.
func New(cfg Config) *Executor {
	if cfg.CancelGrace == 0 {
		cfg.CancelGrace = 30 * time.Second
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = time.Second
	}
	if cfg.Lease == 0 {
		cfg.Lease = 15 * time.Second
	}
	if cfg.MaxLive == 0 {
		cfg.MaxLive = 20_000
	}
	if cfg.EventChain == 0 {
		cfg.EventChain = DefaultEventChain
	}
	if cfg.Limits == (workflow.RunLimits{}) {
		cfg.Limits = workflow.DefaultRunLimits()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Agent == nil {
		cfg.Agent = func(context.Context, string) (AgentInfo, bool) { return AgentInfo{}, false }
	}
	if cfg.Group == "" {
		cfg.Group = executorGroup
	}
	if cfg.Clock == nil {
		cfg.Clock = cfg.Now
	}
	cfg.Shared = cfg.Shared || cfg.Guest
	x := &Executor{
		cfg:     cfg,
		defs:    newDefinitions(cfg.Store, cfg.Now),
		hub:     newHub(),
		live:    make(map[string]*liveRun),
		taking:  make(chan struct{}),
		wakeups: newWakeups(),
		timers:  newTimers(cfg.Clock),
		posts:   newPosts(),
		changes: newPosts(),
		budgets: newBudgets(cfg.Now),

		spreading: make(chan struct{}, 1),
		lanes:     make(chan laneHint, laneHints),
		parenting: make(chan struct{}, 1),
		starting:  make(chan struct{}, 1),
		deployed:  make(chan struct{}, 1),
	}
	x.refusing, x.refuse = context.WithCancel(context.Background())
	if cfg.Publish == nil {
		p := PublisherConfig{Take: cfg.Take, Bus: cfg.Bus, Now: cfg.Clock, Every: cfg.SweepEvery, Logger: cfg.Logger, Failpoint: cfg.Failpoint}
		if cfg.Guest {
			p.Every = 0
		}
		x.publisher = NewPublisher(p)
		x.cfg.Publish = x.publisher.Soon
	}
	if cfg.OldBridge != nil {
		x.handsOver(*cfg.OldBridge)
	}
	if cfg.Monitoring {
		x.monitor = newMonitor(x)
	}
	return x
}

// Decisions counts the decisions that the store has taken, and those that it
// has refused because somebody else was faster.
func (x *Executor) Decisions() (accepted, refused int64) {
	return x.accepted.Load(), x.refused.Load()
}

// Taking is closed once Run has subscribed: what others tell from then on is
// heard.
func (x *Executor) Taking() <-chan struct{} { return x.taking }

// Run does what happens by itself until ctx ends: it publishes open attempts,
// absorbs settled ones, fires timers and watches the bridges' leases; a guest
// only publishes what it has scheduled, and passes on what it has changed. Run
// returns when everything it started has ended; the error is that of a bus
// subscription, or nil. It is called once.
func (x *Executor) Run(ctx context.Context) error {
	var g errgroup.Group
	subscribe := func(subject, group string, h bus.Handler) error {
		stop, err := x.cfg.Bus.Subscribe(ctx, subject, group, h)
		if err == nil {
			g.Go(func() error { <-ctx.Done(); stop(); return nil })
		}
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	if err := x.subscribe(subscribe); err != nil {
		end()
		return errors.Join(err, g.Wait())
	}
	peers, err := x.joinPeers(ctx) // before anything is published that they answer
	defer peers.stop()
	if err != nil {
		end()
		return errors.Join(err, g.Wait())
	}
	if x.publisher != nil {
		g.Go(func() error { defer end(); return x.publisher.Run(ctx) })
	}
	if x.cfg.Signals != nil {
		g.Go(func() error { x.serveSignals(ctx); return nil })
	}
	if x.cfg.Turns != nil {
		g.Go(func() error { x.serveTurns(ctx); return nil })
	}
	x.serveTriggers(ctx, &g)
	close(x.taking)
	if x.monitor != nil {
		g.Go(func() error { x.monitor.run(ctx); return nil })
	}
	if x.cfg.Shared {
		for range postWorkers {
			g.Go(func() error { x.servePosts(ctx); return nil })
		}
		g.Go(func() error { x.serveChanges(ctx); return nil })
	}
	if !x.cfg.Guest {
		for range wakeupWorkers {
			g.Go(func() error { x.serveWakeups(ctx); return nil })
		}
		g.Go(func() error { x.timers.run(ctx, x.fire); return nil })
		g.Go(func() error { x.serveSweeps(ctx); return nil })
		if x.cfg.Children != nil {
			g.Go(func() error { x.serveChildren(ctx); return nil })
		}
		if x.old != nil {
			g.Go(func() error { x.old.gate.run(ctx); return nil })
		}
	}
	return g.Wait()
}

func (x *Executor) subscribe(to func(subject, group string, h bus.Handler) error) error {
	if x.cfg.Shared {
		if err := to(bus.SubjectChanged, "", x.heardChanged); err != nil {
			return err
		}
	}
	if x.cfg.Guest {
		return nil
	}
	if err := to(bus.SubjectRuns, x.cfg.Group, func(_ context.Context, m bus.Message) error {
		if len(m.Value) == 0 && x.publisher != nil {
			x.publisher.Soon() // a guest has started or changed the run
			x.childrenSoon()
		}
		x.wake(wakeup{run: m.Key, task: string(m.Value)})
		return nil
	}); err != nil {
		return err
	}
	return to(bus.SubjectProgress, x.cfg.Group, x.TakeProgress)
}

// now is the time as it is recorded: UTC, whole microseconds, no monotonic part.
func (x *Executor) now() time.Time { return x.cfg.Clock().UTC().Truncate(time.Microsecond) }

// entry gives the live run of that id, making it if need be.
func (x *Executor) entry(run string) *liveRun {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.live[run]
	if l == nil {
		l = &liveRun{}
		x.live[run] = l
	}
	return l
}

// lock gives the live run of that id, locked.
func (x *Executor) lock(run string) *liveRun {
	for {
		l := x.entry(run)
		l.mu.Lock()
		if !l.gone {
			return l
		}
		l.mu.Unlock()
	}
}

// unlock lets go of a live run, and forgets it when nothing more is to come or
// memory is short.
func (x *Executor) unlock(run string, l *liveRun) {
	x.mu.Lock()
	if l.state == nil || l.leave || l.state.Status().Terminal() || x.cfg.Guest || len(x.live) > x.cfg.MaxLive {
		l.gone = true
		if x.live[run] == l {
			delete(x.live, run)
		}
	}
	x.mu.Unlock()
	l.mu.Unlock()
}
