package rpcdial_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// A slowServer answers a handshake after a time, and no other than 503.
type slowServer time.Duration

func (s slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(time.Duration(s)):
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Request: r}, nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// TestTimeoutOfConfig: Config.Timeout bounds connecting with every transport that
// connects, 30 s if it says nothing; negative, only the context does.
func TestTimeoutOfConfig(t *testing.T) {
	const hour = 3600 * time.Second
	for _, url := range []string{"tcp://h:1", "tls://h:1", "unix:/s", "ws://h/"} {
		for _, tt := range []struct {
			timeout, ws, took time.Duration
		}{
			{0, 0, 30 * time.Second},
			{time.Second, 0, time.Second},
			{-1, 0, hour},
			{time.Second, time.Minute, time.Minute}, // WS.DialTimeout is for ws alone
		} {
			if tt.ws != 0 && url != "ws://h/" {
				tt.took = tt.timeout
			}
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, err := rpcdial.Dial(t.Context(), url, rpcdial.Config{
					Timeout: tt.timeout,
					NetDial: func(ctx context.Context, _, _ string) (net.Conn, error) {
						select {
						case <-time.After(hour):
							return nil, errors.New("nobody there")
						case <-ctx.Done():
							return nil, ctx.Err()
						}
					},
					WS: rpcws.DialConfig{DialTimeout: tt.ws, HTTPClient: &http.Client{Transport: slowServer(hour)}},
				})
				if took := time.Since(start); took != tt.took || errors.Is(err, context.DeadlineExceeded) != (took < hour) {
					t.Errorf("%s with %v and %v: %v after %v, want it after %v", url, tt.timeout, tt.ws, err, took, tt.took)
				}
			})
		}
	}
}

// TestFraming: Config.Framing is used whatever the scheme says, and without it the
// scheme decides.
func TestFraming(t *testing.T) {
	for _, tt := range []struct {
		url     string
		framing jsonrpc.Framing
		want    string
	}{
		{"tcp://h:1", nil, "{}\n"},
		{"tcp+lsp://h:1", nil, "Content-Length: 2\r\n\r\n{}"},
		{"tcp://h:1", jsonrpc.NewHeaderStream, "Content-Length: 2\r\n\r\n{}"},
		{"unix+lsp:/s", jsonrpc.NewLineStream, "{}\n"},
	} {
		near, far := net.Pipe()
		var network, address string
		s, err := rpcdial.Dial(t.Context(), tt.url, rpcdial.Config{Framing: tt.framing, NetDial: func(_ context.Context, n, a string) (net.Conn, error) {
			network, address = n, a
			return near, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			io.WriteString(s, "{}\n")
			s.Close()
		}()
		if got, err := io.ReadAll(far); string(got) != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", tt.url, got, err, tt.want)
		}
		if want := map[bool]string{true: "tcp h:1", false: "unix /s"}[strings.HasPrefix(tt.url, "tcp")]; network+" "+address != want {
			t.Errorf("%s: dialed %s at %s", tt.url, network, address)
		}
	}
}

// TestListenFraming: the server's side of Config.Framing.
func TestListenFraming(t *testing.T) {
	at := serve(t, "tcp://127.0.0.1:0", rpcdial.Config{Framing: jsonrpc.NewHeaderStream})
	s, err := rpcdial.Dial(t.Context(), strings.Replace(at, "tcp:", "tcp+lsp:", 1), rpcdial.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := jsonrpc.NewConn(s, jsonrpc.Config{})
	defer c.Close()
	if err := c.Call(t.Context(), "echo", nil, nil); err != nil {
		t.Error(err)
	}
}

// TestListenMaxConns: with every place taken, who comes next over TCP waits until
// one is free (RPC-19).
func TestListenMaxConns(t *testing.T) {
	at := serve(t, "tcp://127.0.0.1:0", rpcdial.Config{MaxConns: 2})
	var conns [3]net.Conn
	answers := make(chan int, len(conns))
	for i := range conns {
		c, err := net.Dial("tcp", strings.TrimPrefix(at, "tcp://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
		ask := func() {
			io.WriteString(c, `{"jsonrpc":"2.0","id":1,"method":"echo"}`+"\n")
			if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
				answers <- i
			}
		}
		if i == 2 {
			go ask()
		} else {
			ask()
		}
	}
	for range 2 {
		<-answers
	}
	select {
	case i := <-answers:
		t.Fatalf("connection %d was served beyond the limit", i)
	case <-time.After(50 * time.Millisecond): // a served one answers in less than one
	}
	conns[0].Close()
	if i := <-answers; i != 2 {
		t.Errorf("connection %d was answered", i)
	}
}

// TestOwnClients: beside a client of one's own, whose transport has its TLS
// configuration, Config.TLS is for the other schemes; it goes where there is none.
func TestOwnClients(t *testing.T) {
	secure, trusting := certificate(t)
	own := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}}
	defer own.CloseIdleConnections()
	wrong := &tls.Config{ServerName: "elsewhere.example"}
	for _, url := range []string{"https://127.0.0.1:0/", "wss://127.0.0.1:0/"} {
		at := serve(t, url, rpcdial.Config{TLS: secure})
		for name, tt := range map[string]struct {
			cfg  rpcdial.Config
			fits bool
		}{
			"own client":          {rpcdial.Config{HTTP: rpchttp.ClientConfig{Client: own}, WS: rpcws.DialConfig{HTTPClient: own}}, true},
			"own client and TLS":  {rpcdial.Config{TLS: wrong, HTTP: rpchttp.ClientConfig{Client: own}, WS: rpcws.DialConfig{HTTPClient: own}}, true},
			"TLS that is wrong":   {rpcdial.Config{TLS: wrong}, false},
			"TLS of the WS alone": {rpcdial.Config{TLS: wrong, WS: rpcws.DialConfig{TLS: trusting}}, strings.HasPrefix(url, "wss")},
		} {
			s, err := rpcdial.Dial(t.Context(), at, tt.cfg)
			if err == nil {
				c := jsonrpc.NewConn(s, jsonrpc.Config{})
				err = c.Call(t.Context(), "echo", nil, nil)
				c.Close()
			}
			if (err == nil) != tt.fits {
				t.Errorf("%s, %s: %v", url, name, err)
			}
		}
	}
}

// TestOwnTransportEnds: with Config.TLS the connections of https end with the
// Stream, since nobody else could close them.
func TestOwnTransportEnds(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	var trusting *tls.Config
	srv.TLS, trusting = certificate(t)
	ended := make(chan struct{}, 16)
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			ended <- struct{}{}
		}
	}
	srv.StartTLS()
	defer srv.Close()
	s, err := rpcdial.Dial(t.Context(), srv.URL, rpcdial.Config{TLS: trusting})
	if err != nil {
		t.Fatal(err)
	}
	c := jsonrpc.NewConn(s, jsonrpc.Config{})
	if err := c.Notify(t.Context(), "m", nil); err != nil {
		t.Error(err)
	}
	c.Shutdown(t.Context()) // which waits until it is delivered
	select {
	case <-ended:
	case <-time.After(time.Minute): // an idle connection would live for longer
		t.Error("the connection is open after the end of the Stream")
	}
}
