package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// DatabaseLook is what a database says of itself.
type DatabaseLook = store.Look

// LookAtDatabase looks at what a server with these settings would work on, and
// changes nothing: a file that is not there is an error.
func LookAtDatabase(ctx context.Context, data string, url parley.Secret, now func() time.Time) (DatabaseLook, error) {
	return store.LookAt(ctx, target(data, url), store.Options{Now: now})
}

// Check refuses what [New] would refuse before it opens anything: settings that do
// not go together.
func (c Config) Check() error {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return err
	}
	_, err := egress(c.EgressAllow)
	return err
}

// AgentLook is what was found of an agent.
type AgentLook struct {
	parley.AgentCheck
	// Program says that the agent is a program of this machine, which was not
	// started to be asked.
	Program bool
	// Refused says that the egress policy keeps from the agent, for the reason in
	// Health.
	Refused bool
}

// Looker looks at agents as a server with its configuration would, without a
// database. Methods may be called concurrently; Close ends it.
type Looker struct {
	s    *Server
	keys string
}

// NewLooker makes a Looker. Of cfg only what is said of agents, egress and secrets
// matters. No key of the data folder is read or made: what is sealed is sealed with
// one that is thrown away.
func NewLooker(cfg Config) (_ *Looker, err error) {
	s := &Server{cfg: cfg.withDefaults()}
	s.cfg.Logger = slog.New(slog.DiscardHandler)
	s.log = s.cfg.Logger
	l := &Looker{s: s}
	if l.keys, err = os.MkdirTemp("", "parley-look-*"); err != nil {
		return nil, fmt.Errorf("looking at agents: %w", err)
	}
	s.cfg.SealKeyFile = filepath.Join(l.keys, "agents.key")
	if err := s.openExchange(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.openSecrets()
	s.registry = s.registryOn(&agentList{}, s.adapters(bridge.NewMetrics(prometheus.NewRegistry())))
	return l, nil
}

// Close frees what the looks took.
func (l *Looker) Close() error { return errors.Join(l.s.Close(), os.RemoveAll(l.keys)) }

// Agent looks at the agent that spec describes, and gives it no work. The error is
// a [*parley.Error]: the record is invalid, or how the agent is called cannot be
// found out.
func (l *Looker) Agent(ctx context.Context, spec parley.AgentSpec) (look AgentLook, err error) {
	if spec.URL != nil && strings.HasPrefix(strings.ToLower(*spec.URL), "stdio:") {
		if !l.s.cfg.AllowStdio {
			return look, parley.Errorf(parley.CodeInvalid, "it is a program of this machine, and egress.stdio does not let agents be that")
		}
		return AgentLook{Program: true}, nil
	}
	if spec.URL != nil {
		if err := l.dial(ctx, *spec.URL); err != nil {
			look.Refused = bridge.RefusedByEgress(err)
			look.Health.Message = "it cannot be reached: " + bridge.Cause(err)
			return look, nil // it is what was found
		}
	}
	agent, err := l.s.registry.Add(ctx, spec)
	if err != nil {
		return look, err
	}
	look.AgentCheck, err = l.s.registry.Check(ctx, agent.ID, "")
	return look, err
}

// dial opens a connection to where an agent is, and closes it. A URL that names no
// such place is left to who reads the record.
func (l *Looker) dial(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return nil //nolint:nilerr // the record is refused with better words
	}
	secure := u.Scheme == "https" || u.Scheme == "wss"
	port := u.Port()
	switch {
	case port != "":
	case secure:
		port = "443"
	default:
		port = "80"
	}
	conn, err := l.s.exchange.Dial(ctx, net.JoinHostPort(u.Hostname(), port), secure)
	if err != nil {
		return err
	}
	return conn.Close()
}
