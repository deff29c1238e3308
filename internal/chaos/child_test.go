package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// childEnv holds, as JSON, what a process of the cluster is to be. A test binary
// that finds it is that process: the real server, with a dialer that goes
// through the proxies.
const childEnv = "PARLEY_CHAOS_CHILD"

// childSpec is one process of the cluster.
type childSpec struct {
	Name     string
	Roles    []server.Role
	Data     string
	Listen   string
	Database string
	Brokers  []string
	Key      string
	Seal     string // the file of the key that all share
	Workflow string // the folder of the workflows
	Agents   string // the file of the agents
	// Routes are the proxies by the addresses that they stand before.
	Routes map[string]string
	// Skew is how far the clock is ahead.
	Skew time.Duration
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := child([]byte(text)); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child serves until it is asked to end, or its parent has ended.
func child(text []byte) error {
	var spec childSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the parent is gone
	}()
	s, err := server.New(ctx, spec.config())
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func (c childSpec) config() server.Config {
	cfg := server.Config{
		Data: c.Data, Roles: c.Roles, Listen: c.Listen, Instance: c.Name, DatabaseURL: parley.NewSecret([]byte(c.Database)),
		Key: parley.NewSecret([]byte(c.Key)), SealKeyFile: c.Seal, PushKeyFile: c.Seal + ".push", SchemaAsIs: true,
		EgressAllow: []string{"127.0.0.0/8"}, DrainGrace: 10 * time.Second, Dial: c.dial,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if c.Skew != 0 {
		cfg.Now = func() time.Time { return time.Now().Add(c.Skew) }
	}
	if len(c.Brokers) > 0 {
		cfg.Kafka = &server.KafkaConfig{Brokers: c.Brokers, InstanceID: c.Name, Topics: server.KafkaTopics(server.TopicNames{})}
	}
	// What is declared is in the database from the first executor on.
	if c.Agents != "" {
		cfg.AgentFiles, cfg.WorkflowDirs = []string{c.Agents}, []string{c.Workflow}
	}
	return cfg
}

// dial goes through the proxy that stands before address.
func (c childSpec) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if route := c.Routes[address]; route != "" {
		address = route
	}
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
}
