package rpcdial_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
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
