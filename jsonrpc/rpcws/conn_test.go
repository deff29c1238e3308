package rpcws_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcpractice"
	"github.com/parley-project/parley/jsonrpc/rpctest"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// TestConformance runs the conformance cases against a Conn over WebSocket
// (RPC-1 to RPC-6, RPC-25).
func TestConformance(t *testing.T) {
	cfg := rpctest.ConformanceConfig()
	cfg.Handler = rpcpractice.NewMux()
	handler := rpcws.Handler(rpcws.AcceptConfig{}, func(_ context.Context, s jsonrpc.Stream) {
		conn := jsonrpc.NewConn(s, cfg)
		<-conn.Done()
		conn.Close()
	})
	srv := httptest.NewServer(handler)
	defer srv.Close()
	defer handler.Close()
	client, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	rpctest.RunConformance(t, rpctest.StreamExchange(client), rpctest.ConformanceOptions{
		Skip: func(c rpctest.Case) string {
			if c.Group == "framing" {
				return "WebSocket has its own framing"
			}
			return ""
		},
	})
}

// TestOversize answers a message of 2 MB and goes on (RPC-24).
func TestOversize(t *testing.T) {
	conn := practice(t, jsonrpc.Config{}, rpcws.DialConfig{})
	params, err := json.Marshal([]string{strings.Repeat("x", 2<<20)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // enough to send it
	defer cancel()
	// The answer has no id, since the request was not read: the call ends with
	// its context.
	if err := conn.Call(ctx, "echo", json.RawMessage(params), nil); err == nil {
		t.Error("2 MiB were answered")
	}
	var got json.RawMessage
	if err := conn.Call(t.Context(), "echo", echoParams, &got); err != nil || string(got) != string(echoParams) {
		t.Errorf("afterwards: %s, %v", got, err)
	}
	if s := conn.State(); s != jsonrpc.StateConnected {
		t.Errorf("the connection is %v", s)
	}
}

// TestOversizeAnswer looks at that answer.
func TestOversizeAnswer(t *testing.T) {
	peer, server := rawPair(t, rpcws.AcceptConfig{})
	conn := jsonrpc.NewConn(server, jsonrpc.Config{Handler: rpcpractice.NewMux()})
	defer conn.Close()
	go func() {
		for i, op := range []byte{opText, opContinuation, fin | opContinuation} {
			_, err := peer.Write(appendFrame(nil, op, strings.Repeat("123456789,", 1<<16)[i:]))
			if err != nil {
				return
			}
		}
		peer.Write(appendFrame(nil, fin|opBinary, `{"jsonrpc":"2.0","id":1,"method":"echo","params":[1]}`))
	}()
	_, first := peer.receive(t)
	var answer struct {
		ID    any
		Error struct{ Code int }
	}
	if err := json.Unmarshal([]byte(first), &answer); err != nil || answer.ID != nil || answer.Error.Code != -32600 {
		t.Errorf("answered %s", first)
	}
	if op, second := peer.receive(t); op != fin|opText || second != `{"jsonrpc":"2.0","id":1,"result":[1]}` {
		t.Errorf("then answered %#x %s", op, second)
	}
	peer.Write(appendFrame(nil, fin|opClose, "\x03\xe8"))
}

// TestDeafPeer makes 10,000 calls of 10 kB to a peer that reads nothing: each
// ends at its deadline, and memory stays bounded (RPC-19, RPC-23).
func TestDeafPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		accepted := network.accepting(t, rpcws.AcceptConfig{})
		raw, err := network.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		dialRaw(t, raw)
		conn := jsonrpc.NewConn(<-accepted, jsonrpc.Config{MaxPending: 10_000, StallTimeout: time.Minute})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		params := json.RawMessage(`["` + strings.Repeat("x", 10_000) + `"]`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		var callers sync.WaitGroup
		var late, wrong atomic.Int64
		for range 10_000 {
			callers.Go(func() {
				if err := conn.Call(ctx, "echo", params, nil); !errors.Is(err, context.DeadlineExceeded) {
					wrong.Add(1)
				}
				if time.Since(begin) > time.Second {
					late.Add(1)
				}
			})
		}
		callers.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if late.Load() > 0 || wrong.Load() > 0 {
			t.Errorf("%d calls ended late, %d with another error", late.Load(), wrong.Load())
		}
		// 100 MB wanted to go. The stacks of the callers are not in the heap.
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
			t.Errorf("the heap grew by %d bytes", grown)
		}
		begin = time.Now()
		conn.Close()
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("Close took %v", d)
		}
	})
}

// TestServerEnds fails the calls of a client whose server goes away, at once
// and with an error that says so (RPC-14, RPC-22).
func TestServerEnds(t *testing.T) {
	started := make(chan struct{})
	mux := &jsonrpc.Mux{}
	mux.Register("wait", jsonrpc.HandlerFunc(func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	handler := rpcws.Handler(rpcws.AcceptConfig{}, func(ctx context.Context, s jsonrpc.Stream) {
		conn := jsonrpc.NewConn(s, jsonrpc.Config{Handler: mux, Grace: 10 * time.Millisecond})
		<-ctx.Done()
		conn.Close()
	})
	srv := httptest.NewServer(handler)
	defer srv.Close()
	s, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	conn := jsonrpc.NewConn(s, jsonrpc.Config{})
	defer conn.Close()
	ended := make(chan error, 1)
	go func() { ended <- conn.Call(t.Context(), "wait", nil, nil) }()
	<-started
	if err := handler.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	// The server may still have answered that the handler was cancelled.
	if err := <-ended; err == nil {
		t.Error("the call has a result")
	}
	<-conn.Done()
	if err := conn.Call(t.Context(), "wait", nil, nil); jsonrpc.AdviceFor(err) != jsonrpc.AdviceReconnect {
		t.Errorf("the next call: %v, advice %v", err, jsonrpc.AdviceFor(err))
	}
	wants(t, "the connection", conn.Err(), io.EOF)
}

// TestBothDirections calls both ways at the same time (RPC-9).
func TestBothDirections(t *testing.T) {
	a, b := pair(t, rpcws.DialConfig{}, rpcws.AcceptConfig{})
	cfg := jsonrpc.Config{Handler: rpcpractice.NewMux()}
	conns := []*jsonrpc.Conn{jsonrpc.NewConn(a, cfg), jsonrpc.NewConn(b, cfg)}
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for j := range 50 {
				params := json.RawMessage(fmt.Sprintf(`[%d,%d,%q]`, i, j, strings.Repeat("z", i*j)))
				var got json.RawMessage
				if err := conns[i%2].Call(t.Context(), "echo", params, &got); err != nil || string(got) != string(params) {
					t.Errorf("%s: %s, %v", params, got, err)
					return
				}
			}
		})
	}
	callers.Wait()
	var closing sync.WaitGroup
	for _, c := range conns {
		closing.Go(func() { c.Close() })
	}
	closing.Wait()
}
