package config

import (
	"time"

	"github.com/parley-project/parley"
)

// What the settings of a zone connection may be.
const (
	SlackHTTP   = "http"
	SlackSocket = "socket"

	ZoneStrict  = "strict"
	ZoneRelaxed = "relaxed"

	TransportDirect    = "direct"
	TransportAgentCore = "agentcore"

	SigV4 = "sigv4"
	JWT   = "jwt"
)

// Zone has the two ends of a zone connection (interface.md); a process is one of
// them at most.
type Zone struct {
	Execution    ZoneExecution    `koanf:"execution"`
	Verification ZoneVerification `koanf:"verification"`
}

// ZoneExecution is the zone that does the work.
type ZoneExecution struct {
	// Listen is the address of /invocations and /ping, A2AListen that of the A2A
	// contract, "" for none.
	Listen    string `koanf:"listen"`
	A2AListen string `koanf:"a2a_listen"`
	// Workflow is the name of the workflow that a task starts, Agent that of the
	// agent that it is given to: one of the two.
	Workflow string `koanf:"workflow"`
	Agent    string `koanf:"agent"`
	// Profile is strict or relaxed.
	Profile string `koanf:"profile"`
	// SyncLimit is how long a caller waits before the task counts as accepted,
	// TaskLimit how long the task may take in all.
	SyncLimit time.Duration `koanf:"sync_limit"`
	TaskLimit time.Duration `koanf:"task_limit"`
	// MaxTasks bounds the tasks in hand, MaxRequest and MaxResult one message, in
	// bytes.
	MaxTasks   int   `koanf:"max_tasks"`
	MaxRequest int64 `koanf:"max_request"`
	MaxResult  int64 `koanf:"max_result"`
	// Public lets everybody who reaches the address use it, where the platform in
	// front has checked who calls.
	Public bool        `koanf:"public"`
	TLS    ServerTLS   `koanf:"tls"`
	Auth   InboundAuth `koanf:"auth"`
}

// ServerTLS are the certificates of an address, as files, "" for none. ClientCA
// makes a certificate of every caller required.
type ServerTLS struct {
	Cert     string `koanf:"cert"`
	Key      string `koanf:"key"`
	ClientCA string `koanf:"client_ca"`
}

// ClientTLS are the certificates of who calls, as files, "" for none. CA signs
// those of the other side.
type ClientTLS struct {
	CA   string `koanf:"ca"`
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// InboundAuth says who may call an Execution Zone.
type InboundAuth struct {
	Bearer parley.Secret `koanf:"-"`
	OIDC   InboundOIDC   `koanf:"oidc"`
}

// InboundOIDC accepts the tokens of an issuer that are for an audience.
type InboundOIDC struct {
	Issuer   string `koanf:"issuer"`
	Audience string `koanf:"audience"`
}

// ZoneVerification is the zone that talks with people.
type ZoneVerification struct {
	// Listen is the address of /slack/events and of the health checks.
	Listen string `koanf:"listen"`
	Slack  Slack  `koanf:"slack"`
	// Profile is strict or relaxed.
	Profile string `koanf:"profile"`
	// Transport is direct or agentcore. Wrap puts requests into messages of that
	// version of A2A, WrapBinding says over what: JSONRPC or HTTP+JSON.
	Transport   string        `koanf:"transport"`
	Wrap        string        `koanf:"wrap"`
	WrapBinding string        `koanf:"wrap_binding"`
	AgentCore   ZoneAgentCore `koanf:"agentcore"`
	Direct      ZoneDirect    `koanf:"direct"`
	// Deadline is how long a question may take in all, CallTimeout one call.
	Deadline    time.Duration `koanf:"deadline"`
	CallTimeout time.Duration `koanf:"call_timeout"`
	// MaxResult bounds one response of the other zone, in bytes.
	MaxResult int64 `koanf:"max_result"`
	// Concurrency bounds the questions in hand, Backlog those that wait.
	Concurrency int `koanf:"concurrency"`
	Backlog     int `koanf:"backlog"`
	// Keep is how long an answered question is remembered.
	Keep  time.Duration `koanf:"keep"`
	Allow SlackAllow    `koanf:"allow"`
	// RatePerMinute bounds the questions of one person, PromptLength the
	// characters of one.
	RatePerMinute int             `koanf:"rate_per_minute"`
	PromptLength  int             `koanf:"prompt_length"`
	Attachments   ZoneAttachments `koanf:"attachments"`
	// Language is that of the texts for people, en or ja; Texts is a YAML file of
	// texts by reason that replace them, "" for none.
	Language string `koanf:"language"`
	Texts    string `koanf:"texts"`
}

// Slack is how questions come and answers go.
type Slack struct {
	Mode          string        `koanf:"mode"`
	SigningSecret parley.Secret `koanf:"-"`
	BotToken      parley.Secret `koanf:"-"`
	AppToken      parley.Secret `koanf:"-"`
	APIURL        string        `koanf:"api_url"`
	// Channels: messages in channels count as questions, also without a mention.
	Channels bool `koanf:"channel_messages"`
	// Status is what is shown while the answer is on its way: reaction, assistant
	// or none.
	Status string `koanf:"status"`
}

// SlackAllow bounds who may ask, and where; an empty list bounds nothing.
type SlackAllow struct {
	Teams    []string `koanf:"teams"`
	Users    []string `koanf:"users"`
	Channels []string `koanf:"channels"`
}

// ZoneAttachments bound the files of one question.
type ZoneAttachments struct {
	Max      int      `koanf:"max"`
	Types    []string `koanf:"types"`
	Image    int64    `koanf:"image"`
	Document int64    `koanf:"document"`
}

// ZoneAgentCore calls the other zone by AWS Bedrock AgentCore.
type ZoneAgentCore struct {
	Endpoint   string        `koanf:"endpoint"`
	Region     string        `koanf:"region"`
	RuntimeARN string        `koanf:"runtime_arn"`
	Qualifier  string        `koanf:"qualifier"`
	Auth       string        `koanf:"auth"`
	Token      parley.Secret `koanf:"-"`
}

// ZoneDirect calls the other zone by HTTPS.
type ZoneDirect struct {
	URL  string       `koanf:"url"`
	TLS  ClientTLS    `koanf:"tls"`
	Auth OutboundAuth `koanf:"auth"`
}

// OutboundAuth is how this zone proves who it is.
type OutboundAuth struct {
	Bearer parley.Secret `koanf:"-"`
	OIDC   OutboundOIDC  `koanf:"oidc"`
	// GoogleAudience asks Google for ID tokens that are for it, "" does not.
	// GoogleAccess asks for access tokens, for Google's own APIs.
	GoogleAudience string `koanf:"google_audience"`
	GoogleAccess   bool   `koanf:"google_access"`
}

// OutboundOIDC gets tokens from an issuer by client credentials.
type OutboundOIDC struct {
	Issuer       string        `koanf:"issuer"`
	ClientID     string        `koanf:"client_id"`
	ClientSecret parley.Secret `koanf:"-"`
	Audience     string        `koanf:"audience"`
	Scopes       []string      `koanf:"scopes"`
}

// resolveZone reads the secrets of the zones.
func (l *loader) resolveZone(z *Zone) {
	v := &z.Verification
	z.Execution.Auth.Bearer = l.secret("zone.execution.auth.bearer")
	v.Slack.SigningSecret = l.secret("zone.verification.slack.signing_secret")
	v.Slack.BotToken = l.secret("zone.verification.slack.bot_token")
	v.Slack.AppToken = l.secret("zone.verification.slack.app_token")
	v.AgentCore.Token = l.secret("zone.verification.agentcore.token")
	v.Direct.Auth.Bearer = l.secret("zone.verification.direct.auth.bearer")
	v.Direct.Auth.OIDC.ClientSecret = l.secret("zone.verification.direct.auth.oidc.client_secret")
}

// below puts a path before the paths of settings.
func below(path string, all []Setting) []Setting {
	for i := range all {
		all[i].Path = path + "." + all[i].Path
	}
	return all
}

// executionSettings are those of the zone that does the work.
func executionSettings() []Setting {
	const second = int64(time.Second)
	return below("zone.execution", []Setting{
		{Path: "listen", Kind: KindText, Default: "127.0.0.1:8080", Help: "address of POST /invocations and GET /ping; a container of AgentCore needs 0.0.0.0:8080"},
		{Path: "a2a_listen", Kind: KindText, Default: "", Help: "address of the A2A contract, POST / and the agent card; a container of AgentCore needs 0.0.0.0:9000; empty: none"},
		{Path: "workflow", Kind: KindText, Default: "", Help: "workflow that execute_task starts"},
		{Path: "agent", Kind: KindText, Default: "", Help: "agent that execute_task is given to, instead of a workflow"},
		{Path: "profile", Kind: KindText, Default: ZoneRelaxed, Choices: []string{ZoneRelaxed, ZoneStrict}, Help: "strict: channel and bot_token are required, too"},
		{Path: "sync_limit", Kind: KindDuration, Default: 45 * time.Second, least: second / 10, most: 900 * second, Help: "how long a caller waits before it is told that the task was accepted"},
		{Path: "task_limit", Kind: KindDuration, Default: 15 * time.Minute, least: second, most: 8 * 3600 * second, Help: "how long a task may take"},
		{Path: "max_tasks", Kind: KindNumber, Default: int64(1024), least: 1, most: 1 << 20, Help: "tasks in hand; more are refused as overloaded"},
		{Path: "max_request", Kind: KindSize, Default: int64(10 << 20), least: 1 << 10, most: 100_000_000, Help: "body of one request"},
		{Path: "max_result", Kind: KindSize, Default: int64(10 << 20), least: 1 << 10, most: 100_000_000, Help: "body of one response"},
		{Path: "public", Kind: KindSwitch, Default: false, Help: "ask nobody who they are, also where others than this machine reach the address: the platform in front has checked it"},
		{Path: "tls.cert", Kind: KindFile, Default: "", Help: "certificate (PEM) of the address; empty: no TLS here"},
		{Path: "tls.key", Kind: KindFile, Default: "", Help: "key (PEM) of the certificate"},
		{Path: "tls.client_ca", Kind: KindFile, Default: "", Help: "certificates (PEM) that a caller's must be signed by; empty: callers need none"},
		{Path: "auth.bearer", Kind: KindSecret, Default: "", Help: "token that callers must have"},
		{Path: "auth.oidc.issuer", Kind: KindText, Default: "", Help: "issuer whose tokens callers must have"},
		{Path: "auth.oidc.audience", Kind: KindText, Default: "", Help: "audience that those tokens are for"},
	})
}

// verificationSettings are those of the zone that talks with people.
func verificationSettings() []Setting {
	const second = int64(time.Second)
	all := []Setting{
		{Path: "listen", Kind: KindText, Default: "127.0.0.1:8421", Help: "address of POST /slack/events, /healthz, /readyz and /metrics"},
		{Path: "slack.mode", Kind: KindText, Default: SlackHTTP, Choices: []string{SlackHTTP, SlackSocket}, Help: "how events come: by HTTP, or by a connection that this process makes (Socket Mode)"},
		{Path: "slack.signing_secret", Kind: KindSecret, Default: "", Old: []string{"SLACK_SIGNING_SECRET"}, Help: "what Slack signs its requests with (mode http)"},
		{Path: "slack.bot_token", Kind: KindSecret, Default: "", Old: []string{"SLACK_BOT_TOKEN"}, Help: "token that answers are posted with"},
		{Path: "slack.app_token", Kind: KindSecret, Default: "", Help: "token of the connection (mode socket)"},
		{Path: "slack.api_url", Kind: KindText, Default: "https://slack.com/api/", Help: "where Slack's Web API is"},
		{Path: "slack.channel_messages", Kind: KindSwitch, Default: false, Help: "messages in channels are questions, also without a mention"},
		{
			Path: "slack.status", Kind: KindText, Default: "reaction", Choices: []string{"reaction", "assistant", "none"},
			Help: "what is shown while the answer is on its way: a reaction to the question, the status line of an assistant's thread, or nothing",
		},
		{Path: "profile", Kind: KindText, Default: ZoneRelaxed, Choices: []string{ZoneRelaxed, ZoneStrict}, Help: "strict: the bot token goes to the other zone with each question"},
		{Path: "transport", Kind: KindText, Default: TransportDirect, Choices: []string{TransportDirect, TransportAgentCore}, Help: "how the other zone is called"},
		{Path: "wrap", Kind: KindText, Default: "", Choices: []string{"0.3", "1.0"}, Help: "version of A2A whose messages carry the requests, for platforms that know nothing else; empty: bare requests"},
		{Path: "wrap_binding", Kind: KindText, Default: "JSONRPC", Choices: []string{"JSONRPC", "HTTP+JSON"}, Help: "binding of A2A that those messages go by; direct.url is then where they are sent to"},
		{Path: "agentcore.endpoint", Kind: KindText, Default: "", Help: "URL of the service; empty: that of the region"},
		{Path: "agentcore.region", Kind: KindText, Default: "", Old: []string{"AWS_REGION_NAME"}, Help: "region of the runtime; empty: that of the environment"},
		{Path: "agentcore.runtime_arn", Kind: KindText, Default: "", Old: []string{"EXECUTION_AGENT_ARN"}, Help: "ARN of the runtime"},
		{Path: "agentcore.qualifier", Kind: KindText, Default: "", Help: "endpoint of the runtime; empty: DEFAULT"},
		{Path: "agentcore.auth", Kind: KindText, Default: SigV4, Choices: []string{SigV4, JWT}, Help: "sigv4: credentials of AWS from their usual places; jwt: agentcore.token"},
		{Path: "agentcore.token", Kind: KindSecret, Default: "", Help: "token of auth jwt"},
		{Path: "direct.url", Kind: KindText, Default: "", Help: "URL of the other zone's /invocations"},
		{Path: "direct.tls.ca", Kind: KindFile, Default: "", Help: "certificates (PEM) that the other zone's is signed by; empty: those of the system"},
		{Path: "direct.tls.cert", Kind: KindFile, Default: "", Help: "own certificate (PEM)"},
		{Path: "direct.tls.key", Kind: KindFile, Default: "", Help: "key (PEM) of the own certificate"},
		{Path: "direct.auth.bearer", Kind: KindSecret, Default: "", Help: "token for the other zone"},
		{Path: "direct.auth.oidc.issuer", Kind: KindText, Default: "", Help: "issuer of tokens for the other zone, by client credentials"},
		{Path: "direct.auth.oidc.client_id", Kind: KindText, Default: "", Help: "who this zone is to the issuer"},
		{Path: "direct.auth.oidc.client_secret", Kind: KindSecret, Default: "", Help: "secret of the client"},
		{Path: "direct.auth.oidc.audience", Kind: KindText, Default: "", Help: "audience of the tokens"},
		{Path: "direct.auth.oidc.scopes", Kind: KindList, Default: []string{}, Help: "scopes of the tokens"},
		{Path: "direct.auth.google_access", Kind: KindSwitch, Default: false, Help: "send Google's access tokens, which Google's own APIs want, such as Vertex AI Agent Engine"},
		{Path: "direct.auth.google_audience", Kind: KindText, Default: "", Help: "audience of Google's ID tokens for the other zone, such as the URL of a Cloud Run service"},
		{Path: "deadline", Kind: KindDuration, Default: 2 * time.Minute, least: second, most: 8 * 3600 * second, Help: "how long a question may take"},
		{Path: "call_timeout", Kind: KindDuration, Default: time.Minute, least: second / 10, most: 900 * second, Help: "time limit of one call of the other zone; more than its sync_limit"},
		{Path: "max_result", Kind: KindSize, Default: int64(10 << 20), least: 1 << 10, most: 100_000_000, Help: "one response of the other zone; as much as its max_result"},
	}
	return below("zone.verification", append(all, questionSettings()...))
}

// questionSettings bound questions and what is said about them.
func questionSettings() []Setting {
	const second = int64(time.Second)
	return []Setting{
		{Path: "concurrency", Kind: KindNumber, Default: int64(64), least: 1, most: 4096, Help: "questions in hand at the same time"},
		{Path: "backlog", Kind: KindNumber, Default: int64(10_000), least: 1, most: 1_000_000, Help: "questions that wait; more are refused"},
		{Path: "keep", Kind: KindDuration, Default: 24 * time.Hour, least: 3600 * second, most: 365 * 24 * 3600 * second, Help: "how long an answered question is kept"},
		{Path: "allow.teams", Kind: KindList, Default: []string{}, Help: "teams that may ask; empty: all"},
		{Path: "allow.users", Kind: KindList, Default: []string{}, Help: "people who may ask; empty: all"},
		{Path: "allow.channels", Kind: KindList, Default: []string{}, Help: "channels where questions are answered; empty: all"},
		{Path: "rate_per_minute", Kind: KindNumber, Default: int64(10), least: 1, most: 10_000, Old: []string{"RATE_LIMIT_PER_MINUTE"}, Help: "questions of one person"},
		{Path: "prompt_length", Kind: KindNumber, Default: int64(4000), least: 1, most: 100_000, Help: "characters of one question"},
		{Path: "attachments.max", Kind: KindNumber, Default: int64(5), least: 0, most: 50, Help: "files of one question"},
		{Path: "attachments.types", Kind: KindList, Default: []string{}, Old: []string{"ALLOWED_MIME_TYPES"}, Help: "MIME types of files, such as image/* or text/plain; empty: common images, text and office documents"},
		{Path: "attachments.image", Kind: KindSize, Default: int64(10 << 20), least: 1 << 10, most: 1 << 30, Help: "one image"},
		{Path: "attachments.document", Kind: KindSize, Default: int64(5 << 20), least: 1 << 10, most: 1 << 30, Help: "one other file"},
		{Path: "language", Kind: KindText, Default: "en", Choices: []string{"en", "ja"}, Help: "language of the texts for people"},
		{Path: "texts", Kind: KindFile, Default: "", Help: "YAML file of texts that replace them, by reason"},
	}
}
