package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/oldplatform"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/store"
)

// OldImport says where a database of the existing platform goes.
type OldImport struct {
	oldplatform.Options
	// Store is the postgres:// URL of Parley's own database; zero is the SQLite
	// file in the data folder.
	Store parley.Secret
	// Tell gets the notices, from one goroutine at a time.
	Tell func(oldplatform.Notice)
}

// ImportOld takes a database of the existing platform over, as
// [oldplatform.Import] says. On the data folder no server may run meanwhile,
// unless the store is elsewhere. Of cfg only Data, what is said of protocols and
// secrets, Logger, Now and LookupEnv matter.
//
// A dry run writes no record and seals no secret. Where there is no store it
// makes none; a PostgreSQL store has to have the newest schema for it.
func ImportOld(ctx context.Context, cfg Config, o OldImport) (report *oldplatform.Report, err error) {
	s := &Server{cfg: cfg.withDefaults()}
	s.log = s.cfg.Logger
	report = &oldplatform.Report{DryRun: o.DryRun}
	if o.DryRun {
		var keys string
		if keys, err = os.MkdirTemp("", "parley-dry-run-*"); err != nil {
			return report, fmt.Errorf("dry run: %w", err)
		}
		s.cfg.SealKeyFile = filepath.Join(keys, "agents.key")
		defer func() { err = errors.Join(err, os.RemoveAll(keys)) }()
		if _, err := os.Stat(filepath.Join(s.cfg.Data, "parley.db")); o.Store.IsZero() && errors.Is(err, os.ErrNotExist) {
			s.cfg.Data = keys
		}
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.openChecks()
	adapters := s.adapters(bridge.NewMetrics(prometheus.NewRegistry()))
	target := oldplatform.Target{
		Now: s.clock, Tell: o.Tell,
		Registry: func(db registry.Store) *registry.Registry { return s.registryOn(db, adapters) },
	}
	if err := oldplatform.Check(ctx, target, o.Options); err != nil {
		return report, err
	}
	if err := os.MkdirAll(s.cfg.Data, 0o700); err != nil {
		return report, fmt.Errorf("data folder: %w", err)
	}
	if err := s.openForImport(ctx, o); err != nil {
		return report, err
	}
	target.Store = s.db
	return oldplatform.Import(ctx, target, o.Options)
}

// openForImport opens the store: alone, if it is a file, and beside others, if it
// is a database that is shared.
func (s *Server) openForImport(ctx context.Context, o OldImport) (err error) {
	if o.Store.IsZero() {
		if s.lock, err = lockFolder(s.cfg.Data); err != nil {
			return err
		}
		return s.openStore(ctx)
	}
	s.db, err = store.Open(ctx, string(o.Store.Reveal()), store.Options{Now: s.cfg.Now, Logger: s.log})
	if err != nil {
		return err
	}
	if !o.DryRun {
		return s.db.Migrate(ctx)
	}
	steps, err := s.db.Status(ctx)
	if err == nil && slices.ContainsFunc(steps, func(m store.Migration) bool { return m.AppliedAt.IsZero() }) {
		err = parley.Errorf(parley.CodeConflict, "the schema of the store is older than this program, and a dry run does not change it: type parley migrate up first")
	}
	return err
}

// openChecks makes what the checks of agents need.
func (s *Server) openChecks() {
	s.exchange = bridge.NewExchange(bridge.ExchangeConfig{Now: s.cfg.Now, UserAgent: "parley/" + s.cfg.Version, SecretSeen: s.cfg.SecretSeen})
	s.openSecrets()
}
