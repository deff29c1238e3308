package agentcore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockagentcore"
	"github.com/google/uuid"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
)

// An AuthMode says what a runtime believes.
type AuthMode string

// The modes: signatures of version 4, or bearer tokens.
const (
	SigV4 AuthMode = "sigv4"
	JWT   AuthMode = "jwt"
)

// Config is what a Transport is made of. RuntimeARN is required.
type Config struct {
	// RuntimeARN names the runtime, Qualifier its endpoint; "" is DEFAULT.
	RuntimeARN, Qualifier string
	// Region is where requests are signed for and go to; "" is that of the ARN.
	Region string
	// Endpoint is a URL in place of that of AWS; AllowHTTP takes http to anywhere.
	// With SigV4 the SDK also takes one from the environment, which is logged.
	Endpoint  string
	AllowHTTP bool
	// Auth is what the runtime believes; default SigV4.
	Auth AuthMode
	// Credentials sign; nil is the chain of the SDK.
	Credentials aws.CredentialsProvider
	// Authorize adds the token; JWT needs it.
	Authorize direct.Authorizer
	// TLS, Dial, Proxy, Timeout, MaxResponse and Retry are those of direct.Config.
	TLS         *tls.Config
	Dial        direct.DialFunc
	Proxy       func(*http.Request) (*url.URL, error)
	Timeout     time.Duration
	MaxResponse int64
	Retry       direct.Retry
	// NewID gives what is unique, of up to 64 letters, digits and dashes; default is
	// a UUID.
	NewID func() string
	// Logger tells of a redirected endpoint and of quotas that are used up; nil is
	// none.
	Logger *slog.Logger
}

// CorrelationHeader carries the correlation id. A runtime passes it on to its
// container if its header allow-list has it.
const CorrelationHeader = "X-Amzn-Bedrock-AgentCore-Runtime-Custom-Correlation-Id"

const (
	sessionHeader   = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
	requestIDHeader = "X-Amzn-Requestid"

	defaultTimeout     = 15 * time.Minute // the platform's limit of a synchronous request
	defaultMaxResponse = 16 << 20
	releaseTimeout     = 30 * time.Second
	maxStopAnswer      = 1 << 20
)

// Transport is a [zone.Transport] and a [zone.Releaser]. Close it in the end.
type Transport struct {
	cfg Config

	// For SigV4: the SDK's client, and what it sends through.
	client *bedrockagentcore.Client
	wire   *direct.Wire

	// For JWT: calls and the ends of sessions.
	calls, stops *direct.Transport
}

var (
	_ zone.Transport = (*Transport)(nil)
	_ zone.Releaser  = (*Transport)(nil)
)

// New checks cfg and returns a Transport. It connects to nothing, but it reads the
// configuration of the SDK with SigV4.
func New(ctx context.Context, cfg Config) (*Transport, error) {
	arn := strings.Split(cfg.RuntimeARN, ":")
	if len(arn) != 6 || arn[0] != "arn" || arn[2] != "bedrock-agentcore" || !strings.HasPrefix(arn[5], "runtime/") || len(arn[5]) == len("runtime/") {
		return nil, errors.New("zone: runtime_arn must be like arn:aws:bedrock-agentcore:REGION:ACCOUNT:runtime/NAME")
	}
	if cfg.Region == "" {
		cfg.Region = arn[3]
	}
	if cfg.Region == "" || cfg.Region != arn[3] {
		return nil, fmt.Errorf("zone: the region is %q and that of runtime_arn is %q", cfg.Region, arn[3])
	}
	if cfg.Endpoint != "" {
		if _, err := direct.CheckURL(cfg.Endpoint, cfg.AllowHTTP); err != nil {
			return nil, err
		}
	}
	cfg = cfg.withDefaults()
	if cfg.MaxResponse < 0 || cfg.MaxResponse > zone.MaxPayload || cfg.Timeout < 0 {
		return nil, fmt.Errorf("zone: the limit of a response must be 1 to %d bytes, and the timeout more than 0", zone.MaxPayload)
	}
	switch cfg.Auth {
	case SigV4:
		return newSigned(ctx, cfg)
	case JWT:
		return newBearer(ctx, cfg)
	}
	return nil, fmt.Errorf("zone: agentcore.auth must be %s or %s", SigV4, JWT)
}

func (c Config) withDefaults() Config {
	if c.Auth == "" {
		c.Auth = SigV4
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.MaxResponse == 0 {
		c.MaxResponse = defaultMaxResponse
	}
	if c.NewID == nil {
		c.NewID = uuid.NewString
	}
	if c.Retry.Now == nil {
		c.Retry.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// sessionForm is what both the request and the response model of the platform take.
var sessionForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{32,99}$`)

// session gives the session that a call belongs to: that of an earlier one, that of
// its task, or one of its own. That of a task is made of its id, so that whoever does
// not know what became of a call finds it again.
func (c Config) session(meta zone.Meta) (string, error) {
	const prefix = "parley-zone-session-"
	id := meta.Affinity
	if id == "" && meta.Task != "" && sessionForm.MatchString(prefix+meta.Task) {
		id = prefix + meta.Task
	}
	if id == "" {
		id = prefix + c.NewID()
	}
	return id, checkSession(id)
}

func checkSession(id string) error {
	if !sessionForm.MatchString(id) {
		return errors.New("a session id must have 33 to 100 letters, digits, dashes and underscores")
	}
	return nil
}

// Close ends the connections that nobody uses.
func (t *Transport) Close() {
	if t.wire != nil {
		t.wire.Close()
		return
	}
	t.calls.Close()
	t.stops.Close()
}

// Call sends body, as [zone.Transport] says.
//
//	not sent, 429 in all its forms, retryable conflict    repeated
//	quotas used up                                        throttled
//	409                                                   conflict-retry
//	401, 403                                              auth
//	400, 404, 3xx, 2xx without JSON                       bad-response
//	413                                                   too-large
//	424, 5xx, nothing or half an answer                   unknown-outcome
//	a JSON-RPC response of the container, any status      returned
func (t *Transport) Call(ctx context.Context, body []byte, meta zone.Meta) ([]byte, zone.Info, error) {
	call := t.callSigned
	if t.client == nil {
		call = t.calls.Call
	}
	out, info, err := call(ctx, body, meta)
	if r, ok := errors.AsType[*refusal](err); ok && r.alert {
		t.cfg.Logger.ErrorContext(ctx, "a quota of AgentCore is used up: no more sessions or calls until it is raised or some end",
			"runtime_arn", t.cfg.RuntimeARN, "status", r.status, "type", r.kind, "request_id", info.ProviderRequestID)
	}
	return out, info, err
}

// Release ends a session. One that is gone is no error.
func (t *Transport) Release(ctx context.Context, affinity string) error {
	if affinity == "" {
		return nil
	}
	if err := checkSession(affinity); err != nil {
		return &zone.TransportError{Class: zone.ClassNotSent, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if t.client != nil {
		return t.releaseSigned(ctx, affinity)
	}
	_, _, err := t.stops.Call(ctx, []byte(`{"clientToken":"`+t.clientToken()+`"}`), zone.Meta{Affinity: affinity})
	return err
}

// clientToken is unique, and long enough for the platform.
func (t *Transport) clientToken() string { return "parley-zone-session-stop-" + t.cfg.NewID() }

// judgeStop takes whatever says that a session is no more.
func judgeStop(a direct.Answer, now time.Time) *zone.TransportError {
	if a.Status >= 200 && a.Status < 300 || a.Status == http.StatusNotFound {
		return nil
	}
	return judge(a, now)
}
