package direct_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
)

// BenchmarkCall is a call over a kept connection, beside one of net/http alone.
func BenchmarkCall(b *testing.B) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, good)
	}))
	srv.StartTLS()
	defer srv.Close()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	settings := &tls.Config{RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	body := `{"jsonrpc":"2.0","method":"execute_task","params":{"text":"hello"},"id":"1"}`
	b.Run("direct", func(b *testing.B) {
		tr, err := direct.New(direct.Config{URL: srv.URL, TLS: settings})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, _, err := tr.Call(ctx, []byte(body), zone.Meta{CorrelationID: "c"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("net-http", func(b *testing.B) {
		for b.Loop() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			resp, err := srv.Client().Do(req)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}
