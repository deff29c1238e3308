package rpcdial_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
)

// closing returns the address of a server that calls talk with each connection
// and closes it then.
func closing(t *testing.T, talk func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			talk(c)
			c.Close()
		}
	}()
	return ln.Addr().String()
}

// TestClientFailsFast proves that a Client does not go on where every attempt
// fails the same way, and that its calls learn of it at once; and that it goes on
// where one may succeed (RPC-22).
func TestClientFailsFast(t *testing.T) {
	t.Parallel()
	secure, _ := certificate(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(web.Close)
	webAt := strings.TrimPrefix(web.URL, "http://")
	htmlAt := closing(t, func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html>")
		io.ReadFull(c, make([]byte, 1)) // the client hangs up
	})
	plainAt := closing(t, func(c net.Conn) { io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\n") })
	silentAt := closing(t, func(net.Conn) {})
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tlsAt := strings.TrimPrefix(serve(t, "tls://127.0.0.1:0", rpcdial.Config{TLS: secure}), "tls://")
	wssAt := serve(t, "wss://127.0.0.1:0", rpcdial.Config{TLS: secure})
	fatal, passing := jsonrpc.AdviceGiveUp, jsonrpc.AdviceReconnect
	for url, want := range map[string]jsonrpc.Advice{
		"stdio:nonexistentprog":        fatal,
		"stdio:/nonexistent/prog":      fatal,
		"stdio:" + file:                fatal,
		`stdio:cmd "open`:              fatal,
		"foo://x":                      fatal,
		"nonsense":                     fatal,
		"tcp://localhost":              fatal,
		"unix://host/path":             fatal,
		"ws://":                        fatal,
		"http://":                      fatal,
		"http+lsp://x":                 fatal,
		"tls://" + tlsAt:               fatal, // certificate of an unknown authority
		wssAt:                          fatal,
		"tls://" + plainAt:             fatal, // no TLS at all
		"ws://" + webAt + "/rpc":       fatal, // 401
		"tcp+lsp://" + htmlAt:          fatal, // another framing
		"ws://" + webAt + "/busy":      passing,
		"tcp://" + silentAt:            passing,
		"tcp://127.0.0.1:1":            passing,
		"unix:/nonexistent/socket":     passing,
		"unix+lsp:/nonexistent/socket": passing,
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			var dials atomic.Int64
			cl := jsonrpc.NewClient(func(ctx context.Context) (jsonrpc.Stream, error) {
				dials.Add(1)
				return rpcdial.Dial(ctx, url, rpcdial.Config{})
			}, jsonrpc.ClientConfig{MinBackoff: time.Millisecond, MaxBackoff: time.Minute, MaxDials: 2})
			defer cl.Close()
			err := cl.Call(t.Context(), "m", nil, nil)
			ended, ok := errors.AsType[*jsonrpc.ConnError](err)
			for ok && ended.Recoverable { // that of a connection that stood for a moment
				err = cl.Call(t.Context(), "m", nil, nil)
				ended, ok = errors.AsType[*jsonrpc.ConnError](err)
			}
			if n := dials.Load(); !ok || want == fatal && n != 1 || want == passing && n != 3 {
				t.Fatalf("%v after %d dials, want advice %v", err, n, want)
			}
			if got := jsonrpc.AdviceFor(ended.Err); got != want {
				t.Errorf("%v: advice %v, want %v", ended.Err, got, want)
			}
		})
	}
}
