package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/net/http/httpproxy"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/logging"
	"github.com/parley-project/parley/internal/server"
)

// newZoneCommand makes `parley zone`, the two ends of a zone connection.
func newZoneCommand(a *app) *cobra.Command {
	cmd := newGroup("zone", "Serve one end of a zone connection: verification (people) or execution (work)", `
  parley zone execution --config execution.yaml
  parley zone verification --config verification.yaml`)
	cmd.Long = `A zone connection has two ends, each a process with a database of its own. The
Verification Zone takes questions from Slack and posts the answers; the Execution
Zone does the work. Between them goes execute_task, JSON-RPC 2.0 over HTTPS or AWS
Bedrock AgentCore. docs/zones.md shows both, step by step.`
	cmd.AddCommand(newZoneExecutionCommand(a), newZoneVerificationCommand(a))
	return cmd
}

func newZoneExecutionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "execution", Short: "Serve an Execution Zone: execute_task starts a workflow, or calls an agent",
		Long: `Serve POST /invocations and GET /ping (the HTTP contract of AgentCore), and, with
zone.execution.a2a_listen, POST / and the agent card (its A2A contract). The zone
does its work itself: everything that parley serve has is there as well.`,
		Example: `  parley zone execution --config execution.yaml
  parley zone execution --workflows ./flows --zone.execution.workflow answer`,
		Args: need(),
	}
	f := addSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.zoneExecution(cmd.Context(), f) }
	return cmd
}

func newZoneVerificationCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "verification", Short: "Serve a Verification Zone: questions from Slack, answers into the thread",
		Long: `Take questions from Slack, at POST /slack/events or over Socket Mode, have them
answered by an Execution Zone, and post each answer into its thread, once.`,
		Example: `  parley zone verification --config verification.yaml`,
		Args:    need(),
	}
	f := addSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.zoneVerification(cmd.Context(), f) }
	return cmd
}

func (a *app) zoneExecution(ctx context.Context, f *settingFlags) error {
	loaded, err := f.load(a)
	if err != nil {
		return err
	}
	cfg, redactor, err := a.serverConfig(loaded)
	if err != nil {
		return err
	}
	z := loaded.Zone.Execution
	if !z.Auth.Bearer.IsZero() {
		redactor.Keep(z.Auth.Bearer)
	}
	cfg.Execution = &server.ExecutionZone{
		Listen: z.Listen, A2AListen: z.A2AListen, Workflow: z.Workflow, Agent: z.Agent, Profile: server.ZoneProfile(z.Profile),
		SyncLimit: z.SyncLimit, TaskLimit: z.TaskLimit, MaxTasks: z.MaxTasks, MaxRequest: int(z.MaxRequest), MaxResponse: int(z.MaxResult),
		Public: z.Public, Cert: z.TLS.Cert, Key: z.TLS.Key, ClientCA: z.TLS.ClientCA,
		Bearer: z.Auth.Bearer, Issuer: z.Auth.OIDC.Issuer, Audience: z.Auth.OIDC.Audience,
	}
	return a.serveWith(ctx, loaded, cfg)
}

func (a *app) zoneVerification(ctx context.Context, f *settingFlags) error {
	loaded, err := f.load(a)
	if err != nil {
		return err
	}
	cfg, err := a.verificationConfig(loaded)
	if err != nil {
		return err
	}
	for _, note := range loaded.Notes {
		cfg.Logger.Warn("configuration", "note", note)
	}
	v, err := server.NewVerification(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, v.URL())
	a.note("verification zone at %s", v.URL())
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	a.note("stopping: questions that have no answer yet go on at the next start; a second signal ends at once")
	return <-ended
}

// verificationConfig makes what a Verification Zone is built from.
func (a *app) verificationConfig(l *config.Loaded) (server.VerificationConfig, error) {
	z := l.Zone.Verification
	texts, err := a.zoneTexts(z.Texts)
	if err != nil {
		return server.VerificationConfig{}, err
	}
	redactor := logging.NewRedactor()
	for _, secret := range []parley.Secret{
		z.Slack.SigningSecret, z.Slack.BotToken, z.Slack.AppToken, z.AgentCore.Token, z.Direct.Auth.Bearer,
		z.Direct.Auth.OIDC.ClientSecret, l.Database.URL,
	} {
		if !secret.IsZero() {
			redactor.Keep(secret)
		}
	}
	files := z.Attachments.Max
	if files == 0 { // of which the zone would make its default
		files = -1
	}
	mode := server.SlackHTTP
	if z.Slack.Mode == config.SlackSocket {
		mode = server.SlackSocket
	}
	return server.VerificationConfig{
		Data: l.Data, DatabaseURL: l.Database.URL, DatabaseCurrent: databaseCurrent(l.Database, redactor.Add), SchemaAsIs: l.Database.Migrate != config.MigrateAuto, Listen: z.Listen,
		Slack: server.ZoneSlack{
			Mode: mode, SigningSecret: z.Slack.SigningSecret, BotToken: z.Slack.BotToken, AppToken: z.Slack.AppToken,
			APIURL: z.Slack.APIURL, Proxy: a.proxy(), Messages: z.Slack.Channels, Status: server.SlackStatus(z.Slack.Status),
		},
		Limits: server.ZoneLimits{
			Teams: z.Allow.Teams, Users: z.Allow.Users, Channels: z.Allow.Channels, PerMinute: z.RatePerMinute, Prompt: z.PromptLength,
			Files: files, Types: z.Attachments.Types, ImageBytes: z.Attachments.Image, DocumentBytes: z.Attachments.Document,
			Concurrent: z.Concurrency, Backlog: z.Backlog,
		},
		Timing:  server.ZoneTiming{Deadline: z.Deadline, Keep: z.Keep},
		Profile: server.ZoneProfile(z.Profile), Transport: a.zoneTransport(z), Language: z.Language, Texts: texts,
		Logger: a.logger(l.Log, redactor), Now: a.now,
	}, nil
}

// zoneTransport says how the other zone is called.
func (a *app) zoneTransport(z config.ZoneVerification) server.ZoneTransport {
	t := server.ZoneTransport{Wrap: z.Wrap, WrapBinding: z.WrapBinding, Timeout: z.CallTimeout, MaxResponse: int(z.MaxResult), Proxy: a.proxy()}
	if z.Transport == config.TransportAgentCore {
		c := z.AgentCore
		t.RuntimeARN, t.Qualifier, t.Region, t.Endpoint = c.RuntimeARN, c.Qualifier, c.Region, c.Endpoint
		t.JWT, t.Bearer = c.Auth == config.JWT, c.Token
		return t
	}
	d := z.Direct
	t.URL, t.CA, t.Cert, t.Key = d.URL, d.TLS.CA, d.TLS.Cert, d.TLS.Key
	t.Bearer, t.GoogleAudience, t.GoogleAccess = d.Auth.Bearer, d.Auth.GoogleAudience, d.Auth.GoogleAccess
	t.OIDC = server.ZoneOIDC{
		Issuer: d.Auth.OIDC.Issuer, ClientID: d.Auth.OIDC.ClientID, ClientSecret: d.Auth.OIDC.ClientSecret, Audience: d.Auth.OIDC.Audience,
		Scopes: d.Auth.OIDC.Scopes,
	}
	return t
}

// proxy chooses as the clients of others do by HTTPS_PROXY, HTTP_PROXY and NO_PROXY: in
// many networks there is no other way to Slack, or to a cloud.
func (a *app) proxy() func(*http.Request) (*url.URL, error) {
	choose := (&httpproxy.Config{
		HTTPSProxy: cmp.Or(a.getenv("HTTPS_PROXY"), a.getenv("https_proxy")),
		HTTPProxy:  cmp.Or(a.getenv("HTTP_PROXY"), a.getenv("http_proxy")),
		NoProxy:    cmp.Or(a.getenv("NO_PROXY"), a.getenv("no_proxy")),
	}).ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
}

// zoneTexts reads the file of texts that replace those for people.
func (a *app) zoneTexts(name string) (map[string]string, error) {
	if name == "" {
		return nil, nil
	}
	data, err := readSmall(name)
	if err != nil {
		return nil, usagef("zone.verification.texts: %v", err)
	}
	texts := map[string]string{}
	if err := yaml.Unmarshal(data, &texts); err != nil {
		return nil, invalidf("zone.verification.texts: %s is no YAML map of texts by reason: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return texts, nil
}
