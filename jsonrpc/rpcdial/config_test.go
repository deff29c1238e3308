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

// TestHeaders: headers and tokens of the Config and of the transport's own go out
// together; the Config's headers where both have one.
func TestHeaders(t *testing.T) {
	seen := make(chan http.Header, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	bearer := func(token string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return token, nil }
	}
	add := func(_ context.Context, header http.Header) error {
		header.Set("X-Own", "own")
		header.Set("X-Both", "own")
		return nil
	}
	ours := http.Header{"x-config": {"config"}, "X-Both": {"config"}}
	own := http.Header{"X-Own": {"own"}, "X-Both": {"own"}}
	for _, tt := range []struct {
		cfg  rpcdial.Config
		want string // X-Own, X-Config, X-Both, Authorization
	}{
		{rpcdial.Config{}, ",,,"},
		{rpcdial.Config{Header: ours}, ",config,config,"},
		{rpcdial.Config{Bearer: bearer("t")}, ",,,Bearer t"},
		{rpcdial.Config{HTTP: rpchttp.ClientConfig{Headers: add}, WS: rpcws.DialConfig{Header: own}}, "own,,own,"},
		{rpcdial.Config{Header: ours, Bearer: bearer("t"), HTTP: rpchttp.ClientConfig{Headers: add}, WS: rpcws.DialConfig{Header: own}}, "own,config,config,Bearer t"},
	} {
		for _, scheme := range []string{"http", "ws"} {
			s, err := rpcdial.Dial(t.Context(), scheme+strings.TrimPrefix(srv.URL, "http"), tt.cfg)
			if err == nil {
				io.WriteString(s, `{"jsonrpc":"2.0","method":"m"}`+"\n")
				defer s.Close()
			}
			h := <-seen
			if got := strings.Join([]string{h.Get("X-Own"), h.Get("X-Config"), h.Get("X-Both"), h.Get("Authorization")}, ","); got != tt.want {
				t.Errorf("%s: %s, want %s", scheme, got, tt.want)
			}
		}
	}
	_, err := rpcdial.Dial(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http"), rpcdial.Config{Bearer: bearer("theirs"), WS: rpcws.DialConfig{Bearer: bearer("own")}})
	if h := <-seen; err == nil || h.Get("Authorization") != "Bearer own" {
		t.Errorf("%v, %v", err, h)
	}
	if len(own) != 2 || own.Get("X-Both") != "own" || len(ours) != 2 {
		t.Error("the caller's headers were changed")
	}
}

// A watched connection knows whether it was closed.
type watched struct {
	net.Conn
	closed chan struct{}
}

func (w *watched) Close() error {
	close(w.closed)
	return w.Conn.Close()
}

// TestTLSName: the name that the server's certificate must have is that of the URL
// unless Config.TLS says another, and a connection is closed whose handshake fails.
func TestTLSName(t *testing.T) {
	secure, trusting := certificate(t) // for 127.0.0.1
	at := serve(t, "tls://127.0.0.1:0", rpcdial.Config{TLS: secure})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(at, "tls://"))
	named := trusting.Clone()
	named.ServerName = "127.0.0.1"
	for _, tt := range []struct {
		url  string
		tls  *tls.Config
		fits bool
	}{
		{at, trusting, true},
		{at, nil, false}, // nobody knows its authority
		{"tls://localhost:" + port, trusting, false},
		{"tls://localhost:" + port, named, true},
	} {
		var conn *watched
		s, err := rpcdial.Dial(t.Context(), tt.url, rpcdial.Config{TLS: tt.tls, NetDial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
			conn = &watched{c, make(chan struct{})}
			return conn, err
		}})
		if (err == nil) != tt.fits {
			t.Errorf("%s: %v", tt.url, err)
		}
		if err == nil {
			s.Close()
		}
		select {
		case <-conn.closed:
		default:
			t.Errorf("%s: the connection is open", tt.url)
		}
	}
	if trusting.ServerName != "" {
		t.Error("the caller's configuration was changed")
	}
}

// TestWrongURLs: URLs that are wrong only for their scheme are refused, by servers
// too, and no Stream comes with the error.
func TestWrongURLs(t *testing.T) {
	for _, url := range []string{"https://", "http://a b/", "tcp://h", "nonsense:", "stdio:/nonexistent/prog"} {
		s, err := rpcdial.Dial(t.Context(), url, rpcdial.Config{TLS: &tls.Config{}})
		if s != nil || err == nil {
			t.Errorf("Dial %s: %v, %v", url, s, err)
		}
		if err := rpcdial.Serve(t.Context(), url, rpcdial.Config{}, jsonrpc.Config{}); err == nil {
			t.Errorf("Serve %s: no error", url)
		}
		if err := rpcdial.Listen(t.Context(), url, rpcdial.Config{}, nil); err == nil {
			t.Errorf("Listen %s: no error", url)
		}
	}
	if err := rpcdial.Listen(t.Context(), "https://127.0.0.1:0/", rpcdial.Config{}, nil); err == nil || !strings.Contains(err.Error(), "use Serve") {
		t.Error(err)
	}
}

// TestListenChild: Listen tells of the process it speaks with, and ends with its
// context though handle waits for the process.
func TestListenChild(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var at string
	err := rpcdial.Listen(ctx, "stdio:cat", rpcdial.Config{Listening: func(url string) { at = url }}, func(s jsonrpc.Stream) {
		cancel()
		if _, err := s.Read(); err == nil {
			t.Error("cat has said something")
		}
	})
	if err != nil || at != "stdio:cat" {
		t.Errorf("%v at %q", err, at)
	}
}
