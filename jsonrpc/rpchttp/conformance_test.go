package rpchttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpcpractice"
	"github.com/parley-project/parley/jsonrpc/rpctest"
)

// leftOut says which conformance cases mean nothing over HTTP.
func leftOut(c rpctest.Case) string {
	if c.Group == "framing" {
		return "HTTP has a framing of its own"
	}
	return ""
}

// TestConformance POSTs every conformance case to a Server behind a real
// http.Server (RPC-1…RPC-6, RPC-20, RPC-24, RPC-25).
func TestConformance(t *testing.T) {
	cfg := rpctest.ConformanceConfig()
	cfg.Handler = rpcpractice.NewMux()
	h := rpchttp.Handler(rpchttp.ServerConfig{Config: cfg})
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer h.Close()
	rpctest.RunConformance(t, func(ctx context.Context, send []byte, answers int) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, bytes.NewReader(send))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := srv.Client().Do(req)
		if err != nil {
			return nil, err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		want := http.StatusOK
		if answers == 0 {
			want = http.StatusAccepted
		}
		if err == nil && res.StatusCode != want && res.StatusCode != http.StatusRequestEntityTooLarge {
			err = fmt.Errorf("status %s", res.Status)
		}
		return body, err
	}, rpctest.ConformanceOptions{Skip: leftOut})
}

// TestConformanceWayBack sends every case through a client Stream to a Conn
// that answers the way back, so that both ends carry whatever there is,
// malformed or not.
func TestConformanceWayBack(t *testing.T) {
	cfg := rpctest.ConformanceConfig()
	cfg.Handler = rpcpractice.NewMux()
	h := rpchttp.Handler(rpchttp.ServerConfig{
		Config: jsonrpc.Config{MaxMessage: 16 << 20}, // the Conn has the limit that the cases are about
		Sessions: &rpchttp.SessionConfig{Accept: func(s jsonrpc.Stream) {
			c := jsonrpc.NewConn(s, cfg)
			<-c.Done()
			c.Close()
		}},
	})
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer h.Close()
	st, err := rpchttp.NewStream(srv.URL, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	rpctest.RunConformance(t, rpctest.StreamExchange(st), rpctest.ConformanceOptions{Skip: leftOut})
}
