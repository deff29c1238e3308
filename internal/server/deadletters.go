package server

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/deadletter"
)

// buildDeadLetters makes what keeps that which was given up. Copies go out where
// others may watch a topic of them.
func (s *Server) buildDeadLetters(metrics *prometheus.Registry) error {
	counts, err := deadletter.NewMetrics(metrics)
	if err != nil {
		return err
	}
	s.letters = deadletter.New(deadletter.Config{
		DB: s.db, Bus: s.bus, Retry: s.executor.Replay, Admit: s.admit, Copies: s.kafka != nil,
		Now: s.cfg.Now, Logger: s.log, Metrics: counts,
	})
	return nil
}

// keepRecord keeps a record that cannot be handled, or a foreign task that has
// failed for good. Without a store the topic of dead letters is their home.
func (s *Server) keepRecord(ctx context.Context, d bus.DeadLetter) error {
	if s.letters != nil {
		return s.letters.Keep(ctx, d)
	}
	err := deadletter.Forward(s.bus, s.cfg.Now)(ctx, d)
	if code := parley.CodeOf(err); code != parley.CodeNotFound && code != parley.CodeUnauthorized && code != parley.CodeLimit {
		return err
	}
	// It would never succeed, and other tasks would wait for it.
	s.log.Error("a dead letter is lost: there is no topic for it, or it is too large", "event", "dead_letter_lost", "code", d.Code, "reason", d.Reason,
		"agent", d.Agent, "run", d.Run, "task_id", d.Task, "topic", d.Message.At.Topic, "partition", d.Message.At.Partition,
		"offset", d.Message.At.Offset, "error", err)
	return nil
}
