package bridge

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
)

// ExchangeLimits bounds what one exchange with an agent may cost. A zero field
// is its default.
type ExchangeLimits struct {
	// MaxRequest is the largest request body in bytes, default 8 MiB.
	MaxRequest int
	// MaxResponse is the largest body of a 2xx response in bytes, default
	// 16 MiB. Of other responses no more than 64 KiB is read.
	MaxResponse int
	// MaxHeader is the largest response head in bytes, interim (1xx) heads
	// included, default 64 KiB.
	MaxHeader int
	// FirstByte bounds the time from the sending of a request to the head of its
	// response; 0 is the agent's timeout, which bounds the whole exchange.
	FirstByte time.Duration
	// MaxIdle bounds the connections that are kept unused, default 8,192: as many
	// as there may be calls at once. Those to one agent are never more than it
	// had calls at once, which its own limit bounds; and one host gets another
	// one kept only while it has fewer than could be kept besides, as an agent
	// does with slots.
	MaxIdle int
	// MaxDirect is the largest body of a request without TLS that is sent in
	// the caller's goroutine (default 16 KiB; negative: none). net/http carries
	// the others.
	MaxDirect int
}

// ExchangeConfig is what an [Exchange] is made from. The zero value refuses
// every private and loopback address and has all defaults.
type ExchangeConfig struct {
	// DialContext replaces the dialer, and with it the check of Egress. Nil is
	// the network.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS is cloned for connections to https agents; nil is the default of
	// package crypto/tls.
	TLS *tls.Config
	// Now reads the clock for Retry-After dates and durations; nil is time.Now.
	Now    func() time.Time
	Limits ExchangeLimits
	Egress Egress
	// IdleTimeout is how long an unused connection is kept, default 4 s: less
	// than the 5 s after which the usual agent servers close theirs. A request
	// that crosses such a close on the wire is lost, and nobody can tell
	// whether it was executed.
	IdleTimeout time.Duration
	// MaxAge is how long a connection is used at most, less up to a fifth,
	// default 5 min: each new one resolves the agent's name anew. What a
	// connection carries then is carried to its end.
	MaxAge time.Duration
	// Jitter gives a number in [0, 1); nil is random.
	Jitter func() float64
	// Resolver resolves the names of agents; nil is that of the system.
	Resolver *net.Resolver
	// UserAgent is the whole header, default "parley/dev".
	UserAgent string
	// Renew resolves the secrets of an agent anew and gives the agent with
	// them; nil is never. See [Exchange.Renew].
	Renew func(context.Context, parley.Agent) (parley.Agent, error)
	// SecretSeen, if set, is told every access token that was fetched, so that a
	// log can keep it out. It returns at once and may be called concurrently.
	SecretSeen func(parley.Secret)
}

const (
	defaultMaxRequest  = 8 << 20
	defaultMaxResponse = 16 << 20
	defaultMaxHeader   = 64 << 10
	defaultIdleTimeout = 4 * time.Second
	defaultMaxAge      = 5 * time.Minute
	defaultMaxIdle     = 8192
	defaultExchange    = 30 * time.Second

	// maxRefusal is read of the body of a response that is no 2xx.
	maxRefusal = 64 << 10
	// connectTimeout bounds the TCP connection, and again the TLS handshake.
	connectTimeout = 10 * time.Second
	// pingAfter is after how much silence on an HTTP/2 connection with calls in
	// flight it is asked whether it lives, and pingWithin how long that may take.
	// A dead one would otherwise swallow every call until its time was up.
	pingAfter, pingWithin = 10 * time.Second, 10 * time.Second
	// maxStale is how many connections one exchange may use up that turn out to
	// be closed before anything was written on them, or on which the agent says
	// that it has not begun with the request.
	maxStale = 3
)

// Exchange posts JSON to agents. It is one connection pool for all agents and
// may be used concurrently. It never follows a redirect, never uses the proxy
// of the environment, never asks for compression, and never sends a request
// twice: what had bytes on the wire is reported, not repeated.
type Exchange struct {
	direct     *direct
	dialers    dialers
	now        func() time.Time
	limits     ExchangeLimits
	tls        *tls.Config
	pools      *pools
	tokens     *tokens
	renew      func(context.Context, parley.Agent) (parley.Agent, error)
	secretSeen func(parley.Secret)
	// userAgent and jsonType are header values that all requests share.
	userAgent, jsonType []string
	probes              sync.Pool // of *probe
	// urls holds *url.URL by their text, urlCount at most so many.
	urls     sync.Map
	urlCount atomic.Int64
}

// NewExchange makes an Exchange. The caller closes it with [Exchange.Close].
func NewExchange(cfg ExchangeConfig) *Exchange {
	x := &Exchange{now: cfg.Now, userAgent: []string{cfg.UserAgent}, jsonType: []string{"application/json"}}
	if x.now == nil {
		x.now = time.Now
	}
	if cfg.UserAgent == "" {
		x.userAgent = []string{"parley/dev"}
	}
	if cfg.Jitter == nil {
		cfg.Jitter = mathrand.Float64
	}
	x.limits = cfg.Limits.withDefaults()
	cfg.IdleTimeout = orDefault(cfg.IdleTimeout, defaultIdleTimeout)
	life := lifetime{most: orDefault(cfg.MaxAge, defaultMaxAge), jitter: cfg.Jitter}
	x.probes.New = func() any { return newProbe() }
	x.dialers = dialers{plain: cfg.dialer(false), secure: cfg.dialer(true)}
	x.tls, x.renew, x.secretSeen = cfg.TLS, cfg.Renew, cfg.SecretSeen
	x.tokens = &tokens{fetch: x.fetchToken, now: x.now, kept: map[tokenKey]*tokenEntry{}}
	x.pools = &pools{now: x.now, life: life, all: map[poolKey]*agedPool{}, make: func(key poolKey, own *tls.Config) *http.Transport {
		t := x.transport(key.scheme == "https", cmp.Or(own, cfg.TLS))
		t.IdleConnTimeout = cfg.IdleTimeout
		// Over HTTP/2 nobody can tell a refused certificate, after which nothing
		// was executed, from a connection that broke.
		t.ForceAttemptHTTP2 = t.ForceAttemptHTTP2 && own == nil
		return t
	}}
	x.direct = &direct{
		pool: newConnPool(cfg.IdleTimeout, x.limits.MaxIdle, x.now), life: life, dial: x.dialers.plain,
		maxHead: x.limits.MaxHeader, firstByte: x.limits.FirstByte,
	}
	return x
}

func (l ExchangeLimits) withDefaults() ExchangeLimits {
	l.MaxRequest = orDefault(l.MaxRequest, defaultMaxRequest)
	l.MaxResponse = orDefault(l.MaxResponse, defaultMaxResponse)
	l.MaxHeader = orDefault(l.MaxHeader, defaultMaxHeader)
	l.MaxIdle = orDefault(l.MaxIdle, defaultMaxIdle)
	l.MaxDirect = cmp.Or(l.MaxDirect, maxDirect)
	l.FirstByte = max(l.FirstByte, 0)
	return l
}

func orDefault[T int | int64 | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// dialer gives what opens connections; secure is whether TLS follows.
func (cfg *ExchangeConfig) dialer(secure bool) func(context.Context, string, string) (net.Conn, error) {
	if cfg.DialContext != nil {
		return cfg.DialContext
	}
	d := cfg.Egress.dialer(secure)
	d.Resolver = cfg.Resolver
	return d.DialContext
}

// transport makes the connection pool of one host; settings may be nil. What
// the egress policy allows depends on secure: a public agent is called over TLS
// only.
func (x *Exchange) transport(secure bool, settings *tls.Config) *http.Transport {
	dial := x.dialers.plain
	if secure {
		dial = x.dialers.secure
	}
	t := &http.Transport{
		Proxy: nil, // whatever the environment says
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: c}, nil
		},
		DisableCompression:     true, // else net/http decodes gzip, whose size nobody knows beforehand
		MaxIdleConnsPerHost:    max(x.limits.MaxIdle/2, 1),
		TLSHandshakeTimeout:    connectTimeout,
		ResponseHeaderTimeout:  x.limits.FirstByte,
		MaxResponseHeaderBytes: int64(x.limits.MaxHeader),
		ForceAttemptHTTP2:      secure,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin},
	}
	if settings != nil {
		t.TLSClientConfig = settings.Clone()
	}
	return t
}

// Close closes the connections that are idle. Exchanges under way go on.
func (x *Exchange) Close() {
	x.pools.closeIdle()
	x.direct.pool.closeIdle(x.now())
}

// Reply is the response to one exchange. The caller owns it.
type Reply struct {
	Status int
	Header http.Header
	// Body is whole with a 2xx status, else the first 64 KiB at most.
	Body []byte
}

// Post is [Exchange.Do] for a JSON text that goes to the agent's own URL.
func (x *Exchange) Post(ctx context.Context, task parley.Task, agent parley.Agent, body []byte) (Reply, error) {
	return x.Do(ctx, task, agent, Request{Body: body})
}

// Request is what one exchange sends. The zero value of each field but Body is
// what [Exchange.Post] does.
type Request struct {
	// Method is "" for POST.
	Method string
	// URL is "" for the agent's. The agent's credential goes to any other too:
	// whoever names one has seen to it that it may.
	URL string
	// Header is set besides the headers of BR-5 and AD-8, and instead of those
	// of the same name. Its names go out as they are spelled.
	Header http.Header
	// Body must not be changed afterwards, also not after an error.
	Body []byte
	// limit takes the place of MaxResponse if it is smaller; 0 does not.
	limit int
}

// Do sends r once, with the headers of BR-5 and AD-8 and the agent's
// credential, and gives the response if its status is 2xx. agent.Timeout
// (default 30 s) bounds the whole exchange, ctx besides.
//
// The error is an [*ExchangeError] that says what the exchange has left behind;
// Reply then holds what was read, if a response came at all. It is a plain
// [*parley.Error] if there was nothing that could be sent: a URL, a credential
// or a body that is not fit for a request.
func (x *Exchange) Do(ctx context.Context, task parley.Task, agent parley.Agent, r Request) (Reply, error) {
	return x.do(ctx, &errand{task, agent}, r)
}

// do is Do for an errand, which must not be changed any more.
func (x *Exchange) do(ctx context.Context, e *errand, r Request) (Reply, error) {
	p, err := x.post(ctx, e, r)
	if err != nil {
		return Reply{}, err
	}
	if !p.direct() {
		inner, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		p.inner = inner
	}
	resp, err := p.authorized((*post).roundTrip)
	if err != nil {
		return Reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	return p.receive(resp)
}

// post prepares an exchange, which ctx alone bounds so far.
func (x *Exchange) post(ctx context.Context, e *errand, r Request) (*post, error) {
	if r.URL != "" {
		other := *e
		other.agent.URL = r.URL
		e = &other
	}
	target, err := x.target(e, r.Body)
	if err != nil {
		return nil, err
	}
	var pool *http.Transport // the requests of plain http seldom need one
	if target.Scheme == "https" || hasTLS(e.agent) {
		if pool, err = x.transportFor(e.agent, target); err != nil {
			return nil, err
		}
	}
	auth, err := x.authorize(ctx, e)
	if err != nil {
		return nil, err
	}
	header, err := x.header(e, auth)
	if err != nil {
		return nil, err
	}
	p := &post{x: x, outer: ctx, inner: ctx, errand: e, pool: pool, target: target, auth: auth, header: header, body: r.Body}
	p.url = auth.URL(target)
	p.method = cmp.Or(r.Method, http.MethodPost)
	p.limit = min(cmp.Or(r.limit, x.limits.MaxResponse), x.limits.MaxResponse)
	p.timeout = orDefault(e.agent.Timeout, defaultExchange)
	p.due = time.Now().Add(p.timeout)
	if p.method == http.MethodGet {
		delete(header, "Content-Type")
	}
	maps.Copy(header, r.Header)
	return p, nil
}

// post is one exchange while it lasts.
type post struct {
	x            *Exchange
	outer, inner context.Context //nolint:containedctx // a post is one call
	*errand
	pool   *http.Transport
	auth   Authorization
	method string
	// url is target with what auth adds to it.
	target, url *url.URL
	header      http.Header
	body        []byte
	limit       int // of the body of a 2xx response
	timeout     time.Duration
	due         time.Time
}

// direct says whether the exchange is a small one without TLS.
func (p *post) direct() bool {
	return p.url.Scheme == "http" && len(p.body) <= p.x.limits.MaxDirect && plainHost(p.url.Host)
}

// roundTrip gives the response, whose body is not read yet.
func (p *post) roundTrip() (*http.Response, error) {
	resp, err := p.anyRoundTrip()
	if err != nil {
		return nil, err
	}
	noteStatus(p.outer, resp.StatusCode)
	return resp, nil
}

func (p *post) anyRoundTrip() (*http.Response, error) {
	if !p.direct() {
		return p.send()
	}
	resp, sent, err := p.x.direct.roundTrip(p.outer, &directRequest{p.method, p.url, p.header, p.body, p.due, p.errand})
	if refused, ok := errors.AsType[*ExchangeError](err); ok {
		return nil, refused // by the guard
	}
	if err != nil {
		return nil, p.broken(err, sent)
	}
	return resp, nil
}

// send does the round trip of net/http. Only a request of which nothing was written, since
// its kept connection had been closed meanwhile, or with which the agent has not
// begun, as it says itself, is tried on another one.
func (p *post) send() (*http.Response, error) {
	if p.pool == nil {
		p.pool = p.x.pools.of(poolKey{scheme: p.url.Scheme, host: p.url.Host}, nil)
	}
	for stale := 0; ; stale++ {
		pr := p.x.probes.Get().(*probe)
		// A body of its own for each try: the former may still be read. There is
		// no GetBody, so net/http cannot repeat a POST by itself (without a body it
		// may: those only ask, or tell an agent to stop). Of this type it knows that it need not send the head in a packet ahead.
		reader := bytes.NewReader(p.body)
		body := io.NopCloser(reader)
		if len(p.body) == 0 {
			body = http.NoBody
		} else {
			pr.guard, pr.body = p.guarded, reader
		}
		req := (&http.Request{
			Method: p.method, URL: p.url, Host: p.url.Host, Header: p.header,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Body: body, ContentLength: int64(len(p.body)),
		}).WithContext(httptrace.WithClientTrace(p.inner, &pr.trace))
		resp, err := p.pool.RoundTrip(req)
		sent, reused, refused := pr.sent(), pr.reused, pr.refused
		pr.reset()
		p.x.probes.Put(pr)
		if refused != nil {
			return nil, unsent(resp, refused)
		}
		if err == nil {
			return resp, nil
		}
		untouched := notBegun(err)
		if stale == maxStale || p.inner.Err() != nil || !untouched && (sent || !reused) {
			return nil, p.broken(err, sent && !untouched)
		}
	}
}

// guarded gives an error if the request may not be sent any more.
func (p *post) guarded() error { return guarded(p.outer, p.errand) }

// unsent gives why a request was not sent, to which there may be an answer all the
// same: from somebody who did not wait for it.
func unsent(resp *http.Response, why error) error {
	if resp != nil {
		_ = resp.Body.Close()
	}
	return why
}

// receive reads the body and judges the status.
func (p *post) receive(resp *http.Response) (Reply, error) {
	reply := Reply{Status: resp.StatusCode, Header: resp.Header}
	if reply.Status == http.StatusSwitchingProtocols {
		// Its body is the connection itself, which no deadline ends: not touched.
		return reply, p.refused(reply)
	}
	if reply.Status < 200 || reply.Status > 299 {
		// The status stands whatever becomes of the body.
		reply.Body, _ = readBody(resp, maxRefusal)
		return reply, p.refused(reply)
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return reply, p.unusable(reply, "its body has Content-Encoding %q, which was not asked for", enc)
	}
	var err error
	reply.Body, err = readBody(resp, p.limit)
	switch {
	case errors.Is(err, errTooLarge):
		reply.Body = nil
		return reply, p.tooLarge("max_response", p.limit, "body")
	case err != nil:
		reply.Body = nil
		return reply, p.broken(err, true)
	}
	return reply, nil
}

var errTooLarge = errors.New("body too large")

// readBody reads to the end of the body, so that the connection can be used
// again, or gives what fits into limit together with errTooLarge. Memory grows
// with what arrives, not with what the head promises.
func readBody(resp *http.Response, limit int) ([]byte, error) {
	const first = 64 << 10
	size := 4 << 10
	if n := resp.ContentLength; n >= 0 {
		size = int(min(n, first)) + 1 // n may be the largest number there is
	}
	b := make([]byte, 0, min(size, limit+1))
	for {
		n, err := resp.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if len(b) > limit {
			return b[:limit], errTooLarge
		}
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(2*cap(b), limit+1))
			copy(grown, b)
			b = grown
		}
	}
}
