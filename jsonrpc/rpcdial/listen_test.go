package rpcdial_test

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// TestServePlaces: Config.MaxConns bounds the connections of Serve, and who has
// left holds no place (RPC-19).
func TestServePlaces(t *testing.T) {
	for _, url := range []string{"tcp://127.0.0.1:0", "ws://127.0.0.1:0/"} {
		at := serve(t, url, rpcdial.Config{MaxConns: 1})
		for i := range 3 {
			var s jsonrpc.Stream
			var err error
			for { // the place is free a moment after the one before has left
				if s, err = rpcdial.Dial(t.Context(), at, rpcdial.Config{}); err == nil || i == 0 || t.Context().Err() != nil {
					break
				}
			}
			if err != nil {
				t.Fatalf("%s: connection %d: %v", url, i, err)
			}
			c := jsonrpc.NewConn(s, jsonrpc.Config{})
			if err := c.Call(t.Context(), "echo", []int{i}, nil); err != nil {
				t.Errorf("%s: connection %d: %v", url, i, err)
			}
			if strings.HasPrefix(url, "ws") && i == 0 {
				if more, err := rpcdial.Dial(t.Context(), at, rpcdial.Config{}); err == nil {
					more.Close()
					t.Errorf("%s: a second connection was taken", url)
				}
			}
			c.Close()
		}
	}
}

// TestServePath: only the path of the URL is served, and origins as configured.
func TestServePath(t *testing.T) {
	at := serve(t, "http://127.0.0.1:0/a%2Fb", rpcdial.Config{Origins: []string{"https://app.example"}})
	post := func(url, origin string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"echo"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for _, tt := range []struct {
		url, origin string
		want        int
	}{
		{at, "", http.StatusOK},
		{at, "https://app.example", http.StatusOK},
		{at, "https://foreign.example", http.StatusForbidden},
		{at + "/more", "", http.StatusNotFound},
		{strings.ReplaceAll(at, "%2F", "/"), "", http.StatusNotFound},
		{strings.TrimSuffix(at, "a%2Fb"), "", http.StatusNotFound},
	} {
		if got := post(tt.url, tt.origin); got != tt.want {
			t.Errorf("%s from %q: %d", tt.url, tt.origin, got)
		}
	}
}

// TestListenEnds: Listen ends with its context though handle waits for the peer,
// and closes the Stream of a handle that returns.
func TestListenEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	at, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- rpcdial.Listen(ctx, "ws://127.0.0.1:0/", rpcdial.Config{Listening: func(url string) { at <- url }}, func(s jsonrpc.Stream) {
			_, _ = s.Read() // it ends with ctx
		})
	}()
	s, err := rpcdial.Dial(t.Context(), <-at, rpcdial.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cancel()
	if _, err := s.Read(); err == nil {
		t.Error("the peer was not told")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	var child jsonrpc.Stream
	if err := rpcdial.Listen(t.Context(), "stdio:cat", rpcdial.Config{}, func(s jsonrpc.Stream) { child = s }); err != nil {
		t.Fatal(err)
	}
	if _, err := child.Write([]byte("{}\n")); err == nil {
		t.Error("stdio: the Stream is open after Listen")
	}
}

// TestServeAnswers: what is being handled when Serve is stopped is answered, within the
// longest grace there is, and Serve returns without an error (RPC-14).
func TestServeAnswers(t *testing.T) {
	for _, url := range []string{"tcp://127.0.0.1:0", "unix:" + t.TempDir() + "/socket", "ws://127.0.0.1:0/", "http://127.0.0.1:0/"} {
		ctx, cancel := context.WithCancel(t.Context())
		at, served, stopped := make(chan string, 1), make(chan error, 1), make(chan struct{})
		var mux jsonrpc.Mux
		mux.Register("slow", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
			cancel()
			<-stopped
			return "done", nil
		}))
		go func() {
			served <- rpcdial.Serve(ctx, url, rpcdial.Config{Listening: func(url string) { at <- url }}, jsonrpc.Config{Handler: &mux, Grace: math.MaxInt64})
		}()
		place := <-at
		s, err := rpcdial.Dial(t.Context(), place, rpcdial.Config{})
		if err != nil {
			t.Fatal(err)
		}
		c := jsonrpc.NewConn(s, jsonrpc.Config{})
		go func() {
			defer close(stopped)
			<-ctx.Done()
			for refused := false; !refused; { // nothing new is taken
				refused = refuses(t, place)
			}
		}()
		if got, err := jsonrpc.Call[string](t.Context(), c, "slow", nil); got != "done" {
			t.Errorf("%s: the answer that was begun: %q, %v", url, got, err)
		}
		if err := <-served; err != nil {
			t.Errorf("%s: Serve: %v", url, err)
		}
		c.Close()
		cancel()
	}
}

// refuses says whether nobody listens at a URL.
func refuses(t *testing.T, at string) bool {
	t.Helper()
	s, err := rpcdial.Dial(t.Context(), at, rpcdial.Config{})
	if err != nil {
		return true
	}
	c := jsonrpc.NewConn(s, jsonrpc.Config{})
	defer c.Close()
	err = c.Call(t.Context(), "nobody", nil, nil)
	answer, ok := errors.AsType[*jsonrpc.Error](err)
	return !ok || answer.Code == jsonrpc.CodeClosing
}

// TestNoCredentials: without the credentials that were asked for nothing is sent,
// and the error says why. The headers of the caller stay as they are.
func TestNoCredentials(t *testing.T) {
	var came atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		came.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	why := errors.New("no token today")
	none := func(context.Context) (string, error) { return "", why }
	own := http.Header{"X-Own": {"1"}}
	for name, cfg := range map[string]rpcdial.Config{
		"bearer":  {Bearer: none},
		"headers": {Header: http.Header{"X": {"y"}}, HTTP: rpchttp.ClientConfig{Headers: func(context.Context, http.Header) error { return why }}},
		"ws":      {Header: http.Header{"X": {"y"}}, Bearer: none, WS: rpcws.DialConfig{Header: own}},
	} {
		url := srv.URL
		if name == "ws" {
			url = "ws" + strings.TrimPrefix(url, "http")
		}
		s, err := rpcdial.Dial(t.Context(), url, cfg)
		if err == nil {
			c := jsonrpc.NewConn(s, jsonrpc.Config{})
			err = c.Call(t.Context(), "m", nil, nil)
			c.Close()
		}
		if !errors.Is(err, why) || came.Load() != 0 || len(own) != 1 {
			t.Errorf("%s: %v, %d requests, %v", name, err, came.Load(), own)
		}
	}
}

// TestListenAtOnce: of several servers that find the socket of one that has died, one
// listens there, and the others say why not.
func TestListenAtOnce(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "s")
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		dead.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		up, down := make(chan struct{}, 4), make(chan error, 4)
		for range 4 {
			go func() {
				down <- rpcdial.Listen(ctx, "unix:"+path, rpcdial.Config{Listening: func(string) { up <- struct{}{} }}, func(jsonrpc.Stream) {})
			}()
		}
		for range 3 {
			if err := <-down; !errors.Is(err, syscall.EADDRINUSE) {
				t.Fatalf("a server that is not the first: %v", err)
			}
		}
		<-up
		if conn, err := net.Dial("unix", path); err != nil {
			t.Errorf("the first cannot be reached: %v", err)
		} else {
			conn.Close()
		}
		cancel()
		if err := <-down; err != nil || len(up) > 0 {
			t.Errorf("%v, and %d more have listened", err, len(up))
		}
	}
}
