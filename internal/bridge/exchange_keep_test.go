package bridge_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// TestConnectionsFollowCalls: an agent that has 200 calls at once again and
// again has 200 connections, and no new ones for each.
func TestConnectionsFollowCalls(t *testing.T) {
	const atOnce, rounds = 200, 10
	meet := meeting(atOnce)
	agent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) != "first" {
			meet()
		}
		_, _ = io.WriteString(w, "{}")
	})
	run := func(t *testing.T, s *httptest.Server, cfg bridge.ExchangeConfig) {
		t.Helper()
		var dials atomic.Int64
		cfg.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		x := newExchange(t, cfg)
		agent := parley.Agent{URL: s.URL, MaxConcurrent: atOnce, Timeout: time.Minute}
		if _, err := x.Post(t.Context(), testTask(), agent, []byte("first")); err != nil {
			t.Fatal(err)
		}
		for range rounds {
			var wg sync.WaitGroup
			for range atOnce {
				wg.Go(func() {
					if _, err := x.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		if n := dials.Load(); n > atOnce*11/10 {
			t.Errorf("%d connections for %d calls, %d at once", n, rounds*atOnce, atOnce)
		}
		t.Logf("%d connections for %d calls, %d at once", dials.Load(), rounds*atOnce, atOnce)
	}
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		run(t, newServer(t, agent.ServeHTTP), bridge.ExchangeConfig{Limits: limits})
	})
	for name, h2 := range map[string]bool{"TLS": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			ca := newAuthority(t, "agents")
			s := httptest.NewUnstartedServer(agent)
			s.EnableHTTP2, s.TLS = h2, &tls.Config{Certificates: []tls.Certificate{ca.server()}}
			s.StartTLS()
			t.Cleanup(s.Close)
			run(t, s, bridge.ExchangeConfig{TLS: &tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS12}})
		})
	}
}

// TestConnectionAge: a connection is used for five minutes, however busy it is,
// so that an agent that has moved is found again; what it carries then is
// carried to its end.
func TestConnectionAge(t *testing.T) {
	run := func(t *testing.T, a *h2Agents) {
		t.Helper()
		if a.agent.Timeout = 20 * time.Second; a.agent.URL == "" {
			a.agent.URL = "http://agent.test/"
		}
		post := func(body string) {
			if _, err := a.x.Post(t.Context(), testTask(), a.agent, []byte(body)); err != nil {
				t.Errorf("%q: %v", body, err)
			}
		}
		begun := time.Now()
		for begun.Add(299 * time.Second).After(time.Now()) {
			post("{}")
			time.Sleep(time.Second)
		}
		var long sync.WaitGroup
		long.Go(func() { post("slow") }) // over the end of the connection's time
		synctest.Wait()
		for begun.Add(899 * time.Second).After(time.Now()) {
			time.Sleep(time.Second)
			post("{}")
		}
		long.Wait()
		// HTTP/1 needs one more for the second call at a time.
		if n := a.dials.Load(); n < 3 || n > 4 {
			t.Errorf("%d connections in 15 minutes, want one each 5 minutes", n)
		}
		a.x.Close()
		time.Sleep(10 * time.Second) // those that were in use are idle now, and go
	}
	never := func() float64 { return 0 }
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		synctest.Test(t, func(t *testing.T) {
			a := &h2Agents{t: t}
			dial := pipeAgent(t, func(c net.Conn) { slowServe(c) })
			a.x = newExchange(t, bridge.ExchangeConfig{Limits: limits, Jitter: never, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				a.dials.Add(1)
				return dial(ctx, network, address)
			}})
			run(t, a)
		})
	})
	t.Run("HTTP/2", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newH2Agents(t, bridge.ExchangeConfig{Jitter: never})
			a.script(func(n int64, s h2Script, stream uint32) bool {
				if n == 300 {
					time.AfterFunc(10*time.Second, func() { s.answer(stream) })
					return true
				}
				s.answer(stream)
				return true
			})
			run(t, a)
		})
	})
}

// slowServe answers "slow" after 10 s and everything else at once.
func slowServe(c net.Conn) {
	serveConn(c, func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) == "slow" {
			time.Sleep(10 * time.Second)
		}
		_, _ = io.WriteString(w, "{}")
	})
}

// serveConn is a server of net/http with one connection, until that is closed.
func serveConn(c net.Conn, h http.HandlerFunc) {
	defer func() { _ = c.Close() }()
	l := &oneListener{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- c
	s := &http.Server{
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				_ = l.Close()
			}
		},
		Handler: h,
	}
	_ = s.Serve(l)
}

// oneListener gives one connection, and waits.
type oneListener struct {
	conn   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestFirstByte: an agent that says nothing is given up when the time for its
// first byte is over; one that has begun has its whole time.
func TestFirstByte(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		synctest.Test(t, func(t *testing.T) {
			limits.FirstByte = 2 * time.Second
			agent := parley.Agent{URL: "http://agent.test/", Timeout: time.Minute}
			silent := newExchange(t, bridge.ExchangeConfig{Limits: limits, DialContext: pipeAgent(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })})
			begun := time.Now()
			_, err := silent.Post(t.Context(), testTask(), agent, []byte("{}"))
			e := wantExchangeError(t, err, bridge.Lost, parley.CodeTimeout)
			if took := time.Since(begun); took != 2*time.Second || !e.Err.Retryable || !strings.Contains(string(e.Err.Details), `"limit":"first_byte","value":2000`) {
				t.Errorf("after %s: %v %s", took, e.Err, e.Err.Details)
			}
			drip := newExchange(t, bridge.ExchangeConfig{Limits: limits, DialContext: pipeAgent(t, func(c net.Conn) {
				b := make([]byte, 1<<10)
				_, _ = c.Read(b)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
				for range 10 {
					time.Sleep(time.Second)
					_, _ = io.WriteString(c, "1")
				}
				_ = c.Close()
			})})
			if reply, err := drip.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil || len(reply.Body) != 10 {
				t.Errorf("%q, %v", reply.Body, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = silent.Post(ctx, testTask(), agent, []byte("{}"))
			if e := wantExchangeError(t, err, bridge.Lost, parley.CodeTimeout); !strings.Contains(string(e.Err.Details), "attempt_timeout") {
				t.Errorf("%s", e.Err.Details)
			}
			silent.Close()
			drip.Close()
		})
	})
}
