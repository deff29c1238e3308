package rpcdial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

const (
	// stopTimeout is what a web server that is being stopped gives requests that
	// are being answered, beside the grace of their handlers.
	stopTimeout = 5 * time.Second
	// refusalTime is what a client gets to take that there is nothing at its path.
	refusalTime = 30 * time.Second
	// defaultGrace is that of jsonrpc.Config.
	defaultGrace = 5 * time.Second
)

// Listen takes connections at a URL and calls handle for each, on a goroutine
// of its own, with a Stream that it closes when handle returns. It goes on until
// ctx ends; then it closes all Streams, waits for every handle, and returns nil.
// With stdio: there is one connection, handled on the goroutine of the caller, and its
// end is that of Listen. An error, like those of Dial, says why nobody listens, or
// does any longer.
//
// http and https have no connections: use Serve. The file of a Unix socket that
// nobody listens at any more is replaced; any other file is left alone.
func Listen(ctx context.Context, rawURL string, cfg Config, handle func(jsonrpc.Stream)) error {
	t, err := parse(rawURL)
	if err != nil {
		return err
	}
	if t.scheme == "http" || t.scheme == "https" {
		return fmt.Errorf("rpcdial: %s: requests share no connection to be handled; use Serve", t.scheme)
	}
	err = cfg.listen(ctx, t, 0, func(ctx context.Context, s jsonrpc.Stream) {
		stop := context.AfterFunc(ctx, func() { _ = s.Close() })
		defer stop()
		handle(s)
	})
	if err != nil {
		return fmt.Errorf("rpcdial: %s: %w", t.scheme, err)
	}
	return nil
}

// Serve answers at a URL of any scheme until ctx ends: with a Conn for each
// connection, with an rpchttp.Server for http and https (whose clients get a
// way back, and with it requests of ours, if they ask for one). When ctx ends
// nothing new is taken, and what is being handled is answered, for which handlers
// have rpc.Grace. Serve returns when everything has ended.
func Serve(ctx context.Context, rawURL string, cfg Config, rpc jsonrpc.Config) error {
	t, err := parse(rawURL)
	if err != nil {
		return err
	}
	if t.scheme == "http" || t.scheme == "https" {
		err = cfg.serveHTTP(ctx, t, rpc)
	} else {
		err = cfg.listen(ctx, t, graceOf(rpc), func(ctx context.Context, s jsonrpc.Stream) {
			conn := jsonrpc.NewConn(s, rpc)
			select {
			case <-conn.Done():
			case <-ctx.Done():
			}
			conn.Close() //nolint:errcheck // the hooks of rpc have heard
		})
	}
	if err != nil {
		return fmt.Errorf("rpcdial: %s: %w", t.scheme, err)
	}
	return nil
}

// graceOf returns what the handlers of a Conn are given at its end.
func graceOf(rpc jsonrpc.Config) time.Duration {
	if rpc.Grace == 0 {
		return defaultGrace
	}
	return max(rpc.Grace, 0)
}

// listen calls handle for each connection, with a context that ends when no more
// are taken: then handle has to end its Stream, for which it has grace and more.
func (cfg Config) listen(ctx context.Context, t target, grace time.Duration, handle func(context.Context, jsonrpc.Stream)) error {
	switch t.scheme {
	case "stdio":
		s, err := cfg.stdio(context.WithoutCancel(ctx), t)
		if err != nil {
			return err
		}
		cfg.listening(t.raw)
		defer func() { _ = s.Close() }()
		handle(ctx, s)
		return nil
	case "ws", "wss":
		server := rpcws.Handler(rpcws.AcceptConfig{Origins: cfg.Origins, MaxConns: cfg.MaxConns}, handle)
		return cfg.serveWeb(ctx, t, grace, server, server.Shutdown)
	}
	ln, err := cfg.listener(ctx, t)
	if err != nil {
		return err
	}
	cfg.listening(t.at(ln.Addr()))
	serving := jsonrpc.ServeConfig{Framing: cfg.framing(t), MaxConns: cfg.MaxConns, Drain: true}
	return jsonrpc.Serve(ctx, ln, serving, func(s jsonrpc.Stream) { handle(ctx, s) })
}

func (cfg Config) serveHTTP(ctx context.Context, t target, rpc jsonrpc.Config) error {
	server := rpchttp.Handler(rpchttp.ServerConfig{Config: rpc, AllowedOrigins: cfg.Origins, Sessions: new(rpchttp.SessionConfig)})
	return cfg.serveWeb(ctx, t, graceOf(rpc), server, func(context.Context) error { return server.Close() })
}

// serveWeb serves h at the URL's path until ctx ends, then calls stop, which
// ends what h holds open, for which its handlers have grace.
func (cfg Config) serveWeb(ctx context.Context, t target, grace time.Duration, h http.Handler, stop func(context.Context) error) error {
	u, err := url.Parse(t.raw)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("write it with a host, a port and a path and nothing else, such as %s://127.0.0.1:4000/rpc", t.scheme)
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	t.address = u.Host
	if u.Port() == "" {
		t.address = net.JoinHostPort(u.Hostname(), map[bool]string{false: "80", true: "443"}[t.secure()])
	}
	ln, err := cfg.listener(ctx, t)
	if err != nil {
		return err
	}
	server := webServer(path, h)
	u.Host = ln.Addr().String()
	cfg.listening(u.String())

	var serving sync.WaitGroup
	ended, end := context.WithCancelCause(ctx)
	serving.Go(func() { end(server.Serve(ln)) })
	<-ended.Done()
	// A sum beyond the largest Duration would be no time at all.
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(grace, math.MaxInt64-stopTimeout)+stopTimeout)
	defer cancel()
	// Both at once: requests that are being answered end with h, and h's own
	// connections are unknown to server.
	var stopped error
	serving.Go(func() { stopped = stop(stopping) })
	shutdown := server.Shutdown(stopping)
	if shutdown != nil {
		_ = server.Close() // what they are about is lost then
	}
	serving.Wait()
	if ctx.Err() == nil {
		return errors.Join(context.Cause(ended), shutdown, stopped)
	}
	return errors.Join(shutdown, stopped)
}

// webServer serves h at path, with the limits of rpchttp.NewHTTPServer.
func webServer(path string, h http.Handler) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.EscapedPath() != path {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(refusalTime)) // there is one: it is ours
				http.NotFound(w, r)
				return
			}
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second, // until the body is there: neither handlers nor ways back nor WebSockets
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

// listener listens at t.address, with TLS where the scheme says so.
func (cfg Config) listener(ctx context.Context, t target) (net.Listener, error) {
	if t.secure() && (cfg.TLS == nil || len(cfg.TLS.Certificates) == 0 && cfg.TLS.GetCertificate == nil && cfg.TLS.GetConfigForClient == nil) {
		return nil, errors.New("a server needs a certificate; set Config.TLS")
	}
	var lc net.ListenConfig
	if t.scheme == "unix" {
		// Of two servers that begin at once, the second would remove the socket of the
		// first, which it took for the one that was abandoned, or is about to listen.
		defer lockFolder(ctx, t.address)()
		ln, err := lc.Listen(ctx, "unix", t.address)
		if errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, t.address) {
			if err = os.Remove(t.address); err == nil {
				ln, err = lc.Listen(ctx, "unix", t.address)
			}
		}
		return ln, err
	}
	ln, err := lc.Listen(ctx, "tcp", t.address)
	if err == nil && t.secure() {
		ln = tls.NewListener(ln, cfg.TLS)
	}
	return ln, err
}

// abandoned says that path is a socket at which nobody listens.
func abandoned(ctx context.Context, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func (t target) secure() bool { return t.scheme == "tls" || t.scheme == "https" || t.scheme == "wss" }

// at returns the URL with the address that became of it.
func (t target) at(addr net.Addr) string {
	scheme := t.scheme
	if t.headers {
		scheme += "+lsp"
	}
	if t.scheme == "unix" {
		return scheme + ":" + t.address
	}
	return scheme + "://" + addr.String()
}

func (cfg Config) listening(url string) {
	if cfg.Listening != nil {
		cfg.Listening(url)
	}
}
