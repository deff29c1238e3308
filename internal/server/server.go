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
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/api"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/bus/notify"
	"github.com/parley-project/parley/internal/deadletter"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/health"
	"github.com/parley-project/parley/internal/keyfile"
	"github.com/parley-project/parley/internal/push"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/retention"
	"github.com/parley-project/parley/internal/schedule"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/tracing"
	"github.com/parley-project/parley/internal/workflow/schemas"
)

// Server is a whole Parley in one process. New builds it, Run serves until its
// context ends; a Server runs once.
type Server struct {
	cfg Config
	log *slog.Logger

	// process names this process to others.
	process string
	lock    *folderLock // nil where others share the database
	// db, and with it catalog and executor, is nil in a bridge without a ledger.
	db  *store.DB
	bus bus.Bus
	// notices is the bus over PostgreSQL, kafka that over Kafka; nil without.
	notices  *notify.Bus
	kafka    *kafka.Bus
	closeBus func() error
	peers    peers
	registry *registry.Registry
	catalog  *executor.Catalog
	executor *executor.Executor
	// bridge is nil without that role, publisher where the executor publishes.
	bridge    *bridge.Bridge
	publisher *executor.Publisher
	letters   *deadletter.Keeper
	schedules *schedule.Book
	scheduler *schedule.Scheduler // nil without the role executor
	checker   *health.Checker     // nil where nobody looks at agents
	sweeper   *retention.Sweeper  // nil where all runs are kept
	exchange  *bridge.Exchange
	tracer    *tracing.Tracer // nil where spans go nowhere
	secrets   *registry.Secrets
	cards     *agentcard.Detector
	a2a       *a2a.Adapter
	push      *push.Receiver // nil without a PushURL
	zone      *executionZone // nil without an Execution Zone
	samples   *samples
	listener  net.Listener
	http      *http.Server
	key       parley.Secret
	// running: between the beginning and the end of all parts. begun is closed at
	// that beginning.
	running atomic.Bool
	begun   chan struct{}
	// stopping: no new work is taken any more; waitsEnd is closed then.
	stopping atomic.Bool
	waitsEnd chan struct{}
	// asking are looks at the database and the bus that nobody waits for any more.
	asking sync.WaitGroup
}

// New builds a server: it takes the data folder's lock unless the database is
// shared, brings the schema up to date or refuses it, declares the configured
// agents and workflows, and listens. Nothing runs before Run; Close is for a
// server that is never run. The error has code conflict if another process holds
// the folder or the schema is not the program's, invalid if the configuration
// does not go together.
func New(ctx context.Context, cfg Config) (s *Server, err error) {
	s = &Server{cfg: cfg.withDefaults(), begun: make(chan struct{}), waitsEnd: make(chan struct{})}
	s.log = s.cfg.Logger
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.cfg.check(); err != nil {
		return s, err
	}
	s.process = processName(s.cfg.Instance)
	if err := os.MkdirAll(s.cfg.Data, 0o700); err != nil {
		return s, fmt.Errorf("data folder: %w", err)
	}
	if !s.cfg.shared() && !s.cfg.NoLedger {
		if s.lock, err = lockFolder(s.cfg.Data); err != nil {
			return s, err
		}
	}
	if err := s.openStore(ctx); err != nil {
		return s, err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := s.openBus(ctx, metrics); err != nil {
		return s, err
	}
	if err := s.openTracer(ctx, metrics); err != nil {
		return s, err
	}
	if err := s.buildEngine(metrics); err != nil {
		return s, err
	}
	if err := s.declare(ctx); err != nil {
		return s, err
	}
	if err := s.openZone(ctx); err != nil {
		return s, err
	}
	return s, s.listen(ctx, metrics)
}

// databasePatience is how long a process that starts waits for its database: one
// that is just restarted, or whose standby takes over, is no reason to end. For a
// broker that cannot be reached it waits as long.
const databasePatience = 15 * time.Second

func (s *Server) openStore(ctx context.Context) (err error) {
	if s.cfg.NoLedger {
		return nil
	}
	o, err := s.storeOptions(ctx)
	if err != nil {
		return err
	}
	if s.db, err = store.Open(ctx, target(s.cfg.Data, s.cfg.DatabaseURL), o); err != nil {
		return err
	}
	if s.cfg.SchemaAsIs {
		err = checkSchema(ctx, s.db, s.lock != nil)
	} else {
		err = s.db.Migrate(ctx)
	}
	if err != nil {
		return err
	}
	return s.ownValues(ctx)
}

// clock gives the time that is recorded: that of the store, if there is one.
func (s *Server) clock() time.Time {
	if s.db == nil {
		return s.cfg.Now()
	}
	return s.db.Now()
}

// listen opens the address and builds its handler.
func (s *Server) listen(ctx context.Context, metrics *prometheus.Registry) (err error) {
	var handler http.Handler
	if s.cfg.has(RoleAPI) {
		if handler, err = s.buildAPI(metrics); err != nil {
			return err
		}
	}
	var lc net.ListenConfig
	if s.listener, err = lc.Listen(ctx, "tcp", s.cfg.Listen); err != nil {
		return parley.Errorf(parley.CodeUnavailable, "cannot listen on %s: %w (choose another address with --listen)", s.cfg.Listen, err)
	}
	s.http = &http.Server{
		Handler: s.handler(handler, metrics), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: api.MaxHeaderBytes, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return nil
}

func (s *Server) buildAPI(metrics *prometheus.Registry) (_ http.Handler, err error) {
	hint := "it is what auth.key of the server's configuration names"
	if s.key = s.cfg.Key; s.key.IsZero() {
		file := filepath.Join(s.cfg.Data, "key")
		if s.key, err = localKey(file); err != nil {
			return nil, err
		}
		hint = "the key of this server is in " + file
	}
	runs := runs{Executor: s.executor, db: s.db, admit: s.admit, log: s.log, agents: s.registry, slots: cmp.Or(s.cfg.MaxConcurrent, bridge.DefaultPerAgent)}
	return api.New(api.Config{
		Runs: runs, Controls: runs, Workflows: s.catalog, Releases: s.catalog, Agents: agents{s.registry, s.admit}, Audits: s.db, DeadLetters: s.letters, Schedules: s.schedules, Inbox: inbox{s.executor, s.db, s.admit}, Breakers: breakers{s.db, s.registry},
		Conditions: conditions{s.db, s.registry}, Archive: s.keeper(), Keys: keys{s.db}, Schema: schemas.Named,
		Key: s.key, AuthNone: s.cfg.AuthNone, KeyHint: hint, Hosts: hosts(s.cfg),
		Version: s.cfg.Version, Ready: s.ready, Stopping: s.waitsEnd, Now: s.cfg.Now, Logger: s.log, Limits: s.requestLimits(),
		Metrics: metricsHandler(metrics),
	})
}

// requestLimits are those of what requests bring that have settings: where runs and
// documents may be larger than by default, so may what asks for them.
func (s *Server) requestLimits() api.Limits {
	const most = 16 << 20 // the body of a start whose input is not larger than by default
	return api.Limits{
		Input: s.cfg.Limits.Value, ExecuteBody: max(most, 2*s.cfg.Limits.Value), Source: int64(s.cfg.Documents.SourceBytes),
	}
}

// ready reports whether requests can be served.
func (s *Server) ready(ctx context.Context) error {
	if err := s.admit(); err != nil {
		return err
	}
	if err := s.db.SchemaReady(); err != nil {
		return err
	}
	return s.databaseReady(ctx)
}

// admit refuses new work while the server is being stopped.
func (s *Server) admit() error {
	if s.stopping.Load() {
		return parley.Errorf(parley.CodeUnavailable, "this process is being stopped and takes no new work; send the request again: another process takes it, or this one when it has started anew")
	}
	return nil
}

// Key is the admin key; zero without the role api.
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

// localKey reads the key of a data folder, or makes one with mode 0600. Of
// several processes that start at a time one makes it.
func localKey(file string) (parley.Secret, error) {
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		if err := keyfile.Create(file, []byte("parley_"+newToken()+"\n")); err != nil {
			return parley.Secret{}, fmt.Errorf("local key: %w", err)
		}
	}
	b, err := os.ReadFile(file)
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
