package rpchttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// TestNewStream refuses what is no URL of HTTP, and keeps secrets out of the
// reason.
func TestNewStream(t *testing.T) {
	for _, url := range []string{
		"", "localhost:8080", "ftp://host/", "http://", "http:///path",
		"tcp://ada:S3cret@host", "http://ada:S3cret@ho st/", "://ada:S3cret@host",
	} {
		st, err := rpchttp.NewStream(url, rpchttp.ClientConfig{})
		if err == nil {
			st.Close()
			t.Errorf("%q was taken", url)
			continue
		}
		if strings.Contains(err.Error(), "S3cret") || !strings.Contains(err.Error(), "http://host:port/path") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// TestClients makes calls with clients of all sorts: HTTP/2, cookies, a timeout
// of the client's own, a caller that reads.
func TestClients(t *testing.T) {
	h := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: testMethods()}})
	defer h.Close()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "seen", Value: "yes"})
		if _, err := r.Cookie("seen"); err == nil {
			w.Header().Set("X-Seen", "yes")
		}
		w.Header().Set("X-Proto", r.Proto)
		h.ServeHTTP(w, r)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	jar, _ := cookiejar.New(nil)
	for name, client := range map[string]*http.Client{
		"HTTP/2":  srv.Client(),
		"cookies": {Transport: srv.Client().Transport, Jar: jar},
		"timeout": {Transport: srv.Client().Transport, Timeout: time.Minute},
		"redirects": {
			Transport:     srv.Client().Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("none") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			spy := &spy{RoundTripper: client.Transport}
			c := *client
			c.Transport = spy
			st, err := rpchttp.NewStream(srv.URL, rpchttp.ClientConfig{Client: &c})
			if err != nil {
				t.Fatal(err)
			}
			conn := jsonrpc.NewConn(st, jsonrpc.Config{CallerReads: true})
			defer conn.Close()
			for i := range 3 {
				if got, err := jsonrpc.Call[[]int](t.Context(), conn, "echo", []int{i}); err != nil || got[0] != i {
					t.Fatalf("echo: %v, %v", got, err)
				}
			}
			if spy.header.Get("X-Proto") != "HTTP/2.0" || (name == "cookies") != (spy.header.Get("X-Seen") == "yes") {
				t.Errorf("the last answer: %v", spy.header)
			}
		})
	}
}

// spy keeps the header of the last response.
type spy struct {
	http.RoundTripper
	header http.Header
}

func (s *spy) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.RoundTripper.RoundTrip(r)
	if err == nil {
		s.header = res.Header
	}
	return res, err
}

// TestURLCredentials sends the user and the password of the URL with every POST,
// many of them at a time.
func TestURLCredentials(t *testing.T) {
	var wrong atomic.Int64
	h := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: testMethods()}})
	defer h.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "ada" || password != "S3cret" {
			wrong.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	st, err := rpchttp.NewStream(strings.Replace(srv.URL, "://", "://ada:S3cret@", 1), rpchttp.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	conn := jsonrpc.NewConn(st, jsonrpc.Config{})
	defer conn.Close()
	var calls sync.WaitGroup
	for i := range 50 {
		calls.Go(func() {
			if got, err := jsonrpc.Call[[]int](t.Context(), conn, "echo", []int{i}); err != nil || got[0] != i {
				t.Errorf("echo: %v, %v", got, err)
			}
		})
	}
	calls.Wait()
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d requests without the credentials", n)
	}
}

// TestUntrusted: a certificate that does not fit is nothing that a second
// attempt could change, and the message did not leave.
func TestUntrusted(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = nil
	srv.StartTLS()
	defer srv.Close()
	err := undelivered(t, srv.URL, rpchttp.ClientConfig{})
	if err.Recoverable() || !err.NotSent || jsonrpc.AdviceFor(err) != jsonrpc.AdviceGiveUp {
		t.Errorf("%v: %v", err, jsonrpc.AdviceFor(err))
	}
}

// TestNoTLS: neither is a server that does not speak TLS, with any client.
func TestNoTLS(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	for _, client := range []*http.Client{nil, {Timeout: time.Minute}} {
		err := undelivered(t, "https"+strings.TrimPrefix(srv.URL, "http"), rpchttp.ClientConfig{Client: client})
		if err.Recoverable() || !err.NotSent || !strings.Contains(err.Advice, "TLS") {
			t.Errorf("%v: recoverable %v, not sent %v", err, err.Recoverable(), err.NotSent)
		}
	}
}

// TestUnreachable: nobody is there; the message did not leave, and may be sent
// again.
func TestUnreachable(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	if err := undelivered(t, srv.URL, rpchttp.ClientConfig{}); !err.Recoverable() || !err.NotSent {
		t.Errorf("%v: recoverable %v, not sent %v", err, err.Recoverable(), err.NotSent)
	}
}

// TestHeadersFail: what ClientConfig.Headers cannot do is the error of the call.
func TestHeadersFail(t *testing.T) {
	locked := errors.New("the key store is locked")
	err := undelivered(t, "http://127.0.0.1:9/", rpchttp.ClientConfig{
		Headers: func(context.Context, http.Header) error { return locked },
	})
	if !errors.Is(err, locked) || !err.NotSent || err.Recoverable() {
		t.Errorf("%v", err)
	}
}

// TestQuerySecret: a server that repeats the URL does not bring the query, which
// may be a key, into the error.
func TestQuerySecret(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no route "+r.RequestURI+", key "+r.FormValue("key"), http.StatusNotFound)
	}))
	defer srv.Close()
	err := undelivered(t, srv.URL+"/rpc?v=2&key=S3cret%20words", rpchttp.ClientConfig{})
	if text := err.Error(); strings.Contains(text, "S3cret") || !strings.Contains(text, "no route /rpc?[…], key […]") {
		t.Error(text)
	}
}

// TestPasswordSecret: a server that repeats the password of the URL does not bring it into
// the error, neither by an answer that is none, nor by an error of JSON-RPC.
func TestPasswordSecret(t *testing.T) {
	for _, body := range []string{`{"wrong":"S3cret\/pass"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"wrong: S3cret/pass"}}`} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, body)
		}))
		err := undelivered(t, strings.Replace(srv.URL, "://", "://ada:S3cret%2Fpass@", 1), rpchttp.ClientConfig{})
		if text := err.Error(); strings.Contains(text, "S3cret") || !strings.Contains(text, "wrong") {
			t.Error(text)
		}
		srv.Close()
	}
}

// undelivered sends a call and returns why it failed.
func undelivered(t *testing.T, url string, cfg rpchttp.ClientConfig) *rpchttp.Error {
	t.Helper()
	st, err := rpchttp.NewStream(url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	conn := jsonrpc.NewConn(st, jsonrpc.Config{})
	defer conn.Close()
	err = conn.Call(t.Context(), "echo", nil, nil)
	e, ok := errors.AsType[*rpchttp.Error](err)
	if !ok {
		t.Fatalf("call: %v, want an *rpchttp.Error", err)
	}
	return e
}

// TestSendLimit: a message of ours that is too long ends the Stream, before it
// is all in memory.
func TestSendLimit(t *testing.T) {
	st, err := rpchttp.NewStream("http://127.0.0.1:9/", rpchttp.ClientConfig{MaxSend: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	part := strings.Repeat("x", 400)
	for i := range 3 {
		_, err = io.WriteString(st, part)
		if (err == nil) != (i < 2) {
			t.Fatalf("part %d of 400 bytes: %v", i, err)
		}
	}
}

// TestLargeEcho carries a message of 3 MiB each way, above the limit of parts.
func TestLargeEcho(t *testing.T) {
	cfg := rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: testMethods(), MaxMessage: 4 << 20}}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		c := m.conn(t, rpchttp.ClientConfig{MaxMessage: 4 << 20}, jsonrpc.Config{MaxMessage: 4 << 20})
		text := strings.Repeat("0123456789abcdef", 3<<16)
		var got []string
		if err := c.Call(t.Context(), "echo", []string{text}, &got); err != nil || got[0] != text {
			t.Errorf("echo of %d bytes: %v", len(text), err)
		}
		c.Close()
	})
}

// TestSlowClient: a client that takes no byte of its way back loses it, and not
// the events.
func TestSlowClient(t *testing.T) {
	var ses *rpchttp.Session
	cfg := rpchttp.ServerConfig{Sessions: &rpchttp.SessionConfig{
		Opened:       func(s *rpchttp.Session) { ses = s },
		WriteTimeout: 5 * time.Second,
	}}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		conn, err := m.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		synctest.Wait() // the server waits for somebody to take its answer
		begin := time.Now()
		buf := make([]byte, 10)
		for range 5 {
			if _, err := io.ReadFull(conn, buf); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(6 * time.Second)
		rest, _ := io.ReadAll(conn)
		if strings.Contains(string(rest), "id: 0") || time.Since(begin) > 7*time.Second {
			t.Errorf("after %v the server still sent %q", time.Since(begin), rest)
		}
		if ses == nil || ses.Conn().State() != jsonrpc.StateConnected {
			t.Error("the session ended with its way back")
		}
	})
}

// TestBatchMeta: a member of the message is more precise than the header of
// the POST, which may hold a batch.
func TestBatchMeta(t *testing.T) {
	h := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: testMethods()}})
	defer h.Close()
	r := httptest.NewRequest(http.MethodPost, "http://localhost/", strings.NewReader(
		`[{"jsonrpc":"2.0","id":1,"method":"meta"},{"jsonrpc":"2.0","id":2,"method":"meta","correlation_id":"own"}]`,
	))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Correlation-ID", "common")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var answers []struct {
		ID     int
		Result jsonrpc.Meta
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answers); err != nil || len(answers) != 2 {
		t.Fatalf("%s, %v", w.Body, err)
	}
	for _, a := range answers {
		if want := map[int]string{1: "common", 2: "own"}[a.ID]; a.Result.CorrelationID != want {
			t.Errorf("request %d has the correlation id %q, want %q", a.ID, a.Result.CorrelationID, want)
		}
	}
}

// TestURLAdvice: what is no URL becomes none by waiting.
func TestURLAdvice(t *testing.T) {
	for _, url := range []string{"http://", "tcp://x:1/", "http://h:port/"} {
		if _, err := rpchttp.NewStream(url, rpchttp.ClientConfig{}); err == nil || jsonrpc.AdviceFor(err) != jsonrpc.AdviceGiveUp {
			t.Errorf("%q: %v, advice %v", url, err, jsonrpc.AdviceFor(err))
		}
	}
}
