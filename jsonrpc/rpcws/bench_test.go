package rpcws_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcpractice"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// echoParams are 198 bytes.
var echoParams = json.RawMessage(`{"name":"` + strings.Repeat("x", 187) + `"}`)

// practice returns a client's Conn to the practice server over one WebSocket.
func practice(t testing.TB, cfg jsonrpc.Config, dial rpcws.DialConfig) *jsonrpc.Conn {
	t.Helper()
	cfg.Handler = rpcpractice.NewMux()
	handler := rpcws.Handler(rpcws.AcceptConfig{}, func(ctx context.Context, s jsonrpc.Stream) {
		conn := jsonrpc.NewConn(s, cfg)
		defer conn.Close()
		select {
		case <-conn.Done():
		case <-ctx.Done():
		}
	})
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	t.Cleanup(func() { handler.Close() })
	s, err := rpcws.Dial(t.Context(), wsURL(srv.URL), dial)
	if err != nil {
		t.Fatal(err)
	}
	conn := jsonrpc.NewConn(s, jsonrpc.Config{})
	t.Cleanup(func() { conn.Close() })
	return conn
}

// inFlight makes b.N calls, n at a time.
func inFlight(b *testing.B, n int, call func() error) {
	b.ReportAllocs()
	before := cpuTime()
	b.ResetTimer()
	var started atomic.Int64
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			for started.Add(1) <= int64(b.N) {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

// BenchmarkWSEcho64 is an echo with 64 calls in flight on one connection.
func BenchmarkWSEcho64(b *testing.B) { benchmarkEcho(b, 64) }

// BenchmarkWSEcho1 is one call at a time.
func BenchmarkWSEcho1(b *testing.B) { benchmarkEcho(b, 1) }

func benchmarkEcho(b *testing.B, n int) {
	conn := practice(b, jsonrpc.Config{}, rpcws.DialConfig{})
	results := sync.Pool{New: func() any { return new(json.RawMessage) }}
	inFlight(b, n, func() error {
		result := results.Get().(*json.RawMessage)
		defer results.Put(result)
		return conn.Call(context.Background(), "echo", echoParams, result)
	})
}

// BenchmarkBareEcho64 is what BenchmarkWSEcho64 is measured against: the
// WebSocket library and encoding/json with nothing between.
func BenchmarkBareEcho64(b *testing.B) { benchmarkBare(b, 64) }

// BenchmarkBareEcho1 is the same one call at a time.
func BenchmarkBareEcho1(b *testing.B) { benchmarkBare(b, 1) }

type bareMessage struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      int64           `json:"id"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
}

func benchmarkBare(b *testing.B, n int) {
	ctx := context.Background()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			_, text, err := c.Read(ctx)
			if err != nil {
				return
			}
			var m bareMessage
			if json.Unmarshal(text, &m) != nil {
				return
			}
			answer, err := json.Marshal(bareMessage{JSONRPC: "2.0", ID: m.ID, Result: m.Params})
			if err != nil || c.Write(ctx, websocket.MessageText, answer) != nil {
				return
			}
		}
	}))
	defer srv.Close()
	c, _, err := websocket.Dial(ctx, srv.URL, nil) //nolint:bodyclose // the library closes it
	if err != nil {
		b.Fatal(err)
	}
	defer c.CloseNow()
	var mu sync.Mutex
	waiting := make(map[int64]chan bareMessage)
	go func() {
		for {
			_, text, err := c.Read(ctx)
			if err != nil {
				return
			}
			var m bareMessage
			if json.Unmarshal(text, &m) != nil {
				return
			}
			mu.Lock()
			answer := waiting[m.ID]
			delete(waiting, m.ID)
			mu.Unlock()
			answer <- m
		}
	}()
	var ids atomic.Int64
	channels := sync.Pool{New: func() any { return make(chan bareMessage, 1) }}
	inFlight(b, n, func() error {
		answer := channels.Get().(chan bareMessage)
		defer channels.Put(answer)
		id := ids.Add(1)
		mu.Lock()
		waiting[id] = answer
		mu.Unlock()
		text, err := json.Marshal(bareMessage{JSONRPC: "2.0", ID: id, Method: "echo", Params: echoParams})
		if err == nil {
			err = c.Write(ctx, websocket.MessageText, text)
		}
		if err == nil {
			<-answer
		}
		return err
	})
}
