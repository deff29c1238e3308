package direct

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley/internal/zone"
)

// DialFunc opens connections, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// WireConfig says how a Wire reaches servers.
type WireConfig struct {
	// TLS is for https; nil is the roots of the system and no certificate. It is
	// copied.
	TLS *tls.Config
	// Dial opens connections; nil is a net.Dialer.
	Dial DialFunc
	// Proxy is asked which proxy to go through; nil is none.
	Proxy func(*http.Request) (*url.URL, error)
}

// A Wire sends HTTP requests, each exactly once, and knows how far they came. Any
// number of goroutines may use it. Close ends its idle connections.
type Wire struct {
	client *http.Client
	pool   *http.Transport
	// open counts the connections that there are.
	open atomic.Int64
}

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	// idleTimeout is below the 5 s after which uvicorn, the eagerest of the common
	// servers, closes: a request that meets a closing connection may have arrived
	// or not, and nobody can tell.
	idleTimeout    = 4 * time.Second
	maxHeaderBytes = 64 << 10
	maxIdle        = 64
	pingAfter      = 15 * time.Second
)

// NewWire returns a Wire. It follows no redirects.
func NewWire(cfg WireConfig) *Wire {
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	w := &Wire{}
	w.pool = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			w.open.Add(1)
			return &countedConn{Conn: conn, gone: func() { w.open.Add(-1) }, ended: make(chan struct{})}, nil
		},
		TLSClientConfig:        cfg.TLS.Clone(),
		TLSHandshakeTimeout:    handshakeTimeout,
		ForceAttemptHTTP2:      true,
		Proxy:                  cfg.Proxy,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
	}
	w.client = &http.Client{
		Transport:     w.pool,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w
}

// Close ends the connections that nobody uses.
func (w *Wire) Close() { w.pool.CloseIdleConnections() }

// Do sends req once; its body must have a known length. The error is a
// *[zone.TransportError] of the classes not-sent, auth and unknown-outcome. Who
// gets a response closes its body.
func (w *Wire) Do(req *http.Request) (*http.Response, error) { return w.do(req, false) }

// errFresh ends a request before the first byte of its body, since it was about to
// be the first one on a connection.
var errFresh = errors.New("the connection is new")

// do sends req. With gate it fails with errFresh in place of sending the body over
// a connection that nothing was sent over before.
func (w *Wire) do(req *http.Request, gate bool) (*http.Response, error) {
	f := &flight{need: req.ContentLength, gate: gate}
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: f.gotConn}))
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &watchedBody{ReadCloser: req.Body, flight: f}
	}
	req.GetBody = nil // else net/http would repeat requests by itself
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, f.fail(err)
	}
	return resp, nil
}

// flight is one request under way.
type flight struct {
	need int64 // the length of the body
	gate bool

	mu    sync.Mutex // guards the following
	got   bool       // a connection was had
	fresh bool       // nothing was sent over it before
	h2    bool
	tls   *tls.Conn    // nil without TLS
	conn  *countedConn // nil if it is none of ours
	read  int64        // bytes of the body taken for sending
	over  bool         // no more of the body is given
}

func (f *flight) gotConn(info httptrace.GotConnInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got, f.fresh = true, !info.Reused
	conn := info.Conn
	if secure, ok := conn.(*tls.Conn); ok {
		f.tls = secure
		f.h2 = secure.ConnectionState().NegotiatedProtocol == "h2"
		conn = secure.NetConn()
	}
	if counted, ok := conn.(*countedConn); ok {
		f.conn = counted
	}
}

// watchedBody gives a body to whoever sends it, and stops when the request is
// over.
type watchedBody struct {
	io.ReadCloser
	flight *flight
}

func (b *watchedBody) Read(p []byte) (int, error) {
	f := b.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.over:
		return 0, net.ErrClosed
	case f.gate && f.fresh:
		return 0, errFresh
	}
	n, err := b.ReadCloser.Read(p)
	f.read += int64(n)
	return n, err
}

// fail says what became of a request that has no response.
func (f *flight) fail(err error) *zone.TransportError {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		if alert := f.alert(); alert != nil {
			err = alert
		}
	}
	fault := &zone.TransportError{Class: zone.ClassUnknownOutcome, Err: plain(err)}
	switch {
	case certificateRefused(err):
		fault.Class, fault.Err = zone.ClassAuth, fmt.Errorf("the other zone refused the client certificate: %w", plain(err))
	case untrusted(err):
		fault.Class, fault.Err = zone.ClassAuth, fmt.Errorf("the certificate of the other zone is not trusted: %w", plain(err))
	case !f.got, f.read < f.need, f.refusedStream(err):
		fault.Class = zone.ClassNotSent
	}
	return fault
}

// alert gives the TLS error with which a new connection ended, if it did: TLS keeps
// it, while net/http may have told of a write that failed after it.
func (f *flight) alert() error {
	if f.tls == nil || f.conn == nil || !f.fresh || f.gate && f.read == 0 || !f.conn.waitForEnd() {
		return nil
	}
	if _, err := f.tls.Read(make([]byte, 1)); certificateRefused(err) {
		return err
	}
	return nil
}

// refusedStream reports that an HTTP/2 server said that it has not looked at the
// request. net/http has no type for it: it would have repeated the request if it
// could have read the body again.
func (f *flight) refusedStream(err error) bool {
	return f.h2 && strings.Contains(err.Error(), "http2: Transport: cannot retry err [")
}

// plain leaves out the URL, which net/http puts in front of its errors.
func plain(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// certificateRefused reports whether the server ended the connection over the
// client's certificate. With TLS 1.3 it says so only when the request may have
// been written; it has read nothing of it then (RFC 8446 §4.4.2.4).
func certificateRefused(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" || op.Err == nil {
		return false
	}
	// The type of an alert is not exported; its text is all there is.
	switch strings.TrimPrefix(op.Err.Error(), "tls: ") {
	case "bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate",
		"unknown certificate authority", "access denied", "certificate required",
		"handshake failure": // what TLS 1.2 says where there is no certificate
		return true
	}
	return false
}

// untrusted reports whether it was the server's certificate.
func untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// countedConn is a connection that a Wire counts.
type countedConn struct {
	net.Conn
	gone  func()
	once  sync.Once
	ended chan struct{} // closed by Close
}

// lastWords is how long a write that failed waits for what the other end said
// before it hung up.
const lastWords = 200 * time.Millisecond

// Write writes. One that fails returns after whoever reads has ended the
// connection: the alert that says why a certificate was refused is often still to
// be read when writing fails.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.waitForEnd()
	}
	return n, err
}

// waitForEnd waits a little for Close, and reports whether it came.
func (c *countedConn) waitForEnd() bool {
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-c.ended:
		return true
	case <-timer.C:
		return false
	}
}

// Close tells the Wire.
func (c *countedConn) Close() error {
	c.once.Do(func() { c.gone(); close(c.ended) })
	return c.Conn.Close()
}
