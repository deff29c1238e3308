package a2a

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// grpcOptions is what agents over gRPC need.
type grpcOptions struct {
	// Now reads the clock; nil is time.Now.
	Now func() time.Time
	// Exchange opens the connections under its egress policy, authorizes the
	// calls, and bounds requests and answers.
	Exchange *bridge.Exchange
	// Idle is how long a connection without calls is kept; default 1 minute.
	Idle time.Duration
	// Conns bounds the agents that are connected to at a time; default 1,024
	// connections.
	Conns int
}

const (
	defaultGRPCTimeout = 30 * time.Second
	// maxGRPCStream is how much one stream may bring in all, as a multiple of
	// max_response.
	maxGRPCStream = 64
)

// grpcBinding is the [binding] for agents of A2A 1.0 over gRPC (A2A 1.0 §10).
// Bodies are the JSON of the 1.0 dialect on this side, protobuf on the wire.
type grpcBinding struct {
	exchange *bridge.Exchange
	limits   bridge.ExchangeLimits
	conns    grpcConns
}

var _ binding = (*grpcBinding)(nil)

// newGRPC makes the binding. Whoever makes it calls close.
func newGRPC(opts grpcOptions) *grpcBinding {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Idle <= 0 {
		opts.Idle = defaultGRPCIdle
	}
	if opts.Conns <= 0 {
		opts.Conns = defaultGRPCConns
	}
	return &grpcBinding{
		exchange: opts.Exchange, limits: opts.Exchange.Limits(),
		conns: grpcConns{now: opts.Now, exchange: opts.Exchange, idle: opts.Idle, most: opts.Conns, watch: grpcWatch{}, all: map[grpcTarget]*grpcConn{}, old: map[*grpcConn]struct{}{}},
	}
}

// close ends all connections, with the calls and streams under way. Calls that
// begin later are not sent.
func (b *grpcBinding) close() { b.conns.close() }

// encode implements [binding]: it gives the params as they are, if a protobuf
// message can hold them.
func (b *grpcBinding) encode(op operation) ([]byte, error) {
	m, ok := grpcMethodOf(op.verb)
	if !ok || op.to.Version != V10 {
		return nil, noOperation(op)
	}
	if _, err := m.pack(op.params); err != nil {
		return nil, err
	}
	return op.params, nil
}

func noOperation(op operation) *parley.Error {
	return parley.Errorf(parley.CodeInvalid, "A2A %s has no operation %s over gRPC, which Parley speaks in version 1.0", op.to.Version, op.verb)
}

// carry implements [binding].
func (b *grpcBinding) carry(ctx context.Context, op operation, body []byte) (bridge.Reply, error) {
	c, err := b.call(ctx, op, body)
	if err != nil {
		return bridge.Reply{}, err
	}
	defer b.conns.release(c.conn)
	inner, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	c.inner = inner
	var first []byte
	err = c.authorized(func() error {
		if err := c.begin(); err != nil {
			return err
		}
		if first, err = c.receive(); err == nil {
			// The status that follows, so that the call is over for the agent too.
			// The answer stands whatever it is.
			_, _ = c.receive()
		}
		return err
	})
	switch {
	case errors.Is(err, io.EOF):
		return bridge.Reply{}, c.unusable(errors.New("it ended without a message"))
	case err != nil:
		return c.judge(err)
	}
	text, err := c.method.unpack(first)
	if err != nil {
		return bridge.Reply{}, c.unusable(err)
	}
	return bridge.Reply{Status: http.StatusOK, Body: text}, nil
}

// stream implements [binding]. An agent that refuses has answered with its
// status alone; everything else is a stream.
func (b *grpcBinding) stream(ctx context.Context, op operation, body []byte) (eventSource, bridge.Reply, error) {
	c, err := b.call(ctx, op, body)
	if err != nil {
		return nil, bridge.Reply{}, err
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.inner = inner
	end := func() {
		cancel()
		b.conns.release(c.conn)
	}
	patience := time.AfterFunc(c.timeout, cancel)
	interest := context.AfterFunc(ctx, cancel)
	err = c.authorized(func() error {
		if err := c.begin(); err != nil {
			return err
		}
		// Not by the trace, which learns of the head a moment later.
		head, err := c.wire.Header()
		if err != nil || head != nil {
			return err
		}
		_, err = c.receive() // a status alone
		return err
	})
	empty := errors.Is(err, io.EOF)
	if empty {
		err = nil
	}
	inTime, wanted := patience.Stop(), interest()
	c.late = !inTime
	if err == nil && (!inTime || !wanted) {
		err = context.Canceled
	}
	if err != nil {
		reply, err := c.judge(err)
		end()
		return nil, reply, err
	}
	c.outer = context.Background() // it bounded the opening alone
	return &grpcEvents{call: c, end: sync.OnceFunc(end), over: empty, left: maxGRPCStream * int64(b.limits.MaxResponse)}, bridge.Reply{}, nil
}

// grpcEvents is the [eventSource] of one stream.
type grpcEvents struct {
	call   *grpcCall
	end    func() // once
	closed atomic.Bool
	// left and over belong to next.
	left int64
	over bool
}

// next implements [eventSource]. A status with which the agent ends the stream
// is its last event.
func (e *grpcEvents) next(ctx context.Context) ([]byte, error) {
	if e.over {
		return nil, io.EOF
	}
	stop := context.AfterFunc(ctx, e.end)
	defer stop()
	c := e.call
	raw, err := c.receive()
	e.left -= int64(len(raw))
	switch {
	case e.closed.Load():
		e.over = true
		return nil, c.fail(bridge.Lost, parley.CodeCancelled, "the stream was closed on this side")
	case errors.Is(err, io.EOF):
		e.over = true
		return nil, io.EOF
	case err != nil:
		e.over = true
		c.outer = ctx
		reply, err := c.judge(err)
		if err == nil {
			return reply.Body, nil
		}
		if x, ok := errors.AsType[*bridge.ExchangeError](err); ok {
			x.Disposition = bridge.Lost // what the stream was about goes on
		}
		return nil, err
	case e.left < 0:
		e.over = true
		return nil, c.tooLarge("max_response", int64(maxGRPCStream*c.limits.MaxResponse), "stream")
	}
	text, err := c.method.unpack(raw)
	if err != nil {
		e.over = true
		x := c.unusable(err)
		x.Disposition = bridge.Lost
		return nil, x
	}
	return text, nil
}

// close implements [eventSource].
func (e *grpcEvents) close() {
	e.closed.Store(true)
	e.end()
}

// grpcCall is one exchange while it lasts.
type grpcCall struct {
	op       operation
	method   grpcMethod
	message  []byte // the request
	exchange *bridge.Exchange
	limits   bridge.ExchangeLimits
	target   grpcTarget
	conn     *grpcConn
	timeout  time.Duration
	// late: the timeout was up before a stream was open.
	late bool

	outer, inner context.Context //nolint:containedctx // a grpcCall is one call
	auth         bridge.Authorization
	trace        *grpcTrace
	wire         grpc.ClientStream
}

// call prepares an exchange. The caller releases its connection.
func (b *grpcBinding) call(ctx context.Context, op operation, body []byte) (*grpcCall, error) {
	c := &grpcCall{op: op, exchange: b.exchange, limits: b.limits, outer: ctx, inner: ctx, trace: &grpcTrace{}, timeout: op.agent.Timeout}
	if c.timeout <= 0 {
		c.timeout = defaultGRPCTimeout
	}
	var ok bool
	if c.method, ok = grpcMethodOf(op.verb); !ok || op.to.Version != V10 {
		return nil, noOperation(op)
	}
	var fault string
	if c.target, fault = grpcTargetOf(op); fault != "" {
		return nil, c.errorf(parley.CodeInvalid, "the agent's address for gRPC cannot be used: %s", fault)
	}
	var err error
	if c.message, err = c.method.pack(body); err != nil {
		return nil, c.errorf(parley.CodeInvalidInput, "the request cannot be sent over gRPC: %s", plainText(err))
	}
	if n := len(c.message); n > b.limits.MaxRequest {
		e := c.errorf(parley.CodeLimit, "the request to %s has %d bytes; max_request allows %d", c.target.address, n, b.limits.MaxRequest)
		return nil, e.WithDetails(map[string]any{"limit": "max_request", "value": b.limits.MaxRequest})
	}
	c.conn, err = b.conns.acquire(c.target, op.agent)
	switch {
	case err != nil:
		return nil, err
	case c.conn == nil:
		return nil, c.retryable(c.fail(bridge.NotSent, parley.CodeAgentUnavailable, "there are %d connections to other agents, and all are in use; nothing was sent", b.conns.most))
	}
	return c, nil
}

// authorized makes an attempt, and one more with a renewed credential if the
// agent says that it does not know who is calling: it has executed nothing then.
func (c *grpcCall) authorized(attempt func() error) error {
	var err error
	if c.auth, err = c.exchange.Authorize(c.inner, c.op.task, c.op.agent); err != nil {
		return err
	}
	err = attempt()
	if !c.unauthenticated(err) {
		return err
	}
	next, ok, failed := c.exchange.Renew(c.inner, c.op.task, c.op.agent, c.auth)
	switch {
	case failed != nil:
		return failed
	case !ok:
		return err
	}
	c.auth = next
	return attempt()
}

// begin sends the request. An error is the status of the call, or says that
// there is nothing that could be sent.
func (c *grpcCall) begin() error {
	md, err := c.metadata()
	if err != nil {
		return err
	}
	c.trace = &grpcTrace{}
	ctx := context.WithValue(metadata.NewOutgoingContext(c.inner, md), grpcTraceKey{}, c.trace)
	if c.wire, err = c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, c.method.name); err != nil {
		return err
	}
	// There is a connection now, which may have taken its time.
	if err := bridge.Guarded(c.inner, c.op.task, c.op.agent); err != nil {
		return err
	}
	if err := c.wire.SendMsg(c.message); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	// The request is whole: what went wrong with it, the first receive tells.
	return nil
}

// receive gives the next message, io.EOF after the last one, or the status of
// the call.
func (c *grpcCall) receive() ([]byte, error) {
	var raw []byte
	if err := c.wire.RecvMsg(&raw); err != nil {
		return nil, err
	}
	return raw, nil
}

// metadata gives the headers of the call: those of BR-5 and AD-8, the version
// (A2A 1.0 §14.2.1), and the credential.
func (c *grpcCall) metadata() (metadata.MD, error) {
	if c.auth.InURL() {
		return nil, c.errorf(parley.CodeInvalid, "the agent's auth sends its key in the query of a URL, which gRPC does not have: set in to header")
	}
	correlation := c.op.task.CorrelationID
	if correlation == "" {
		correlation = c.op.task.ID
	}
	h := make(http.Header, 2)
	c.auth.SetHeader(h)
	md := metadata.MD{"a2a-version": {string(V10)}, "x-correlation-id": {ascii(correlation)}}
	for name, values := range h {
		key := strings.ToLower(name)
		if strings.HasPrefix(key, "grpc-") || strings.HasPrefix(key, "a2a-version") || !isKey(key) {
			return nil, c.errorf(parley.CodeInvalid, "the agent's auth uses the header %q, which gRPC cannot carry", name)
		}
		for _, v := range values {
			if ascii(v) != v && !strings.HasSuffix(key, "-bin") {
				return nil, c.errorf(parley.CodeInvalid, "the agent's credential holds characters that gRPC cannot carry: it takes ASCII only")
			}
		}
		md[key] = values
	}
	if t := c.op.task.Trace; !t.IsZero() && md[parley.HeaderTraceparent] == nil && md[parley.HeaderTracestate] == nil {
		md.Set(parley.HeaderTraceparent, t.Parent)
		if t.State != "" {
			md.Set(parley.HeaderTracestate, t.State)
		}
	}
	return md, nil
}

// isKey reports whether metadata may have the key.
func isKey(key string) bool {
	for i := range len(key) {
		if c := key[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return key != ""
}

// ascii writes what metadata cannot hold as %XX.
func ascii(s string) string {
	const hex = "0123456789ABCDEF"
	var out []byte
	for i := range len(s) {
		switch c := s[i]; {
		case c >= ' ' && c <= '~':
			out = append(out, c)
		default:
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}
