package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/jsonrpc"
)

// postProxy is a proxy whose side A takes POSTs, and whose side B is the test.
type postProxy struct {
	url   string
	b     chan net.Conn // one for each HTTP connection
	trace *lockedBuffer
}

func newPostProxy(t *testing.T, connections int) *postProxy {
	t.Helper()
	return newPostProxyFor(t, postConfig{connections: connections})
}

// newPostProxyFor is newPostProxy with more to be said about it.
func newPostProxyFor(t *testing.T, cfg postConfig) *postProxy {
	t.Helper()
	p := &postProxy{b: make(chan net.Conn, 8), trace: &lockedBuffer{}}
	tr := newTestTracer(p.trace)
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan string, 1)
	cfg.ready = func(url string) { ready <- url }
	cfg.serve = func(s jsonrpc.Stream) {
		far, near := net.Pipe()
		p.b <- far
		_ = carry(ctx, tr, 1, s, jsonrpc.NewLineStream(near))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := listenPosts(ctx, rpcAddress{scheme: "http://", text: "http://127.0.0.1:0/rpc"}, cfg); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	p.url = <-ready
	return p
}

// post sends one request and gives status and body.
func post(t *testing.T, c *http.Client, url, body string, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// newHTTPClient makes a client with connections of its own.
func newHTTPClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// TestPostProxyAnswers has a side B that says more than answers: only these go
// back, each to its request.
func TestPostProxyAnswers(t *testing.T) {
	t.Parallel()
	p := newPostProxy(t, 4)
	c := newHTTPClient(t)
	long := strings.Repeat("y", 700_000)
	go func() {
		b := <-p.b
		defer b.Close()
		buf := make([]byte, 1<<20)
		for i := 0; ; i++ {
			if _, err := b.Read(buf); err != nil {
				return
			}
			switch i {
			case 0:
				_, _ = io.WriteString(b, `{"jsonrpc":"2.0","method":"progress"}`+"\n"+`{"jsonrpc":"2.0","method":"ask","id":1,"params":["`+long+`"]}`+"\n")
				_, _ = io.WriteString(b, `{"jsonrpc":"2.0","result":1,"id":1}`+"\n")
			case 2:
				_, _ = io.WriteString(b, `[{"jsonrpc":"2.0","result":"`+long+`","id":2}]`+"\n")
			}
		}
	}()
	type answer struct {
		Status int
		Body   string
	}
	var got []answer
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"a","id":1}`,
		`{"jsonrpc":"2.0","method":"note"}`,
		"[{\"jsonrpc\":\"2.0\",\n\"method\":\"a\",\"id\":2}]",
		``,
	} {
		status, text := post(t, c, p.url, body, nil)
		got = append(got, answer{status, text})
	}
	want := []answer{
		{200, `{"jsonrpc":"2.0","result":1,"id":1}`},
		{202, ""},
		{200, `[{"jsonrpc":"2.0","result":"` + long + `","id":2}]`},
		{200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: the body is empty"}}`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%.2000s", diff)
	}
	if n := strings.Count(p.trace.String(), "dropped: over HTTP only answers go back"); n != 2 {
		t.Errorf("%d messages are traced as dropped, want 2: %.2000s", n, p.trace.String())
	}
}

// TestPostProxyRefusesPages keeps pages in a browser out.
func TestPostProxyRefusesPages(t *testing.T) {
	t.Parallel()
	p := newPostProxy(t, 4)
	c := newHTTPClient(t)
	for name, f := range map[string]struct {
		status int
		change func(*http.Request)
	}{
		"GET":          {http.StatusMethodNotAllowed, func(r *http.Request) { r.Method = http.MethodGet }},
		"a form":       {http.StatusUnsupportedMediaType, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }},
		"no type":      {http.StatusUnsupportedMediaType, func(r *http.Request) { r.Header.Del("Content-Type") }},
		"another page": {http.StatusForbidden, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		"another name": {http.StatusForbidden, func(r *http.Request) { r.Host = "evil.example" }},
	} {
		if status, _ := post(t, c, p.url, `{"jsonrpc":"2.0","method":"a"}`, f.change); status != f.status {
			t.Errorf("%s: status %d, want %d", name, status, f.status)
		}
	}
	if p.trace.String() != "" {
		t.Errorf("something went through: %s", p.trace.String())
	}
}

// TestPostProxyLosesSideB answers the request that waits, and those to come on
// the same connection.
func TestPostProxyLosesSideB(t *testing.T) {
	t.Parallel()
	p := newPostProxy(t, 4)
	go func() {
		b := <-p.b
		_, _ = b.Read(make([]byte, 1000))
		_ = b.Close()
	}()
	if status, text := post(t, newHTTPClient(t), p.url, `{"jsonrpc":"2.0","method":"a","id":1}`, nil); status != http.StatusBadGateway {
		t.Errorf("status %d: %s", status, text)
	}
}

// TestPostProxyLosesSideBDuringABody does not wait for the rest of a body that
// nobody wants any more.
func TestPostProxyLosesSideBDuringABody(t *testing.T) {
	t.Parallel()
	p := newPostProxy(t, 4)
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(p.url, "http://"), "/rpc"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c, "POST /rpc HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", c.RemoteAddr())
	b := <-p.b
	// The request is there when its handler waits; side B ends before or after.
	_ = b.Close()
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	text, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 502 ") {
		t.Errorf("got %q, %v", text, err)
	}
}

// TestPostProxyBoundsBodies ends the connection of a client that begins a body and sends no
// more of it, and the one to side B that it holds.
func TestPostProxyBoundsBodies(t *testing.T) {
	t.Parallel()
	p := newPostProxyFor(t, postConfig{connections: 4, bodyTime: 100 * time.Millisecond})
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(p.url, "http://"), "/rpc"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c, "POST /rpc HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", c.RemoteAddr())
	b := <-p.b
	_ = b.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := b.Read(make([]byte, 1000)); !errors.Is(err, io.EOF) {
		t.Errorf("side B is left open: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if text, err := io.ReadAll(c); err != nil {
		t.Errorf("the client is left alone: %q, %v", text, err)
	}
}

// TestPostProxyBoundsConnections turns away what is beyond the bound, and
// takes others when one has ended.
func TestPostProxyBoundsConnections(t *testing.T) {
	t.Parallel()
	p := newPostProxy(t, 1)
	read := make(chan struct{})
	defer close(read)
	go func() {
		for {
			select {
			case b := <-p.b:
				go func() { _, _ = io.Copy(io.Discard, b) }()
			case <-read:
				return
			}
		}
	}()
	first := newHTTPClient(t)
	if status, _ := post(t, first, p.url, `{"jsonrpc":"2.0","method":"a"}`, nil); status != http.StatusAccepted {
		t.Fatalf("status %d", status)
	}
	if status, _ := post(t, newHTTPClient(t), p.url, `{"jsonrpc":"2.0","method":"a"}`, nil); status != http.StatusBadGateway {
		t.Errorf("a second connection gets status %d", status)
	}
	first.CloseIdleConnections()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if status, _ := post(t, newHTTPClient(t), p.url, `{"jsonrpc":"2.0","method":"a"}`, nil); status == http.StatusAccepted {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the place of a connection that ended stays taken")
}

// TestPostProxyClientGoesAway ends the stream of a client that does not wait
// for its answer.
func TestPostProxyClientGoesAway(t *testing.T) {
	t.Parallel()
	p := newPostProxy(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(`{"jsonrpc":"2.0","method":"a","id":1}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	done := make(chan error, 1)
	go func() {
		resp, err := newHTTPClient(t).Do(r)
		if err == nil {
			resp.Body.Close()
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		done <- err
	}()
	b := <-p.b
	if _, err := b.Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := b.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := b.Read(make([]byte, 1000)); !errors.Is(err, io.EOF) {
		t.Errorf("side B is left open: %v", err)
	}
}
