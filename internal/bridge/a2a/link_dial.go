package a2a

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

const (
	defaultStopWait = 5 * time.Second
	// killWait is for a process that is stuck in the kernel.
	killWait = 2 * time.Second
)

// dial makes the stream to an agent.
func (l *links) dial(ctx context.Context, to linkTarget) (jsonrpc.Stream, error) {
	if linkScheme(to.to.URL) == schemeStdio {
		return l.dialProcess(ctx, to)
	}
	return l.dialSocket(ctx, to)
}

// connConfig is how the connection to an agent behaves.
func (l *links) connConfig(k *link) jsonrpc.Config {
	to := k.target
	return jsonrpc.Config{
		Name: to.agent.Name, IDs: jsonrpc.UUIDs, Timeout: -1, // every call has a deadline
		MaxMessage: l.limits.MaxResponse, MaxDepth: bridge.MaxDepth,
		TrustRaw: true, // params are the codec's, around values that were checked
		Hooks: jsonrpc.Hooks{Notice: func(n jsonrpc.Notice) {
			kind, text := n.Kind.String(), bridge.Redact(to.agent, []byte(n.Err.Error()), maxLinkError)
			k.stray.Store(&stray{at: l.opts.Now(), text: kind + ": " + text})
			l.opts.Logger.LogAttrs(l.ctx, slog.LevelDebug, "agent_link_notice", slog.String("agent", to.agent.Name),
				slog.String("kind", kind), slog.String("error", text))
		}},
	}
}

// ---- processes

// child is the process of an agent. Its Close does not wait, so that calls that
// are under way learn at once that nothing will come any more.
type child struct {
	*jsonrpc.Subprocess
	once sync.Once
	gone chan struct{} // closed when the process has ended
}

// Close begins to stop the process: its stdin is closed, then it gets signals.
func (p *child) Close() error {
	p.once.Do(func() {
		go func() { // until gone is closed, which the link waits for
			defer close(p.gone)
			_ = p.Subprocess.Close() // Err tells the same
		}()
	})
	return nil
}

// told gives how the process ended, or else what ended the connection to it.
func (p *child) told(err error) error {
	if exit := p.Err(); exit != nil {
		return exit
	}
	return err
}

func (l *links) dialProcess(ctx context.Context, to linkTarget) (jsonrpc.Stream, error) {
	env, err := l.environment(to.agent)
	if err != nil {
		return nil, err
	}
	if _, command, _ := strings.Cut(to.to.URL, ":"); strings.TrimSpace(command) == "" {
		return nil, parley.Errorf(parley.CodeInvalid, "the URL names no program; write stdio:PROGRAM ARGUMENTS")
	}
	stream, err := rpcdial.Dial(ctx, to.to.URL, rpcdial.Config{
		Framing: jsonrpc.NewLineStream,
		Command: func(cmd *exec.Cmd) { cmd.Env = env },
		Subprocess: jsonrpc.SubprocessConfig{
			StderrLine:      newStderrLog(l.ctx, l.opts.Logger, to.agent, l.opts.Now).line,
			StderrLineLimit: maxStderrLine, StderrTail: maxStderrLine,
			CloseWait: l.opts.StopWait, TermWait: l.opts.StopWait, KillWait: killWait,
		},
	})
	if err != nil {
		return nil, err
	}
	p, ok := stream.(*jsonrpc.Subprocess)
	if !ok { // not with a command
		return nil, errors.Join(parley.Errorf(parley.CodeInternal, "the stream of a command is a %T", stream), stream.Close())
	}
	l.opts.Logger.LogAttrs(ctx, slog.LevelInfo, "agent_process_started", slog.String("agent", to.agent.Name), slog.Int("pid", p.PID()))
	return &child{Subprocess: p, gone: make(chan struct{})}, nil
}

// inherited are the variables that processes get of this server's environment:
// what programs need to find themselves, their files and the language of their
// user. Nothing else is passed on, since it may hold secrets; who needs more
// writes stdio:env NAME=VALUE PROGRAM, or names it in the agent's auth.
func inherited() []string {
	return []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "SystemRoot", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA",
	}
}

// environment is that of an agent's process: what it inherits, and the
// credentials of the agent under the names that its auth gives: the header of
// the types header and apikey, or those of headers. All other types belong to
// HTTP and are refused.
func (l *links) environment(agent parley.Agent) ([]string, error) {
	env := []string{}
	for _, name := range inherited() {
		if v, ok := l.opts.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	given := map[string]parley.Secret{}
	switch agent.Auth.Type {
	case "", parley.AuthNone:
	case parley.AuthHeader, parley.AuthAPIKey:
		given[agent.Auth.Header] = agent.Credential
	case parley.AuthHeaders:
		for name := range agent.Auth.Headers {
			given[name] = parley.Secret{}
			if agent.Resolved != nil {
				given[name] = agent.Resolved.Headers[name]
			}
		}
	default:
		return nil, parley.Errorf(parley.CodeInvalid,
			"a process cannot be given %s authentication; use auth type header with the name of an environment variable", agent.Auth.Type)
	}
	for name, secret := range given {
		switch {
		case !isVariable(name):
			return nil, parley.Errorf(parley.CodeInvalid,
				"%q is no name of an environment variable, which the auth of a process has to give (letters, digits and _)", limited(name))
		case secret.IsZero():
			return nil, parley.Errorf(parley.CodeAgentRejected, "the credential for the variable %s is empty", name)
		}
		env = append(env, name+"="+string(secret.Reveal()))
	}
	return env, nil
}

func isVariable(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// ---- WebSocket

func (l *links) dialSocket(ctx context.Context, to linkTarget) (jsonrpc.Stream, error) {
	if hasTLSSettings(to.agent) && !strings.HasPrefix(strings.ToLower(to.to.URL), schemeWSS+":") {
		return nil, parley.Errorf(parley.CodeInvalid, "the agent has TLS settings, and is to be called without TLS: its URL must begin with wss://")
	}
	x := l.opts.Exchange
	config, err := x.TLSConfig(to.agent)
	if err != nil {
		return nil, err
	}
	timeout := to.agent.Timeout
	if timeout <= 0 {
		timeout = defaultLinkTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	auth, err := x.Authorize(ctx, to.task, to.agent)
	if err != nil {
		return nil, err
	}
	stream, err := l.handshake(ctx, to, config, auth)
	if refused, ok := errors.AsType[*rpcws.HandshakeError](err); ok && refused.Status == http.StatusUnauthorized {
		fresh, ok, renewErr := x.Renew(ctx, to.task, to.agent, auth)
		if renewErr != nil {
			return nil, renewErr
		}
		if ok {
			return l.handshake(ctx, to, config, fresh)
		}
	}
	return stream, err
}

// handshake dials once, through the dialer of the exchange.
func (l *links) handshake(ctx context.Context, to linkTarget, config *tls.Config, auth bridge.Authorization) (jsonrpc.Stream, error) {
	x := l.opts.Exchange
	u, err := url.Parse(to.to.URL)
	if err != nil || u.Host == "" {
		// The parser's text repeats the URL, which may hold a secret.
		return nil, parley.Errorf(parley.CodeInvalid, "the URL of the agent cannot be read")
	}
	header := http.Header{"User-Agent": {x.UserAgent()}}
	if to.to.Version == V10 {
		header["A2A-Version"] = []string{string(V10)}
	}
	auth.SetHeader(header)
	secure := strings.EqualFold(u.Scheme, schemeWSS)
	return rpcws.Dial(ctx, auth.URL(u).String(), rpcws.DialConfig{
		Header: header,
		HTTPClient: &http.Client{
			Transport: &http.Transport{
				Proxy:             nil, // whatever the environment says
				DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return x.Dial(ctx, address, secure) },
				TLSClientConfig:   config,
				DisableKeepAlives: true, // one connection, one request

				MaxResponseHeaderBytes: int64(l.limits.MaxHeader),
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
}

// ---- what went wrong

// refused says why there is no link.
func (to linkTarget) refused(err error) *bridge.ExchangeError {
	c := &oneCall{op: operation{to: to.to, task: to.task, agent: to.agent}}
	if e, ok := errors.AsType[*bridge.ExchangeError](err); ok { // no access token
		return e
	}
	e := c.fail(bridge.NotSent, parley.CodeAgentUnavailable, "%v; nothing was sent", bare(err))
	e.Err.Retryable = !bridge.RefusedByEgress(err)
	if told, ok := errors.AsType[*parley.Error](err); ok {
		e = c.fail(bridge.NotSent, told.Code, "%s", told.Message)
	}
	if h, ok := errors.AsType[*rpcws.HandshakeError](err); ok {
		e.Status = h.Status
		if h.Status >= 300 && h.Status <= 499 && h.Status != http.StatusTooManyRequests {
			e.Err.Code, e.Err.Retryable = parley.CodeAgentRejected, false
		}
	}
	if linkScheme(to.to.URL) == schemeStdio { // a program that is not there does not come by waiting
		e.Err.Retryable = jsonrpc.Recoverable(err) && !errors.Is(err, fs.ErrNotExist)
	}
	return e
}

// bare is err without the names of packages before it.
func bare(err error) string {
	text := err.Error()
	for _, prefix := range []string{"rpcdial: ", "stdio: ", "jsonrpc: ", "start subprocess: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return "no connection: " + bridge.Cause(err)
	}
	return text
}

// ended says why a process is not there any more.
func (to linkTarget) ended(err error) *bridge.ExchangeError {
	c := &oneCall{op: operation{to: to.to, task: to.task, agent: to.agent}}
	why := "it closed its output"
	if exit, ok := errors.AsType[*jsonrpc.ExitError](err); ok {
		why = exitText(exit)
	}
	return mayRetry(c.fail(bridge.NotSent, parley.CodeAgentUnavailable, "%s; it is started again after a pause; nothing was sent", why))
}
