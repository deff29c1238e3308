package bridge_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// TestGuardAfterConnecting: a connection takes its time, and what may not be sent any
// more when it is there is not sent, over HTTP/1.1 of either kind, TLS and HTTP/2. On
// a connection that is there nobody asks again.
func TestGuardAfterConnecting(t *testing.T) {
	t.Parallel()
	long := `{"text":"` + strings.Repeat("x", 64<<10) + `"}`
	for name, c := range map[string]struct {
		body  string
		start func(*httptest.Server)
		// asked is how often in all: with HTTP/2 the connection stays when a request is
		// taken back.
		asked int32
	}{
		"http":       {`{}`, (*httptest.Server).Start, 5},
		"http, long": {long, (*httptest.Server).Start, 5},
		"https":      {`{}`, (*httptest.Server).StartTLS, 5},
		"https, h2":  {long, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var whole, asked atomic.Int32
			agent := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if b, err := io.ReadAll(r.Body); err == nil && string(b) == c.body {
					whole.Add(1)
				}
				_, _ = io.WriteString(w, `{}`)
			}))
			c.start(agent)
			defer agent.Close()
			var cancelled atomic.Bool
			cancels := true
			var settings *tls.Config
			if agent.TLS != nil {
				settings = agent.Client().Transport.(*http.Transport).TLSClientConfig
			}
			x := bridge.NewExchange(bridge.ExchangeConfig{
				TLS: settings, IdleTimeout: time.Hour, // whatever the machine is busy with
				DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					cancelled.Store(cancels)
					var d net.Dialer
					return d.DialContext(ctx, network, address)
				},
			})
			defer x.Close()
			send := func() error {
				ctx := bridge.WithSendGuard(t.Context(), func() bool { asked.Add(1); return !cancelled.Load() })
				_, err := x.Post(ctx, parley.Task{ID: "run-1.a.1"}, parley.Agent{Name: "one", URL: agent.URL}, []byte(c.body))
				return err
			}
			err := send()
			e, ok := errors.AsType[*bridge.ExchangeError](err)
			if !ok || e.Disposition != bridge.NotSent || !strings.Contains(err.Error(), "nothing was sent") || asked.Load() != 2 {
				t.Fatalf("asked %d times: %v", asked.Load(), err)
			}
			if n := whole.Load(); n != 0 {
				t.Fatalf("the agent got %d requests", n)
			}
			cancels = false
			cancelled.Store(false)
			for range 2 {
				if err := send(); err != nil {
					t.Fatal(err)
				}
			}
			if n := whole.Load(); n != 2 {
				t.Errorf("the agent got %d requests, want 2", n)
			}
			if n := asked.Load(); n != c.asked {
				t.Errorf("asked %d times, want %d: twice for a new connection, once for a kept one", n, c.asked)
			}
		})
	}
}
