package bridge_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

func loopback() bridge.ExchangeConfig {
	return bridge.ExchangeConfig{Egress: bridge.Egress{Loopback: true}}
}

// newExchange makes an exchange for the time of the test. It keeps connections as
// long as that, unless cfg says otherwise: the machine may be busy between two calls.
func newExchange(t *testing.T, cfg bridge.ExchangeConfig) *bridge.Exchange {
	t.Helper()
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, time.Hour)
	x := bridge.NewExchange(cfg)
	t.Cleanup(x.Close)
	return x
}

// bothPaths runs a test with requests that go over a connection of the
// exchange's own, and with the same ones left to net/http.
func bothPaths(t *testing.T, test func(*testing.T, bridge.ExchangeLimits)) {
	t.Helper()
	t.Run("direct", func(t *testing.T) { test(t, bridge.ExchangeLimits{}) })
	t.Run("net/http", func(t *testing.T) { test(t, bridge.ExchangeLimits{MaxDirect: -1}) })
}

func limited(cfg bridge.ExchangeConfig, limits bridge.ExchangeLimits) bridge.ExchangeConfig {
	cfg.Limits = limits
	return cfg
}

func newServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func testTask() parley.Task {
	return parley.Task{ID: "run-1.ask.1", Step: "ask", Attempt: 1, CorrelationID: "corr-1"}
}

// wantExchangeError checks the disposition and code of err.
func wantExchangeError(t *testing.T, err error, d bridge.Disposition, code parley.Code) *bridge.ExchangeError {
	t.Helper()
	e, ok := errors.AsType[*bridge.ExchangeError](err)
	if !ok {
		t.Fatalf("error %v (%T), want an ExchangeError", err, err)
	}
	if e.Disposition != d || e.Err.Code != code {
		t.Fatalf("disposition %d, error %v; want %d, %s", e.Disposition, e.Err, d, code)
	}
	return e
}

// flakyConn fails its writes once it was told to, after letting some bytes pass.
type flakyConn struct {
	net.Conn
	broken *atomic.Bool
	pass   int
}

func (c *flakyConn) Write(p []byte) (int, error) {
	if !c.broken.Load() {
		return c.Conn.Write(p)
	}
	n := 0
	if c.pass > 0 {
		n, _ = c.Conn.Write(p[:min(c.pass, len(p))])
	}
	return n, &net.OpError{Op: "write", Err: syscall.EPIPE}
}

// flakyDialer breaks the writes of all connections that exist when broken is set.
type flakyDialer struct {
	broken *atomic.Bool
	dials  atomic.Int64
	pass   int
	always bool
}

func (d *flakyDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d.dials.Add(1)
	var nd net.Dialer
	c, err := nd.DialContext(ctx, network, address)
	if err != nil || (d.broken.Load() && !d.always) {
		return c, err
	}
	return &flakyConn{Conn: c, broken: d.broken, pass: d.pass}, nil
}

// TestExchangeStaleConnection: a kept connection on which nothing can be written
// is replaced, and the agent gets the request once.
func TestExchangeStaleConnection(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		var calls atomic.Int64
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); _, _ = io.WriteString(w, "{}") })
		d := &flakyDialer{broken: &atomic.Bool{}}
		x := newExchange(t, bridge.ExchangeConfig{DialContext: d.DialContext, Limits: limits})
		agent := parley.Agent{URL: s.URL}
		if _, err := x.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		d.broken.Store(true)
		if _, err := x.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil {
			t.Fatalf("the stale connection was not replaced: %v", err)
		}
		if calls.Load() != 2 || d.dials.Load() != 2 {
			t.Errorf("%d calls over %d connections, want 2 over 2", calls.Load(), d.dials.Load())
		}
	})
}

// TestExchangeNothingWritten: a new connection on which nothing can be written
// is no reason to try again, and nothing was sent.
func TestExchangeNothingWritten(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		s := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("the agent was called") })
		d := &flakyDialer{broken: &atomic.Bool{}, always: true}
		d.broken.Store(true)
		x := newExchange(t, bridge.ExchangeConfig{DialContext: d.DialContext, Limits: limits})
		_, err := x.Post(t.Context(), testTask(), parley.Agent{URL: s.URL}, []byte("{}"))
		wantExchangeError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
		if d.dials.Load() != 1 {
			t.Errorf("%d connections, want 1", d.dials.Load())
		}
	})
}

// TestExchangePartlyWritten: one byte on the wire, also of a kept connection,
// and the request is lost: it is not repeated.
func TestExchangePartlyWritten(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
		d := &flakyDialer{broken: &atomic.Bool{}, pass: 10}
		x := newExchange(t, bridge.ExchangeConfig{DialContext: d.DialContext, Limits: limits})
		agent := parley.Agent{URL: s.URL}
		if _, err := x.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		d.broken.Store(true)
		_, err := x.Post(t.Context(), testTask(), agent, []byte("{}"))
		wantExchangeError(t, err, bridge.Lost, parley.CodeAgentUnavailable)
		if d.dials.Load() != 1 {
			t.Errorf("%d connections, want 1", d.dials.Load())
		}
	})
}

// TestExchangeNeverTwice: an agent that takes the request from a kept connection
// and closes it gets it once, whatever net/http makes of it.
func TestExchangeNeverTwice(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		var calls atomic.Int64
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if calls.Add(1) == 1 {
				_, _ = io.WriteString(w, "{}")
				return
			}
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = c.Close()
			}
		})
		x := newExchange(t, limited(loopback(), limits))
		agent := parley.Agent{URL: s.URL, Auth: parley.Auth{Type: parley.AuthBearer}, Credential: parley.NewSecret([]byte("k"))}
		if _, err := x.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		_, err := x.Post(t.Context(), testTask(), agent, []byte("{}"))
		wantExchangeError(t, err, bridge.Lost, parley.CodeAgentUnavailable)
		if calls.Load() != 2 {
			t.Errorf("the agent was called %d times, want 2", calls.Load())
		}
	})
}

// TestExchangeKeepsConnections: bodies are read to their end, so that one
// connection serves all calls; refusals included.
func TestExchangeKeepsConnections(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		var n atomic.Int64
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if n.Add(1)%2 == 0 {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, strings.Repeat("x", int(n.Load())*100))
		})
		d := &flakyDialer{broken: &atomic.Bool{}}
		x := newExchange(t, bridge.ExchangeConfig{DialContext: d.DialContext, Limits: limits})
		for range 50 {
			_, _ = x.Post(t.Context(), testTask(), parley.Agent{URL: s.URL}, []byte("{}"))
		}
		if d.dials.Load() != 1 {
			t.Errorf("%d connections for 50 calls, want 1", d.dials.Load())
		}
	})
}

// TestExchangeOnePacket: head and body of a small request leave together.
func TestExchangeOnePacket(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
		writes := &countingConn{}
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, address)
			writes.Conn = c
			return writes, err
		}
		x := newExchange(t, bridge.ExchangeConfig{DialContext: dial, Limits: limits})
		if _, err := x.Post(t.Context(), testTask(), parley.Agent{URL: s.URL}, []byte(`{"small":true}`)); err != nil {
			t.Fatal(err)
		}
		if n := writes.n.Load(); n != 1 {
			t.Errorf("%d writes for one request", n)
		}
	})
}

type countingConn struct {
	net.Conn
	n atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(p)
}

// TestExchangeIdle: an unused connection is given up before the agent's own limit
// of 5 s, which the usual servers have.
func TestExchangeIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		dial := func(context.Context, string, string) (net.Conn, error) {
			dials++
			ours, theirs := net.Pipe()
			go rawServe(theirs, []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
			return ours, nil
		}
		x := bridge.NewExchange(bridge.ExchangeConfig{DialContext: dial})
		for i, pause := range []time.Duration{0, 3 * time.Second, 3 * time.Second, 4500 * time.Millisecond} {
			time.Sleep(pause) // virtual
			if _, err := x.Post(t.Context(), testTask(), parley.Agent{URL: "http://agent.test"}, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if want := 1 + i/3; dials != want {
				t.Errorf("%d connections after call %d, want %d", dials, i+1, want)
			}
		}
		x.Close()
	})
}

// TestExchangeConcurrent: many at once, none of which gets another's answer.
func TestExchangeConcurrent(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body) // before the answer: HTTP/1 is half-duplex in net/http
			_, _ = w.Write(b)
		})
		x := newExchange(t, limited(loopback(), limits))
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				body := strings.Repeat(string(rune('a'+i%26)), 10+i*300)
				for range 10 {
					reply, err := x.Post(t.Context(), testTask(), parley.Agent{URL: s.URL}, []byte(body))
					if err != nil || string(reply.Body) != body {
						t.Errorf("call %d: %d bytes, %v", i, len(reply.Body), err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// pipeAgent serves connections made of net.Pipe, so that time can be virtual.
func pipeAgent(t *testing.T, serve func(net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go serve(theirs)
		return ours, nil
	}
}

// TestExchangeTime: who ends an exchange that gets no answer, and what is said.
func TestExchangeTime(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		swallow := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
		cases := []struct {
			name     string
			agent    time.Duration
			ctx      func(context.Context) (context.Context, context.CancelFunc)
			took     time.Duration
			code     parley.Code
			limit    string
			retrying bool
		}{
			{"default", 0, context.WithCancel, 30 * time.Second, parley.CodeTimeout, `"exchange"`, true},
			{"agent", 3 * time.Second, context.WithCancel, 3 * time.Second, parley.CodeTimeout, `"exchange"`, true},
			{"attempt", 0, func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 2*time.Second)
			}, 2 * time.Second, parley.CodeTimeout, `"attempt_timeout"`, true},
			{"given up", 0, func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			}, time.Second, parley.CodeCancelled, "", false},
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					x := newExchange(t, bridge.ExchangeConfig{DialContext: pipeAgent(t, swallow)})
					ctx, cancel := c.ctx(t.Context())
					defer cancel()
					begun := time.Now()
					_, err := x.Post(ctx, testTask(), parley.Agent{URL: "http://agent.test", Timeout: c.agent}, []byte("{}"))
					e := wantExchangeError(t, err, bridge.Lost, c.code)
					if took := time.Since(begun); took != c.took {
						t.Errorf("took %v, want %v", took, c.took)
					}
					if !strings.Contains(string(e.Err.Details), c.limit) || e.Err.Retryable != c.retrying {
						t.Errorf("details %s, retryable %v", e.Err.Details, e.Err.Retryable)
					}
				})
			})
		}
	})
}

// TestExchangeNoConnection: what ends before there is a connection has sent
// nothing.
func TestExchangeNoConnection(t *testing.T) {
	never := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) {
		x := newExchange(t, bridge.ExchangeConfig{DialContext: never})
		_, err := x.Post(t.Context(), testTask(), parley.Agent{URL: "http://agent.test", Timeout: time.Second}, []byte("{}"))
		e := wantExchangeError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
		if !e.Err.Retryable || !strings.Contains(e.Err.Message, "no connection within 1s") {
			t.Errorf("error %v", e.Err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err = x.Post(ctx, testTask(), parley.Agent{URL: "http://agent.test"}, []byte("{}"))
		wantExchangeError(t, err, bridge.NotSent, parley.CodeCancelled)
	})
}

// TestExchangeInterimThenAnswer: interim responses before the final one are
// passed over.
func TestExchangeInterimThenAnswer(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusProcessing)
			_, _ = io.WriteString(w, "{}")
		})
		x := newExchange(t, limited(loopback(), limits))
		reply, err := x.Post(t.Context(), testTask(), parley.Agent{URL: s.URL}, []byte("{}"))
		if err != nil || string(reply.Body) != "{}" || reply.Status != 200 {
			t.Errorf("reply %v, %v", reply, err)
		}
	})
}

// TestExchangeRequestLimit: a body that is too large is not sent.
func TestExchangeRequestLimit(t *testing.T) {
	x := newExchange(t, bridge.ExchangeConfig{Limits: bridge.ExchangeLimits{MaxRequest: 10}})
	_, err := x.Post(t.Context(), testTask(), parley.Agent{URL: "http://agent.test", Name: "a"}, make([]byte, 11))
	var pe *parley.Error
	if !errors.As(err, &pe) || pe.Code != parley.CodeLimit || pe.Retryable || pe.Agent != "a" {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"11 bytes", "max_request allows 10", "http://agent.test"} {
		if !strings.Contains(pe.Message, want) {
			t.Errorf("message %q lacks %q", pe.Message, want)
		}
	}
}

// TestExchangeResponseLimit: the last byte that is allowed is given, one more is
// the end, with and without a length.
func TestExchangeResponseLimit(t *testing.T) {
	const limit = 200_000
	size := 0
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/chunked" {
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = w.Write(make([]byte, size))
	})
	x := newExchange(t, bridge.ExchangeConfig{Egress: bridge.Egress{Loopback: true}, Limits: bridge.ExchangeLimits{MaxResponse: limit}})
	for _, path := range []string{"/", "/chunked"} {
		size = limit
		reply, err := x.Post(t.Context(), testTask(), parley.Agent{URL: s.URL + path}, nil)
		if err != nil || len(reply.Body) != limit {
			t.Errorf("%s: %d bytes, %v", path, len(reply.Body), err)
		}
		size = limit + 1
		_, err = x.Post(t.Context(), testTask(), parley.Agent{URL: s.URL + path}, nil)
		e := wantExchangeError(t, err, bridge.Lost, parley.CodeLimit)
		if !strings.Contains(string(e.Err.Details), `"max_response","value":200000`) {
			t.Errorf("details %s", e.Err.Details)
		}
	}
}

// TestExchangeTLS: an agent over HTTP/2, one with a certificate of an unknown
// authority, and one that refuses after the handshake.
func TestExchangeTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	cfg := loopback()
	cfg.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	x := newExchange(t, cfg)
	for range 3 {
		reply, err := x.Post(t.Context(), testTask(), parley.Agent{URL: s.URL}, []byte("{}"))
		if err != nil || string(reply.Body) != "HTTP/2.0" {
			t.Fatalf("body %q, %v", reply.Body, err)
		}
	}
	_, err := x.Post(t.Context(), testTask(), parley.Agent{URL: s.URL + "/panic"}, []byte("{}"))
	wantExchangeError(t, err, bridge.Lost, parley.CodeAgentUnavailable)

	_, err = newExchange(t, loopback()).Post(t.Context(), testTask(), parley.Agent{URL: s.URL}, []byte("{}"))
	e := wantExchangeError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
	if !strings.Contains(e.Err.Message, "certificate") {
		t.Errorf("message %q", e.Err.Message)
	}
}

// TestExchangeEgress: an address that the policy refuses is not connected to,
// which no retry will change; one that it allows is.
func TestExchangeEgress(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	x := newExchange(t, bridge.ExchangeConfig{})
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		_, err := x.Post(t.Context(), testTask(), parley.Agent{URL: "http://" + host + port}, []byte("{}"))
		e := wantExchangeError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
		if e.Err.Retryable || !strings.Contains(e.Err.Message, "egress") {
			t.Errorf("%s: %v, retryable %v", host, e.Err, e.Err.Retryable)
		}
	}
	x = newExchange(t, bridge.ExchangeConfig{Egress: bridge.Egress{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}})
	if _, err := x.Post(t.Context(), testTask(), parley.Agent{URL: s.URL}, []byte("{}")); err != nil {
		t.Error(err)
	}
}
