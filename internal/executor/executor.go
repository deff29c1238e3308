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
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Store is what an executor asks of the database. *store.DB implements it; the
// methods and their refusals are described there.
type Store interface {
	StartRun(ctx context.Context, s store.Start) (existing string, err error)
	Decide(ctx context.Context, d store.Decision) error
	Answer(ctx context.Context, a store.Answer) (accepted bool, err error)
	Publish(ctx context.Context, now time.Time, limit int) ([]store.Attempt, error)
	History(ctx context.Context, run string) (store.History, error)
	Wakeups(ctx context.Context, now time.Time, limit int) (store.Wakeups, error)
	Sweep(ctx context.Context, dead []store.Worker, at time.Time) ([]store.Worker, error)
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
}

// Config of an executor. Store, Bus, Now, NewID and Jitter are required.
type Config struct {
	Store  Store
	Bus    bus.Bus
	Now    func() time.Time
	NewID  func() string
	Jitter func() float64
	Logger *slog.Logger
	// Reserve takes a slot of the bridge in the same process, if one is free
	// now; nil where there is no bridge.
	Reserve func(agent string) (Reservation, bool)
	// Agent looks an agent up; ok is false for unknown ones.
	Agent func(ctx context.Context, name string) (info AgentInfo, ok bool)
	// CancelGrace is how long agents in flight get to end when a run is
	// cancelled (rule C3); default 30 s.
	CancelGrace time.Duration
	// SweepEvery is how often the store is searched for what no wake-up told;
	// default 1 s. Lease is how long a bridge may be silent; default 15 s.
	SweepEvery, Lease time.Duration
	// MaxLive bounds the runs whose state is kept in memory; default 20,000.
	MaxLive int
	Limits  workflow.RunLimits
}

// Executor runs workflows. Its methods may be called concurrently, also before
// Run, which does what happens by itself.
type Executor struct {
	cfg  Config
	defs *definitions
	hub  *hub

	mu   sync.Mutex // protects live
	live map[string]*liveRun

	wakeups chan wakeup
	timers  *timers
	publish chan struct{}
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
	// refused: the last decision was. The next one claims nothing for the own
	// bridge, since that may be what was refused.
	refused bool
}

// wakeup says that a run wants attention. If task is set, only if that task is
// still in flight.
type wakeup struct{ run, task string }

const (
	wakeupQueue   = 16_384
	wakeupWorkers = 8
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
	if cfg.Limits == (workflow.RunLimits{}) {
		cfg.Limits = workflow.DefaultRunLimits()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Agent == nil {
		cfg.Agent = func(context.Context, string) (AgentInfo, bool) { return AgentInfo{}, false }
	}
	return &Executor{
		cfg:     cfg,
		defs:    newDefinitions(cfg.Store, cfg.Now),
		hub:     newHub(),
		live:    make(map[string]*liveRun),
		wakeups: make(chan wakeup, wakeupQueue),
		timers:  newTimers(cfg.Now),
		publish: make(chan struct{}, 1),
	}
}

// Run does what happens by itself until ctx ends: it publishes open attempts,
// absorbs settled ones, fires timers and watches the bridges' leases. It
// returns when everything it started has ended; the error is that of a bus
// subscription, or nil.
func (x *Executor) Run(ctx context.Context) error {
	stop, err := x.cfg.Bus.Subscribe(ctx, bus.SubjectRuns, "parley-executor", func(_ context.Context, m bus.Message) error {
		x.wake(wakeup{run: m.Key, task: string(m.Value)})
		return nil
	})
	if err != nil {
		return err
	}
	defer stop()
	stopProgress, err := x.cfg.Bus.Subscribe(ctx, bus.SubjectProgress, "parley-executor", x.TakeProgress)
	if err != nil {
		return err
	}
	defer stopProgress()
	var g errgroup.Group
	for range wakeupWorkers {
		g.Go(func() error { x.serveWakeups(ctx); return nil })
	}
	g.Go(func() error { x.servePublishing(ctx); return nil })
	g.Go(func() error { x.timers.run(ctx, x.fire); return nil })
	g.Go(func() error { x.serveSweeps(ctx); return nil })
	return g.Wait()
}

// now is the time as it is recorded: UTC, whole microseconds, no monotonic part.
func (x *Executor) now() time.Time { return x.cfg.Now().UTC().Truncate(time.Microsecond) }

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
	if l.state == nil || l.state.Status().Terminal() || len(x.live) > x.cfg.MaxLive {
		l.gone = true
		delete(x.live, run)
	}
	x.mu.Unlock()
	l.mu.Unlock()
}
