package server

import (
	"context"
	"net/url"
	"os"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/bus/notify"
)

// openBus makes what carries hints: Kafka, or a bus of this process, which goes
// over the database where others share that.
func (s *Server) openBus(ctx context.Context, metrics *prometheus.Registry) error {
	if s.cfg.Kafka != nil {
		return s.openKafka(ctx, metrics)
	}
	local := memory.New(memory.Options{Logger: s.log})
	s.bus, s.closeBus = local, local.Close
	if !s.cfg.shared() {
		return nil
	}
	s.notices = notify.New(notify.Config{DB: s.db, Local: local, Process: senderName(s.process), Now: s.cfg.Now, Logger: s.log})
	s.bus = s.notices
	count := func(name, help string, which func() int64) {
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(which()) }))
	}
	count("parley_notify_sent_total", "Hints sent to other processes over the database",
		func() int64 { sent, _, _ := s.notices.Counts(); return sent })
	count("parley_notify_received_total", "Hints received from other processes over the database",
		func() int64 { _, received, _ := s.notices.Counts(); return received })
	count("parley_notify_dropped_total", "Hints for other processes that were dropped",
		func() int64 { _, _, dropped := s.notices.Counts(); return dropped })
	return nil
}

func (s *Server) openKafka(ctx context.Context, metrics *prometheus.Registry) error {
	cfg := *s.cfg.Kafka
	cfg.Logger, cfg.Now, cfg.Used = s.log, s.cfg.Now, s.cfg.used()
	cfg.Written = s.cfg.Written()
	if cfg.Dialer == nil {
		cfg.Dialer = s.cfg.Dial
	}
	b, err := kafka.New(ctx, cfg)
	if err != nil {
		return err
	}
	s.kafka = b
	s.bus, s.closeBus = b, b.Close
	if err := s.lookAtTopics(ctx); err != nil {
		return err
	}
	return metrics.Register(b)
}

// busReady says whether hints reach other processes.
func (s *Server) busReady(ctx context.Context) error {
	switch {
	case s.kafka != nil:
		return s.kafka.Health(ctx)
	case s.notices != nil && !s.notices.Healthy():
		return parley.Errorf(parley.CodeUnavailable, "nothing is heard from the database's notifications: other processes are found by looking each second")
	}
	return nil
}

// localBus reports whether tasks stay within the process, so that they have to
// be published where the bridge is.
func (s *Server) localBus() bool { return s.notices != nil }

// announce asks the bridges' processes to publish open attempts.
func (s *Server) announce() {
	// The queue to other processes never blocks; the own one drops nothing that
	// the next look at the store does not find.
	if err := s.bus.Publish(context.Background(), bus.Message{Subject: bus.SubjectOpen}); err != nil {
		s.log.Debug("open attempts not announced", "error", err)
	}
}

// senderName names what a process sends over the database: with something random, since
// an instance id names two processes while the one replaces the other, and each would
// take for its own what comes from the other one. It is one word, and not long.
func senderName(process string) string {
	const most = 200
	name := url.PathEscape(process)
	if len(name) > most {
		name = name[:most]
	}
	return name + "/" + newToken()
}

// processName names this process to others: the configured instance, or the
// machine, the process and something random.
func processName(instance string) string {
	if instance != "" {
		return instance
	}
	host, err := os.Hostname()
	if err != nil || len(host) > 100 {
		host = "parley"
	}
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + newToken()[:8]
}
