package rpcws_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpctest"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// TestContract holds both ends to the contract of jsonrpc.Stream, over a real
// loopback server, with sockets that can be written to without waiting and
// with TLS, where nobody can (RPC-13, RPC-15).
func TestContract(t *testing.T) {
	t.Parallel()
	// Most checks close ends whose peers no longer read, so do not answer.
	const patience = 50 * time.Millisecond
	for name, start := range map[string]func(http.Handler) *httptest.Server{"ws": httptest.NewServer, "wss": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rpctest.TestStream(t, func(t *testing.T) (a, b jsonrpc.Stream) {
				accepted := make(chan jsonrpc.Stream)
				handler := rpcws.Handler(rpcws.AcceptConfig{CloseTimeout: patience}, func(ctx context.Context, s jsonrpc.Stream) {
					accepted <- s
					<-ctx.Done()
				})
				srv := start(handler)
				t.Cleanup(srv.Close)
				t.Cleanup(func() { handler.Close() })
				a, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{CloseTimeout: patience, HTTPClient: srv.Client()})
				if err != nil {
					t.Fatal(err)
				}
				b = <-accepted
				for _, s := range []jsonrpc.Stream{a, b} {
					_, ok := s.(interface{ TryWrite(p []byte) (int, error) })
					if want := name == "ws" && runtime.GOOS != "windows"; ok != want {
						t.Errorf("TryWrite: %t", ok)
					}
				}
				return a, b
			})
		})
	}
}
