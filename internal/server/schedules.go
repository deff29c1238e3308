package server

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley/internal/schedule"
)

// buildSchedules makes what keeps schedules, and in a process with the role
// executor what fires them.
func (s *Server) buildSchedules(metrics *prometheus.Registry) {
	cfg := schedule.Config{
		DB: s.db, Now: s.db.Now, NewID: newUUID, Start: s.executor.Start, Cancel: s.executor.Cancel, MaxInput: s.cfg.Limits.Value, Logger: s.log,
	}
	if s.cfg.has(RoleExecutor) {
		cfg.Metrics = schedule.NewMetrics(metrics)
		s.scheduler = schedule.New(cfg)
		s.schedules = schedule.NewBook(cfg, s.scheduler.Wake)
		return
	}
	s.schedules = schedule.NewBook(cfg, nil)
}

// workflowsChanged makes the schedules of definitions agree at once. Where that
// fails, a scheduler does it later.
func (s *Server) workflowsChanged(ctx context.Context) {
	if err := s.schedules.Changed(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("the schedules of what was deployed are not there yet; it is tried again", "event", "schedule", "error", err)
	}
}

// runScheduler fires schedules until ctx ends.
func (s *Server) runScheduler(ctx context.Context) error {
	if s.scheduler == nil {
		<-ctx.Done()
		return nil
	}
	return s.scheduler.Run(ctx)
}
