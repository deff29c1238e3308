// Package rpcdial chooses the transport of JSON-RPC 2.0 by a URL at run time
// (RPC-15): Dial connects to one, Listen and Serve take connections at one.
//
//	stdio:                   standard input and output of this process
//	stdio:PROGRAM ARG "A B"  standard input and output of a child process
//	tcp://HOST:PORT          TCP
//	tls://HOST:PORT          TLS over TCP
//	unix:/PATH               Unix socket; also unix:RELATIVE/PATH and unix:///PATH
//	http://… https://…       package rpchttp
//	ws://… wss://…           package rpcws
//
// Messages on stdio, tcp, tls and unix end with a newline each. With +lsp after
// the scheme, as in tcp+lsp://localhost:4000 or stdio+lsp:gopls, they have the
// headers of the Language Server Protocol instead.
//
// The words of a command are divided by blanks, which 'single' and "double"
// quotes keep together; in the latter \" is a quote and \\ a backslash. No shell
// is involved: variables and patterns mean nothing. What is said about the end
// of such a process is in the documentation of jsonrpc.Start.
//
// # Concurrency
//
// All functions may be called from any number of goroutines at once, except that the
// standard input and output of a process are there once. So may the functions of a
// Config be called by them, and its headers be read, for as long as what was made with
// it is in use.
package rpcdial

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// A Config says more than a URL can. The zero value is ready to use; what does
// not belong to the URL's scheme is ignored.
type Config struct {
	// Framing is used on stdio, tcp, tls and unix, whatever the scheme says.
	// Nil: by the scheme.
	Framing jsonrpc.Framing
	// Timeout bounds connecting with tcp, tls, unix, ws and wss, the handshakes
	// included. 0: 30 s; negative: only the context does.
	Timeout time.Duration
	// TLS is for tls, https and wss; a server needs one with a certificate.
	// Nil: the system's roots, and HOST as the server's name.
	TLS *tls.Config
	// Header is sent with every request of http and https, and with the
	// handshake of ws and wss.
	Header http.Header
	// Bearer, if set, is asked for a token whenever Header is sent, which goes
	// along as "Authorization: Bearer TOKEN".
	Bearer func(ctx context.Context) (string, error)
	// NetDial makes the connections of tcp, tls and unix. Nil: a net.Dialer.
	NetDial func(ctx context.Context, network, address string) (net.Conn, error)

	// Subprocess is for stdio:PROGRAM; Framing is taken from above.
	Subprocess jsonrpc.SubprocessConfig
	// Command, if set, changes the command of stdio:PROGRAM before it is
	// started: its folder, its environment.
	Command func(cmd *exec.Cmd)
	// HTTP and WS are for http, https, ws and wss. Header and Bearer from above are
	// added to them and go before what they set themselves, but for WS.Bearer. So are
	// Timeout, to WS alone, and TLS, where they have neither one nor an HTTP client.
	HTTP rpchttp.ClientConfig
	WS   rpcws.DialConfig

	// MaxConns is how many connections Listen and Serve have open at a time
	// with tcp, tls, unix, ws and wss. 0: 1024. How long one is silent is not
	// bounded.
	MaxConns int
	// Origins are the web pages that may use a server: for rpchttp's
	// AllowedOrigins and rpcws's Origins, which both take "https://app.example.com".
	// Nil: none with http and https, those of the server itself with ws and wss.
	Origins []string
	// Listening, if set, gets the URL at which Listen or Serve takes
	// connections, with the port that the system chose for port 0.
	Listening func(url string)
}

// Dial connects to a URL and returns the Stream, which the caller closes, or
// leaves to the Conn over it. ctx bounds connecting; the exception is
// stdio:PROGRAM, where its end stops the process.
//
// With http and https nothing is sent yet: whether a server is there shows at
// the first call. Errors name the scheme and the transport's reason, never
// credentials; jsonrpc.AdviceFor knows which of them may pass.
func Dial(ctx context.Context, rawURL string, cfg Config) (jsonrpc.Stream, error) {
	t, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	s, err := cfg.dial(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("rpcdial: %s: %w", t.scheme, err)
	}
	return s, nil
}

func (cfg Config) dial(ctx context.Context, t target) (jsonrpc.Stream, error) {
	switch t.scheme {
	case "stdio":
		return cfg.stdio(ctx, t)
	case "http", "https":
		return cfg.dialHTTP(t)
	case "ws", "wss":
		return rpcws.Dial(ctx, t.raw, cfg.wsConfig())
	}
	if cfg.Timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.timeout())
		defer cancel()
	}
	conn, err := cfg.connect(ctx, t)
	if err != nil {
		return nil, err
	}
	return cfg.framing(t)(conn), nil
}

// stdio uses the standard files of this process, or those of a child.
func (cfg Config) stdio(ctx context.Context, t target) (jsonrpc.Stream, error) {
	if len(t.command) == 0 {
		return cfg.framing(t)(jsonrpc.StdioConn()), nil
	}
	// Start ends the process with ctx by itself, and in order.
	cmd := exec.Command(t.command[0], t.command[1:]...) //nolint:noctx // see above
	if cfg.Command != nil {
		cfg.Command(cmd)
	}
	sub := cfg.Subprocess
	sub.Framing = cfg.framing(t)
	return jsonrpc.Start(ctx, cmd, sub)
}

func (cfg Config) connect(ctx context.Context, t target) (net.Conn, error) {
	dial := cfg.NetDial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	network := "tcp"
	if t.scheme == "unix" {
		network = "unix"
	}
	conn, err := dial(ctx, network, t.address)
	if err != nil || t.scheme != "tls" {
		return conn, err
	}
	own := cfg.TLS.Clone()
	if own == nil {
		own = new(tls.Config)
	}
	if own.ServerName == "" {
		own.ServerName, _, _ = net.SplitHostPort(t.address)
	}
	secure := tls.Client(conn, own)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

func (cfg Config) framing(t target) jsonrpc.Framing {
	switch {
	case cfg.Framing != nil:
		return cfg.Framing
	case t.headers:
		return jsonrpc.NewHeaderStream
	default:
		return jsonrpc.NewLineStream
	}
}

func (cfg Config) timeout() time.Duration {
	if cfg.Timeout == 0 {
		return 30 * time.Second
	}
	return cfg.Timeout
}

func (cfg Config) wsConfig() rpcws.DialConfig {
	ws := cfg.WS
	ws.Header = merged(ws.Header, cfg.Header)
	if ws.Bearer == nil {
		ws.Bearer = cfg.Bearer
	}
	if ws.TLS == nil && ws.HTTPClient == nil {
		ws.TLS = cfg.TLS
	}
	if ws.DialTimeout == 0 {
		ws.DialTimeout = cfg.Timeout
	}
	return ws
}

// merged returns a header with the fields of both, those of b if both have one.
func merged(a, b http.Header) http.Header {
	if len(b) == 0 {
		return a
	}
	all := a.Clone()
	if all == nil {
		all = make(http.Header)
	}
	for name, values := range b {
		all[http.CanonicalHeaderKey(name)] = values
	}
	return all
}

// dialHTTP returns a Stream that POSTs.
func (cfg Config) dialHTTP(t target) (jsonrpc.Stream, error) {
	web := cfg.HTTP
	if before := web.Headers; len(cfg.Header) > 0 || cfg.Bearer != nil {
		web.Headers = func(ctx context.Context, header http.Header) error {
			if before != nil {
				if err := before(ctx, header); err != nil {
					return err
				}
			}
			return cfg.authorize(ctx, header)
		}
	}
	if cfg.TLS == nil || web.Client != nil {
		return rpchttp.NewStream(t.raw, web)
	}
	own := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     cfg.TLS.Clone(),
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 64, // as many as rpchttp has requests under way
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
		DisableCompression:  true,
	}
	web.Client = &http.Client{Transport: own}
	s, err := rpchttp.NewStream(t.raw, web)
	if err != nil {
		return nil, err
	}
	return &ownTransport{s, own}, nil
}

func (cfg Config) authorize(ctx context.Context, header http.Header) error {
	for name, values := range cfg.Header {
		header[http.CanonicalHeaderKey(name)] = values
	}
	if cfg.Bearer == nil {
		return nil
	}
	token, err := cfg.Bearer(ctx)
	if err == nil {
		header.Set("Authorization", "Bearer "+token)
	}
	return err
}

// An ownTransport closes the connections that were made for a Stream with it.
type ownTransport struct {
	*rpchttp.Stream
	transport *http.Transport
}

func (s *ownTransport) Close() error {
	defer s.transport.CloseIdleConnections()
	return s.Stream.Close()
}
