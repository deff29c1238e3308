package server

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/workflow"
)

// Config of a server. Data and Listen are required; everything else has a
// default for one machine.
type Config struct {
	// Data is the folder of the keys, the endpoint file and, without a
	// DatabaseURL, of the database. It is made with mode 0700 if it is not there.
	Data string
	// Roles are what this process does; default all of them.
	Roles []Role
	// DatabaseURL is a postgres:// URL; zero is an SQLite file in Data, which one
	// process has for itself.
	DatabaseURL parley.Secret
	// DatabaseCurrent gives DatabaseURL as it is now: each new connection has the user
	// and the password of that. Default: those of DatabaseURL.
	DatabaseCurrent func() (string, error)
	// Values says which values are kept apart from the database, and where.
	Values ValuesConfig
	// SchemaAsIs refuses a database whose schema is older than this program;
	// otherwise it is brought up to date.
	SchemaAsIs bool
	// Kafka is the bus between processes; nil is one within the process, which
	// goes over the PostgreSQL database where that is shared.
	Kafka *kafka.Config
	// OldBridge hands tasks to a bridge of the existing platform, Requests starts
	// and cancels runs by its request topics; both by Kafka only.
	OldBridge, Requests bool
	// NoLedger runs the role bridge without a database, for executors of the
	// existing platform: the only role then, by Kafka only.
	NoLedger bool
	// Lookup is where such a bridge finds agents that are not declared.
	Lookup LookupURLs
	// BridgeGroup shares the tasks among bridges, ExecutorGroup the runs among
	// executors, RequestGroup the requests; default parley-executor for runs, else
	// those of the existing platform, so that what was left running is noticed.
	BridgeGroup, ExecutorGroup, RequestGroup string
	// Instance names this process to others and stays over restarts: what its
	// bridge had claimed is its own again at once. "" is a new name for each
	// start where others share the database.
	Instance string
	// Listen is the address of the API, such as 127.0.0.1:8420; port 0 picks
	// a free one.
	Listen string
	// Samples starts two agents in the process and deploys workflow hello.
	Samples bool
	// AgentSpecs are declared at each start, besides those of AgentFiles.
	AgentSpecs []parley.AgentSpec
	// AgentFiles are YAML files of agents (AD-12), declared at each start.
	AgentFiles []string
	// WorkflowDirs are folders whose .yaml, .yml and .json documents are
	// deployed at each start, but for hidden ones.
	WorkflowDirs []string
	// Traces says where spans of runs, steps and calls are sent; nil is nowhere.
	Traces *Traces
	// Logger gets every log line; default none.
	Logger *slog.Logger
	// Version is what /openapi.json and the User-Agent say.
	Version string

	// AuthNone opens the API to everybody who reaches the address, which must be
	// this machine's own unless AuthNoneAnywhere.
	AuthNone, AuthNoneAnywhere bool
	// Key is the admin key of the API; zero is that of the data folder, which is
	// made if there is none.
	Key parley.Secret
	// Hosts are accepted in the Host header besides loopback names.
	Hosts []string
	// EgressAllow are the ranges besides the public ones that agents may be
	// at. Loopback is what `parley dev` allows.
	EgressAllow []string
	// SecretsDir and SecretsPrefix bound where secret references may point:
	// files below the folder, environment variables with the prefix.
	SecretsDir, SecretsPrefix string
	// SealKeyFile seals literal credentials of agents, PushKeyFile makes the
	// tokens of PushURL. Processes that share a database need the same. Default:
	// in Data.
	SealKeyFile, PushKeyFile string

	// EventChain bounds the runs that follow from each other by the events that they
	// publish; default 32.
	EventChain int

	// Execution makes this server an Execution Zone as well; nil does not.
	Execution *ExecutionZone

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
	// limit; default 1,024. MaxCalls bounds those of the whole bridge, and
	// MaxFollowing the tasks that it follows (see package bridge, Limits).
	MaxConcurrent, MaxCalls, MaxFollowing int
	// MaxRequestBytes bounds the bytes of the requests that wait or are in hand in
	// the bridge; default 256 MiB.
	MaxRequestBytes int64
	// Exchange bounds each exchange with an agent, except for MaxIdle, which
	// follows MaxCalls; ConnectionAge is how long a connection to one is used, 0
	// is the default (see package bridge, ExchangeConfig).
	Exchange      ExchangeLimits
	ConnectionAge time.Duration
	// Breaker is that of agents whose records name none; nil is none.
	Breaker *parley.Breaker
	// Health says how agents are looked at in the background, as far as their
	// records do not say it, by the processes with the role bridge and a store; nil
	// or Off is none at all.
	Health *parley.HealthCheck
	// Retention says how long runs are kept that are over.
	Retention Retention
	// CancelGrace is language rule C3's setting; default 30 s.
	CancelGrace time.Duration
	// DrainGrace is how long calls in flight get to end when the server is
	// stopped; default 10 s.
	DrainGrace time.Duration
	// Lease is how long a bridge may be silent before its claims are taken over, the
	// same for all processes of a database; default 15 s. It is no setting: tests have
	// less time.
	Lease time.Duration
	// Readers and Writers bound the connections to the database; 0 are the defaults of
	// package store.
	Readers, Writers int
	// Limits of runs, and Documents of workflows that are deployed; the defaults are
	// those of language.md §10.
	Limits    workflow.RunLimits
	Documents workflow.ParseLimits

	// Dial makes every connection to PostgreSQL, Kafka and agents; nil is the
	// network. With one of its own a server does not hold agents to EgressAllow.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now, LookupEnv and Failpoint are how the outside world comes in.
	// Defaults: the clock, no environment, none.
	Now       func() time.Time
	LookupEnv func(string) (string, bool)
	Failpoint func(name string) error
	// SecretSeen is told every secret that was resolved, so that a log can
	// keep it out; nil is nobody.
	SecretSeen func(parley.Secret)
}

// ExchangeLimits bound one exchange with an agent (see package bridge).
type ExchangeLimits = bridge.ExchangeLimits

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
	if len(c.Roles) == 0 {
		c.Roles = []Role{RoleAPI, RoleExecutor, RoleBridge}
	}
	if c.SealKeyFile == "" {
		c.SealKeyFile = filepath.Join(c.Data, "agents.key")
	}
	if c.PushKeyFile == "" {
		c.PushKeyFile = filepath.Join(c.Data, "push.key")
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
