package config

import "time"

// Kind is the form of a setting's value.
type Kind string

// The kinds of values.
const (
	KindText     Kind = "text"
	KindList     Kind = "list"
	KindNumber   Kind = "number"
	KindSize     Kind = "size"
	KindDuration Kind = "duration"
	KindSwitch   Kind = "switch"
	// KindShare is more than 0 and at most 1.
	KindShare Kind = "share"
	// KindPart is from 0 to 1.
	KindPart    Kind = "part"
	KindFolder  Kind = "folder"
	KindFile    Kind = "file"
	KindFolders Kind = "folders"
	// KindRules are the workflows with a retention of their own.
	KindRules Kind = "rules"
	// KindSecret is a reference, env:NAME or file:PATH.
	KindSecret Kind = "secret"
	// KindURL is a URL that may hold a password, or a reference to one.
	KindURL Kind = "url"
)

// Setting is one leaf of the configuration.
type Setting struct {
	// Path is its name: members with dots between.
	Path string
	Kind Kind
	// Default is the value without a source: string, []string, int64, float64,
	// bool or time.Duration, as its Kind asks for.
	Default any
	// Choices are all values, if there are few.
	Choices []string
	// Help says in one line what it does.
	Help string
	// Old are variables of the existing platform that say the same; they count
	// where nothing else says it.
	Old []string

	// least and most bound numbers, sizes (bytes) and durations (nanoseconds);
	// no bounds if both are 0.
	least, most int64
}

// Settings are all settings, in the order in which they are shown.
func Settings() []Setting {
	all := []Setting{
		{Path: "listen", Kind: KindText, Default: "127.0.0.1:8420", Help: "address of the API, /healthz, /readyz and /metrics; port 0 picks a free one"},
		{Path: "data", Kind: KindFolder, Default: "./.parley", Help: "folder of the keys and, without database.url, of the database"},
		{
			Path: "roles", Kind: KindList, Default: []string{RoleAPI, RoleExecutor, RoleBridge}, Choices: []string{RoleAPI, RoleExecutor, RoleBridge},
			Help: "what this process does",
		},
		{Path: "workflows", Kind: KindFolders, Default: []string{}, Help: "folders of workflows to deploy at each start (role api)"},
	}
	all = append(all, databaseSettings()...)
	all = append(all, valuesSettings()...)
	all = append(all, kafkaSettings()...)
	all = append(all, engineSettings()...)
	all = append(all, breakerSettings()...)
	all = append(all, healthSettings()...)
	all = append(all, retentionSettings()...)
	all = append(all, edgeSettings()...)
	all = append(all, telemetrySettings()...)
	all = append(all, executionSettings()...)
	return append(all, verificationSettings()...)
}

func databaseSettings() []Setting {
	return []Setting{
		{
			Path: "database.url", Kind: KindURL, Default: "", Old: []string{"DATABASE_URL"},
			Help: "postgres:// URL, with ?host=FOLDER for a Unix socket, or env:NAME or file:PATH that holds it; empty: SQLite in the data folder",
		},
		{Path: "database.password", Kind: KindSecret, Default: "", Help: "password of database.url, where that holds none; read anew for each connection"},
		{
			Path: "database.migrate", Kind: KindText, Default: MigrateManual, Choices: []string{MigrateAuto, MigrateManual},
			Help: "manual: an older schema is refused, a new SQLite file is made; auto: it is brought up to date at the start",
		},
	}
}

func kafkaSettings() []Setting {
	text := func(path, def, help string, old ...string) Setting {
		return Setting{Path: "bus.kafka." + path, Kind: KindText, Default: def, Help: help, Old: old}
	}
	return []Setting{
		{
			Path: "bus.kind", Kind: KindText, Default: "", Choices: []string{BusMemory, BusKafka},
			Help: "kafka, or memory: in the process, and over PostgreSQL between processes; the default is kafka where bus.kafka.brokers is set",
		},
		{Path: "bus.kafka.brokers", Kind: KindList, Default: []string{}, Old: []string{"KAFKA_BROKERS"}, Help: "addresses host:port to begin with"},
		text("topics.tasks", "orchestrator.tasks.http", "tasks for agents", "TASKS_TOPIC"),
		text("topics.results", "results.topic", "results of tasks", "RESULTS_TOPIC"),
		text("topics.monitoring", "workflow.monitoring.updates", "what became of each step, for watchers"),
		text("topics.execution_requests", "workflow.execution.requests", "requests to start runs", "KAFKA_EXECUTION_TOPIC"),
		text("topics.cancellation_requests", "workflow.cancellation.requests", "requests to cancel runs", "KAFKA_CANCELLATION_TOPIC"),
		text("topics.runs", "parley.runs", "runs that want attention"),
		text("topics.progress", "parley.progress", "what working agents tell"),
		text("topics.hints", "parley.hints", "tasks about which there is news"),
		text("topics.cancels", "parley.cancels", "tasks that are to be cancelled"),
		text("topics.changes", "parley.changes", "runs that have changed, for who waits for them"),
		text("topics.dead_letters", "agent.tasks.dlq", "copies of what could not be handled"),
		text("groups.bridges", "external-agent-executor-group", "consumer group of the bridges", "CONSUMER_GROUP_ID"),
		text("groups.executors", "parley-executor", "consumer group of the executors"),
		text("groups.requests", "execution-consumer-group", "consumer group that reads the request topics", "KAFKA_GROUP_ID"),
		{
			Path: "bus.kafka.sasl.mechanism", Kind: KindText, Default: "", Choices: []string{"plain", "scram-sha-256", "scram-sha-512", "oauthbearer"},
			Help: "how the process proves who it is; empty: not at all",
		},
		text("sasl.user", "", "user of plain and scram"),
		{Path: "bus.kafka.sasl.password", Kind: KindSecret, Default: "", Help: "password of plain and scram; read anew for each connection"},
		{Path: "bus.kafka.sasl.token", Kind: KindSecret, Default: "", Help: "token of oauthbearer; read anew for each connection"},
		{Path: "bus.kafka.tls.enabled", Kind: KindSwitch, Default: false, Help: "speak TLS to the brokers; implied by the other settings of tls"},
		{Path: "bus.kafka.tls.ca", Kind: KindFile, Default: "", Help: "certificates (PEM) that the brokers' are signed by; empty: those of the system; read anew for each connection"},
		{Path: "bus.kafka.tls.cert", Kind: KindFile, Default: "", Help: "own certificate (PEM); read anew for each connection, with its key"},
		{Path: "bus.kafka.tls.key", Kind: KindFile, Default: "", Help: "key (PEM) of the own certificate"},
		text("tls.server_name", "", "name in the brokers' certificates, if it is not the one that they are reached by"),
		{
			Path: "bus.kafka.compression", Kind: KindText, Default: "none", Choices: []string{"none", "gzip"},
			Help: "of records on the topics that old peers read; they know no other",
		},
		{
			Path: "bus.kafka.lookback", Kind: KindDuration, Default: 5 * time.Minute, most: int64(7 * 24 * time.Hour), least: 0,
			Help: "how old the tasks and results may be that a consumer group without offsets begins with; 0s: only what is written from then on",
		},
		text("instance_id", "", "name of this process that stays over restarts: its claims and partitions are its own again at once; empty: a new name for each start"),
		{
			Path: "bus.kafka.max_record", Kind: KindSize, Default: int64(900 << 10), least: 1 << 10, most: 64 << 20,
			Help: "largest record",
		},
		{Path: "bus.kafka.requests", Kind: KindSwitch, Default: false, Help: "start and cancel runs by the request topics, too; an old consumer beside would start each twice"},
	}
}

func engineSettings() []Setting {
	const second, hour = int64(time.Second), int64(time.Hour)
	count := func(name string, def, most int64, help string) Setting {
		return Setting{Path: "limits." + name, Kind: KindNumber, Default: def, least: 1, most: most, Help: help}
	}
	span := func(name string, def time.Duration, help string, old ...string) Setting {
		return Setting{Path: "limits." + name, Kind: KindDuration, Default: def, most: hour, least: 0, Help: help, Old: old}
	}
	timeout := span("agent_timeout", 30*time.Second, "time limit of the agents of this file that name none", "HTTP_TIMEOUT_SECONDS")
	timeout.least, timeout.most = second, 300*second
	connection := span("agent_connection", 5*time.Minute, "how long a connection to an agent is used; each new one resolves its name anew")
	connection.least = second
	return []Setting{
		{
			Path: "bridge.ledger", Kind: KindText, Default: LedgerStore, Choices: []string{LedgerStore, LedgerNone},
			Help: "none: a bridge without a database, beside an old executor",
		},
		{Path: "bridge.lookup.api", Kind: KindText, Default: "", Help: "base URL of the old API, to look agents up that this file does not have (ledger none)"},
		{
			Path: "bridge.lookup.registry", Kind: KindText, Default: "", Old: []string{"AGENT_REGISTRY_URL"},
			Help: "base URL of the old agent registry, asked after that (ledger none)",
		},
		{
			Path: "executor.bridge", Kind: KindText, Default: BridgeOurs, Choices: []string{BridgeOurs, BridgeOld},
			Help: "whose bridge takes the tasks",
		},
		count("agent_calls", 1024, 1<<20, "calls in flight to one agent that names no limit"),
		count("calls", 8192, 1<<20, "calls in flight of one bridge"),
		count("following", 16_384, 1<<20, "tasks that one bridge follows at their agents"),
		{Path: "limits.request_bytes", Kind: KindSize, Default: int64(256 << 20), least: 64 << 20, most: 64 << 30, Help: "requests that wait or are under way in one bridge"},
		timeout,
		span("agent_first_byte", 0, "time limit for the head of an agent's answer; 0s: that of the whole answer"),
		{Path: "limits.agent_request", Kind: KindSize, Default: int64(8 << 20), least: 1 << 10, most: 1 << 30, Help: "body of one request to an agent"},
		{Path: "limits.agent_response", Kind: KindSize, Default: int64(16 << 20), least: 1 << 10, most: 1 << 30, Help: "body of one answer of an agent"},
		{Path: "limits.agent_header", Kind: KindSize, Default: int64(64 << 10), least: 1 << 10, most: 1 << 20, Help: "head of one answer of an agent"},
		connection,
		span("cancel_grace", 30*time.Second, "how long agents in flight get when a run is cancelled"),
		span("drain_grace", 10*time.Second, "how long calls in flight get when the process stops"),
		{Path: "limits.value", Kind: KindSize, Default: int64(8 << 20), least: 1 << 10, most: 64 << 20, Help: "one input or output"},
		{Path: "limits.run_values", Kind: KindSize, Default: int64(256 << 20), least: 1 << 10, most: 4 << 30, Help: "all values of a run. What undoes the run, and `finally`, may have as many each"},
		count("executions", 10_000, 1_000_000, "executions of steps in a run; behind it no handler, retry or `item_errors` makes up for a failure. What undoes the run, and `finally`, may have as many each"),
		count("attempts", 100, 10_000, "attempts of one step"),
		count("items", 1_000, 100_000, "items of one loop"),
		count("branches", 1_000, 100_000, "children, cases or branches of one step"),
		count("running_steps", 1_000, 100_000, "steps of a run that run at the same time"),
		count("nested_runs", 32, 1_000, "runs that have started each other by steps"),
		{Path: "limits.plan_bytes", Kind: KindSize, Default: int64(256 << 10), least: 1 << 10, most: 8 << 20, Help: "a plan that an agent has made; its steps are bounded by allow.max_steps"},
		{Path: "limits.workflow_source", Kind: KindSize, Default: int64(1 << 20), least: 1 << 10, most: 16 << 20, Help: "source of a workflow that is deployed"},
		count("workflow_values", 100_000, 10_000_000, "values in it, aliases expanded"),
		count("workflow_steps", 2_000, 100_000, "steps of it"),
		count("workflow_nesting", 32, 256, "lists of steps inside each other"),
		count("queued_runs", 10_000, 1_000_000, "runs of one workflow and concurrency key that wait for their turn"),
		count("event_chain", 32, 10_000, "runs that may follow from each other by the events that they publish"),
		count("waiting_events", 1_000, 1_000_000, "events of one name and key that no run has taken"),
		count("open_approvals", 100, 10_000, "approvals of a run that wait"),
	}
}

// breakerSettings are the breaker of agents whose records name none.
func breakerSettings() []Setting {
	breaker := func(s Setting, old string) Setting {
		s.Path, s.Old = "bridge.breaker."+s.Path, []string{"CIRCUIT_BREAKER_" + old}
		return s
	}
	const second, hour = int64(time.Second), int64(time.Hour)
	return []Setting{
		breaker(Setting{Path: "enabled", Kind: KindSwitch, Default: false, Help: "circuit breaker of agents whose records name none"}, "ENABLED"),
		breaker(Setting{Path: "failure_threshold", Kind: KindNumber, Default: int64(5), least: 1, most: 1000, Help: "calls in a row that open it when they have failed"}, "FAILURE_THRESHOLD"),
		breaker(Setting{Path: "failure_rate_threshold", Kind: KindShare, Default: 0.5, Help: "share of the calls in the window that opens it when they have failed"}, "FAILURE_RATE_THRESHOLD"),
		breaker(Setting{Path: "timeout", Kind: KindDuration, Default: time.Minute, least: second, most: hour, Help: "how long it is open"}, "TIMEOUT_SECONDS"),
		breaker(Setting{Path: "half_open_max_calls", Kind: KindNumber, Default: int64(3), least: 1, most: 100, Help: "calls that then try the agent"}, "HALF_OPEN_MAX_CALLS"),
		breaker(Setting{Path: "window", Kind: KindDuration, Default: 2 * time.Minute, least: second, most: hour, Help: "time in which calls count"}, "WINDOW_SIZE_SECONDS"),
		{
			Path: "bridge.breaker.on_open", Kind: KindText, Default: "", Choices: []string{"wait", "fail"},
			Help: "what becomes of tasks meanwhile; empty: wait, and fail with bridge.ledger none",
		},
	}
}

// healthSettings are the looks at agents whose records say nothing of them.
func healthSettings() []Setting {
	const second = int64(time.Second)
	return []Setting{
		{Path: "health.enabled", Kind: KindSwitch, Default: true, Help: "look in the background whether agents are well (role bridge); off: at none, whatever their records say"},
		{Path: "health.interval", Kind: KindDuration, Default: 30 * time.Second, least: second, most: 3600 * second, Help: "time between two looks at an agent, by all processes together"},
		{Path: "health.timeout", Kind: KindDuration, Default: 5 * time.Second, least: second / 10, most: 30 * second, Help: "time limit of one look; never more than the interval"},
	}
}

// telemetrySettings are about what is told of runs to systems that show traces.
func telemetrySettings() []Setting {
	return []Setting{
		{Path: "telemetry.traces.url", Kind: KindText, Default: "", Help: "where spans of runs, steps and calls are sent by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; empty: nowhere"},
		{Path: "telemetry.traces.sample", Kind: KindPart, Default: 1.0, Help: "share of the runs that are recorded if they bring no trace; one that is brought says it itself"},
		{Path: "telemetry.traces.header.name", Kind: KindText, Default: "Authorization", Help: "header that telemetry.traces.header.value is sent in"},
		{Path: "telemetry.traces.header.value", Kind: KindSecret, Default: "", Help: "its whole value, such as one of `Bearer ...`; empty: none is sent"},
		{Path: "telemetry.traces.ca", Kind: KindFile, Default: "", Help: "certificates (PEM) that the receiver's is signed by; empty: those of the system"},
		{Path: "telemetry.traces.timeout", Kind: KindDuration, Default: 10 * time.Second, least: int64(100 * time.Millisecond), most: int64(time.Minute), Help: "time limit of one delivery with all its tries"},
	}
}

func edgeSettings() []Setting {
	return []Setting{
		{
			Path: "auth.mode", Kind: KindText, Default: AuthKey, Choices: []string{AuthKey, AuthNone},
			Help: "none: everybody who reaches the address may do everything, for old clients",
		},
		{Path: "auth.none_anywhere", Kind: KindSwitch, Default: false, Help: "auth.mode none also where others than this machine reach the address"},
		{Path: "auth.key", Kind: KindSecret, Default: "", Help: "admin key; empty: the one in the data folder, made at the first start"},
		{Path: "auth.hosts", Kind: KindList, Default: []string{}, Help: "names in the Host header besides those of this machine"},
		{
			Path: "log.level", Kind: KindText, Default: "info", Choices: []string{"debug", "info", "warn", "error"}, Old: []string{"LOG_LEVEL"},
			Help: "the least that is logged",
		},
		{Path: "log.format", Kind: KindText, Default: "text", Choices: []string{"text", "json"}, Old: []string{"LOG_FORMAT"}, Help: "form of the log"},
		{Path: "egress.allow", Kind: KindList, Default: []string{}, Help: "ranges such as 10.0.0.0/8 that agents may be at besides public addresses"},
		{Path: "egress.stdio", Kind: KindSwitch, Default: false, Help: "run the programs that agents with a stdio: URL name"},
		{Path: "push.url", Kind: KindText, Default: "", Help: "URL at which agents reach the role api, to post there when a task goes on"},
		{Path: "push.key_file", Kind: KindFile, Default: "", Help: "key of their tokens, the same for all processes; empty: in the data folder"},
		{Path: "secrets.dir", Kind: KindFolder, Default: "", Help: "folder that file: references of agents point into"},
		{Path: "secrets.env_prefix", Kind: KindText, Default: "PARLEY_SECRET_", Help: "beginning of the variables that env: references of agents may name"},
		{Path: "secrets.key_file", Kind: KindFile, Default: "", Help: "key that seals literal credentials, the same for all processes; empty: in the data folder"},
	}
}
