package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
	"github.com/parley-project/parley/internal/logging"
	"github.com/parley-project/parley/internal/server"
)

// devFlags are those of `parley dev`.
type devFlags struct {
	data, listen        string
	noSamples           bool
	agents, workflows   []string
	logLevel, logFormat string
	secretsDir          string
	allow               []string
	allowStdio          bool
	pushURL             string
	traces              string
}

// defaultData is the data folder if nothing else is said.
const defaultData = "./.parley"

// devListen is where `parley dev` serves if nothing else is said.
const devListen = "127.0.0.1:8420"

// newDevCommand makes `parley dev`: everything in one process.
func newDevCommand(a *app) *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use: "dev", Short: "Run everything in this process: API, store, executor, bridge, two sample agents",
		Example: "  parley dev\n  parley dev --agents agents.yaml --workflows ./workflows --no-samples",
		Args:    need(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.dev(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", defaultData, "folder of the database and the keys")
	flags.StringVar(&f.listen, "listen", devListen, "address of the API; port 0 picks a free one")
	flags.BoolVar(&f.noSamples, "no-samples", false, "no sample agents and no workflow hello")
	flags.StringArrayVar(&f.agents, "agents", nil, "YAML file of agents to register; may be repeated")
	flags.StringArrayVar(&f.workflows, "workflows", nil, "folder of workflows to deploy; may be repeated")
	flags.StringVar(&f.logLevel, "log-level", "warn", "debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&f.secretsDir, "secrets-dir", "", "folder that file: references of agents may point into")
	flags.StringArrayVar(&f.allow, "egress-allow", nil, "range that agents may be at besides public addresses and this machine, such as 10.0.0.0/8; may be repeated")
	flags.BoolVar(&f.allowStdio, "allow-stdio", true, "run the programs that agents with a stdio: URL name")
	flags.StringVar(&f.pushURL, "push-url", "", "URL at which agents reach this server, to post there when a task goes on; none: they are asked")
	flags.StringVar(&f.traces, "traces", "", "where spans of runs, steps and calls are sent (OTLP over HTTP), such as http://127.0.0.1:4318; none: nowhere")
	neverEmpty(cmd, "data", "listen")
	return cmd
}

func (a *app) dev(ctx context.Context, f devFlags) error {
	cfg, err := a.devConfig(f)
	if err != nil {
		return err
	}
	s, err := server.New(ctx, cfg)
	if err != nil {
		return a.notStarted(err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	select {
	case <-s.Started():
	case err := <-ended:
		return err
	}

	a.introduce(s, f)
	if cfg.Samples {
		where := a.reach(target{url: s.URL(), key: s.Key()}, cfg.Data)
		if err := a.runHello(running, s, where); err != nil && running.Err() == nil {
			a.note("hello did not run: %v", classify(err))
		}
		a.suggest(where)
	}
	a.note("Ctrl-C stops; runs that are under way go on at the next start.")
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	a.note("\nstopping: calls in flight get up to 10 s; Ctrl-C again ends at once")
	return <-ended
}

// devConfig is the configuration for one machine.
func (a *app) devConfig(f devFlags) (server.Config, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return server.Config{}, usagef("--log-level %s: the levels are debug, info, warn and error", f.logLevel)
	}
	if f.logFormat != "text" && f.logFormat != "json" {
		return server.Config{}, usagef("--log-format %s: the formats are text and json", f.logFormat)
	}
	redactor := logging.NewRedactor()
	format := logging.Text
	if f.logFormat == "json" {
		format = logging.JSON
	}
	cfg := server.Config{
		Data: a.path(f.data), Listen: f.listen, Samples: !f.noSamples, Version: buildVersion(),
		Logger:      logging.New(a.stderr, logging.Config{Level: level, Format: format, Redactor: redactor}),
		EgressAllow: append([]string{"127.0.0.0/8", "::1/128"}, f.allow...),
		AllowStdio:  f.allowStdio, PushURL: f.pushURL,
		SecretSeen: redactor.Add, Now: a.now, Health: &parley.HealthCheck{},
		LookupEnv: func(name string) (string, bool) { v := a.getenv(name); return v, v != "" },
	}
	if f.traces != "" {
		cfg.Traces = &server.Traces{Receiver: server.SpanReceiver{URL: f.traces}, Sample: 1}
	}
	if f.secretsDir != "" {
		cfg.SecretsDir = a.path(f.secretsDir)
	}
	for _, file := range f.agents {
		cfg.AgentFiles = append(cfg.AgentFiles, a.path(file))
	}
	for _, dir := range f.workflows {
		cfg.WorkflowDirs = append(cfg.WorkflowDirs, a.path(dir))
	}
	return cfg, nil
}

// introduce says what is running.
func (a *app) introduce(s *server.Server, f devFlags) {
	fmt.Fprintln(a.stdout, s.URL())
	if a.flags.quiet {
		return
	}
	t := tabwriter.NewWriter(a.stderr, 0, 4, 2, ' ', 0)
	fmt.Fprintf(t, "\nParley is running.\n\n")
	fmt.Fprintf(t, "  API\t%s\tkey in %s\n", s.URL(), filepath.Join(f.data, "key"))
	fmt.Fprintf(t, "  store\t%s\tSQLite, synced\n", filepath.Join(f.data, "parley.db"))
	for _, agent := range s.Samples() {
		fmt.Fprintf(t, "  agent\t%s\t%s at %s\n", agent.Name, agent.Protocol, agent.URL)
	}
	if !f.noSamples {
		fmt.Fprintf(t, "  workflow\thello\tgreeter, then polisher\n")
	}
	_ = t.Flush()
}

// runHello runs the sample workflow once, so that its steps are seen. where are the
// flags that a command finds the server by.
func (a *app) runHello(ctx context.Context, s *server.Server, where string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := client.New(client.Options{URL: s.URL(), Key: s.Key()})
	if err != nil {
		return err
	}
	a.note("\n$ %s run start hello --wait%s", a.program(), where)
	run, err := c.StartRun(ctx, parley.StartRequest{Workflow: "hello"})
	if err != nil {
		return err
	}
	if run, err = a.await(ctx, c, run, 0); err != nil {
		return err
	}
	a.note("%s", run.Output)
	return outcome(run)
}

// suggest names the next commands to type, with the flags that they find the
// server by.
func (a *app) suggest(where string) {
	a.note("\nIn another terminal:\n")
	for _, line := range []string{
		"run start hello --set name=Ada --wait", "run list", "agent call greeter --text Ada", "workflow show hello -o yaml",
	} {
		a.note("  %s %s%s", a.program(), line, where)
	}
	a.note("")
}

// program is how the program was called, so that what is suggested can be
// typed as it stands.
func (a *app) program() string {
	name := os.Args[0]
	if strings.ContainsRune(name, filepath.Separator) {
		if rel, err := filepath.Rel(a.dir, a.path(name)); err == nil && !strings.HasPrefix(rel, "..") {
			return "./" + rel
		}
	}
	return "parley"
}
