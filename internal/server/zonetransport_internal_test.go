package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
