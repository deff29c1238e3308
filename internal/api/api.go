package api

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/parley-project/parley"
)

// MaxHeaderBytes bounds the header of a request: the handler refuses more, and
// a server should set its own limit to the same.
const MaxHeaderBytes = 64 << 10

// configured stands for the configured key as the author of changes; the existing
// platform writes this name too.
const configured = "system"

// Limits bound what one request may cost. Zero members take the default.
type Limits struct {
	// ExecuteBody bounds the body of a start, in bytes; default 16 MiB.
	ExecuteBody int64
	// Input bounds one input value, in bytes; default 8 MiB.
	Input int64
	// Answer bounds the body of an answer to an agent, in bytes; default 2 MiB
	// (of which the answer is at most 1 MiB).
	Answer int64
	// Source bounds a workflow document, in bytes; default 1 MiB.
	Source int64
	// Hook bounds the body of a delivery to a webhook, in bytes; default 1 MiB.
	Hook int64
	// Body bounds every other body, in bytes; default 256 KiB.
	Body int64
	// Archive bounds the body of an import of runs, in bytes; default 576 MiB, of which
	// one line may have all.
	Archive int64
	// Streams bounds the event streams and waiting starts that are open at
	// once; default 256.
	Streams int
	// Wait bounds a waiting start; default 5 min.
	Wait time.Duration
	// Heartbeat is the time between two signs of life on an event stream;
	// default 15 s.
	Heartbeat time.Duration
	// IO bounds the reading of one body, and the writing of one event or of 256 KiB
	// of another answer to a client that does not read; default 60 s.
	IO time.Duration
}

// Config is what the API is made of. All views but Audits are required.
type Config struct {
	Runs Runs
	// Controls steer runs.
	Controls  Controls
	Workflows Workflows
	// Releases are the aliases and the deprecated versions of workflows.
	Releases Releases
	Agents   Agents
	// DeadLetters is what was given up.
	DeadLetters DeadLetters
	// Inbox takes events, and knows what waits for people.
	Inbox Inbox
	// Schedules start runs at times.
	Schedules Schedules
	// Breakers are the circuit breakers and the logs of agents.
	Breakers Breakers
	// Conditions say how agents do.
	Conditions Conditions
	// Archive takes runs out and brings them in.
	Archive Archive
	// Audits may be nil: then there are none.
	Audits Audits

	// Key is the configured admin key, required unless AuthNone. Keys are the others.
	Key  parley.Secret
	Keys Keys
	// AuthNone lets everybody in, for old clients.
	AuthNone bool
	// KeyHint ends the sentence of a 401 for callers on this machine: where to get
	// a key. Others are not told about its files.
	KeyHint string
	// Hosts are accepted in the Host header besides loopback names and
	// addresses: names or addresses, without a port.
	Hosts []string

	// Schema gives the JSON Schema of a kind of document that people write; nil has
	// none.
	Schema func(name string) (schema []byte, ok bool)

	// Version is the product's version.
	Version string
	// Ready says whether requests can be served; nil is always.
	Ready requestCheck
	// Stopping is closed when the server begins to stop: whoever waits for the end of a
	// run is answered then with the run as it is. Nil never is.
	Stopping <-chan struct{}
	// Metrics adds to GET /metrics, which always has api_info and
	// api_uptime_seconds. It must answer in Prometheus' text format.
	Metrics http.Handler

	// Now is the clock; nil is the wall clock.
	Now func() time.Time
	// NewID makes correlation ids; nil makes random UUIDs.
	NewID func() string
	// Logger gets what callers must not see; nil discards it.
	Logger *slog.Logger
	Limits Limits
}

// server holds what the handlers share. Nothing in it changes after New but
// the slots.
type server struct {
	cfg     Config
	mux     *http.ServeMux
	routes  []route
	public  map[string]bool
	hosts   map[string]bool
	cross   *http.CrossOriginProtection
	started time.Time
	// slots holds one value for each open stream or wait.
	slots chan struct{}
	// ring knows the keys that were used of late.
	ring *keyring
	// hooks holds one value for each delivery that is looked at.
	hooks chan struct{}
	// document gives the OpenAPI document as JSON. It is made when it is first asked
	// for: making it takes longer than the rest of a start.
	document func() ([]byte, error)
}

// New builds the handler of the whole REST interface. It starts nothing and
// needs no Close. The error says what is missing in the configuration.
func New(cfg Config) (http.Handler, error) {
	s, err := newServer(cfg)
	if err != nil {
		return nil, err
	}
	return s.handler(), nil
}

func newServer(cfg Config) (*server, error) {
	if cfg.Runs == nil || cfg.Controls == nil || cfg.Workflows == nil || cfg.Releases == nil || cfg.Agents == nil || cfg.DeadLetters == nil || cfg.Inbox == nil || cfg.Schedules == nil || cfg.Breakers == nil || cfg.Conditions == nil || cfg.Archive == nil || cfg.Keys == nil {
		return nil, errors.New("api: Runs, Controls, Workflows, Releases, Agents, DeadLetters, Inbox, Schedules, Breakers, Conditions, Archive and Keys are required")
	}
	if cfg.Key.IsZero() && !cfg.AuthNone {
		return nil, errors.New("api: a key is required unless authentication is switched off")
	}
	cfg.fill()
	s := &server{
		cfg:     cfg,
		mux:     http.NewServeMux(),
		public:  map[string]bool{},
		hosts:   map[string]bool{},
		cross:   http.NewCrossOriginProtection(),
		started: cfg.Now(),
		slots:   make(chan struct{}, cfg.Limits.Streams),
		hooks:   make(chan struct{}, hookReaders),
		ring:    newKeyring(cfg.Keys, cfg.Now),
	}
	for _, h := range cfg.Hosts {
		s.hosts[strings.ToLower(strings.Trim(h, "[]"))] = true
	}
	s.register()
	return s, nil
}

func (c *Config) fill() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = uuid.NewString
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.KeyHint == "" {
		c.KeyHint = keyHint
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	l := &c.Limits
	l.ExecuteBody = orDefault(l.ExecuteBody, 16<<20)
	l.Input = orDefault(l.Input, 8<<20)
	l.Answer = orDefault(l.Answer, 2<<20)
	l.Source = orDefault(l.Source, 1<<20)
	l.Hook = orDefault(l.Hook, 1<<20)
	l.Body = orDefault(l.Body, 256<<10)
	l.Archive = orDefault(l.Archive, 576<<20)
	l.Streams = orDefault(l.Streams, 256)
	l.Wait = orDefault(l.Wait, 5*time.Minute)
	l.Heartbeat = orDefault(l.Heartbeat, 15*time.Second)
	l.IO = orDefault(l.IO, time.Minute)
}

func orDefault[T int | int64 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// now gives the time as answers carry it: UTC, in microseconds.
func (s *server) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Microsecond) }

// hostAllowed reports whether the request was meant for us by its Host header: one of
// a page that made a browser resolve its own name to our address was not.
func (s *server) hostAllowed(r *http.Request) bool {
	name := r.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || s.hosts[name] {
		return true
	}
	return loopback(name) || calledAt(r, name)
}

// calledAt reports whether name is the address at which the request has reached this
// process, as that of probes and scrapers is.
func calledAt(r *http.Request, name string) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	addr, err := netip.ParseAddr(name)
	return ok && err == nil && addr.Unmap() == at.AddrPort().Addr().Unmap().WithZone("")
}

func loopback(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && addr.Unmap().IsLoopback()
}

// takeBatch is take for a batch, which takes its time: many of them would leave none
// for others.
func (s *server) takeBatch() (release func(), err error) {
	release, ok := s.take()
	if !ok {
		return nil, parley.Errorf(parley.CodeUnavailable, "too many requests wait already; try again")
	}
	return release, nil
}

// take gives a slot for a stream or a wait, and false if all are in use. The
// caller calls release when it is done.
func (s *server) take() (release func(), ok bool) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, true
	default:
		return nil, false
	}
}
