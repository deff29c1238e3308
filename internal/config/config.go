// Package config reads the configuration of a server (reference: interface.md,
// "Configuration"): one YAML file, environment variables PARLEY_ and the
// upper-case path with __ for the dots, and flags of the same path, each
// stronger than the one before. Whatever is wrong is said at once, with the file
// and line, the variable or the flag that it stands in.
//
// A setting is a leaf of that tree and has one place in the table of
// [Settings]; nothing else is accepted, but for the section agents, which
// belongs to the registry.
package config

import (
	"time"

	"github.com/parley-project/parley"
)

// The roles of a process, and what the other settings may be.
const (
	RoleAPI      = "api"
	RoleExecutor = "executor"
	RoleBridge   = "bridge"

	BusMemory = "memory"
	BusKafka  = "kafka"

	LedgerStore = "store"
	LedgerNone  = "none"

	BridgeOurs = "ours"
	BridgeOld  = "old"

	MigrateAuto   = "auto"
	MigrateManual = "manual"

	AuthKey  = "key"
	AuthNone = "none"
)

// Config is a configuration with every value checked by itself: lists and
// numbers are within their bounds, paths absolute, references resolved. Whether
// the parts go together is for the server to say.
type Config struct {
	// Listen is the address of the API, the health checks and the metrics.
	Listen string `koanf:"listen"`
	// Data is the folder of the keys and, without a database URL, of the
	// database.
	Data string `koanf:"data"`
	// Roles are what this process does: api, executor, bridge.
	Roles []string `koanf:"roles"`
	// Workflows are folders whose documents are deployed at each start.
	Workflows []string `koanf:"workflows"`

	Database Database `koanf:"database"`
	Bus      Bus      `koanf:"bus"`
	Bridge   Bridge   `koanf:"bridge"`
	Executor Executor `koanf:"executor"`
	Health   Health   `koanf:"health"`
	Limits   Limits   `koanf:"limits"`
	// Retention says how long runs are kept that are over.
	Retention Retention `koanf:"retention"`
	Auth      Auth      `koanf:"auth"`
	Log       Log       `koanf:"log"`
	Telemetry Telemetry `koanf:"telemetry"`
	Egress    Egress    `koanf:"egress"`
	Push      Push      `koanf:"push"`
	Secrets   Secrets   `koanf:"secrets"`
	Zone      Zone      `koanf:"zone"`
	Values    Values    `koanf:"values"`

	// File is the file that was read, "" without one, and Source its content:
	// the section agents in it is the registry's to read.
	File   string `koanf:"-"`
	Source []byte `koanf:"-"`
	// Notes are what an operator should know about the way it was read, such as
	// names of the existing platform that were taken; for the log.
	Notes []string `koanf:"-"`
}

// Database is where everything durable is kept.
type Database struct {
	// URL is a postgres:// URL with its password, zero for the SQLite file in
	// the data folder.
	URL parley.Secret `koanf:"-"`
	// Current reads the URL with its password as they are then; nil where neither is
	// in a file.
	Current func() (parley.Secret, error) `koanf:"-"`
	// Migrate says whether serve brings an older schema up to date (auto) or
	// refuses it (manual).
	Migrate string `koanf:"migrate"`
}

// Bus carries hints between roles.
type Bus struct {
	Kind  string `koanf:"kind"`
	Kafka Kafka  `koanf:"kafka"`
}

// Kafka is the bus of kind kafka.
type Kafka struct {
	Brokers []string `koanf:"brokers"`
	// Topics are the names of the topics by the names of Parley's subjects.
	Topics Topics `koanf:"topics"`
	// Groups are the consumer groups by what their members do.
	Groups      Groups `koanf:"groups"`
	SASL        SASL   `koanf:"sasl"`
	TLS         TLS    `koanf:"tls"`
	Compression string `koanf:"compression"`
	// Lookback is how far back a new group begins with tasks and results.
	Lookback time.Duration `koanf:"lookback"`
	// InstanceID names this process for static membership, and its bridge in
	// the store; "" is a name of its own for each start.
	InstanceID string `koanf:"instance_id"`
	// MaxRecord bounds one record, in bytes.
	MaxRecord int64 `koanf:"max_record"`
	// Requests: runs are started and cancelled by the request topics, too.
	Requests bool `koanf:"requests"`
}

// Topics are the names of topics.
type Topics struct {
	Tasks                string `koanf:"tasks"`
	Results              string `koanf:"results"`
	Monitoring           string `koanf:"monitoring"`
	ExecutionRequests    string `koanf:"execution_requests"`
	CancellationRequests string `koanf:"cancellation_requests"`
	Runs                 string `koanf:"runs"`
	Progress             string `koanf:"progress"`
	Hints                string `koanf:"hints"`
	Cancels              string `koanf:"cancels"`
	Changes              string `koanf:"changes"`
	DeadLetters          string `koanf:"dead_letters"`
}

// Groups are the names of consumer groups.
type Groups struct {
	Bridges   string `koanf:"bridges"`
	Executors string `koanf:"executors"`
	Requests  string `koanf:"requests"`
}

// SASL says how a process proves to the brokers who it is.
type SASL struct {
	// Mechanism is "" for none, else plain, scram-sha-256, scram-sha-512 or
	// oauthbearer.
	Mechanism string `koanf:"mechanism"`
	User      string `koanf:"user"`
	// Password gives the password of plain and scram as it is now, Token the token of
	// oauthbearer; nil without one. They may be called concurrently.
	Password func() (parley.Secret, error) `koanf:"-"`
	Token    func() (parley.Secret, error) `koanf:"-"`
}

// TLS says how the brokers are reached.
type TLS struct {
	Enabled bool `koanf:"enabled"`
	// CA, Cert and Key are files, "" for none.
	CA   string `koanf:"ca"`
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
	// ServerName is what the brokers' certificates are made out to, "" for the
	// name that they are reached by.
	ServerName string `koanf:"server_name"`
}

// Bridge adjusts the role bridge.
type Bridge struct {
	// Ledger is store, or none beside an old executor.
	Ledger string `koanf:"ledger"`
	// Lookup is where agents are looked up without a store.
	Lookup Lookup `koanf:"lookup"`
	// Breaker is that of agents whose records name none.
	Breaker Breaker `koanf:"breaker"`
}

// Breaker is a circuit breaker.
type Breaker struct {
	Enabled          bool          `koanf:"enabled"`
	FailureThreshold int           `koanf:"failure_threshold"`
	FailureRate      float64       `koanf:"failure_rate_threshold"`
	Timeout          time.Duration `koanf:"timeout"`
	HalfOpenCalls    int           `koanf:"half_open_max_calls"`
	Window           time.Duration `koanf:"window"`
	OnOpen           string        `koanf:"on_open"`
}

// Lookup is the registry of the existing platform: two services, asked in turn.
type Lookup struct {
	API      string `koanf:"api"`
	Registry string `koanf:"registry"`
}

// Health says how agents are looked at in the background whose records say
// nothing.
type Health struct {
	Enabled  bool          `koanf:"enabled"`
	Interval time.Duration `koanf:"interval"`
	Timeout  time.Duration `koanf:"timeout"`
}

// Executor adjusts the role executor.
type Executor struct {
	// Bridge is ours or old: whose bridge takes the tasks.
	Bridge string `koanf:"bridge"`
}

// Limits of what one process has in hand and of runs.
type Limits struct {
	AgentCalls   int           `koanf:"agent_calls"`
	Calls        int           `koanf:"calls"`
	Following    int           `koanf:"following"`
	RequestBytes int64         `koanf:"request_bytes"`
	AgentTimeout time.Duration `koanf:"agent_timeout"`
	// AgentFirstByte is 0 where AgentTimeout alone counts.
	AgentFirstByte  time.Duration `koanf:"agent_first_byte"`
	AgentRequest    int64         `koanf:"agent_request"`
	AgentResponse   int64         `koanf:"agent_response"`
	AgentHeader     int64         `koanf:"agent_header"`
	AgentConnection time.Duration `koanf:"agent_connection"`

	CancelGrace time.Duration `koanf:"cancel_grace"`
	DrainGrace  time.Duration `koanf:"drain_grace"`
	Value       int64         `koanf:"value"`
	RunValues   int64         `koanf:"run_values"`
	Executions  int           `koanf:"executions"`
	Attempts    int           `koanf:"attempts"`
	// Items are those of a loop, Branches the children, cases or branches of one
	// step, RunningSteps those of a run at the same time.
	Items        int `koanf:"items"`
	Branches     int `koanf:"branches"`
	RunningSteps int `koanf:"running_steps"`
	// NestedRuns counts the runs that have started each other by steps.
	NestedRuns int   `koanf:"nested_runs"`
	PlanBytes  int64 `koanf:"plan_bytes"`
	// The others of workflows are about documents that are deployed.
	WorkflowSource  int64 `koanf:"workflow_source"`
	WorkflowValues  int   `koanf:"workflow_values"`
	WorkflowSteps   int   `koanf:"workflow_steps"`
	WorkflowNesting int   `koanf:"workflow_nesting"`
	// EventChain bounds the runs that follow from each other by events.
	EventChain int `koanf:"event_chain"`
	// WaitingEvents are those of one name and key, OpenApprovals those of one run.
	WaitingEvents int `koanf:"waiting_events"`
	// QueuedRuns are those of one workflow and concurrency key.
	QueuedRuns    int `koanf:"queued_runs"`
	OpenApprovals int `koanf:"open_approvals"`
}

// Auth says who may use the API.
type Auth struct {
	Mode string `koanf:"mode"`
	// Anywhere lets mode none be used on an address that others reach.
	Anywhere bool `koanf:"none_anywhere"`
	// Key is the admin key, zero for the one in the data folder.
	Key parley.Secret `koanf:"-"`
	// Hosts are accepted in the Host header besides loopback names.
	Hosts []string `koanf:"hosts"`
}

// Log adjusts what is logged.
type Log struct {
	Level  string `koanf:"level"`
	Format string `koanf:"format"`
}

// Telemetry says what is told of runs to other systems.
type Telemetry struct {
	Traces Traces `koanf:"traces"`
}

// Traces says where spans go.
type Traces struct {
	// URL is "" for nowhere.
	URL     string        `koanf:"url"`
	Sample  float64       `koanf:"sample"`
	Header  TracesHeader  `koanf:"header"`
	CA      string        `koanf:"ca"`
	Timeout time.Duration `koanf:"timeout"`
}

// TracesHeader is sent along with spans, unless Value is zero.
type TracesHeader struct {
	Name  string        `koanf:"name"`
	Value parley.Secret `koanf:"-"`
}

// Egress bounds where agents may be.
type Egress struct {
	Allow []string `koanf:"allow"`
	// Stdio: agent records may name programs that this process runs.
	Stdio bool `koanf:"stdio"`
}

// Push says where agents reach this server.
type Push struct {
	URL     string `koanf:"url"`
	KeyFile string `koanf:"key_file"`
}

// Secrets bounds where the secrets of agents may come from.
type Secrets struct {
	Dir       string `koanf:"dir"`
	EnvPrefix string `koanf:"env_prefix"`
	KeyFile   string `koanf:"key_file"`
}
