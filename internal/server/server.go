// Package server is the composition root: it builds everything from one
// [Config], runs it under one owner, and stops it in reverse order. No other
// package knows all the parts.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/api"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/push"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/store"
)

// Server is a whole Parley in one process. New builds it, Run serves until its
// context ends; a Server runs once.
type Server struct {
	cfg Config
	log *slog.Logger

	lock     *folderLock
	db       *store.DB
	bus      *memory.Bus
	registry *registry.Registry
	catalog  *executor.Catalog
	executor *executor.Executor
	bridge   *bridge.Bridge
	exchange *bridge.Exchange
	secrets  *registry.Secrets
	cards    *agentcard.Detector
	a2a      *a2a.Adapter
	push     *push.Receiver // nil without a PushURL
	samples  *samples
	listener net.Listener
	http     *http.Server
	key      parley.Secret
}

// New builds a server: it takes the data folder's lock, migrates the database,
// declares the configured agents and workflows, and listens. Nothing runs
// before Run; Close is for a server that is never run. The error has code
// conflict if another process holds the folder.
func New(ctx context.Context, cfg Config) (s *Server, err error) {
	s = &Server{cfg: cfg.withDefaults()}
	s.log = s.cfg.Logger
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := os.MkdirAll(s.cfg.Data, 0o700); err != nil {
		return s, fmt.Errorf("data folder: %w", err)
	}
	if s.lock, err = lockFolder(s.cfg.Data); err != nil {
		return s, err
	}
	if err := s.openStore(ctx); err != nil {
		return s, err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := s.buildEngine(metrics); err != nil {
		return s, err
	}
	if err := s.declare(ctx); err != nil {
		return s, err
	}
	return s, s.listen(ctx, metrics)
}

func (s *Server) openStore(ctx context.Context) (err error) {
	s.db, err = store.Open(ctx, filepath.Join(s.cfg.Data, "parley.db"), store.Options{
		Now: s.cfg.Now, Logger: s.log, Failpoint: s.cfg.Failpoint,
	})
	if err != nil {
		return err
	}
	return s.db.Migrate(ctx)
}

// buildEngine makes registry, bridge and executor and ties the last two
// together: one reserves slots of the other, the other hands its answers back,
// so that answer, decision and next claim are one write (protocol.md §6).
func (s *Server) buildEngine(metrics *prometheus.Registry) (err error) {
	s.bus = memory.New(memory.Options{Logger: s.log})
	observed := bridge.NewMetrics(metrics)
	allowed, err := egress(s.cfg.EgressAllow)
	if err != nil {
		return err
	}
	s.exchange = bridge.NewExchange(bridge.ExchangeConfig{
		Now: s.cfg.Now, Egress: allowed, UserAgent: "parley/" + s.cfg.Version, SecretSeen: s.cfg.SecretSeen,
		Renew: func(ctx context.Context, a parley.Agent) (parley.Agent, error) { return s.registry.Renew(ctx, a) },
	})
	if err := s.openPush(); err != nil {
		return err
	}
	s.openSecrets()
	adapters := s.adapters(observed)
	s.registry = s.newRegistry(adapters)
	s.executor = executor.New(executor.Config{
		Store: s.db, Bus: s.bus, Now: s.cfg.Now, Logger: s.log, Limits: s.cfg.Limits,
		NewID:  func() string { return "run-" + newUUID() },
		Jitter: mathrand.Float64, CancelGrace: s.cfg.CancelGrace,
		Reserve: s.reserve, Agent: s.agentInfo,
	})
	s.catalog = executor.NewCatalog(executor.CatalogConfig{
		DB: s.db, Executor: s.executor, Now: s.cfg.Now, NewID: newUUID, KnownAgent: s.knownAgent,
	})
	s.bridge, err = bridge.New(bridge.Config{
		Worker: "bridge", Ledger: ledger{DB: s.db, executor: s.executor}, Agents: s.registry, Bus: s.bus,
		Adapters: adapters, Now: s.cfg.Now, NewToken: newToken, Logger: s.log, Metrics: observed,
		Limits:      bridge.Limits{PerAgent: s.cfg.MaxConcurrent},
		AnswerWakes: true, Progress: s.executor.TakeProgress,
		DrainGrace: s.cfg.DrainGrace, Failpoint: s.cfg.Failpoint,
	})
	return err
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

func (s *Server) agentInfo(ctx context.Context, name string) (executor.AgentInfo, bool) {
	a, err := s.registry.Lookup(ctx, name)
	if err != nil {
		return executor.AgentInfo{}, false
	}
	// The policy is frozen with the attempt, so the protocol's default is
	// settled here.
	return executor.AgentInfo{
		Protocol: a.Protocol, Retry: a.Retry, Policy: cmp.Or(a.OutcomeUnknown, bridge.DefaultPolicy(a.Protocol)),
	}, true
}

func (s *Server) knownAgent(ctx context.Context, name string) bool {
	_, err := s.registry.Lookup(ctx, name)
	return err == nil
}

// listen opens the API's address and builds its handler.
func (s *Server) listen(ctx context.Context, metrics *prometheus.Registry) (err error) {
	if s.key, err = localKey(filepath.Join(s.cfg.Data, "key")); err != nil {
		return err
	}
	handler, err := api.New(api.Config{
		Runs: runs{Executor: s.executor, db: s.db}, Workflows: s.catalog, Agents: agents{s.registry},
		Key: s.key, AuthNone: s.cfg.AuthNone, KeyHint: "the key of this server is in " + filepath.Join(s.cfg.Data, "key"),
		Version: s.cfg.Version, Ready: s.ready, Now: s.cfg.Now, Logger: s.log,
		Metrics: promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}),
	})
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	if s.listener, err = lc.Listen(ctx, "tcp", s.cfg.Listen); err != nil {
		return parley.Errorf(parley.CodeUnavailable, "cannot listen on %s: %w (choose another address with --listen)", s.cfg.Listen, err)
	}
	s.http = &http.Server{
		Handler: s.withPush(handler), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: api.MaxHeaderBytes, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return nil
}

// ready reports whether requests can be served.
func (s *Server) ready(ctx context.Context) error {
	_, err := s.db.SchemaVersion(ctx)
	return err
}

// URL is where the API is served.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Key is the local admin key.
func (s *Server) Key() parley.Secret { return s.key }

// Executor gives the engine, for programs that embed a server.
func (s *Server) Executor() *executor.Executor { return s.executor }

// Samples describes the sample agents, if they were asked for.
func (s *Server) Samples() []parley.Agent {
	if s.samples == nil {
		return nil
	}
	return s.samples.records
}

// SyncedCommits counts the store's synced writes so far.
func (s *Server) SyncedCommits() int64 { return s.db.SyncedCommits() }

// localKey reads the key of a data folder, or makes one with mode 0600.
func localKey(file string) (parley.Secret, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		b = []byte("parley_" + newToken())
		err = os.WriteFile(file, append(b, '\n'), 0o600)
	}
	if err != nil {
		return parley.Secret{}, fmt.Errorf("local key: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" {
		return parley.Secret{}, parley.Errorf(parley.CodeInvalid, "the key file %s is empty; remove it and start again", file)
	}
	return parley.NewSecret([]byte(key)), nil
}

func newToken() string {
	b := make([]byte, 16)
	// crypto/rand.Read never fails.
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

func newUUID() string { return uuid.Must(uuid.NewV7()).String() }
