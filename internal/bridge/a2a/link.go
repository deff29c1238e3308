package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/jsonrpc"
)

// linkOptions is what agents on stdio and WebSocket need.
type linkOptions struct {
	// Now reads the clock; nil is time.Now.
	Now func() time.Time
	// Exchange opens the connections of WebSocket agents under its egress
	// policy, authorizes them, and bounds requests and answers.
	Exchange *bridge.Exchange
	// Logger gets what processes write to stderr, and how they end; nil: nobody.
	Logger *slog.Logger
	// Stdio allows to run the programs that agent records name.
	Stdio bool
	// LookupEnv is the environment of which processes inherit a few variables
	// (see inherited); nil: nothing is inherited.
	LookupEnv func(name string) (string, bool)
	// Processes bounds the processes that run at a time; default 32 processes.
	Processes int
	// StopWait is what a process gets to end after its stdin was closed, and
	// again after SIGTERM, before it is killed; default 5 s.
	StopWait time.Duration
	// Random gives numbers in [0, 1) for the pauses before restarts; nil: no
	// jitter.
	Random func() float64
	// Dial replaces how a stream to an agent is made; nil: by the URL's scheme.
	Dial func(ctx context.Context, to linkTarget) (jsonrpc.Stream, error)
}

// newLink makes the binding for agents that are a process on stdio, one JSON
// text a line, or a WebSocket endpoint (AD-14). It keeps one connection for each
// agent and credential, made when it is first needed and shared by all calls.
//
// The ids on the wire are those of the connection, UUIDs, since two attempts of
// one task may be in flight. Neither transport has streams: stream gives the
// one ordinary answer.
//
// Whoever makes it calls close, which waits for all processes to end.
func newLink(opts linkOptions) *links {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.LookupEnv == nil {
		opts.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if opts.Processes <= 0 {
		opts.Processes = defaultProcesses
	}
	if opts.StopWait <= 0 {
		opts.StopWait = defaultStopWait
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Random == nil {
		opts.Random = func() float64 { return 0 }
	}
	l := &links{opts: opts, limits: opts.Exchange.Limits(), all: map[linkKey]*link{}}
	if l.opts.Dial == nil {
		l.opts.Dial = l.dial
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// The schemes of links.
const (
	schemeStdio = "stdio"
	schemeWS    = "ws"
	schemeWSS   = "wss"
)

func linkScheme(rawURL string) string {
	scheme, _, _ := strings.Cut(rawURL, ":")
	return strings.ToLower(scheme)
}

// encode implements [binding]: the connection makes the request around params.
func (l *links) encode(op operation) ([]byte, error) { return op.params, nil }

// carry implements [binding].
func (l *links) carry(ctx context.Context, op operation, body []byte) (bridge.Reply, error) {
	c := &oneCall{op: op, outer: ctx, timeout: op.agent.Timeout, began: l.opts.Now()}
	if c.timeout <= 0 {
		c.timeout = defaultLinkTimeout
	}
	method := op.method
	if method == "" || !op.verb.sends() {
		method = op.to.Version.method(op.verb)
	}
	if method == "" {
		return bridge.Reply{}, c.errorf(parley.CodeInvalid, "A2A %s has no operation %s over JSON-RPC", op.to.Version, op.verb)
	}
	if len(body) > l.limits.MaxRequest {
		e := c.errorf(parley.CodeLimit, "the request to %s has %d bytes; max_request allows %d", c.place(), len(body), l.limits.MaxRequest)
		return bridge.Reply{}, e.WithDetails(map[string]any{"limit": "max_request", "value": l.limits.MaxRequest})
	}
	inner, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	k, conn, err := l.acquire(inner, c)
	if err != nil {
		return bridge.Reply{}, err
	}
	defer l.release(k)
	if err := bridge.Guarded(inner, op.task, op.agent); err != nil {
		return bridge.Reply{}, err
	}
	var result json.RawMessage
	err = conn.Call(inner, method, json.RawMessage(body), &result)
	if err == nil {
		return bridge.Reply{Status: http.StatusOK, Body: answerText(op.id, "result", result)}, nil
	}
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return bridge.Reply{Status: http.StatusOK, Body: answerText(op.id, "error", errorText(wire))}, nil
	}
	c.stray = k.stray.Load()
	return bridge.Reply{}, c.broken(err)
}

// answerText puts an answer of a connection back into the form that a JSON-RPC
// response has, under the operation's id, so that it is read and logged like
// every other.
func answerText(id, member string, value []byte) []byte {
	b := make([]byte, 0, len(id)+len(member)+len(value)+64)
	b = quote(append(b, `{"jsonrpc":"2.0","id":`...), id)
	b = append(append(append(b, `,"`...), member...), `":`...)
	return append(append(b, value...), '}')
}

func errorText(e *jsonrpc.Error) []byte {
	text, err := json.Marshal(struct {
		Code    jsonrpc.Code    `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data,omitempty"`
	}{e.Code, e.Message, e.Data})
	if err != nil { // data that encoding/json does not take: without it, then
		return errorText(&jsonrpc.Error{Code: e.Code, Message: e.Message})
	}
	return text
}

// stream implements [binding]. A link has no streams: a message is sent and
// answered as usual, and instead of subscribing the task is asked about once.
func (l *links) stream(ctx context.Context, op operation, body []byte) (eventSource, bridge.Reply, error) {
	if op.verb == verbSubscribe {
		op.verb = verbGet
	} else {
		op.verb = verbSend
	}
	reply, err := l.carry(ctx, op, body)
	return nil, reply, err
}

// oneCall is one operation while it lasts, for what is said about its end.
type oneCall struct {
	op      operation
	outer   context.Context //nolint:containedctx // it is one call
	timeout time.Duration
	began   time.Time
	// stray is what came last over its link that no call could use, nil for nothing.
	stray *stray
}

func (c *oneCall) errorf(code parley.Code, format string, args ...any) *parley.Error {
	e := parley.Errorf(code, format, args...)
	e.Message = bridge.Redact(c.op.agent, []byte(e.Message), maxLinkError)
	e.Agent, e.Step, e.Attempt = c.op.agent.Name, c.op.task.Step, c.op.task.Attempt
	return e
}

// place names the agent without what may be secret: arguments, query, user.
func (c *oneCall) place() string { return linkPlace(c.op.to.URL) }

func linkPlace(rawURL string) string {
	if linkScheme(rawURL) != schemeStdio {
		u, err := url.Parse(rawURL)
		if err != nil {
			return "the WebSocket"
		}
		return u.Scheme + "://" + u.Host + u.EscapedPath()
	}
	_, command, _ := strings.Cut(rawURL, ":")
	program, _, _ := strings.Cut(strings.TrimSpace(command), " ")
	if quoted := strings.TrimSpace(command); quoted != "" && strings.IndexByte(`'"`, quoted[0]) >= 0 {
		program, _, _ = strings.Cut(quoted[1:], quoted[:1])
	}
	return "the process " + filepath.Base(program)
}

// fail makes the error of an exchange.
func (c *oneCall) fail(d bridge.Disposition, code parley.Code, format string, args ...any) *bridge.ExchangeError {
	return &bridge.ExchangeError{Disposition: d, Err: c.errorf(code, "%s", c.place()+": "+fmt.Sprintf(format, args...))}
}

func mayRetry(e *bridge.ExchangeError) *bridge.ExchangeError {
	e.Err.Retryable = true
	return e
}

func withLimit(e *bridge.ExchangeError, limit string, value int64) *bridge.ExchangeError {
	details := map[string]any{"limit": limit}
	if value != 0 {
		details["value"] = value
	}
	e.Err = e.Err.WithDetails(details)
	return e
}

// broken judges a call that ended without an answer.
func (c *oneCall) broken(err error) *bridge.ExchangeError {
	call, _ := errors.AsType[*jsonrpc.CallError](err)
	d, tail := bridge.NotSent, "nothing was sent"
	if call == nil || call.Sent {
		d, tail = bridge.Lost, "the request had been sent; what became of it is not known"
	}
	if e := c.timeUp(d, tail, err); e != nil {
		return e
	}
	if _, ok := errors.AsType[*jsonrpc.ResultError](err); ok {
		return mayRetry(c.fail(bridge.Answered, parley.CodeAgentError, "the answer is no JSON-RPC response: %s", linkCause(err)))
	}
	if r, ok := errors.AsType[*jsonrpc.ResourceError](err); ok {
		if d == bridge.Lost {
			return withLimit(c.fail(d, parley.CodeLimit, "the answer is larger than %d %s (max_response) and was not read to its end", r.Limit, r.Unit), "max_response", int64(r.Limit))
		}
		return mayRetry(c.fail(d, parley.CodeAgentUnavailable, "%s; %s", linkCause(err), tail))
	}
	if d == bridge.NotSent {
		if s, ok := errors.AsType[*jsonrpc.SyntaxError](err); ok {
			return c.fail(d, parley.CodeInvalidInput, "the request cannot be sent: %v", s)
		}
	}
	return mayRetry(c.fail(d, parley.CodeAgentUnavailable, "%s; %s", linkCause(err), tail))
}

// timeUp judges the end of a context; nil: it is about something else.
func (c *oneCall) timeUp(d bridge.Disposition, tail string, err error) *bridge.ExchangeError {
	switch {
	case c.outer.Err() != nil && errors.Is(context.Cause(c.outer), context.DeadlineExceeded):
		return withLimit(mayRetry(c.fail(d, parley.CodeTimeout, "the time for the attempt was up; %s", tail)), "attempt_timeout", 0)
	case c.outer.Err() != nil:
		return c.fail(d, parley.CodeCancelled, "the call was given up; %s", tail)
	case errors.Is(err, context.DeadlineExceeded) && d == bridge.NotSent:
		return withLimit(mayRetry(c.fail(d, parley.CodeAgentUnavailable, "the agent took nothing within %v (its timeout); %s", c.timeout, tail)), "exchange", c.timeout.Milliseconds())
	case errors.Is(err, context.DeadlineExceeded):
		return withLimit(mayRetry(c.fail(d, parley.CodeTimeout, "no answer within %v (the agent's timeout)%s; %s", c.timeout, c.meanwhile(), tail)), "exchange", c.timeout.Milliseconds())
	}
	return nil
}

// meanwhile tells of an agent that has said something that is no answer, such as a
// greeting where its protocol begins, or an answer under an id of its own.
func (c *oneCall) meanwhile() string {
	if c.stray == nil || c.stray.at.Before(c.began) {
		return ""
	}
	return ", but what is none (" + c.stray.text + ")"
}

// linkCause is what ended a connection or a call, without the layers around it.
func linkCause(err error) string {
	if exit, ok := errors.AsType[*jsonrpc.ExitError](err); ok {
		return exitText(exit)
	}
	if ended, ok := errors.AsType[*jsonrpc.ConnError](err); ok && ended.Err != nil {
		if errors.Is(ended.Err, io.EOF) && !errors.Is(ended.Err, io.ErrUnexpectedEOF) {
			return "the agent has closed the connection"
		}
		return "the connection broke: " + ended.Err.Error()
	}
	if call, ok := errors.AsType[*jsonrpc.CallError](err); ok && call.Err != nil {
		return call.Err.Error()
	}
	return err.Error()
}

// exitText says how a process ended, with the last that it wrote to stderr.
func exitText(exit *jsonrpc.ExitError) string {
	text := fmt.Sprintf("it ended (%v)", exit.Err)
	if last := strings.TrimSpace(string(exit.Stderr)); last != "" {
		text += ", its last words: " + last
	}
	return text
}
