package a2a

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

const (
	defaultGRPCConns = 1024
	defaultGRPCIdle  = time.Minute
	// grpcConnect bounds one attempt to connect, the TLS handshake included.
	grpcConnect = 20 * time.Second
	// Servers close connections that are pinged more often than every 5 minutes
	// unless they say otherwise.
	grpcPing     = 6 * time.Minute
	grpcPingWait = 20 * time.Second
)

// grpcTarget is what calls have to have in common to share a connection.
type grpcTarget struct {
	address  string // host:port
	secure   bool
	identity [sha256.Size]byte
}

// grpcTargetOf reads where op goes: http(s)://host[:port], or host:port, as
// agent cards have it for gRPC. Without a scheme the connection is as secure as
// the agent's own URL says; if that says nothing either, all but this machine
// is spoken to over TLS.
func grpcTargetOf(op operation) (grpcTarget, string) {
	var t grpcTarget
	scheme, rest, ok := strings.Cut(op.to.URL, "://")
	if !ok {
		scheme, rest = "", op.to.URL
	}
	switch strings.ToLower(scheme) {
	case "http":
	case "https":
		t.secure = true
	case "":
		own, _, _ := strings.Cut(op.agent.URL, "://")
		switch strings.ToLower(own) {
		case "http":
		case "https":
			t.secure = true
		default:
			t.secure = !thisMachine(rest)
		}
	default:
		return t, "it must be host:port, or http:// or https:// before that"
	}
	u, err := url.Parse("//" + rest)
	switch {
	case err != nil || u.Hostname() == "":
		return t, "it must be host:port, or http:// or https:// before that"
	case u.User != nil:
		return t, "it holds a user name; put credentials into the agent's auth"
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return t, "gRPC has a host and a port, but no path: set protocol_config.url to where the agent listens for gRPC"
	}
	port := u.Port()
	if port == "" {
		port = "80"
		if t.secure {
			port = "443"
		}
	}
	t.address = net.JoinHostPort(u.Hostname(), port)
	if !t.secure && hasTLSSettings(op.agent) {
		return t, "the agent has TLS settings, and gRPC is to be spoken without TLS: put https:// before the host"
	}
	t.identity = tlsIdentity(op.agent)
	return t, ""
}

func thisMachine(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = hostPort
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

func hasTLSSettings(agent parley.Agent) bool {
	return agent.TLS != (parley.AgentTLS{}) || agent.Auth.Type == parley.AuthMTLS
}

// tlsIdentity digests the TLS settings of agent; those of agents without any
// are the same.
func tlsIdentity(agent parley.Agent) (digest [sha256.Size]byte) {
	if !hasTLSSettings(agent) || agent.Resolved == nil {
		return digest
	}
	h := sha256.New()
	for _, s := range []parley.Secret{agent.Resolved.Cert, agent.Resolved.Key, agent.Resolved.CA} {
		one := sha256.Sum256(s.Reveal())
		h.Write(one[:])
	}
	h.Sum(digest[:0])
	return digest
}

// grpcConns keeps one connection for each target, over which all calls go until it
// is too old. It
// may be used concurrently.
type grpcConns struct {
	now      func() time.Time
	exchange *bridge.Exchange
	idle     time.Duration
	most     int
	watch    stats.Handler // a grpcWatch

	mu  sync.Mutex
	all map[grpcTarget]*grpcConn // guarded by mu
	// old are those that are too old for new calls, and end with those that they
	// carry.
	old    map[*grpcConn]struct{}
	turn   int64 // counts the uses
	closed bool
}

// grpcConn is a connection, or what makes one when it is needed.
type grpcConn struct {
	*grpc.ClientConn
	// broken is why the last attempt to connect failed, or nil.
	broken atomic.Pointer[error]
	// until is when what is connected now gets too old, nil before it is.
	until atomic.Pointer[time.Time]

	users int   // calls under way; guarded by grpcConns.mu
	used  int64 // the turn of the last one
}

// acquire gives the connection to target. Nil, without an error: there are as
// many as there may be, and all are in use, or the binding is closed. The caller
// releases it.
func (s *grpcConns) acquire(target grpcTarget, agent parley.Agent) (*grpcConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil
	}
	c := s.all[target]
	if c != nil && c.aged(s.now()) {
		s.retireLocked(target, c)
		c = nil
	}
	if c == nil {
		if len(s.all) >= s.most && !s.makeRoomLocked() {
			return nil, nil
		}
		var err error
		if c, err = s.connect(target, agent); err != nil {
			return nil, err
		}
		s.all[target] = c
	}
	s.turn++
	c.used = s.turn
	c.users++
	return c, nil
}

func (s *grpcConns) release(c *grpcConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.users--
	if _, old := s.old[c]; old && c.users == 0 {
		delete(s.old, c)
		_ = c.Close()
	}
}

// aged reports whether the connection is too old for another call: the agent's name
// is to be resolved anew.
func (c *grpcConn) aged(now time.Time) bool {
	until := c.until.Load()
	return until != nil && !now.Before(*until)
}

// retireLocked takes a connection out of use. Calls under way end on it.
func (s *grpcConns) retireLocked(target grpcTarget, c *grpcConn) {
	delete(s.all, target)
	if c.users == 0 {
		_ = c.Close()
		return
	}
	s.old[c] = struct{}{}
}

// makeRoomLocked closes the connection that was unused for longest.
func (s *grpcConns) makeRoomLocked() bool {
	var oldest grpcTarget
	var found *grpcConn
	for target, c := range s.all {
		if c.users == 0 && (found == nil || c.used < found.used) {
			oldest, found = target, c
		}
	}
	if found == nil {
		return false
	}
	_ = found.Close()
	delete(s.all, oldest)
	return true
}

// close ends all connections and with them the calls under way.
func (s *grpcConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.all {
		_ = c.Close()
	}
	for c := range s.old {
		_ = c.Close()
	}
	clear(s.all)
	clear(s.old)
}

// connect makes what connects to target as soon as it is used.
func (s *grpcConns) connect(target grpcTarget, agent parley.Agent) (*grpcConn, error) {
	creds := insecure.NewCredentials()
	if target.secure {
		cfg, err := s.exchange.TLSConfig(agent)
		if err != nil {
			return nil, err
		}
		cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS12)
		creds = credentials.NewTLS(cfg)
	}
	limits := s.exchange.Limits()
	c := &grpcConn{}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := s.exchange.Dial(ctx, address, target.secure)
		if err != nil {
			c.broken.Store(&err)
			return nil, err
		}
		c.broken.Store(nil)
		until := s.now().Add(s.exchange.Lifetime())
		c.until.Store(&until)
		return conn, nil
	}
	// Names are resolved by the dialer, which checks the address it connects to.
	cc, err := grpc.NewClient("passthrough:///"+target.address,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(dial),
		grpc.WithNoProxy(),
		grpc.WithUserAgent(s.exchange.UserAgent()),
		grpc.WithStatsHandler(s.watch),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		grpc.WithIdleTimeout(s.idle),
		grpc.WithMaxHeaderListSize(uint32(limits.MaxHeader)),
		grpc.WithConnectParams(grpc.ConnectParams{
			// The retry policies of steps are slower than this.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: grpcConnect,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: grpcPing, Timeout: grpcPingWait}),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(rawCodec{}),
			grpc.MaxCallRecvMsgSize(limits.MaxResponse),
			grpc.MaxCallSendMsgSize(limits.MaxRequest),
			// Nothing is kept to be sent again: a request that has left is never
			// repeated, also where HTTP/2 says that it was not processed.
			grpc.MaxRetryRPCBufferSize(0),
		),
	)
	if err != nil {
		e := parley.Errorf(parley.CodeInvalid, "the gRPC address of the agent cannot be used: %w", err)
		e.Agent = agent.Name
		return nil, e
	}
	c.ClientConn = cc
	return c, nil
}

// rawCodec passes messages as their bytes, so that one that cannot be read is
// told from a connection that broke.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// Name makes the Content-Type application/grpc+proto.
func (rawCodec) Name() string { return "proto" }

// Marshal takes a []byte.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal fills a *[]byte.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// grpcTrace is what is known about how far one attempt came.
type grpcTrace struct {
	// sent: the request may have left.
	sent atomic.Bool
	// head, end: the agent's headers came, and its status.
	head, end atomic.Bool
}

type grpcTraceKey struct{}

// grpcWatch fills the grpcTrace in the context of a call.
type grpcWatch struct{}

var _ stats.Handler = grpcWatch{}

// TagRPC implements [stats.Handler].
func (grpcWatch) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements [stats.Handler].
func (grpcWatch) HandleRPC(ctx context.Context, s stats.RPCStats) {
	t, ok := ctx.Value(grpcTraceKey{}).(*grpcTrace)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.OutPayload: // it is in the connection's queue now
		t.sent.Store(true)
	case *stats.InHeader:
		t.head.Store(true)
	case *stats.InTrailer:
		t.end.Store(true)
	}
}

// TagConn implements [stats.Handler].
func (grpcWatch) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (grpcWatch) HandleConn(context.Context, stats.ConnStats) {}
