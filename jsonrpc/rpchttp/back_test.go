package rpchttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// TestWayBackOutlivesTimeouts: the timeouts of the http.Server end no way back, and its
// own none of the requests that come after it on the same connection.
func TestWayBackOutlivesTimeouts(t *testing.T) {
	cfg := rpchttp.ServerConfig{
		Config:   jsonrpc.Config{Handler: testMethods()},
		Sessions: &rpchttp.SessionConfig{KeepAlive: time.Minute, WriteTimeout: 20 * time.Second},
	}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		conn, err := m.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		begin := time.Now()
		buf := make([]byte, 100)
		for range 20 {
			if _, err := res.Body.Read(buf); err != nil {
				t.Fatalf("after %v: %v", time.Since(begin), err)
			}
		}
		if d := time.Since(begin); d < 4*time.Minute {
			t.Errorf("twenty pieces in %v", d)
		}
		time.Sleep(30 * time.Second) // the deadline of the last comment is over
		end, _ := http.NewRequest(http.MethodDelete, "http://memory/", nil)
		end.Header.Set("Rpc-Session-Id", res.Header.Get("Rpc-Session-Id"))
		go func() {
			deleted, err := m.transport.RoundTrip(end)
			if err != nil || deleted.StatusCode != http.StatusNoContent {
				t.Error(deleted, err)
				return
			}
			deleted.Body.Close()
		}()
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Errorf("the way back ended with %v", err)
		}
		res.Body.Close()
		synctest.Wait()
		time.Sleep(time.Minute)
		const call = `{"jsonrpc":"2.0","id":1,"method":"echo","params":[1]}`
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(call), call)
		res, err = http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("the next request: %v, %v", res, err)
		}
		res.Body.Close()
	})
}

// TestWayBackOverHTTP2: a way back on which nothing is said for longer than a write may
// take goes on. In HTTP/2 a deadline ends a stream that writes nothing, too.
func TestWayBackOverHTTP2(t *testing.T) {
	cfg := rpchttp.ServerConfig{
		Config:   jsonrpc.Config{Handler: testMethods()},
		Sessions: &rpchttp.SessionConfig{KeepAlive: time.Minute, WriteTimeout: 20 * time.Second},
	}
	inMemoryHTTP2(t, cfg, func(t *testing.T, m *memory) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://memory/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/event-stream")
		res, err := m.transport.RoundTrip(req)
		if err != nil || res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		defer res.Body.Close()
		begin := time.Now()
		buf := make([]byte, 100)
		for n := range 4 {
			if _, err := res.Body.Read(buf); err != nil {
				t.Fatalf("piece %d, after %v: %v", n, time.Since(begin), err)
			}
		}
		if d := time.Since(begin); d < 3*time.Minute {
			t.Errorf("four pieces in %v", d)
		}
	})
}
