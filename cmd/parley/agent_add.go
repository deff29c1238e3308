package main

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
	"github.com/parley-project/parley/internal/registry"
)

// agentFlags are those of agent add and agent set.
type agentFlags struct {
	name, url, protocol, method, config, description string
	auth                                             authFlags
	outcome, status                                  string
	timeout                                          time.Duration
	idempotent                                       bool
	concurrent                                       int
	breaker, limits, health                          string
	priority                                         int
}

// register adds the flags that adding and changing have in common.
func (f *agentFlags) register(cmd *cobra.Command) {
	f.registerAccess(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.outcome, "outcome-unknown", "", "what to do when nobody knows whether a call was done: lookup, resend or fail; a new agent: lookup of jsonrpc-2.0, resend of simple-a2a")
	fl.StringVar(&f.description, "description", "", "what the agent does")
	fl.BoolVar(&f.idempotent, "idempotent", false, "the agent does the same task once, however often it is sent")
	fl.StringVar(&f.breaker, "breaker", "", "circuit breaker: on, off, none (the server's default), or its settings as JSON")
	fl.StringVar(&f.health, "health", "", "how the agent is looked at in the background: on or none (as the server says), off, or the interval, such as 10s")
	fl.IntVar(&f.concurrent, "max-concurrent", 0, "bound on the calls in flight; 0 is the server's default")
	fl.StringVar(&f.limits, "limits", "", `further limits as JSON, such as {"rate": "10/s", "burst": 20}; none is their defaults`)
	fl.IntVar(&f.priority, "priority", 0, "share among the agents that wait: 1 to 10; 0 is the default, 5")
	complete(cmd, "outcome-unknown", string(parley.OutcomeLookup), string(parley.OutcomeResend), string(parley.OutcomeFail))
	neverEmpty(cmd, "outcome-unknown", "protocol")
}

// registerAccess adds those that say how the agent is reached and spoken to.
func (f *agentFlags) registerAccess(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.protocol, "protocol", "", "simple-a2a, jsonrpc-2.0, or auto to find it out")
	fl.StringVar(&f.config, "config", "", "settings of the protocol: JSON, @FILE, or - for standard input")
	fl.StringVar(&f.method, "method", "", "JSON-RPC method, such as message/send; replaces the settings of the protocol")
	f.auth.register(cmd)
	fl.DurationVar(&f.timeout, "timeout", 0, "bound on one HTTP exchange: 1s to 300s; 30s for a new agent")
	complete(cmd, "protocol", parley.ProtocolSimpleA2A, parley.ProtocolJSONRPC, parley.ProtocolAuto)
}

// agentSpec gives what the flags say; changed tells which of them were given.
func (a *app) agentSpec(f *agentFlags, changed func(string) bool) (parley.AgentSpec, error) {
	var s parley.AgentSpec
	text := func(name string, to **string, value string) {
		if changed(name) {
			*to = &value
		}
	}
	text("agent-url", &s.URL, f.url)
	text("description", &s.Description, f.description)
	text("protocol", &s.Protocol, f.protocol)
	if changed("timeout") {
		s.Timeout = &f.timeout
	}
	if changed("outcome-unknown") {
		s.OutcomeUnknown = new(parley.OutcomePolicy(f.outcome))
	}
	if changed("idempotent") {
		s.Idempotent = &f.idempotent
	}
	if changed("max-concurrent") {
		s.MaxConcurrent = &f.concurrent
	}
	if err := a.loadSpec(f, changed, &s); err != nil {
		return s, err
	}
	if changed("health") {
		var err error
		if s.Health, err = healthSpec(f.health); err != nil {
			return s, err
		}
	}
	if changed("status") {
		s.Status = new(parley.AgentStatus(f.status))
	}
	if err := a.configSpec(f, changed, &s); err != nil {
		return s, err
	}
	if changed("method") {
		b, err := toJSON(map[string]string{"method": f.method})
		if err != nil {
			return s, err
		}
		s.ProtocolConfig = b
	}
	var err error
	if s.Auth, err = a.authSpec(&f.auth, changed); err != nil {
		return s, err
	}
	s.TLS, err = f.auth.tlsSpec(changed)
	return s, err
}

// loadSpec reads what says how much the agent gets, and when nothing.
func (a *app) loadSpec(f *agentFlags, changed func(string) bool, s *parley.AgentSpec) (err error) {
	if changed("priority") {
		s.Priority = &f.priority
	}
	if changed("breaker") {
		if s.Breaker, err = a.breakerSpec(f.breaker); err != nil {
			return err
		}
	}
	if changed("limits") {
		s.Limits, err = a.limitsSpec(f.limits)
	}
	return err
}

// configSpec reads --config.
func (a *app) configSpec(f *agentFlags, changed func(string) bool, s *parley.AgentSpec) error {
	if !changed("config") {
		return nil
	}
	if changed("method") {
		return usagef("--method and --config say the same: give one of them")
	}
	if f.config == "-" && f.auth.secret == "@-" {
		return usagef("--config and --auth-secret cannot both be read from standard input")
	}
	config, err := a.readValue("--config", f.config)
	if err != nil {
		return err
	}
	if len(config) == 0 || config[0] != '{' && string(config) != "null" {
		return usagef("--config must be a JSON object, or null for none")
	}
	s.ProtocolConfig = config
	return nil
}

func newAgentAdd(a *app) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "add URL|FILE",
		Short: "Register an agent, or all agents of a file",
		Long: `Register the agent at a URL, or all agents of a YAML file (agents: [{name, url,
protocol, ...}]).

Without --protocol the server finds out what the agent at a URL speaks: by its
card, and without one by a question that gives it no work. What it found and why
is printed. Without --name the card's name is taken, else the host. An agent may
also be a program that the server runs (stdio:PROGRAM ARGUMENTS) or a WebSocket
endpoint (ws:// or wss://); both speak jsonrpc-2.0.

Agents of a file are as the file says, and simple-a2a if it names no protocol,
whether they have a card or not; protocol: auto finds it out. Flags are for a URL.`,
		Example: `  parley agent add http://127.0.0.1:9001/
  parley agent add https://agents.example.com/greeter --name greeter --protocol simple-a2a
  parley agent add https://agents.example.com/a2a --auth bearer --auth-secret env:PARLEY_SECRET_GREETER
  parley agent add "stdio:python agent.py" --name helper
  parley agent add agents.yaml`,
		Args: need("URL or FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !isAgentURL(args[0]) {
				if strings.Contains(args[0], "://") { // which may hold a password
					return usagef("the agent's URL must begin with " + agentSchemes)
				}
				if ownFlags(cmd) > 0 {
					return usagef("%s is taken for a file: the flags of an agent go with a URL that begins with %s", args[0], agentSchemes)
				}
				return a.agentAddFile(cmd.Context(), args[0])
			}
			if isAgentLink(args[0]) {
				return a.agentAddLink(cmd, args[0], f)
			}
			return a.agentAdd(cmd, args[0], f)
		},
	}
	cmd.Flags().StringVar(&f.name, "name", "", "name of the agent (default: the card's name, else the host)")
	f.register(cmd)
	neverEmpty(cmd, "name", "outcome-unknown", "protocol")
	cmd.Flags().Lookup("protocol").Usage = "with a URL: simple-a2a, jsonrpc-2.0, or auto (the default) to find it out; a FILE says it in the member protocol, default simple-a2a"
	return cmd
}

// agentSchemes are what the URLs of agents begin with.
const agentSchemes = "http://, https://, ws://, wss:// or stdio:"

func (a *app) agentAdd(cmd *cobra.Command, address string, f agentFlags) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return usagef("the agent's URL cannot be read")
	}
	if u.User != nil {
		return usagef("the agent's URL must not hold a user or password: use --auth and --auth-secret")
	}
	spec, err := a.agentSpec(&f, cmd.Flags().Changed)
	if err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	spec.URL = &address
	var found parley.Detection
	if f.protocol == "" || f.protocol == parley.ProtocolAuto {
		spec.Protocol = nil
		if found, err = a.found(ctx, c, spec); err != nil {
			return err
		}
		// The server remembers for a while what it found.
		spec.Protocol = new(parley.ProtocolAuto)
	}
	if spec.Description == nil && found.Description != "" {
		spec.Description = &found.Description
	}
	name := cmp.Or(f.name, slug(found.Name), slug(hostOf(u)))
	spec.Name = &name
	g, err := c.AddAgent(ctx, spec)
	if err != nil {
		return taken(err, name)
	}
	return a.showAgent(g)
}

// taken adds what to do when a name is taken.
func taken(err error, name string) error {
	f := classify(err)
	if f.exit != exitConflict {
		return err
	}
	c := *f
	return c.withHint("parley agent show %[1]s; names stay taken: give another with --name, or change it with parley agent set %[1]s; --status active brings back one that was removed", shellWord(name))
}

// agentAddFile registers all agents of a file; one that is refused does not
// keep the next from being tried.
func (a *app) agentAddFile(ctx context.Context, file string) error {
	name, source, err := a.readDocument(file)
	if err != nil {
		return err
	}
	specs, problems := registry.LoadFile(name, source)
	for _, p := range byPlace(problems) {
		if p.Severity == parley.SeverityError {
			a.writeProblem(p)
		} else {
			a.note("%s", problemLine(p))
		}
	}
	if n := errorCount(problems); n > 0 {
		return invalidf("%s: %s", name, plural(n, "error"))
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	added := []client.Agent{}
	var errs []error
	for _, spec := range specs {
		g, err := c.AddAgent(ctx, spec)
		if err != nil {
			err = taken(err, *spec.Name)
			a.report(err)
			errs = append(errs, err)
			continue
		}
		added = append(added, g)
	}
	if err := showList(a, listing[client.Agent]{whole: added, items: added, columns: agentRecordColumns(), none: "no agents were added"}); err != nil {
		return err
	}
	a.noteProtocols(specs, added)
	if len(added) > 0 && len(errs) == 0 {
		a.next("parley agent call %s --text hello", shellWord(added[0].Name))
	}
	return a.all(errs)
}

// noteProtocols says which agents of a file have the protocol that files have always
// meant without one: unlike that of a URL, it was not found out.
func (a *app) noteProtocols(specs []parley.AgentSpec, added []client.Agent) {
	unsaid := map[string]bool{}
	for _, spec := range specs {
		unsaid[*spec.Name] = spec.Protocol == nil
	}
	var names []string
	for _, g := range added {
		if unsaid[g.Name] {
			names = append(names, g.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	one := "NAME"
	if len(names) == 1 {
		one = shellWord(names[0])
	}
	a.note("protocol of %s: %s, the default of files; parley agent detect %s looks for a card", strings.Join(names, ", "), parley.ProtocolSimpleA2A, one)
}

func newAgentSet(a *app) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change an agent's record",
		Example: `  parley agent set greeter --agent-url https://agents.example.com/greeter --timeout 60s
  parley agent set greeter --limits '{"rate": "10/s", "queue": 1000}' --priority 7
  parley agent set greeter --status inactive
  parley agent set greeter --auth none`,
		Args: need("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := a.agentSpec(&f, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			if ownFlags(cmd) == 0 {
				return usagef("nothing is to change: give at least one flag").withHint("%s --help", cmd.CommandPath())
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			g, err := c.SetAgent(cmd.Context(), args[0], spec)
			if err != nil {
				return a.nearMiss(cmd.Context(), c, err, nameHint{name: args[0], list: agentNames, command: "parley agent list"})
			}
			return a.showAgent(g)
		},
		ValidArgsFunction: a.completeNames(agentNames),
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.url, "agent-url", "", "where the agent is (--url is the server's)")
	cmd.Flags().StringVar(&f.status, "status", "", "active or inactive")
	complete(cmd, "status", string(parley.AgentActive), string(parley.AgentInactive))
	return cmd
}

// ownFlags counts the flags that were given and are not those of every command.
func ownFlags(cmd *cobra.Command) int {
	n := 0
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			n++
		}
	})
	return n
}
