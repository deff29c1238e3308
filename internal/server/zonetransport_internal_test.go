package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
)

// TestZN5_TransportsCarryMaxResult: what a response of max_result is wrapped in does not
// keep it from being read, and no setting is beyond what transports take.
func TestZN5_TransportsCarryMaxResult(t *testing.T) {
	t.Parallel()
	const size = 30 << 20
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", size) + `"}`))
	}))
	t.Cleanup(other.Close)
	for most, want := range map[int]zone.Class{0: zone.ClassTooLarge, 10 << 20: zone.ClassTooLarge, 20 << 20: "", zone.MaxPayload: ""} {
		tr, err := ZoneTransport{URL: other.URL, MaxResponse: most}.open(t.Context(), slog.New(slog.DiscardHandler), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		body, _, err := tr.Call(ctx, []byte(`{"jsonrpc":"2.0","id":1,"method":"get_agent_card"}`), zone.Meta{IdempotencyKey: "k"})
		var got zone.Class
		if f, ok := errors.AsType[*zone.TransportError](err); ok {
			got = f.Class
		}
		if got != want || (err == nil) != (want == "") || err == nil && len(body) < size {
			t.Errorf("max_result %d: %d bytes, %v", most, len(body), err)
		}
	}
}

// TestZN6_TransportsByProxy: where the way out is a proxy every transport takes it, and
// what that refuses was not sent.
func TestZN6_TransportsByProxy(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	for want, transport := range map[string]ZoneTransport{
		"CONNECT execution.invalid:443": {URL: "https://execution.invalid/invocations"},
		"CONNECT agentcore.invalid:443": {
			RuntimeARN: "arn:aws:bedrock-agentcore:eu-central-1:123456789012:runtime/demo-abc1234567", Endpoint: "https://agentcore.invalid",
			JWT: true, Bearer: parley.NewSecret([]byte("token")),
		},
	} {
		transport.Proxy = http.ProxyURL(at)
		tr, err := transport.open(t.Context(), slog.New(slog.DiscardHandler), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, info, err := tr.Call(ctx, []byte(`{"jsonrpc":"2.0","id":1,"method":"get_agent_card"}`), zone.Meta{IdempotencyKey: "k"})
		if f, ok := errors.AsType[*zone.TransportError](err); !ok || f.Class != zone.ClassNotSent {
			t.Errorf("%s: %v", want, err)
		}
		if len(asked) != info.Attempts || info.Attempts == 0 {
			t.Errorf("%s: %d attempts, the proxy was asked %d times", want, info.Attempts, len(asked))
		}
		for len(asked) > 0 {
			if got := <-asked; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}
