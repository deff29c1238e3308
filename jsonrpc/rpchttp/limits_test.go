package rpchttp_test

import (
	"context"
	"math"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// TestLargestLimits: the largest numbers there are for the limits of both ends are no
// limits, rather than an end of the program or of all work; and so is a negative time
// between comments on the way back, or for writing to it.
func TestLargestLimits(t *testing.T) {
	for _, wayBack := range []time.Duration{math.MaxInt64, -1} {
		testLargestLimits(t, wayBack)
	}
}

func testLargestLimits(t *testing.T, wayBack time.Duration) {
	all := jsonrpc.Config{
		Handler: testMethods(), Timeout: math.MaxInt64, StallTimeout: math.MaxInt64, Grace: math.MaxInt64,
		MaxHandlers: math.MaxInt, MaxMessage: math.MaxInt, MaxDepth: math.MaxInt, MaxBatch: math.MaxInt, WriteBuffer: math.MaxInt,
	}
	h := rpchttp.Handler(rpchttp.ServerConfig{Config: all, Sessions: &rpchttp.SessionConfig{
		Max: math.MaxInt, Idle: math.MaxInt64, KeepAlive: wayBack, WriteTimeout: wayBack, Backlog: math.MaxInt,
	}})
	defer h.Close()
	srv := httptest.NewServer(h)
	defer srv.Close()
	st, err := rpchttp.NewStream(srv.URL, rpchttp.ClientConfig{
		MaxInFlight: math.MaxInt, MaxQueue: math.MaxInt, MaxMessage: math.MaxInt, MaxSend: math.MaxInt, MaxReconnects: math.MaxInt,
		Timeout: math.MaxInt64, WayBackIdle: math.MaxInt64, WayBack: rpchttp.WayBackAtOnce,
	})
	if err != nil {
		t.Fatal(err)
	}
	conn := jsonrpc.NewConn(st, jsonrpc.Config{Timeout: math.MaxInt64})
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i := range 3 {
		if got, err := jsonrpc.Call[[]int](ctx, conn, "echo", []int{i}); err != nil || got[0] != i {
			t.Fatalf("echo: %v, %v", got, err)
		}
	}
}
