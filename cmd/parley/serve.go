package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/logging"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/workflow"
)

// newServeCommand makes `parley serve`: a server as its configuration says.
func newServeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the roles of a configuration in this process: api, executor, bridge",
		Long: `Run a server as its configuration says. Settings come from a YAML file, from
variables (PARLEY_ and the path in capitals, __ for the dots) and from flags of
the same path; the later ones win. parley config view shows what comes out.

Roles may be split over processes, several of each, if they share a PostgreSQL
database. Stopping lets calls in flight end; a second signal ends at once.`,
		Example: `  parley serve --config parley.yaml
  parley serve --config parley.yaml --roles api,executor
  PARLEY_DATABASE__URL=postgres://parley@db/parley parley serve --roles bridge`,
		Args: need(),
	}
	f := addSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) }
	return cmd
}

func (a *app) serve(ctx context.Context, f *settingFlags) error {
	loaded, err := f.load(a)
	if err != nil {
		return err
	}
	cfg, _, err := a.serverConfig(loaded)
	if err != nil {
		return err
	}
	return a.serveWith(ctx, loaded, cfg)
}

// serveWith runs a server until ctx ends, and says where it is once it can be asked.
func (a *app) serveWith(ctx context.Context, loaded *config.Loaded, cfg server.Config) error {
	for _, note := range loaded.Notes {
		cfg.Logger.Warn("configuration", "note", note)
	}
	s, err := server.New(ctx, cfg)
	if err != nil {
		return a.notStarted(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case <-s.Started():
	case err := <-ended:
		return err
	}

	fmt.Fprintln(a.stdout, s.URL())
	a.note("serving %s at %s", strings.Join(loaded.Roles, ", "), s.URL())
	for i, url := range s.ZoneURLs() {
		what := "execution zone"
		if i > 0 {
			what += ", A2A,"
		}
		a.note("%s at %s", what, url)
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	a.note("stopping: calls in flight get up to %s; a second signal ends at once", loaded.Limits.DrainGrace)
	return <-ended
}

// notStarted says why a server could not be made.
func (a *app) notStarted(err error) error {
	if _, ok := errors.AsType[*parley.Error](err); ok {
		return err
	}
	if f := ofFile(err); f != nil {
		return f
	}
	return a.refuse(err, "the server cannot start")
}

// serverConfig makes what a server is built from, and what keeps secrets out of
// its log.
func (a *app) serverConfig(l *config.Loaded) (server.Config, *logging.Redactor, error) {
	specs, err := a.configuredAgents(l)
	if err != nil {
		return server.Config{}, nil, err
	}
	return a.serverConfigWith(l, specs)
}

// serverConfigWith is serverConfig with agents that were read already.
func (a *app) serverConfigWith(l *config.Loaded, specs []parley.AgentSpec) (_ server.Config, _ *logging.Redactor, err error) {
	redactor := logging.NewRedactor()
	cfg := server.Config{
		Roles: roles(l), Data: l.Data, Listen: l.Listen, DatabaseURL: l.Database.URL, DatabaseCurrent: databaseCurrent(l.Database, redactor.Add), SchemaAsIs: l.Database.Migrate != config.MigrateAuto,
		OldBridge: l.Executor.Bridge == config.BridgeOld, Requests: l.Bus.Kafka.Requests,
		NoLedger: l.Bridge.Ledger == config.LedgerNone, Lookup: server.LookupURLs{API: l.Bridge.Lookup.API, Registry: l.Bridge.Lookup.Registry}, BridgeGroup: l.Bus.Kafka.Groups.Bridges,
		ExecutorGroup: l.Bus.Kafka.Groups.Executors, RequestGroup: l.Bus.Kafka.Groups.Requests,
		Instance: l.Bus.Kafka.InstanceID, AgentSpecs: specs, WorkflowDirs: l.Workflows, Version: buildVersion(),
		AuthNone: l.Auth.Mode == config.AuthNone, AuthNoneAnywhere: l.Auth.Anywhere, Key: l.Auth.Key, Hosts: l.Auth.Hosts,
		EgressAllow: l.Egress.Allow, AllowStdio: l.Egress.Stdio, PushURL: l.Push.URL,
		SecretsDir: l.Secrets.Dir, SecretsPrefix: l.Secrets.EnvPrefix, SealKeyFile: l.Secrets.KeyFile, PushKeyFile: l.Push.KeyFile,
		MaxConcurrent: l.Limits.AgentCalls, MaxCalls: l.Limits.Calls, MaxFollowing: l.Limits.Following, MaxRequestBytes: l.Limits.RequestBytes,
		Exchange: exchangeLimits(l.Limits), ConnectionAge: l.Limits.AgentConnection,
		Breaker: defaultBreaker(l.Bridge.Breaker), CancelGrace: l.Limits.CancelGrace, DrainGrace: l.Limits.DrainGrace, Limits: runLimits(l.Limits), Documents: documentLimits(l.Limits), EventChain: l.Limits.EventChain,
		Values: valuesConfig(l.Values), Retention: retention(l.Retention),
		Health: &parley.HealthCheck{Off: !l.Health.Enabled, Interval: l.Health.Interval, Timeout: l.Health.Timeout},
		Traces: traces(l.Telemetry.Traces), Logger: a.logger(l.Log, redactor), SecretSeen: redactor.Add, Now: a.now,
		LookupEnv: func(name string) (string, bool) { v := a.getenv(name); return v, v != "" },
	}
	for _, secret := range []parley.Secret{l.Auth.Key, l.Database.URL, l.Values.S3.SecretKey, l.Telemetry.Traces.Header.Value} {
		if !secret.IsZero() {
			redactor.Keep(secret)
		}
	}
	if l.Bus.Kind == config.BusKafka {
		if cfg.Kafka, err = kafkaConfig(l.Bus.Kafka, redactor.Add); err != nil {
			return server.Config{}, nil, err
		}
	}
	return cfg, redactor, nil
}

// databaseCurrent gives what reads the URL of the database for each connection, so that a
// new password needs no new start; seen is told what was read.
func databaseCurrent(d config.Database, seen func(parley.Secret)) func() (string, error) {
	if d.Current == nil {
		return nil
	}
	return func() (string, error) {
		url, err := d.Current()
		seen(url)
		return string(url.Reveal()), err
	}
}

// roles are those of the process.
func roles(l *config.Loaded) []server.Role {
	all := make([]server.Role, len(l.Roles))
	for i, role := range l.Roles {
		all[i] = server.Role(role)
	}
	return all
}

// traces says where spans go, nil for nowhere.
func traces(t config.Traces) *server.Traces {
	if t.URL == "" {
		return nil
	}
	out := &server.Traces{Receiver: server.SpanReceiver{URL: t.URL, CA: t.CA, Timeout: t.Timeout}, Sample: t.Sample}
	if !t.Header.Value.IsZero() {
		out.Receiver.Header, out.Receiver.Value = t.Header.Name, t.Header.Value
	}
	return out
}

// exchangeLimits bound each exchange with an agent.
func exchangeLimits(l config.Limits) server.ExchangeLimits {
	return server.ExchangeLimits{
		MaxRequest: int(l.AgentRequest), MaxResponse: int(l.AgentResponse), MaxHeader: int(l.AgentHeader), FirstByte: l.AgentFirstByte,
	}
}

// defaultBreaker is the breaker of agents whose records name none.
func defaultBreaker(b config.Breaker) *parley.Breaker {
	if !b.Enabled {
		return nil
	}
	return &parley.Breaker{
		Enabled: true, FailureThreshold: b.FailureThreshold, FailureRate: b.FailureRate, OpenFor: b.Timeout, HalfOpenCalls: b.HalfOpenCalls,
		Window: b.Window, OnOpen: parley.OnOpen(b.OnOpen),
	}
}

func runLimits(l config.Limits) workflow.RunLimits {
	r := workflow.DefaultRunLimits()
	r.Value, r.RunValues, r.Executions, r.Attempts = l.Value, l.RunValues, l.Executions, l.Attempts
	r.WaitingEvents, r.OpenApprovals, r.QueuedRuns = l.WaitingEvents, l.OpenApprovals, l.QueuedRuns
	r.Items, r.Running, r.Runs, r.PlanBytes = l.Items, l.RunningSteps, l.NestedRuns, l.PlanBytes
	return r
}

func documentLimits(l config.Limits) workflow.ParseLimits {
	return workflow.ParseLimits{
		SourceBytes: int(l.WorkflowSource), Nodes: l.WorkflowValues, Scopes: l.WorkflowNesting, Steps: l.WorkflowSteps, Branches: l.Branches,
	}
}

func (a *app) logger(l config.Log, redactor *logging.Redactor) *slog.Logger {
	// Both were checked when they were read.
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level))
	format := logging.Text
	if l.Format == "json" {
		format = logging.JSON
	}
	return logging.New(a.stderr, logging.Config{Level: level, Format: format, Redactor: redactor})
}

// configuredAgents reads the section agents of the file.
func (a *app) configuredAgents(l *config.Loaded) ([]parley.AgentSpec, error) {
	specs, problems := readAgents(l)
	wrong := 0
	for _, p := range problems {
		a.writeProblem(p)
		if p.Severity == parley.SeverityError {
			wrong++
		}
	}
	if wrong > 0 {
		return nil, invalidf("the agents of the configuration were refused: %s", plural(wrong, "problem"))
	}
	return specs, nil
}

// readAgents gives the agents of the file, and what is wrong with them.
func readAgents(l *config.Loaded) ([]parley.AgentSpec, parley.Problems) {
	if l.File == "" {
		return nil, nil
	}
	specs, problems := registry.LoadSection(l.File, l.Source)
	for i := range specs {
		if specs[i].Timeout == nil {
			specs[i].Timeout = &l.Limits.AgentTimeout
		}
	}
	return specs, byPlace(problems)
}

func (a *app) writeProblem(p parley.Problem) { fmt.Fprintln(a.stderr, problemLine(p)) }

// kafkaConfig makes what the bus is built from. Secrets and certificates are read for each
// connection, so that new ones need no new start; seen is told the secrets.
func kafkaConfig(k config.Kafka, seen func(parley.Secret)) (*server.KafkaConfig, error) {
	t := k.Topics
	cfg := &server.KafkaConfig{
		Brokers: k.Brokers, InstanceID: k.InstanceID, Compression: k.Compression, MaxRecord: int(k.MaxRecord),
		Lookback: k.Lookback,
		Topics: server.KafkaTopics(server.TopicNames{
			Tasks: t.Tasks, Results: t.Results, Monitoring: t.Monitoring,
			ExecutionRequests: t.ExecutionRequests, CancellationRequests: t.CancellationRequests,
			Runs: t.Runs, Progress: t.Progress, Hints: t.Hints, Cancels: t.Cancels, Changes: t.Changes, DeadLetters: t.DeadLetters,
		}),
	}
	if len(k.Brokers) == 0 {
		return nil, invalidf("bus.kind is kafka, but bus.kafka.brokers names none").withHint("set bus.kafka.brokers: [host:9092], or bus.kind: memory")
	}
	if k.SASL.Mechanism != "" {
		cfg.SASL = &server.KafkaSASL{Mechanism: strings.ToUpper(k.SASL.Mechanism), User: k.SASL.User}
		read := k.SASL.Password
		if k.SASL.Mechanism == "oauthbearer" {
			read = k.SASL.Token
		}
		if read != nil {
			cfg.SASL.Secret = func(context.Context) (string, error) {
				secret, err := read()
				seen(secret)
				return string(secret.Reveal()), err
			}
		}
	}
	if !k.TLS.Enabled {
		return cfg, nil
	}
	cfg.TLS = func() (*tls.Config, error) { return kafkaTLS(k.TLS) }
	_, err := cfg.TLS() // what is wrong now is said now
	return cfg, err
}

func kafkaTLS(t config.TLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := readSmall(t.CA)
		if err != nil {
			return nil, invalidf("bus.kafka.tls.ca: %v", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalidf("bus.kafka.tls.ca: %s holds no certificate (PEM)", t.CA)
		}
	}
	if t.Cert != "" || t.Key != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, invalidf("bus.kafka.tls.cert and key: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
