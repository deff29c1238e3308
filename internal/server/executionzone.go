package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/api"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/execution"
	"github.com/parley-project/parley/internal/zone/zoneauth"
)

// ZoneProfile says which params of execute_task are required (see package zone).
type ZoneProfile = zone.Profile

// The profiles.
const (
	ZoneStrict  = zone.ProfileStrict
	ZoneRelaxed = zone.ProfileRelaxed
)

// ExecutionZone makes a server the Execution Zone of a zone connection as well
// (ZN-2…ZN-6): what execute_task asks for is a run of a workflow or a call of an
// agent. It needs the roles executor and bridge.
type ExecutionZone struct {
	// Listen is the address of /invocations and /ping, A2AListen that of the A2A
	// contract; "" is none for the latter.
	Listen, A2AListen string
	// Workflow or Agent is what tasks are for: a name, of one of the two.
	Workflow, Agent string
	Profile         ZoneProfile
	// SyncLimit is how long a caller waits before its task counts as accepted,
	// TaskLimit how long a task may take.
	SyncLimit, TaskLimit time.Duration
	// MaxTasks bounds the tasks in hand, MaxRequest and MaxResponse one message in
	// bytes.
	MaxTasks, MaxRequest, MaxResponse int
	// Public takes requests from everybody who reaches an address that others than
	// this machine reach.
	Public bool
	// Cert, Key and ClientCA are PEM files, "" for none; ClientCA makes a certificate
	// of every caller required.
	Cert, Key, ClientCA string
	// Bearer is a token that callers must have; Issuer and Audience want one of an
	// OIDC issuer.
	Bearer           parley.Secret
	Issuer, Audience string
}

// executionZone is the running zone of a server.
type executionZone struct {
	work      *zoneWork
	serving   *execution.Zone
	listeners []net.Listener
	servers   []*http.Server
}

// openZone opens the addresses of the Execution Zone, if this server is one.
func (s *Server) openZone(ctx context.Context) (err error) {
	cfg := s.cfg.Execution
	switch {
	case cfg == nil:
		return nil
	case !s.cfg.has(RoleExecutor) || !s.cfg.has(RoleBridge) || s.cfg.NoLedger:
		return parley.Errorf(parley.CodeInvalid, "an execution zone does its work itself: it needs the roles executor and bridge, and a database")
	}
	z := &executionZone{}
	s.zone = z
	if z.work, err = s.newZoneWork(ctx, cfg); err != nil {
		return err
	}
	authorize, err := cfg.authorize(s.cfg.Now)
	if err != nil {
		return err
	}
	secure, err := cfg.tls(s.cfg.Now)
	if err != nil {
		return err
	}
	addresses := []string{cfg.Listen}
	if cfg.A2AListen != "" {
		addresses = append(addresses, cfg.A2AListen)
	}
	for _, address := range addresses {
		ln, err := s.listenZone(ctx, address, secure)
		if err != nil {
			return err
		}
		z.listeners = append(z.listeners, ln)
	}
	z.serving = execution.New(execution.Config{
		Work: z.work, Profile: cfg.Profile, SyncLimit: cfg.SyncLimit, MaxBody: cfg.MaxRequest, MaxResponse: cfg.MaxResponse,
		MaxInFlight: cfg.MaxTasks, Card: s.zoneCard(z.work), Authorize: authorize,
		NewID: uuid.NewString, Now: s.cfg.Now, Logger: s.log,
	})
	for i, handler := range []http.Handler{z.serving.Handler(), z.serving.A2AHandler()}[:len(z.listeners)] {
		z.servers = append(z.servers, &http.Server{
			Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
			// What a task may be waited for, and a caller may take to send and to read.
			WriteTimeout:   cmp.Or(cfg.SyncLimit, execution.DefaultSyncLimit) + 2*time.Minute,
			MaxHeaderBytes: api.MaxHeaderBytes, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		})
		s.log.InfoContext(ctx, "execution zone", "address", z.listeners[i].Addr().String(), "profile", cfg.Profile, "tls", secure != nil, "authorized", authorize != nil)
	}
	return nil
}

// listenZone opens one address. One that others than this machine reach needs to
// know who calls, unless it is said that it need not.
func (s *Server) listenZone(ctx context.Context, address string, secure *tls.Config) (net.Listener, error) {
	cfg := s.cfg.Execution
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, parley.Errorf(parley.CodeUnavailable, "cannot listen on %s: %w (choose another address with --zone.execution.listen or a2a_listen)", address, err)
	}
	at, err := netip.ParseAddrPort(ln.Addr().String())
	if known := !cfg.Bearer.IsZero() || cfg.Issuer != "" || cfg.ClientCA != ""; !known && !cfg.Public && (err != nil || !at.Addr().IsLoopback()) {
		return nil, errors.Join(ln.Close(), parley.Errorf(parley.CodeInvalid,
			"the execution zone would take tasks from everybody who reaches %s: set zone.execution.auth.bearer, auth.oidc or tls.client_ca; or zone.execution.public, if the platform in front has checked who calls", address))
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	return ln, nil
}

// authorize gives the check of callers; nil lets everybody.
func (z *ExecutionZone) authorize(now func() time.Time) (func(*http.Request) error, error) {
	switch {
	case !z.Bearer.IsZero() && z.Issuer != "":
		return nil, parley.Errorf(parley.CodeInvalid, "zone.execution.auth has a bearer and an oidc issuer: keep one of them")
	case !z.Bearer.IsZero():
		return zoneauth.Bearer(z.Bearer)
	case z.Issuer != "":
		check, err := zoneauth.OIDC(zoneauth.OIDCConfig{Issuer: z.Issuer, Audience: z.Audience, Now: now})
		if err != nil {
			return nil, parley.Errorf(parley.CodeInvalid, "zone.execution.auth.oidc: %w", err)
		}
		return check, nil
	case z.Audience != "":
		return nil, parley.Errorf(parley.CodeInvalid, "zone.execution.auth.oidc.audience is set without an issuer")
	}
	return nil, nil //nolint:nilnil // nobody is asked
}

func (z *ExecutionZone) tls(now func() time.Time) (*tls.Config, error) {
	if z.Cert == "" && z.Key == "" && z.ClientCA == "" {
		return nil, nil //nolint:nilnil // nil is no TLS
	}
	cfg, err := zoneauth.ServerTLS{Cert: pemFile(z.Cert), Key: pemFile(z.Key), ClientCA: pemFile(z.ClientCA), Now: now}.Config()
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "zone.execution.tls: %w", err)
	}
	return cfg, nil
}

// pemFile reads a file each time that it is asked; nil for no file.
func pemFile(name string) zoneauth.PEM {
	if name == "" {
		return nil
	}
	return func() ([]byte, error) { return os.ReadFile(name) }
}

// zoneCard is the agent card of the zone.
func (s *Server) zoneCard(w *zoneWork) json.RawMessage {
	url, _ := s.cfg.LookupEnv("AGENTCORE_RUNTIME_URL") // what the platform calls it
	if url == "" {
		url = s.zoneURL(len(s.zone.listeners) - 1)
	}
	text := []string{"text/plain"}
	card, err := json.Marshal(map[string]any{
		"name": w.name, "description": w.description, "url": url, "version": s.cfg.Version, "protocolVersion": "0.3.0",
		"preferredTransport": "JSONRPC", "capabilities": map[string]any{"streaming": false, "pushNotifications": false},
		"defaultInputModes": text, "defaultOutputModes": text,
		"skills": []any{map[string]any{"id": zone.MethodExecuteTask, "name": w.name, "description": w.description, "tags": []string{}}},
	})
	if err != nil { // strings always encode
		return nil
	}
	return card
}

func (s *Server) zoneURL(i int) string {
	scheme := "http://"
	if s.cfg.Execution.Cert != "" {
		scheme = "https://"
	}
	return scheme + s.zone.listeners[i].Addr().String()
}

// ZoneURLs gives the base URLs of the Execution Zone: that of /invocations and, if
// there is one, that of the A2A contract.
func (s *Server) ZoneURLs() []string {
	if s.zone == nil {
		return nil
	}
	urls := make([]string, len(s.zone.listeners))
	for i := range urls {
		urls[i] = s.zoneURL(i)
	}
	return urls
}

// serve serves the addresses of the zone until they are closed.
func (z *executionZone) serve() error {
	var all errgroup.Group
	for i, server := range z.servers {
		all.Go(func() error {
			if err := server.Serve(z.listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				z.close() // one address is not half a zone
				return fmt.Errorf("execution zone: %w", err)
			}
			return nil
		})
	}
	return all.Wait()
}

// close frees the addresses; a server that ran has done that already.
func (z *executionZone) close() {
	for _, server := range z.servers {
		_ = server.Close()
	}
	for _, ln := range z.listeners {
		_ = ln.Close()
	}
}
