package rpcws_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// TestSubprotocols: who asks for one gets one, or no connection.
func TestSubprotocols(t *testing.T) {
	for _, c := range []struct {
		name          string
		offer, speak  []string
		client, chose string
	}{
		{"none", nil, nil, "", ""},
		{"the server's preference", []string{"b", "a"}, []string{"a", "b"}, "", "a"},
		{"one in common", []string{"x", "JSONRPC-2.0"}, []string{"jsonrpc-2.0"}, "", "JSONRPC-2.0"},
		{"the server speaks others", []string{"x"}, []string{"a", "b"}, "400", ""},
		{"the client offers none", nil, []string{"a"}, "no subprotocol in common: the server speaks a", ""},
		{"the server knows none", []string{"x", "y"}, nil, "no subprotocol in common: the server chose none of x, y", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			chose := make(chan string, 1)
			handler := rpcws.Handler(rpcws.AcceptConfig{Subprotocols: c.speak}, func(_ context.Context, s jsonrpc.Stream) { drain(s) })
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				handler.ServeHTTP(w, r)
				chose <- w.Header().Get("Sec-WebSocket-Protocol")
			}))
			defer srv.Close()
			defer handler.Close()
			s, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{Subprotocols: c.offer})
			if err == nil {
				s.Close()
			}
			if (err == nil) != (c.client == "") || err != nil && !strings.Contains(err.Error(), c.client) {
				t.Errorf("Dial: %v", err)
			}
			if got := <-chose; got != c.chose {
				t.Errorf("chose %q", got)
			}
		})
	}
}

// TestOrigins refuses foreign web pages.
func TestOrigins(t *testing.T) {
	for _, c := range []struct {
		origin   string
		patterns []string
		ok       bool
	}{
		{"", nil, true},
		{"http://SELF", nil, true},
		{"https://evil.example", nil, false},
		{"https://evil.example", []string{"good.example"}, false},
		{"https://a.good.example", []string{"*.good.example"}, true},
		{"https://good.example.evil.example", []string{"good.example*x"}, false},
		{"http://good.example", []string{"https://good.example"}, false},
		{"null", nil, false},
	} {
		handler := rpcws.Handler(rpcws.AcceptConfig{Origins: c.patterns}, func(_ context.Context, s jsonrpc.Stream) { drain(s) })
		srv := httptest.NewServer(handler)
		header := make(http.Header)
		if c.origin != "" {
			header.Set("Origin", strings.Replace(c.origin, "SELF", strings.TrimPrefix(srv.URL, "http://"), 1))
		}
		s, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{Header: header})
		if (err == nil) != c.ok {
			t.Errorf("origin %q with %q: %v", c.origin, c.patterns, err)
		}
		if err == nil {
			s.Close()
		} else if refused, ok := errors.AsType[*rpcws.HandshakeError](err); !ok || refused.Status != http.StatusForbidden {
			t.Errorf("origin %q with %q: %v, want 403", c.origin, c.patterns, err)
		}
		handler.Close()
		srv.Close()
	}
}

// TestRebinding refuses web pages that reach the loopback by a name of theirs.
func TestRebinding(t *testing.T) {
	for _, c := range []struct {
		host, origin string
		patterns     []string
		ok           bool
	}{
		{"evil.example", "http://evil.example", nil, false},
		{"evil.example:80", "http://evil.example:80", []string{"good.example"}, false},
		{"my.example", "http://my.example", []string{"*.example"}, true},
		{"my.example", "https://my.example", []string{"https://my.example"}, true},
		{"evil.example", "", nil, true}, // a program
		{"LOCALHOST:1", "http://localhost:1", nil, true},
		{"[::1]:1", "http://[::1]:1", nil, true},
		{"[::1]", "http://[::1]", nil, true},
		{"10.0.0.1", "http://10.0.0.1", nil, false},
		{"my.example", "http://my.example", []string{"My.Example"}, true},
	} {
		handler := rpcws.Handler(rpcws.AcceptConfig{Origins: c.patterns}, func(_ context.Context, s jsonrpc.Stream) { drain(s) })
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Host = c.host
			handler.ServeHTTP(w, r)
		}))
		header := make(http.Header)
		if c.origin != "" {
			header.Set("Origin", c.origin)
		}
		s, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{Header: header})
		if err == nil {
			s.Close()
		} else if refused, ok := errors.AsType[*rpcws.HandshakeError](err); !ok || refused.Status != http.StatusForbidden {
			t.Errorf("%s for %s: %v, want 403", c.origin, c.host, err)
		}
		if (err == nil) != c.ok {
			t.Errorf("%s for %s with %q: %v", c.origin, c.host, c.patterns, err)
		}
		handler.Close()
		srv.Close()
	}
}

// TestAcceptRefuses answers what is no handshake.
func TestAcceptRefuses(t *testing.T) {
	handshake := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
	}
	for _, c := range []struct {
		name   string
		header http.Header
		cfg    rpcws.AcceptConfig
		status int
	}{
		{"a plain request", http.Header{}, rpcws.AcceptConfig{}, http.StatusUpgradeRequired},
		{"a plain request, subprotocols", http.Header{}, rpcws.AcceptConfig{Subprotocols: []string{"a"}}, http.StatusUpgradeRequired},
		{"a bad pattern", handshake, rpcws.AcceptConfig{Origins: []string{"["}}, http.StatusInternalServerError},
		{"no way to take the connection", handshake, rpcws.AcceptConfig{}, http.StatusNotImplemented},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header = c.header
		w := httptest.NewRecorder()
		if c.status == http.StatusUpgradeRequired {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := rpcws.Accept(w, r, c.cfg); err == nil {
					t.Errorf("%s: no error", c.name)
				}
			}))
			resp, err := http.Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			w.Code = resp.StatusCode
			srv.Close()
		} else if _, err := rpcws.Accept(w, r, c.cfg); err == nil {
			t.Errorf("%s: no error", c.name)
		}
		if w.Code != c.status {
			t.Errorf("%s: status %d, want %d", c.name, w.Code, c.status)
		}
	}
}

// TestHandshake: what clients and middleware of others do to a handshake.
func TestHandshake(t *testing.T) {
	const deflate = "permessage-deflate; client_no_context_takeover; server_no_context_takeover"
	for _, c := range []struct {
		name   string
		header http.Header
		cfg    rpcws.AcceptConfig
		status int
		want   http.Header // of the answer
	}{
		{
			"subprotocols on two lines, with blanks",
			http.Header{"Sec-Websocket-Protocol": {"x", "y , b"}},
			rpcws.AcceptConfig{Subprotocols: []string{"b"}},
			http.StatusSwitchingProtocols,
			http.Header{"Sec-Websocket-Protocol": {"b"}},
		},
		{
			"compression that is not wanted",
			http.Header{"Sec-Websocket-Extensions": {deflate}},
			rpcws.AcceptConfig{},
			http.StatusSwitchingProtocols,
			http.Header{"Sec-Websocket-Extensions": nil},
		},
		{
			"compression that is wanted",
			http.Header{"Sec-Websocket-Extensions": {deflate}},
			rpcws.AcceptConfig{Compression: true},
			http.StatusSwitchingProtocols,
			http.Header{"Sec-Websocket-Extensions": {deflate}},
		},
		{"another version", http.Header{"Sec-Websocket-Version": {"8"}}, rpcws.AcceptConfig{}, http.StatusBadRequest, nil},
		{"a key that is none", http.Header{"Sec-Websocket-Key": {"abc"}}, rpcws.AcceptConfig{}, http.StatusBadRequest, nil},
		{"another upgrade", http.Header{"Upgrade": {"h2c"}}, rpcws.AcceptConfig{}, http.StatusUpgradeRequired, nil},
	} {
		handler := rpcws.Handler(c.cfg, func(context.Context, jsonrpc.Stream) {})
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(wrapped{w}, r)
		}))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
			"Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
		}
		maps.Copy(req.Header, c.header)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != c.status {
			t.Errorf("%s: %s, want %d", c.name, res.Status, c.status)
		}
		for name, want := range c.want {
			if got := res.Header[name]; !slices.Equal(got, want) {
				t.Errorf("%s: %s is %q, want %q", c.name, name, got, want)
			}
		}
		handler.Close()
		srv.Close()
	}
}

// wrapped is a ResponseWriter of a middleware, such as one that notes the status.
type wrapped struct{ w http.ResponseWriter }

func (m wrapped) Header() http.Header         { return m.w.Header() }
func (m wrapped) Write(p []byte) (int, error) { return m.w.Write(p) }
func (m wrapped) WriteHeader(status int)      { m.w.WriteHeader(status) }
func (m wrapped) Unwrap() http.ResponseWriter { return m.w }

// TestConnectionLimit refuses one connection too many, and takes the next when
// one has gone (RPC-23).
func TestConnectionLimit(t *testing.T) {
	handler := rpcws.Handler(rpcws.AcceptConfig{MaxConns: 1}, func(_ context.Context, s jsonrpc.Stream) { drain(s) })
	ended := make(chan struct{}, 3)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	defer srv.Close()
	defer handler.Close()
	first, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{})
	if refused, ok := errors.AsType[*rpcws.HandshakeError](err); !ok || refused.Status != http.StatusServiceUnavailable {
		t.Errorf("the second connection: %v", err)
	}
	<-ended
	first.Close()
	<-ended
	second, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{})
	if err != nil {
		t.Fatalf("after the first has gone: %v", err)
	}
	second.Close()
}

// TestGoingAway shuts the server down: its connections are told, and end with
// 1001, new ones are refused, and nothing is left when it returns (RPC-14).
func TestGoingAway(t *testing.T) {
	for _, patient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			network := newMemory()
			serving := make(chan struct{})
			handler := rpcws.Handler(rpcws.AcceptConfig{PingInterval: -1}, func(ctx context.Context, s jsonrpc.Stream) {
				close(serving)
				read := make(chan struct{})
				go func() {
					drain(s)
					close(read)
				}()
				if patient {
					<-ctx.Done()
					time.Sleep(time.Second) // what has to be finished
					s.Close()
				}
				<-read
			})
			network.serve(t, handler)
			conn, err := network.DialContext(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			peer := dialRaw(t, conn)
			closed := make(chan string, 1)
			go func() {
				first, payload, _ := peer.frame()
				if first != fin|opClose {
					payload = "no close frame"
				}
				peer.Write(appendFrame(nil, fin|opClose, payload))
				closed <- payload
			}()
			<-serving
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err = handler.Shutdown(ctx)
			if patient && err != nil || !patient && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown: %v", err)
			}
			if got := <-closed; got != "\x03\xe9" {
				t.Errorf("closed with %q, want 1001", got)
			}
			_, err = rpcws.Dial(t.Context(), "ws://x/", rpcws.DialConfig{HTTPClient: network.client()})
			if refused, ok := errors.AsType[*rpcws.HandshakeError](err); !ok || refused.Status != http.StatusServiceUnavailable {
				t.Errorf("Dial after Shutdown: %v", err)
			}
			handler.Close()
		})
	}
}

// TestServeReturns closes a connection that its function has left.
func TestServeReturns(t *testing.T) {
	handler := rpcws.Handler(rpcws.AcceptConfig{}, func(context.Context, jsonrpc.Stream) {})
	srv := httptest.NewServer(handler)
	defer srv.Close()
	defer handler.Close()
	s, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wants(t, "Read", drain(s), io.EOF)
}
