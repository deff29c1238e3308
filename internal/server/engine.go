package server

import (
	"cmp"
	"context"
	mathrand "math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// publishEvery is how often a bridge's process looks for open attempts that
// nobody has announced, and publishBatch how many it takes at a time: few, so
// that several bridges share them.
const (
	publishEvery = time.Second
	publishBatch = 64
)

// buildEngine makes registry, bridge and executor. Where one process has both of
// the last two, it ties them together: one reserves slots of the other, the
// other hands its answers back, so that answer, decision and next claim are one
// write (protocol.md §6).
func (s *Server) buildEngine(metrics *prometheus.Registry) (err error) {
	observed := bridge.NewMetrics(metrics)
	if err := s.openExchange(); err != nil {
		return err
	}
	if err := s.openPush(); err != nil {
		return err
	}
	s.openSecrets()
	adapters := s.adapters(observed)
	if s.db == nil {
		s.registry = s.registryOn(&agentList{}, adapters)
	} else {
		s.registry = s.newRegistry(adapters)
		s.buildExecutor(metrics)
		if err := s.buildDeadLetters(metrics); err != nil {
			return err
		}
	}
	s.buildHealth(metrics)
	s.buildRetention(metrics)
	if s.cfg.has(RoleBridge) {
		return s.buildBridge(adapters, observed)
	}
	return nil
}

// openExchange makes what speaks with agents, under the egress policy.
func (s *Server) openExchange() error {
	allowed, err := egress(s.cfg.EgressAllow)
	if err != nil {
		return err
	}
	limits := s.cfg.Exchange
	limits.MaxIdle = s.cfg.MaxCalls
	s.exchange = bridge.NewExchange(bridge.ExchangeConfig{
		Limits: limits, MaxAge: s.cfg.ConnectionAge,
		DialContext: s.cfg.Dial, Now: s.cfg.Now, Egress: allowed, UserAgent: "parley/" + s.cfg.Version, SecretSeen: s.cfg.SecretSeen,
		Renew: func(ctx context.Context, a parley.Agent) (parley.Agent, error) { return s.registry.Renew(ctx, a) },
	})
	return nil
}

// buildExecutor makes what decides about runs: a guest where the role executor
// is elsewhere.
func (s *Server) buildExecutor(metrics *prometheus.Registry) {
	cfg := executor.Config{
		Store: s.db, Take: s.db.Publish, Bus: s.bus, Now: s.cfg.Now, Clock: s.db.Now, Logger: s.log, Limits: s.cfg.Limits, Documents: s.cfg.Documents,
		NewID:  func() string { return "run-" + newUUID() },
		Jitter: mathrand.Float64, CancelGrace: s.cfg.CancelGrace, Lease: s.cfg.Lease, Failpoint: s.cfg.Failpoint, Agent: s.agentInfo,
		Signals: s.db, Turns: s.db, Children: s.db, LateAnswers: s.db, Triggers: s.db, Secret: s.secrets.Resolve, EventChain: s.cfg.EventChain, Shared: s.cfg.shared(), Guest: !s.cfg.has(RoleExecutor),
		Group: s.cfg.ExecutorGroup, HandOffs: s.db, Monitoring: s.kafka != nil && s.cfg.Requests, Metrics: executor.NewMetrics(metrics),
		DeadLetters: s.keepRecord, Tracer: s.tracer,
	}
	if s.cfg.OldBridge {
		cfg.OldBridge = &executor.OldBridge{NewToken: newToken, Group: s.cfg.ExecutorGroup}
		if cfg.Guest {
			cfg.Publish = func() {} // tasks are handed over by one who reads results
		}
	}
	if s.cfg.Requests && !cfg.Guest {
		cfg.Requests = &executor.Requests{Plans: s.db, NewID: newUUID, Group: s.cfg.RequestGroup}
	}
	if s.kafka != nil {
		cfg.KafkaTopic = s.kafka.Foreign
	}
	if s.cfg.merges() {
		cfg.Reserve = s.reserve
	}
	if s.localBus() {
		cfg.Publish = s.announce
	}
	s.executor = executor.New(cfg)
	s.catalog = executor.NewCatalog(executor.CatalogConfig{
		DB: s.db, Executor: s.executor, Now: s.db.Now, NewID: newUUID, KnownAgent: s.knownAgent, Changed: s.workflowsChanged,
		CheckSecret: s.secrets.Check,
	})
	s.buildSchedules(metrics)
	if !cfg.Guest {
		metrics.MustRegister(newBacklog(s.db))
	}
	decisions := func(outcome string, which func() int64) {
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "parley_decisions_total", Help: "Decisions about runs that the store has taken, or refused because somebody else was faster",
			ConstLabels: prometheus.Labels{"outcome": outcome},
		}, func() float64 { return float64(which()) }))
	}
	decisions("accepted", func() int64 { n, _ := s.executor.Decisions(); return n })
	decisions("refused", func() int64 { _, n := s.executor.Decisions(); return n })
}

func (s *Server) buildBridge(adapters []bridge.Adapter, observed *bridge.Metrics) error {
	agents, err := s.agentsForCalls()
	if err != nil {
		return err
	}
	cfg := bridge.Config{
		Worker: s.worker(), Ledger: s.db, Agents: agents, Bus: s.bus,
		Adapters: adapters, Now: s.cfg.Now, Clock: s.clock, NewToken: newToken, Logger: s.log, Metrics: observed,
		Breaker: s.cfg.Breaker,
		Limits: bridge.Limits{
			PerAgent: s.cfg.MaxConcurrent, Global: s.cfg.MaxCalls, Following: s.cfg.MaxFollowing, GlobalBytes: s.cfg.MaxRequestBytes,
		},
		DrainGrace: s.cfg.DrainGrace, Lease: s.cfg.Lease, Failpoint: s.cfg.Failpoint,
		Group: s.cfg.BridgeGroup, Results: s.kafka != nil, DeadLetters: s.keepRecord, Tracer: s.tracer,
	}
	if s.db == nil {
		cfg.Ledger = bridge.NewMemoryLedger()
	}
	if s.cfg.merges() {
		cfg.Ledger = ledger{DB: s.db, executor: s.executor}
		cfg.AnswerWakes, cfg.Progress = true, s.executor.TakeProgress
	}
	if s.localBus() {
		s.publisher = executor.NewPublisher(executor.PublisherConfig{
			Take: s.takeOpen, Bus: s.bus, Told: true, Now: s.db.Now, Every: publishEvery, Batch: publishBatch, Logger: s.log, Failpoint: s.cfg.Failpoint,
		})
	}
	s.bridge, err = bridge.New(cfg)
	return err
}

// takeOpen takes open attempts for the own bridge, unless that begins nothing: who is in
// its place would have to wait until they are visible again.
func (s *Server) takeOpen(ctx context.Context, now time.Time, limit int) ([]store.Attempt, error) {
	if s.bridge.Replaced() {
		return nil, nil
	}
	return s.db.Publish(ctx, now, limit)
}

// worker names the bridge in the store. Where nobody else is, it stays the same.
func (s *Server) worker() string {
	if s.cfg.shared() || s.cfg.Instance != "" {
		return s.process
	}
	return "bridge"
}

// ledger is the store as the bridge of the same process sees it: answers go
// through the executor, which writes what follows from them along.
type ledger struct {
	*store.DB
	executor *executor.Executor
}

// Answer is transition P7, merged with P11 where that is possible.
func (l ledger) Answer(ctx context.Context, a store.Answer) (bool, error) {
	return l.executor.Answer(ctx, a)
}

func (s *Server) reserve(agent string) (executor.Reservation, bool) {
	r, ok := s.bridge.Reserve(agent)
	if !ok {
		return executor.Reservation{}, false
	}
	return executor.Reservation{Claim: r.Claim, Start: r.Start, Release: r.Release}, true
}

// agentInfo says what the executor wants to know of an agent.
func (s *Server) agentInfo(ctx context.Context, name string) (executor.AgentInfo, bool) {
	a, err := s.registry.Lookup(ctx, name)
	if code := parley.CodeOf(err); code == parley.CodeAgentUnavailable || code == parley.CodeAgentRejected {
		// That it cannot be called now changes nothing in what its record says.
		a, err = s.registry.Get(ctx, name)
	}
	switch {
	case err != nil && (parley.CodeOf(err) == parley.CodeUnavailable || ctx.Err() != nil):
		return executor.AgentInfo{Err: err}, false
	case err != nil || a.Name != name:
		return executor.AgentInfo{}, false
	}
	// The policy is frozen with the attempt, so the protocol's default is
	// settled here.
	return executor.AgentInfo{
		Protocol: a.Protocol, Retry: a.Retry, Policy: cmp.Or(a.OutcomeUnknown, bridge.DefaultPolicy(a.Protocol)),
		Idempotent: a.Idempotent,
	}, true
}

func (s *Server) knownAgent(ctx context.Context, name string) bool {
	_, err := s.registry.Lookup(ctx, name)
	return err == nil || parley.CodeOf(err) == parley.CodeAgentUnavailable // only its credential is missing
}
