package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/api"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/verification"
)

// What a Verification Zone is made of (see package verification).
type (
	ZoneSlack  = verification.Slack
	ZoneLimits = verification.Limits
	ZoneTiming = verification.Timing
	// SlackStatus is what people see meanwhile.
	SlackStatus = verification.Status
)

// The ways in which Slack's events come.
const (
	SlackHTTP   = verification.ModeHTTP
	SlackSocket = verification.ModeSocket
)

// VerificationConfig of a process that is a Verification Zone: it takes questions
// from Slack, has them answered by an Execution Zone, and posts the answers (ZN-7).
type VerificationConfig struct {
	// Data is the folder of the database, unless DatabaseURL names one; DatabaseCurrent
	// and SchemaAsIs are those of [Config].
	Data            string
	DatabaseURL     parley.Secret
	DatabaseCurrent func() (string, error)
	SchemaAsIs      bool
	// Listen is the address of /slack/events, the health checks and the metrics;
	// port 0 picks a free one.
	Listen string
	Slack  ZoneSlack
	Limits ZoneLimits
	Timing ZoneTiming
	// Profile says whether the bot token goes to the other zone.
	Profile ZoneProfile
	// Transport is how the other zone is called.
	Transport ZoneTransport
	// Language of the texts for people, and those that replace some of them.
	Language string
	Texts    map[string]string
	Logger   *slog.Logger
	// Now is the clock; default that of the machine.
	Now func() time.Time
}

// Verification is a running Verification Zone. NewVerification builds it, Run
// serves until its context ends; it runs once.
type Verification struct {
	log       *slog.Logger
	lock      *folderLock // nil where others share the database
	db        *store.DB
	transport closingTransport
	zone      *verification.Zone
	listener  net.Listener
	http      *http.Server
}

// NewVerification builds a Verification Zone and listens; nothing runs before Run,
// Close is for one that is never run. The error has code invalid if the
// configuration does not go together, conflict if another process holds the data
// folder.
func NewVerification(ctx context.Context, cfg VerificationConfig) (v *Verification, err error) {
	v = &Verification{log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.Close())
		}
	}()
	if err := checkAddress("--zone.verification.listen", cfg.Listen); err != nil {
		return v, err
	}
	if v.transport, err = cfg.Transport.open(ctx, v.log, cfg.Now); err != nil {
		return v, err
	}
	if err := v.openStore(ctx, cfg); err != nil {
		return v, err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	v.zone, err = verification.New(verification.Config{
		DB: v.db, Alone: v.lock != nil,
		Execution: zone.NewClient(zone.ClientConfig{Transport: v.transport, Profile: cfg.Profile, NewID: uuid.NewString, MaxResponse: cfg.Transport.MaxResponse}),
		Slack:     cfg.Slack, Limits: cfg.Limits, Timing: cfg.Timing, Profile: cfg.Profile,
		Language: cfg.Language, Texts: cfg.Texts, Now: cfg.Now, NewID: uuid.NewString, Random: mathrand.Float64,
		Logger: v.log, Metrics: metrics,
	})
	if err != nil {
		return v, err
	}
	return v, v.listen(ctx, cfg.Listen, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
}

func (v *Verification) openStore(ctx context.Context, cfg VerificationConfig) (err error) {
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if cfg.DatabaseURL.IsZero() {
		if v.lock, err = lockFolder(cfg.Data); err != nil {
			return err
		}
	}
	v.db, err = store.Open(ctx, target(cfg.Data, cfg.DatabaseURL), store.Options{
		Now: cfg.Now, Logger: v.log, Patience: databasePatience, Current: cfg.DatabaseCurrent,
	})
	if err != nil {
		return err
	}
	if cfg.SchemaAsIs {
		return checkSchema(ctx, v.db, v.lock != nil)
	}
	return v.db.Migrate(ctx)
}

func (v *Verification) listen(ctx context.Context, address string, metrics http.Handler) (err error) {
	var lc net.ListenConfig
	if v.listener, err = lc.Listen(ctx, "tcp", address); err != nil {
		return parley.Errorf(parley.CodeUnavailable, "cannot listen on %s: %w (choose another address with --zone.verification.listen)", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/slack/", v.zone.Handler())
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := v.db.Ping(r.Context()); err != nil {
			http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	v.http = v.server(mux)
	return nil
}

// server serves h to others who may be slow, but not for ever.
func (v *Verification) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		WriteTimeout:   time.Minute, // all answers are short and soon there
		MaxHeaderBytes: api.MaxHeaderBytes, ErrorLog: slog.NewLogLogger(v.log.Handler(), slog.LevelDebug),
	}
}

// URL is the base URL of the zone's address.
func (v *Verification) URL() string { return "http://" + v.listener.Addr().String() }

// Run serves until ctx ends or a part fails. Questions that have no answer then go
// on when the zone is started again.
func (v *Verification) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, v.Close()) }()
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return v.zone.Run(ctx) })
	parts.Go(func() error {
		if err := v.http.Serve(v.listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	parts.Go(func() error {
		var failed error
		select {
		case <-ctx.Done():
		case <-v.db.Fatal():
			failed = parley.Errorf(parley.CodeUnavailable, "the disk of the database failed; look at it, then start again")
		}
		const grace = 3 * time.Second // what Slack waits for an answer
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		return errors.Join(failed, v.http.Shutdown(shutdown))
	})
	return parts.Wait()
}

// Close frees what NewVerification took. Run calls it; it may be called again.
func (v *Verification) Close() error {
	var errs []error
	if v.listener != nil {
		_ = v.listener.Close() // closed already by a zone that ran
	}
	if v.db != nil {
		errs = append(errs, v.db.Close())
	}
	if v.transport != nil {
		v.transport.Close()
	}
	if v.lock != nil {
		errs = append(errs, v.lock.release())
		v.lock = nil
	}
	return errors.Join(errs...)
}
