package jsonrpc_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
)

// Benchmarks of whole calls, both ends in this process; bench/ has the
// comparison with other libraries and with the floors. Allocations are those of
// both ends together.

const benchParams = `{"id":"3f6c0f7e-6a53-4d0e-a6a3-0b5a1d4c9f10","name":"a workflow step","labels":["alpha","beta","gamma"],` +
	`"attempt":3,"deadline":"2026-11-20T10:00:00Z","nested":{"x":1.5,"y":-2,"ok":true,"none":null}}`

// benchHandler echoes params, inline or from the pool.
type benchHandler struct {
	inline bool
	notes  *atomic.Int64
}

func (h benchHandler) Handle(_ context.Context, req *jsonrpc.Request) (any, error) {
	if req.IsNotification() {
		h.notes.Add(1)
		return nil, nil
	}
	return req.Params(), nil
}

func (h benchHandler) Inline([]byte) bool { return h.inline }

// benchPair joins two connections by TCP.
func benchPair(b *testing.B, client jsonrpc.Config, h jsonrpc.Handler) *jsonrpc.Conn {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	server := jsonrpc.NewConn(jsonrpc.NewLineStream(far), jsonrpc.Config{Handler: h})
	c := jsonrpc.NewConn(jsonrpc.NewLineStream(near), client)
	b.Cleanup(func() {
		c.Close()
		server.Close()
	})
	return c
}

// benchCalls makes calls from a number of goroutines.
func benchCalls(b *testing.B, c *jsonrpc.Conn, callers int, params string) {
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	var begun atomic.Int64
	for range callers {
		wg.Go(func() {
			ctx := context.Background()
			var result json.RawMessage
			raw := json.RawMessage(params)
			for begun.Add(1) <= int64(b.N) {
				if err := c.Call(ctx, "echo", raw, &result); err != nil {
					b.Error(err)
					return
				}
			}
			if len(result) > 0 && len(result) != len(params) {
				b.Errorf("got %d bytes", len(result))
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func BenchmarkTCP(b *testing.B) {
	large := `["` + strings.Repeat("x", 64<<10) + `"]`
	for _, bb := range []struct {
		name    string
		inline  bool
		reads   bool
		callers int
		params  string
	}{
		{"par64/inline", true, false, 64, benchParams},
		{"par64/pool", false, false, 64, benchParams},
		{"par64/caller-reads", true, true, 64, benchParams},
		{"seq/inline", true, false, 1, benchParams},
		{"seq/pool", false, false, 1, benchParams},
		{"seq/caller-reads", true, true, 1, benchParams},
		{"64k/inline", true, false, 1, large},
		{"64k/pool", false, false, 1, large},
	} {
		b.Run(bb.name, func(b *testing.B) {
			c := benchPair(b, jsonrpc.Config{CallerReads: bb.reads}, benchHandler{inline: bb.inline})
			benchCalls(b, c, bb.callers, bb.params)
		})
	}
}

func BenchmarkTCPNotify(b *testing.B) {
	for _, inline := range []bool{true, false} {
		name := map[bool]string{true: "inline", false: "pool"}[inline]
		b.Run(name, func(b *testing.B) {
			var notes atomic.Int64
			c := benchPair(b, jsonrpc.Config{}, benchHandler{inline: inline, notes: &notes})
			params := json.RawMessage(benchParams)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := c.Notify(b.Context(), "note", params); err != nil {
					b.Fatal(err)
				}
			}
			if err := c.Call(b.Context(), "end", nil, nil); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "notes/s")
		})
	}
}

func BenchmarkTCPBatch100(b *testing.B) {
	for _, inline := range []bool{true, false} {
		name := map[bool]string{true: "inline", false: "pool"}[inline]
		b.Run(name, func(b *testing.B) {
			c := benchPair(b, jsonrpc.Config{}, benchHandler{inline: inline})
			results := make([]json.RawMessage, 100)
			params := json.RawMessage(benchParams)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				var batch jsonrpc.Batch
				for i := range results {
					batch.Call("echo", params, &results[i])
				}
				if err := c.Batch(b.Context(), &batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
		})
	}
}
