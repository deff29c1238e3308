package rpchttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

const inFlight = 64

// payload is a usual params object, about 200 bytes.
const payload = `{"task":"summarise","agent":"writer-7","attempt":1,"labels":["a","b","c"],"input":{"text":"The quick brown fox jumps over the lazy dog, again and again.","limit":250,"ratio":0.75,"strict":true,"none":null}}`

// BenchmarkHTTPEcho compares calls over this package with what net/http and
// encoding/json do by themselves, 64 in flight.
func BenchmarkHTTPEcho(b *testing.B) {
	b.Run("bare", benchmarkBare)
	b.Run("jsonrpc", benchmarkCalls)
	b.Run("jsonrpc-inline", benchmarkInline)
}

type bareEnvelope struct {
	Version string          `json:"jsonrpc"`
	ID      int64           `json:"id"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
}

func benchmarkBare(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req bareEnvelope
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(bareEnvelope{Version: "2.0", ID: req.ID, Result: req.Params})
	}))
	defer srv.Close()
	tr := &http.Transport{MaxIdleConnsPerHost: inFlight, DisableCompression: true}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	var ids atomic.Int64
	parallel(b, func() error {
		body, err := json.Marshal(bareEnvelope{Version: "2.0", ID: ids.Add(1), Method: "echo", Params: json.RawMessage(payload)})
		if err != nil {
			return err
		}
		res, err := client.Post(srv.URL, "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer res.Body.Close()
		var answer bareEnvelope
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		return err
	})
}

func benchmarkCalls(b *testing.B) {
	benchmarkRPC(b, jsonrpc.HandlerFunc(func(_ context.Context, req *jsonrpc.Request) (any, error) {
		return req.Params(), nil
	}))
}

type inlineEcho struct{}

func (inlineEcho) Handle(_ context.Context, req *jsonrpc.Request) (any, error) {
	return req.Params(), nil
}
func (inlineEcho) Inline([]byte) bool { return true }

func benchmarkInline(b *testing.B) { benchmarkRPC(b, inlineEcho{}) }

func benchmarkRPC(b *testing.B, echo jsonrpc.Handler) {
	h := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: echo}})
	defer h.Close()
	srv := httptest.NewServer(h)
	defer srv.Close()
	st, err := rpchttp.NewStream(srv.URL, rpchttp.ClientConfig{})
	if err != nil {
		b.Fatal(err)
	}
	conn := jsonrpc.NewConn(st, jsonrpc.Config{})
	defer conn.Close()
	parallel(b, func() error {
		var result json.RawMessage
		return conn.Call(b.Context(), "echo", json.RawMessage(payload), &result)
	})
}

// parallel runs f b.N times, inFlight at the same time, and reports the
// processor time of one.
func parallel(b *testing.B, f func() error) {
	b.ReportAllocs()
	b.SetParallelism(max(1, inFlight/2))
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := f(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
}
