package direct_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
	"github.com/parley-project/parley/internal/zone/zonetest"
)

// TestZN6_DirectContract: the contract over HTTP/1, and over HTTP/2 with TLS.
func TestZN6_DirectContract(t *testing.T) {
	t.Run("http1", func(t *testing.T) {
		zonetest.Run(t, func(t *testing.T, h http.Handler) zone.Transport {
			srv := httptest.NewServer(h)
			t.Cleanup(srv.Close)
			return open(t, direct.Config{URL: srv.URL + "/invocations"})
		})
	})
	t.Run("h2", func(t *testing.T) {
		server := newChain(t)
		zonetest.Run(t, func(t *testing.T, h http.Handler) zone.Transport {
			srv := quiet(t, h, &tls.Config{Certificates: []tls.Certificate{server.cert}}, true)
			return open(t, direct.Config{URL: srv.URL + "/invocations", TLS: &tls.Config{RootCAs: server.pool}})
		})
	})
}
