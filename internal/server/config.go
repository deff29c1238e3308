package server

import (
	"log/slog"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/workflow"
)

// Config of a server. Data and Listen are required; everything else has a
// default for one machine.
type Config struct {
	// Data is the folder of the database, the keys and the endpoint file. It
	// is made with mode 0700 if it is not there.
	Data string
	// Listen is the address of the API, such as 127.0.0.1:8420; port 0 picks
	// a free one.
	Listen string
	// Samples starts two agents in the process and deploys workflow hello.
	Samples bool
	// AgentFiles are YAML files of agents (AD-12), declared at each start.
	AgentFiles []string
	// WorkflowDirs are folders whose .yaml, .yml and .json documents are
	// deployed at each start.
	WorkflowDirs []string
	// Logger gets every log line; default none.
	Logger *slog.Logger
	// Version is what /openapi.json and the User-Agent say.
	Version string

	// AuthNone opens the API to everybody who reaches the address.
	AuthNone bool
	// EgressAllow are the ranges besides the public ones that agents may be
	// at. Loopback is what `parley dev` allows.
	EgressAllow []string
	// SecretsDir and SecretsPrefix bound where secret references may point:
	// files below the folder, environment variables with the prefix.
	SecretsDir, SecretsPrefix string

	// Adapters are further protocols (AD-4, AD-14), by whose names agents may
	// choose them like those that are built in. A name that is taken is an
	// error of New.
	Adapters []NewAdapter

	// AllowStdio lets agent records name programs that this server runs
	// (stdio:PROGRAM ARGUMENTS), with the rights that it has itself: whoever may
	// register an agent may then run what they want here.
	AllowStdio bool
	// PushURL is where agents reach this server, such as
	// https://parley.example.com: they are asked to post there when a task goes
	// on (POST {PushURL}/a2a/push/{task}). "" is nowhere: they are asked instead.
	PushURL string

	// MaxConcurrent bounds the calls in flight to one agent that names no
	// limit; default 1,024.
	MaxConcurrent int
	// CancelGrace is language rule C3's setting; default 30 s.
	CancelGrace time.Duration
	// DrainGrace is how long calls in flight get to end when the server is
	// stopped; default 10 s.
	DrainGrace time.Duration
	// Limits of runs; the default is language.md §10.
	Limits workflow.RunLimits

	// Now, LookupEnv and Failpoint are how the outside world comes in.
	// Defaults: the clock, no environment, none.
	Now       func() time.Time
	LookupEnv func(string) (string, bool)
	Failpoint func(name string) error
	// SecretSeen is told every secret that was resolved, so that a log can
	// keep it out; nil is nobody.
	SecretSeen func(parley.Secret)
}

// NewAdapter makes the adapter of one more protocol. It calls through x, and
// writes to log and obs what every adapter does (package bridge, Wire).
type NewAdapter func(x *bridge.Exchange, log *slog.Logger, obs bridge.TranslationObserver) bridge.Adapter

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.LookupEnv == nil {
		c.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.SecretsPrefix == "" {
		c.SecretsPrefix = "PARLEY_SECRET_"
	}
	if c.DrainGrace == 0 {
		c.DrainGrace = 10 * time.Second
	}
	return c
}
