package executor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// simulatedRuns are the runs of one simulation.
const simulatedRuns = 10

// chance is a source of randomness for many goroutines.
type chance struct {
	mu    sync.Mutex
	rnd   *rand.Rand
	grain time.Duration
}

func (c *chance) of(percent int) bool { return c.n(100) < percent }

func (c *chance) n(limit int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(limit)
}

func (c *chance) upTo(d time.Duration) time.Duration {
	return (time.Duration(c.n(int(d/time.Millisecond))) * time.Millisecond).Truncate(c.grain)
}

// simWorld is what outlives the processes: database, bus and agents.
type simWorld struct {
	t     *testing.T
	c     *chance
	apart bool
	// target is the database, db the connections of who is no process, and stores
	// those of the processes, by name.
	engine simEngine
	target string
	db     *store.DB
	stores map[string]*store.DB
	hub    *memory.Bus
	calm   atomic.Bool
	late   sync.WaitGroup
	// intruding is held by who lets others decide first.
	intruding sync.Mutex
	lives     int
	started   int
	saying    atomic.Int64
	agents    *simAgents

	mu    sync.Mutex // protects what follows
	procs map[string]*simProc
	seen  observed
}

func newSimWorld(t *testing.T, e simEngine, target string, c *chance, apart bool) *simWorld {
	t.Helper()
	w := &simWorld{
		t: t, c: c, apart: apart, engine: e, target: target, hub: memory.New(memory.Options{}), stores: map[string]*store.DB{}, procs: map[string]*simProc{},
		seen: observed{moves: map[string][]store.Move{}, answers: map[string][]parley.Result{}, ended: map[string]time.Time{}, cancels: map[string]bool{}, said: map[string]string{}, published: map[string]bool{}},
	}
	w.db = w.open()
	for _, name := range w.names() {
		w.stores[name] = w.db
		if e.each {
			w.stores[name] = w.open()
		}
	}
	w.agents = newSimAgents(c)
	return w
}

func (w *simWorld) open() *store.DB {
	w.t.Helper()
	db, err := store.Open(w.t.Context(), w.target, store.Options{Readers: 2, Dial: w.engine.dial})
	if err != nil {
		w.t.Fatal(err)
	}
	return db
}

// names are those of the processes: two executors and two bridges, or two that
// are both, one after the other.
func (w *simWorld) names() []string {
	if w.apart {
		return []string{"executor-1", "executor-2", "bridge-1", "bridge-2"}
	}
	return []string{"whole"}
}

// simProc is one process.
type simProc struct {
	w    *simWorld
	name string
	dead atomic.Bool
	// died is when it was killed or told to stop: what it has in hand then it may leave.
	died atomic.Pointer[time.Time]
	// cut is until when the process does not reach the database; cuts are all such times,
	// of which w.mu is held.
	cut      atomic.Int64
	cuts     []cutTime
	cancel   context.CancelFunc
	ended    chan struct{}
	executor *executor.Executor // nil in a bridge
	bridge   *bridge.Bridge     // nil in an executor
}

// proc gives the process of that name.
func (w *simWorld) proc(name string) *simProc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.procs[name]
}

// begin starts a process. Each life of one that is everything has a name of its own
// or the same again, as processes have.
func (w *simWorld) begin(ctx context.Context, name string) {
	w.t.Helper()
	w.lives++
	running, cancel := context.WithCancel(ctx)
	p := &simProc{w: w, name: name, cancel: cancel, ended: make(chan struct{})}
	var serve []func(context.Context) error
	if name != "bridge-1" && name != "bridge-2" {
		p.executor = executor.New(p.executorConfig(w.lives))
		serve = append(serve, p.executor.Run)
	}
	if name != "executor-1" && name != "executor-2" {
		b, err := bridge.New(p.bridgeConfig(w.lives))
		if err != nil {
			w.t.Fatal(err)
		}
		p.bridge = b
		serve = append(serve, b.Run)
	}
	w.mu.Lock()
	w.procs[name] = p // others may look at it from now on
	w.mu.Unlock()
	var wg sync.WaitGroup
	for _, run := range serve {
		wg.Go(func() {
			switch err := run(running); {
			case errors.Is(err, errDoubt): // it could not register
				p.fall()
			case err != nil && running.Err() == nil:
				w.t.Errorf("%s: %v", name, err)
			}
		})
	}
	go func() { wg.Wait(); close(p.ended) }()
}

func (p *simProc) executorConfig(life int) executor.Config {
	w, db := p.w, p.w.stores[p.name]
	var ids atomic.Int64
	cfg := executor.Config{
		Store: unsureStore{db, p}, Signals: unsureStore{db, p}, Children: unsureStore{db, p}, Turns: db, Triggers: unsureStore{db, p}, LateAnswers: db, Bus: unsureBus{w.hub, p}, Now: time.Now, Clock: time.Now, Shared: w.apart, Take: db.Publish,
		Jitter: func() float64 { return 0.5 }, CancelGrace: 5 * time.Second,
		NewID: func() string { return fmt.Sprintf("run-%d-%d", life, ids.Add(1)) },
		Agent: func(_ context.Context, name string) (executor.AgentInfo, bool) {
			a, ok := simAgent(name)
			return executor.AgentInfo{Protocol: a.Protocol, Policy: a.OutcomeUnknown, Idempotent: a.Idempotent, Retry: parley.RetryConfig{Budget: parley.RetryBudget{Off: true}}}, ok
		},
	}
	if !w.apart {
		cfg.Reserve = func(agent string) (executor.Reservation, bool) {
			r, ok := p.bridge.Reserve(agent)
			return executor.Reservation{Claim: r.Claim, Start: r.Start, Release: r.Release}, ok
		}
	}
	return cfg
}

func (p *simProc) bridgeConfig(life int) bridge.Config {
	tokens, db := 0, p.w.stores[p.name]
	cfg := bridge.Config{
		Worker: p.name, Ledger: unsureStore{db, p}, Agents: simAgentBook{}, Bus: unsureBus{p.w.hub, p}, Clock: time.Now,
		Adapters: []bridge.Adapter{simAdapter{p, parley.ProtocolSimpleA2A}, simFollower{simAdapter{p, parley.ProtocolJSONRPC}}},
		NewToken: func() string { tokens++; return fmt.Sprintf("t%d.%d.", life, tokens) },
		Jitter:   func() float64 { return 0.5 }, Logger: slog.New(slog.DiscardHandler), DrainGrace: 50 * time.Millisecond,
	}
	if p.executor != nil {
		cfg.Ledger, cfg.AnswerWakes, cfg.Progress = wholeUnsureStore{unsureStore{db, p}}, true, p.executor.TakeProgress
	}
	return cfg
}

// cutTime is when a process was cut off, and for how long unless it was again before.
type cutTime struct{ from, until time.Time }

// cutOff keeps the process from the database for a while from now on, however long it was
// to be kept from it before.
func (p *simProc) cutOff(d time.Duration) {
	now := time.Now()
	p.w.mu.Lock()
	p.cuts = append(p.cuts, cutTime{now, now.Add(d)})
	p.w.mu.Unlock()
	p.cut.Store(now.Add(d).UnixNano())
}

// reaches gives when the process has reached the database for so long without a break, from
// a time on.
func (p *simProc) reaches(from time.Time, d time.Duration) time.Time {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, c := range p.cuts {
		if c.until.After(from) && c.from.Before(from.Add(d)) {
			from = c.until // a later one may have ended it sooner: then it has more time
		}
	}
	return from.Add(d)
}

// kill ends the process as kill -9 does: nothing that it does counts any more.
func (p *simProc) kill() {
	p.fall()
	<-p.ended
}

// fall is kill without waiting.
func (p *simProc) fall() {
	p.ends()
	p.dead.Store(true)
	p.cancel()
}

// ends notes the time of the end, once.
func (p *simProc) ends() {
	now := time.Now()
	p.died.CompareAndSwap(nil, &now)
}

// stop ends the process in order, which takes as long as an agent's connection does.
func (p *simProc) stop() {
	p.ends()
	p.cancel()
	<-p.ended
	p.kill()
}

// someExecutor gives one that lives, or nil.
func (w *simWorld) someExecutor() *executor.Executor {
	var all []*executor.Executor
	for _, name := range w.names() {
		if p := w.proc(name); p.executor != nil && !p.dead.Load() {
			all = append(all, p.executor)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.c.n(len(all))]
}

// start starts a run, by one key until somebody has taken it.
func (w *simWorld) start(ctx context.Context) {
	key := fmt.Sprintf("k%d", w.started)
	var taken atomic.Bool
	for range 90 {
		w.atOnce(func() {
			if x := w.someExecutor(); x != nil {
				_, _, err := x.Start(ctx, parley.StartRequest{Workflow: "simulated", Input: fmt.Appendf(nil, `{"key":%q}`, key), IdempotencyKey: key})
				taken.CompareAndSwap(false, err == nil)
			}
		})
		if taken.Load() {
			w.started++
			return
		}
		time.Sleep(max(w.c.grain, w.c.upTo(time.Second)))
		for _, name := range w.names() {
			if w.proc(name).dead.Load() {
				w.begin(ctx, name)
			}
		}
	}
	w.t.Errorf("run %s is not taken", key)
}

// declareDead declares some bridge dead, whatever it does.
func (w *simWorld) declareDead(ctx context.Context) {
	workers, err := w.db.Sweep(ctx, nil, time.Now())
	if err != nil {
		w.t.Error(err)
	}
	if len(workers) > 0 {
		if _, err := w.db.Sweep(ctx, []store.Worker{workers[w.c.n(len(workers))]}, time.Now()); err != nil {
			w.t.Error(err)
		}
	}
}
