package rpchttp_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// inMemory runs f in a synctest bubble with a real http.Server and a real
// client that are joined by net.Pipe. The bubble proves that no goroutine of
// either is left: it panics otherwise.
func inMemory(t *testing.T, cfg rpchttp.ServerConfig, f func(t *testing.T, m *memory)) {
	t.Helper()
	inMemoryOver(t, nil, cfg, f)
}

// inMemoryHTTP2 does it with HTTP/2, without TLS.
func inMemoryHTTP2(t *testing.T, cfg rpchttp.ServerConfig, f func(t *testing.T, m *memory)) {
	t.Helper()
	http2 := new(http.Protocols)
	http2.SetUnencryptedHTTP2(true)
	inMemoryOver(t, http2, cfg, f)
}

func inMemoryOver(t *testing.T, protocols *http.Protocols, cfg rpchttp.ServerConfig, f func(t *testing.T, m *memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.Server = rpchttp.Handler(cfg)
		m.http = rpchttp.NewHTTPServer("", m.Server)
		m.http.Protocols = protocols
		served := make(chan struct{})
		go func() { m.http.Serve(m); close(served) }()
		m.transport = &http.Transport{DialContext: m.dial, MaxIdleConnsPerHost: 100, DisableCompression: true, Protocols: protocols}
		defer func() {
			for _, st := range m.streams { // where f did not come so far
				st.Close()
			}
			if err := m.Server.Close(); err != nil {
				t.Errorf("Server.Close: %v", err)
			}
			m.transport.CloseIdleConnections()
			m.http.Close()
			<-served
		}()
		f(t, m)
	})
}

// memory is a network of one server: a net.Listener.
type memory struct {
	*rpchttp.Server
	http      *http.Server
	transport *http.Transport
	conns     chan net.Conn
	closed    chan struct{}
	once      sync.Once
	streams   []*rpchttp.Stream

	mu    sync.Mutex
	open  []net.Conn
	dials int
	down  bool
}

func newMemory() *memory { return &memory{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	m.mu.Lock()
	m.dials++
	down := m.down
	m.open = append(m.open, client)
	m.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	select {
	case m.conns <- server:
		return client, nil
	case <-m.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut closes all connections.
func (m *memory) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.open {
		c.Close()
	}
	m.open = nil
}

// setDown makes all attempts to connect fail, or no more.
func (m *memory) setDown(down bool) {
	m.mu.Lock()
	m.down = down
	m.mu.Unlock()
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// stream returns a client Stream in this network.
func (m *memory) stream(t *testing.T, cfg rpchttp.ClientConfig) *rpchttp.Stream {
	t.Helper()
	cfg.Client = &http.Client{Transport: m.transport}
	st, err := rpchttp.NewStream("http://memory/rpc", cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.streams = append(m.streams, st)
	return st
}

// conn returns a Conn in this network.
func (m *memory) conn(t *testing.T, cfg rpchttp.ClientConfig, conf jsonrpc.Config) *jsonrpc.Conn {
	t.Helper()
	return jsonrpc.NewConn(m.stream(t, cfg), conf)
}
