package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley/internal/archive"
	"github.com/parley-project/parley/internal/retention"
)

// RetentionRule says how long runs are kept that are over; 0 is for ever.
type RetentionRule = retention.Rule

// Retention says how long runs are kept that are over. The zero value keeps all.
type Retention struct {
	// Rule is that of workflows which Workflows does not name by their ids.
	Rule      RetentionRule
	Workflows map[string]RetentionRule
	// Every is the time between two looks; default 10 min.
	Every time.Duration
	// Archive is the folder that runs are written to before they are removed; "" is
	// none.
	Archive string
}

// buildRetention makes what removes runs, in a process with the role executor.
func (s *Server) buildRetention(metrics *prometheus.Registry) {
	if s.db == nil || !s.cfg.has(RoleExecutor) {
		return
	}
	r := s.cfg.Retention
	cfg := retention.Config{
		DB: s.db, Now: s.db.Now, Clock: s.cfg.Now, Every: r.Every, Holder: s.process + "/" + newToken(), Rule: r.Rule, Workflows: r.Workflows,
		Logger: s.log,
	}
	if cfg.None() {
		return
	}
	cfg.Metrics = retention.NewMetrics(metrics)
	if r.Archive != "" {
		cfg.Archive = &archive.Folder{Dir: r.Archive}
		if s.cfg.shared() {
			cfg.Archive.Name = s.process
		}
	}
	s.sweeper = retention.New(cfg)
}

// runRetention removes runs until ctx ends.
func (s *Server) runRetention(ctx context.Context) error {
	if s.sweeper == nil {
		<-ctx.Done()
		return nil
	}
	return s.sweeper.Run(ctx)
}

// keeper takes runs out of the database and brings them in.
func (s *Server) keeper() *archive.Keeper {
	return &archive.Keeper{DB: s.db, Check: s.executor.CheckArchived, Now: s.db.Now, Admit: s.admit}
}
