package rpcws

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/parley-project/parley/jsonrpc"
)

// An AcceptConfig says which connections a server accepts, and how. The zero
// value is ready to use. Who may connect is for the handlers around it.
type AcceptConfig struct {
	// Origins are patterns of further hosts whose web pages may connect, beside
	// the server's own: "example.com", "*.example.com" or, with the scheme,
	// "https://*.example.com" (path.Match). Every other page is refused with
	// 403, since browsers send cookies along wherever a page came from. On
	// connections to a loopback address the server's own name must be one of
	// the loopback, or be listed too: any web site can give itself a name that
	// leads there. Programs send no Origin and are not concerned.
	Origins []string
	// Subprotocols are what the server speaks, the preferred one first. If
	// there are any, the client must offer one of them, or is refused with 400.
	Subprotocols []string
	// MaxConns bounds the connections that Handler has open at the same time;
	// one beyond is refused with 503 (RPC-23). 0 or less: 1024; Accept does not
	// look at it.
	MaxConns int
	// PingInterval is how long the peer may be silent before it is pinged.
	// Default 30 s; negative: never.
	PingInterval time.Duration
	// PingTimeout is how long after a ping the peer may go on being silent, and
	// take less than 64 KiB. Then Read returns ErrNoPong. 0 or less: 10 s.
	PingTimeout time.Duration
	// CloseTimeout bounds Close: the peer has so long to take what is being
	// written and to answer our close frame. 0 or less: 1 s.
	CloseTimeout time.Duration
	// Compression takes an offer of permessage-deflate; see the package
	// documentation for why it is off by default.
	Compression bool
}

// Accept makes a Stream of an HTTP request. If it fails, the answer has been
// written. The Stream outlives the request and its context: the caller owns it,
// or the Conn that it is given to, and ends it with Close; http.Server neither
// counts it nor waits for it. Handler does.
//
// Errors wrap ErrSubprotocol, or say in words why the request is no handshake, or
// which pattern of Origins is none.
func Accept(w http.ResponseWriter, r *http.Request, cfg AcceptConfig) (jsonrpc.Stream, error) {
	s, err := accept(w, r, cfg)
	if err != nil {
		return nil, fmt.Errorf("rpcws: accept: %w", err)
	}
	return s.withAbilities(), nil
}

func accept(w http.ResponseWriter, r *http.Request, cfg AcceptConfig) (*stream, error) {
	for _, pattern := range cfg.Origins {
		if _, err := path.Match(pattern, ""); err != nil {
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			return nil, fmt.Errorf("origin pattern %q: %w", pattern, err)
		}
	}
	if rebound(r, cfg.Origins) {
		err := fmt.Errorf("a web page calls the loopback by the name %q; if it may, add it to Origins", r.Host)
		http.Error(w, err.Error(), http.StatusForbidden)
		return nil, err
	}
	if len(cfg.Subprotocols) > 0 && !offers(r, cfg.Subprotocols) {
		err := fmt.Errorf("%w: the server speaks %s", ErrSubprotocol, strings.Join(cfg.Subprotocols, ", "))
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, err
	}
	if !hijackable(w) {
		// HTTP/2, or a middleware that hides the connection.
		http.Error(w, http.StatusText(http.StatusNotImplemented), http.StatusNotImplemented)
		return nil, errors.New("the connection cannot be taken over from the HTTP server")
	}
	o := options{cfg.PingInterval, cfg.PingTimeout, cfg.CloseTimeout, compression(cfg.Compression)}.withDefaults()
	tap := &tapWriter{ResponseWriter: w}
	ws, err := websocket.Accept(tap, r, &websocket.AcceptOptions{
		OriginPatterns: cfg.Origins, Subprotocols: cfg.Subprotocols, CompressionMode: o.compression,
	})
	if err != nil {
		return nil, err
	}
	return newStream(ws, tap.wire, o), nil
}

// rebound says whether a web page has reached the loopback by a name of its
// own making (DNS rebinding): its Origin and the Host are the same then.
func rebound(r *http.Request, origins []string) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() || r.Header.Get("Origin") == "" {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return false
	}
	return !slices.ContainsFunc(origins, func(pattern string) bool {
		_, name, _ := strings.Cut(pattern, "://")
		match, err := path.Match(strings.ToLower(cmp.Or(name, pattern)), host)
		return err == nil && match
	})
}

// offers says whether the request offers one of the subprotocols, as the
// library compares them. A request that is no handshake offers everything: the
// library says what is wrong with it.
func offers(r *http.Request, subprotocols []string) bool {
	if r.Header.Get("Sec-WebSocket-Key") == "" {
		return true
	}
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for offer := range strings.SplitSeq(line, ",") {
			if slices.ContainsFunc(subprotocols, func(s string) bool { return strings.EqualFold(s, strings.TrimSpace(offer)) }) {
				return true
			}
		}
	}
	return false
}

// hijackable finds out before anything is written.
func hijackable(w http.ResponseWriter) bool {
	for {
		switch inner := w.(type) {
		case http.Hijacker:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return false
		}
	}
}

// A tapWriter puts a wire between the connection of a handshake and the
// library.
type tapWriter struct {
	http.ResponseWriter
	wire *wire
}

// Hijack implements http.Hijacker.
func (t *tapWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, brw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err := brw.Flush(); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	received, _ := brw.Peek(brw.Reader.Buffered()) // a hasty client's first frames
	t.wire = newWire(conn, received)
	t.wire.try = tryWriterOf(conn)
	return tapConn{conn, t.wire}, bufio.NewReadWriter(bufio.NewReader(t.wire), bufio.NewWriter(t.wire)), nil
}

// A tapConn is a net.Conn whose bytes go through a wire.
type tapConn struct {
	net.Conn
	wire *wire
}

// Read implements net.Conn.
func (c tapConn) Read(p []byte) (int, error) { return c.wire.Read(p) }

// Write implements net.Conn.
func (c tapConn) Write(p []byte) (int, error) { return c.wire.Write(p) }

// Close implements net.Conn.
func (c tapConn) Close() error { return c.wire.Close() }
