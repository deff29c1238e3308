package direct_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
)

func TestZN6_DirectCarriesBytesAndHeaders(t *testing.T) {
	body := []byte("{\"jsonrpc\":\"2.0\", \"method\":\"x\",\"id\":1.50,\"params\":{\"a\":\"\\u0000\",\"b\":12345678901234567890}}\n")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.ReadAll(r.Body)
		if !bytes.Equal(got, body) {
			t.Errorf("body %q", got)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json", "X-Correlation-Id": "corr-1",
			"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate": "a=1", "Idempotency-Key": "key-1", "Authorization": "Bearer tok",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if r.Method != http.MethodPost || r.URL.RequestURI() != "/x/invocations?q=1" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "req-9")
		_, _ = io.WriteString(w, good+"\n")
	}))
	defer srv.Close()
	tr := open(t, direct.Config{URL: srv.URL + "/x/invocations?q=1", Authorize: direct.Bearer(parley.NewSecret([]byte("tok")))})
	got, info, err := tr.Call(within(t, time.Minute), body, zone.Meta{
		CorrelationID: "corr-1", Trace: parley.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", State: "a=1"}, IdempotencyKey: "key-1",
	})
	if err != nil || string(got) != good+"\n" {
		t.Fatalf("%q, %v", got, err)
	}
	if want := (zone.Info{Status: 200, ContentType: "application/json", Attempts: 1, ProviderRequestID: "req-9"}); info != want {
		t.Errorf("info %+v, want %+v", info, want)
	}
}

func TestZN6_DirectLeavesOutHeadersThatNoOneCanSend(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Correlation-Id") != "" || r.Header.Get("Evil") != "" {
			t.Errorf("%v", r.Header)
		}
		_, _ = io.WriteString(w, good)
	}))
	defer srv.Close()
	tr := open(t, direct.Config{URL: srv.URL})
	for _, id := range []string{"a\r\nEvil: 1", "ä", strings.Repeat("x", 300), "\x00"} {
		if _, _, err := tr.Call(within(t, time.Minute), []byte("{}"), zone.Meta{CorrelationID: id}); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestZN6_DirectAnswers has every kind of answer: which class, and how often the
// request was sent.
func TestZN6_DirectAnswers(t *testing.T) {
	t.Parallel()
	rpcError := `{"jsonrpc":"2.0","error":{"code":-32000,"message":"x","data":{"reason":"overloaded"}},"id":"1"}`
	tests := []struct {
		name     string
		h        http.Handler
		class    zone.Class // "" is none
		attempts int
	}{
		{"result", answer(200, good), "", 1},
		{"201", answer(201, good), "", 1},
		{"JSON that is no response", answer(200, `[1]`), "", 1},
		{"error with 200", answer(200, rpcError), "", 1},
		{"error with 401", answer(401, rpcError), "", 1},
		{"error with 403", answer(403, rpcError), "", 1},
		{"error with 429", answer(429, rpcError), "", 1},
		{"error with 500", answer(500, rpcError), "", 1},
		{"error with 503", answer(503, rpcError, "Retry-After", "0"), "", 1},
		{"platform's code means nothing here", answer(429, `{"jsonrpc":"2.0","error":{"code":-32053,"message":"x"},"id":null}`), "", 1},
		{"HTML", answer(200, "<html></html>", "Content-Type", "text/html"), zone.ClassBadResponse, 1},
		{"events", answer(200, "data: {}\n\n", "Content-Type", "text/event-stream"), zone.ClassBadResponse, 1},
		{"empty", answer(200, ""), zone.ClassBadResponse, 1},
		{"204", answer(204, ""), zone.ClassBadResponse, 1},
		{"two values", answer(200, `{}{}`), zone.ClassBadResponse, 1},
		{"half, with its length", answer(200, `{"jsonrpc":"2.0","res`), zone.ClassBadResponse, 1},
		{"307", answer(307, "", "Location", "/elsewhere"), zone.ClassBadResponse, 1},
		{"400 of a runtime", answer(400, `{"error":"Invalid JSON"}`), zone.ClassBadResponse, 1},
		{"401", answer(401, `{"error":"no"}`), zone.ClassAuth, 1},
		{"403", answer(403, ``), zone.ClassAuth, 1},
		{"404", answer(404, `404 page not found`), zone.ClassBadResponse, 1},
		{"408", answer(408, ``), zone.ClassUnknownOutcome, 1},
		{"413", answer(413, ``), zone.ClassTooLarge, 1},
		{"429", answer(429, ``), zone.ClassThrottled, 3},
		{"429 asks for a moment", answer(429, ``, "Retry-After", "1"), zone.ClassThrottled, 3},
		{"429 asks for long", answer(429, ``, "Retry-After", "60"), zone.ClassThrottled, 1},
		{"500 of a runtime", answer(500, `{"error":"secret"}`), zone.ClassUnknownOutcome, 1},
		{"502", answer(502, `<html>`), zone.ClassUnknownOutcome, 1},
		{"503", answer(503, ``), zone.ClassUnknownOutcome, 1},
		{"503 with Retry-After", answer(503, ``, "Retry-After", "0"), zone.ClassUnavailable, 3},
		{"503 with a date", answer(503, ``, "Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)), zone.ClassUnavailable, 1},
		{"504", answer(504, ``), zone.ClassUnknownOutcome, 1},
		{"520", answer(520, ``), zone.ClassUnknownOutcome, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var seen atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen.Add(1)
				tt.h.ServeHTTP(w, r)
			}))
			defer srv.Close()
			got, info, err := open(t, direct.Config{URL: srv.URL}).Call(within(t, 5*time.Minute), []byte(`{"id":"1"}`), zone.Meta{})
			if int(seen.Load()) != tt.attempts || info.Attempts != tt.attempts {
				t.Errorf("sent %d times, Info says %d, want %d", seen.Load(), info.Attempts, tt.attempts)
			}
			if tt.class == "" {
				if err != nil || len(got) == 0 {
					t.Errorf("%q, %v", got, err)
				}
				return
			}
			f := fault(t, err)
			if f.Class != tt.class || f.Info.Status != info.Status || info.Status == 0 {
				t.Errorf("class %s, want %s; info %+v and %+v", f.Class, tt.class, f.Info, info)
			}
			if strings.Contains(f.Error(), "secret") {
				t.Errorf("the error holds the body: %v", f)
			}
		})
	}
}

func TestZN6_DirectRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for header, want := range map[[2]string]time.Duration{
		{"Retry-After", "7"}:                             7 * time.Second,
		{"Retry-After", "Sun, 22 Nov 2026 12:00:09 GMT"}: 9 * time.Second,
		{"Retry-After", "Sun, 22 Nov 2026 11:00:09 GMT"}: 0,
		{"Retry-After", "-4"}:                            0,
		{"Retry-After", "soon"}:                          0,
		{"Retry-After", "99999999999999"}:                24 * time.Hour,
		{"X-Amz-Retry-After", "1500"}:                    1500 * time.Millisecond,
	} {
		if got := direct.RetryAfter(http.Header{header[0]: {header[1]}}, now); got != want {
			t.Errorf("%v: %s, want %s", header, got, want)
		}
	}
	ahead := http.Header{"Date": {"Sun, 22 Nov 2026 13:00:00 GMT"}, "Retry-After": {"Sun, 22 Nov 2026 13:00:09 GMT"}}
	if got := direct.RetryAfter(ahead, now); got != 9*time.Second {
		t.Errorf("by a clock that is an hour ahead: %s", got)
	}
}

// readRequest reads one request of HTTP/1 whole.
func readRequest(c net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// TestZN6_DirectConnections has what becomes of a request whose connection fails,
// by the moment.
func TestZN6_DirectConnections(t *testing.T) {
	t.Parallel()
	reset := func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }
	tests := []struct {
		name   string
		body   int
		handle func(c net.Conn)
		class  zone.Class
	}{
		{"closed after the request", 10, func(c net.Conn) { readRequest(c) }, zone.ClassUnknownOutcome},
		{"reset after the request", 10, func(c net.Conn) { readRequest(c); reset(c) }, zone.ClassUnknownOutcome},
		{"reset in the middle of a large request", 20 << 20, func(c net.Conn) { _, _ = io.CopyN(io.Discard, c, 1000); reset(c) }, zone.ClassNotSent},
		{"never answers", 10, func(c net.Conn) { readRequest(c); _, _ = io.Copy(io.Discard, c) }, zone.ClassUnknownOutcome},
		{"half a status line", 10, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "HTTP/1.1 2") }, zone.ClassUnknownOutcome},
		{"no HTTP", 10, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "hello\r\n\r\n") }, zone.ClassUnknownOutcome},
		{"cut with a length", 10, func(c net.Conn) {
			readRequest(c)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(good), good[:20])
		}, zone.ClassUnknownOutcome},
		{"cut chunks", 10, func(c net.Conn) {
			readRequest(c)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n%s\r\n", good[:20])
		}, zone.ClassUnknownOutcome},
		{"cut without a length", 10, func(c net.Conn) {
			readRequest(c)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s", good[:20])
		}, zone.ClassUnknownOutcome},
		{"cut before the first byte", 10, func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
		}, zone.ClassUnknownOutcome},
		{"stalls in the middle", 10, func(c net.Conn) {
			readRequest(c)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n%s", good[:20])
			_, _ = io.Copy(io.Discard, c)
		}, zone.ClassUnknownOutcome},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var conns atomic.Int64
			url := raw(t, func(n int, c net.Conn) { conns.Add(1); tt.handle(c) })
			tr := open(t, direct.Config{URL: url})
			limit := time.Minute
			if tt.name == "stalls in the middle" {
				limit = 3 * time.Second
			}
			_, info, err := tr.Call(within(t, limit), bytes.Repeat([]byte("1"), tt.body), zone.Meta{IdempotencyKey: "k"})
			want := 1
			if tt.class.Safe() {
				want = 3
			}
			if f := fault(t, err); f.Class != tt.class || int(conns.Load()) != want || info.Attempts != want {
				t.Errorf("%v: class %s, %d connections, %d attempts, want %s, %d", err, f.Class, conns.Load(), info.Attempts, tt.class, want)
			}
		})
	}
}

func TestZN6_DirectNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// Nobody listens at the other end of a connection, and nobody else gets its port.
	used, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	closed := "http://" + used.LocalAddr().String()
	plainPort := raw(t, func(_ int, c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\n") })
	dns := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}
	}
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	for name, cfg := range map[string]direct.Config{
		"refused":        {URL: closed},
		"no such host":   {URL: "https://x.example.com/", Dial: dns},
		"no TLS there":   {URL: strings.Replace(plainPort, "http", "https", 1)},
		"never connects": {URL: "https://x.example.com/", Dial: hang},
	} {
		_, _, err := open(t, cfg).Call(within(t, time.Second), []byte("{}"), zone.Meta{})
		if f := fault(t, err); f.Class != zone.ClassNotSent {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The second attempt finds a server.
	srv := httptest.NewServer(answer(200, good))
	defer srv.Close()
	var dials atomic.Int64
	tr := open(t, direct.Config{URL: srv.URL, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}})
	if _, info, err := tr.Call(within(t, time.Minute), []byte("{}"), zone.Meta{}); err != nil || info.Attempts != 2 {
		t.Errorf("%d attempts, %v", info.Attempts, err)
	}
}

// brokenConn fails every write once it is told to.
type brokenConn struct {
	net.Conn
	broken *atomic.Bool
}

func (c brokenConn) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

// TestZN6_DirectKeptConnections: a connection that ended while nobody used it is
// no reason to fail, and a request over one that ends when it comes is never
// repeated, whatever net/http thinks of Idempotency-Key.
func TestZN6_DirectKeptConnections(t *testing.T) {
	var requests atomic.Int64
	url := raw(t, func(n int, c net.Conn) {
		r := bufio.NewReader(c)
		for i := 0; ; i++ {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			requests.Add(1)
			if n == 1 && i == 1 {
				return // no answer to the second over the first connection
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(good), good)
		}
	})
	tr := open(t, direct.Config{URL: url})
	if _, _, err := tr.Call(within(t, time.Minute), []byte("{}"), zone.Meta{IdempotencyKey: "a"}); err != nil {
		t.Fatal(err)
	}
	_, info, err := tr.Call(within(t, time.Minute), []byte("{}"), zone.Meta{IdempotencyKey: "b"})
	if f := fault(t, err); f.Class != zone.ClassUnknownOutcome || info.Attempts != 1 || requests.Load() != 2 {
		t.Errorf("%v, %d attempts, %d requests arrived", err, info.Attempts, requests.Load())
	}

	srv := httptest.NewServer(answer(200, good))
	defer srv.Close()
	var broken atomic.Bool
	tr = open(t, direct.Config{URL: srv.URL, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if broken.Swap(false) {
			return c, err
		}
		return brokenConn{c, &broken}, err
	}})
	if _, _, err := tr.Call(within(t, time.Minute), []byte("{}"), zone.Meta{}); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if _, info, err = tr.Call(within(t, time.Minute), []byte("{}"), zone.Meta{}); err != nil || info.Attempts != 2 {
		t.Errorf("a write that fails at once: %v, %d attempts", err, info.Attempts)
	}
}

func TestZN6_DirectLimits(t *testing.T) {
	big := `{"jsonrpc":"2.0","result":"` + strings.Repeat("a", 5000) + `","id":1}`
	zipped := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, big)
		z.Close()
	})
	flushed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 50 {
			_, _ = io.WriteString(w, big[i*100:i*100+100])
			w.(http.Flusher).Flush()
		}
	})
	for name, h := range map[string]http.Handler{"length": answer(200, big), "packed": zipped, "unknown length": flushed} {
		srv := httptest.NewServer(h)
		_, info, err := open(t, direct.Config{URL: srv.URL, MaxResponse: 4000}).Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
		if f := fault(t, err); f.Class != zone.ClassTooLarge || info.Attempts != 1 {
			t.Errorf("%s: %v, %d attempts", name, err, info.Attempts)
		}
		srv.Close()
	}
	srv := httptest.NewServer(zipped)
	defer srv.Close()
	if got, _, err := open(t, direct.Config{URL: srv.URL, MaxResponse: int64(len(big))}).Call(within(t, time.Minute), []byte("{}"), zone.Meta{}); err != nil || string(got) != big {
		t.Errorf("packed, at the limit: %v", err)
	}
	// By default there is room for the largest response and what it is wrapped in.
	largest := `{"jsonrpc":"2.0","result":"` + strings.Repeat("a", zone.DefaultMaxResponse) + `","id":1}`
	wide := httptest.NewServer(answer(200, largest))
	defer wide.Close()
	if got, _, err := open(t, direct.Config{URL: wide.URL}).Call(within(t, time.Minute), []byte("{}"), zone.Meta{}); err != nil || string(got) != largest {
		t.Errorf("the largest: %v", err)
	}
	tr := open(t, direct.Config{URL: srv.URL})
	_, _, err := tr.Call(within(t, time.Minute), make([]byte, zone.MaxPayload+1), zone.Meta{})
	if f := fault(t, err); f.Class != zone.ClassTooLarge {
		t.Errorf("request: %v", err)
	}
	_, _, err = tr.Call(context.Background(), []byte("{}"), zone.Meta{})
	if f := fault(t, err); f.Class != zone.ClassNotSent || f.Info.Attempts != 0 {
		t.Errorf("no deadline: %v", err)
	}
}

func TestZN6_DirectDeadlines(t *testing.T) {
	block := make(chan struct{})
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1); <-block }))
	defer srv.Close()
	defer close(block)
	const timeout = 50 * time.Millisecond
	tr := open(t, direct.Config{URL: srv.URL, Timeout: timeout})
	for {
		begun := time.Now()
		_, _, err := tr.Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
		f := fault(t, err)
		if f.Class == zone.ClassNotSent && asked.Load() == 0 && time.Since(begun) >= timeout {
			continue // the process was stopped before it could send
		}
		if f.Class != zone.ClassUnknownOutcome || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		break
	}
	done, cancel := context.WithTimeout(t.Context(), time.Minute)
	cancel()
	_, _, err := tr.Call(done, []byte("{}"), zone.Meta{})
	if f := fault(t, err); f.Class != zone.ClassNotSent {
		t.Errorf("cancelled before: %v", err)
	}
	busy := httptest.NewServer(answer(429, "", "Retry-After", "120"))
	defer busy.Close()
	ctx := within(t, time.Minute)
	begun := time.Now()
	patient := direct.Retry{Base: time.Millisecond, Max: time.Hour} // but for the deadline
	_, info, err := open(t, direct.Config{URL: busy.URL, Retry: patient}).Call(ctx, []byte("{}"), zone.Meta{})
	if f := fault(t, err); f.Class != zone.ClassThrottled || f.RetryAfter != 2*time.Minute || info.Attempts != 1 || ctx.Err() != nil {
		t.Errorf("a pause beyond the deadline: %v after %s, %d attempts", err, time.Since(begun), info.Attempts)
	}
}

func TestZN6_DirectURL(t *testing.T) {
	for url, good := range map[string]bool{
		"https://a.example.com/invocations": true, "http://127.0.0.1:8080/": true, "http://localhost/x": true, "http://[::1]:80/": true,
		"http://a.example.com/": false, "ftp://a/": false, "https://user:hunter2@a.example.com/": false, "": false, "https://": false, "/x": false, "https:a": false,
	} {
		_, err := direct.New(direct.Config{URL: url})
		if (err == nil) != good {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error holds the password: %v", err)
		}
	}
	if _, err := direct.New(direct.Config{URL: "http://a.example.com/", AllowHTTP: true}); err != nil {
		t.Error(err)
	}
	if _, err := direct.New(direct.Config{URL: "https://a.example.com/", MaxResponse: zone.MaxPayload + 1}); err == nil {
		t.Error("a limit beyond all limits was accepted")
	}
}

func TestZN6_DirectConcurrent(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer srv.Close()
	tr := open(t, direct.Config{URL: srv.URL})
	ctx := within(t, time.Minute)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			body := fmt.Appendf(nil, `{"id":%d}`, i)
			if got, _, err := tr.Call(ctx, body, zone.Meta{}); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	wg.Wait()
}

// TestZN6_WireNeverRepeats: net/http repeats requests with an Idempotency-Key and
// a body that it can read again.
func TestZN6_WireNeverRepeats(t *testing.T) {
	var requests atomic.Int64
	url := raw(t, func(_ int, c net.Conn) {
		r := bufio.NewReader(c)
		for i := range 2 {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			requests.Add(1)
			if i == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
			}
		}
	})
	w := direct.NewWire(direct.WireConfig{})
	defer w.Close()
	for i := range 2 {
		req, err := http.NewRequestWithContext(within(t, time.Minute), http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		resp, err := w.Do(req)
		if (err != nil) != (i == 1) {
			t.Fatal(err)
		}
		if err == nil {
			_, err = direct.ReadAnswer(resp, 100)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
		} else if f := fault(t, err); f.Class != zone.ClassUnknownOutcome {
			t.Error(err)
		}
	}
	if requests.Load() != 2 {
		t.Errorf("%d requests arrived, want 2", requests.Load())
	}
}
