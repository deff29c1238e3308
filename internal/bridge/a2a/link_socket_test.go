package a2a

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// socketAgent is an agent on WebSocket that remembers its handshakes.
type socketAgent struct {
	*httptest.Server
	sockets *rpcws.Server

	mu         sync.Mutex
	handshakes []*http.Request
	// admit may refuse a handshake: the status, or 0.
	admit func(r *http.Request) int
}

func startSocketAgent(t *testing.T, secure bool) *socketAgent {
	t.Helper()
	a := &socketAgent{}
	a.sockets = rpcws.Handler(rpcws.AcceptConfig{}, func(ctx context.Context, s jsonrpc.Stream) {
		conn := jsonrpc.NewConn(s, jsonrpc.Config{Grace: -1, Handler: jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
			switch p := string(req.Params()); {
			case strings.Contains(p, `"drop"`):
				return nil, s.Close()
			case strings.Contains(p, `"hang"`):
				<-ctx.Done()
				return nil, ctx.Err()
			case strings.Contains(p, `"big"`):
				return strings.Repeat("y", 2<<20), nil
			case strings.Contains(p, `"error"`):
				return nil, jsonrpc.Errorf(-32004, "not here")
			}
			return req.Method(), nil
		})})
		defer conn.Close()
		select {
		case <-conn.Done():
		case <-ctx.Done():
		}
	})
	front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.handshakes = append(a.handshakes, r)
		admit := a.admit
		a.mu.Unlock()
		if admit != nil {
			if status := admit(r); status != 0 {
				http.Error(w, "you sent "+r.Header.Get("Authorization"), status)
				return
			}
		}
		a.sockets.ServeHTTP(w, r)
	})
	a.Server = httptest.NewUnstartedServer(front)
	a.Config.ErrorLog = log.New(io.Discard, "", 0) // one test's client does not trust it
	if secure {
		a.StartTLS()
	} else {
		a.Start()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = a.sockets.Shutdown(ctx)
		a.Close()
	})
	return a
}

// url is where the agent is, as ws or wss.
func (a *socketAgent) url(path string) string { return "ws" + strings.TrimPrefix(a.URL, "http") + path }

func (a *socketAgent) handshake(i int) *http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handshakes[i]
}

func loopbackExchange(cfg bridge.ExchangeConfig) *bridge.Exchange {
	cfg.Egress.Loopback = true
	cfg.Limits.MaxResponse = 1 << 20
	cfg.UserAgent = "parley/test"
	return bridge.NewExchange(cfg)
}

func TestSocket(t *testing.T) {
	t.Parallel()
	a := startSocketAgent(t, false)
	r := newLinkRig(t, a.url("/rpc?v=1"), linkOptions{Exchange: loopbackExchange(bridge.ExchangeConfig{})})
	r.agent.Auth = parley.Auth{Type: parley.AuthBearer}
	r.agent.Credential = parley.NewSecret([]byte("t0ken"))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got, _, err := r.call(t.Context(), verbSend, "echo", ""); err != nil || got != `"SendMessage"` {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	wg.Wait()
	h := a.handshake(0)
	if len(a.handshakes) != 1 || h.Header.Get("Authorization") != "Bearer t0ken" || h.Header.Get("A2A-Version") != "1.0" ||
		h.Header.Get("User-Agent") != "parley/test" || h.URL.String() != "/rpc?v=1" {
		t.Errorf("%d handshakes, the first with %v", len(a.handshakes), h.Header)
	}
	_, f, err := r.call(t.Context(), verbGet, "error", "")
	if err != nil || f == nil || f.code != codeUnsupported {
		t.Errorf("%+v, %v, want the agent's error", f, err)
	}
	_, _, err = r.call(t.Context(), verbSend, "big", "")
	wantLinkError(t, err, bridge.Lost, parley.CodeLimit)
	_, _, err = r.call(t.Context(), verbSend, "drop", "")
	wantLinkError(t, err, bridge.Lost, parley.CodeAgentUnavailable)

	r.to.Version = V03
	if _, _, err := r.call(t.Context(), verbSend, "echo", ""); err != nil {
		t.Fatal(err)
	}
	if h := a.handshake(len(a.handshakes) - 1); h.Header.Get("A2A-Version") != "" {
		t.Error("a version header with 0.3")
	}
}

// TestSocketKey proves that a key in the URL goes to the agent, and nowhere
// else.
func TestSocketKey(t *testing.T) {
	t.Parallel()
	a := startSocketAgent(t, false)
	var gone atomic.Bool
	x := loopbackExchange(bridge.ExchangeConfig{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if gone.Load() {
			address = "127.0.0.1:1" // the port of a server that was closed may be another's by now
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	r := newLinkRig(t, a.url("/rpc?v=1"), linkOptions{Exchange: x})
	r.agent.Auth = parley.Auth{Type: parley.AuthAPIKey, In: parley.InQuery, Header: "key"}
	r.agent.Credential = parley.NewSecret([]byte("s3cr3t"))
	if _, _, err := r.call(t.Context(), verbSend, "echo", ""); err != nil {
		t.Fatal(err)
	}
	if got := a.handshake(0).URL.String(); got != "/rpc?v=1&key=s3cr3t" {
		t.Errorf("the handshake went to %s", got)
	}
	_, _, err := r.call(t.Context(), verbSend, "drop", "")
	wantLinkError(t, err, bridge.Lost, parley.CodeAgentUnavailable)
	gone.Store(true)
	for {
		_, _, err = r.call(t.Context(), verbSend, "echo", "")
		if e := wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable); e.RetryAfter > 0 {
			break
		}
	}
	if strings.Contains(err.Error(), "s3cr3t") || strings.Contains(r.log.String(), "s3cr3t") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v: want the reason, and no key there or in the log:\n%s", err, r.log)
	}
}

// TestSocketRefused proves what becomes of handshakes that an agent refuses.
func TestSocketRefused(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		code      parley.Code
		retryable bool
	}{
		401: {parley.CodeAgentRejected, false}, 403: {parley.CodeAgentRejected, false}, 404: {parley.CodeAgentRejected, false},
		302: {parley.CodeAgentRejected, false}, 429: {parley.CodeAgentUnavailable, true}, 503: {parley.CodeAgentUnavailable, true},
		200: {parley.CodeAgentUnavailable, true},
	} {
		a := startSocketAgent(t, false)
		a.admit = func(*http.Request) int { return status }
		r := newLinkRig(t, a.url("/"), linkOptions{Exchange: loopbackExchange(bridge.ExchangeConfig{})})
		r.agent.Auth = parley.Auth{Type: parley.AuthBearer}
		r.agent.Credential = parley.NewSecret([]byte("s3cr3t"))
		_, _, err := r.call(t.Context(), verbSend, "echo", "")
		e := wantLinkError(t, err, bridge.NotSent, want.code)
		if e.Err.Retryable != want.retryable || e.Status != status || strings.Contains(e.Error(), "s3cr3t") {
			t.Errorf("%d: status %d, retryable %v: %v", status, e.Status, e.Err.Retryable, e)
		}
		if len(a.handshakes) != 1 {
			t.Errorf("%d: %d handshakes, want 1", status, len(a.handshakes))
		}
	}
}

// TestSocketRenews proves that a handshake that is refused with 401 is made once
// more with a credential that was read anew.
func TestSocketRenews(t *testing.T) {
	t.Parallel()
	a := startSocketAgent(t, false)
	a.admit = func(r *http.Request) int {
		if r.Header.Get("Authorization") != "Bearer new" {
			return http.StatusUnauthorized
		}
		return 0
	}
	x := loopbackExchange(bridge.ExchangeConfig{Renew: func(_ context.Context, agent parley.Agent) (parley.Agent, error) {
		agent.Credential = parley.NewSecret([]byte("new"))
		return agent, nil
	}})
	r := newLinkRig(t, a.url("/"), linkOptions{Exchange: x})
	r.agent.Auth = parley.Auth{Type: parley.AuthBearer, Secret: "file:token"}
	r.agent.Credential = parley.NewSecret([]byte("old"))
	if _, _, err := r.call(t.Context(), verbSend, "echo", ""); err != nil {
		t.Error(err)
	}
	if len(a.handshakes) != 2 {
		t.Errorf("%d handshakes, want 2", len(a.handshakes))
	}
}

// TestSocketTLS proves that wss is spoken with the certificates of the exchange.
func TestSocketTLS(t *testing.T) {
	t.Parallel()
	a := startSocketAgent(t, true)
	roots := x509.NewCertPool()
	roots.AddCert(a.Certificate())
	good := newLinkRig(t, a.url("/"), linkOptions{Exchange: loopbackExchange(bridge.ExchangeConfig{TLS: &tls.Config{RootCAs: roots}})})
	if _, _, err := good.call(t.Context(), verbSend, "echo", ""); err != nil {
		t.Error(err)
	}
	strange := newLinkRig(t, a.url("/"), linkOptions{Exchange: loopbackExchange(bridge.ExchangeConfig{})})
	_, _, err := strange.call(t.Context(), verbSend, "echo", "")
	if e := wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable); !strings.Contains(e.Error(), "certificate") {
		t.Errorf("%v: want the reason", e)
	}
}

// TestSocketIdentity proves that an agent with TLS settings is never called
// without TLS, whatever its card or a setting says.
func TestSocketIdentity(t *testing.T) {
	t.Parallel()
	a := startSocketAgent(t, false)
	r := newLinkRig(t, a.url("/"), linkOptions{Exchange: loopbackExchange(bridge.ExchangeConfig{})})
	r.agent.TLS = parley.AgentTLS{CA: "file:ca"}
	if _, _, err := r.call(t.Context(), verbSend, "echo", ""); err == nil || !strings.Contains(err.Error(), "wss://") {
		t.Errorf("%v: want that TLS is missing", err)
	}
	if len(a.handshakes) != 0 {
		t.Errorf("%d handshakes, want none", len(a.handshakes))
	}
}

// TestSocketEgress proves that WebSocket agents are held to the egress policy.
func TestSocketEgress(t *testing.T) {
	t.Parallel()
	a := startSocketAgent(t, false)
	r := newLinkRig(t, a.url("/"), linkOptions{Exchange: bridge.NewExchange(bridge.ExchangeConfig{})})
	_, _, err := r.call(t.Context(), verbSend, "echo", "")
	e := wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
	if e.Err.Retryable || !strings.Contains(e.Error(), "egress") || len(a.handshakes) != 0 {
		t.Errorf("%v, %d handshakes: want a refusal for good, before anything is sent", e, len(a.handshakes))
	}
}
