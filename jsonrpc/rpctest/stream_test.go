package rpctest_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpctest"
)

// TestStreams holds every connection that package jsonrpc makes Streams of, in
// both framings, to the contract (RPC-12, RPC-13, RPC-15).
func TestStreams(t *testing.T) {
	t.Parallel()
	conns := map[string]func(t *testing.T) (a, b io.ReadWriteCloser){
		"net.Pipe": func(*testing.T) (a, b io.ReadWriteCloser) { return net.Pipe() },
		"tcp":      func(t *testing.T) (a, b io.ReadWriteCloser) { return sockets(t, "tcp", "127.0.0.1:0") },
		"unix": func(t *testing.T) (a, b io.ReadWriteCloser) {
			return sockets(t, "unix", filepath.Join(t.TempDir(), "s"))
		},
		"os.Pipe": func(t *testing.T) (a, b io.ReadWriteCloser) {
			r1, w1 := pipe(t)
			r2, w2 := pipe(t)
			return files{r1, w2}, files{r2, w1}
		},
		"no abilities": func(*testing.T) (a, b io.ReadWriteCloser) {
			x, y := net.Pipe()
			return struct{ io.ReadWriteCloser }{x}, struct{ io.ReadWriteCloser }{y}
		},
	}
	framings := map[string]jsonrpc.Framing{"lines": jsonrpc.NewLineStream, "headers": jsonrpc.NewHeaderStream}
	for conn, connect := range conns {
		for framing, newStream := range framings {
			t.Run(conn+"/"+framing, func(t *testing.T) {
				t.Parallel()
				rpctest.TestStream(t, func(t *testing.T) (a, b jsonrpc.Stream) {
					x, y := connect(t)
					return newStream(x), newStream(y)
				})
			})
		}
	}
	t.Run("Pipe", func(t *testing.T) {
		t.Parallel()
		rpctest.TestStream(t, func(*testing.T) (a, b jsonrpc.Stream) { return jsonrpc.Pipe() })
	})
}

// sockets returns the ends of a connection through a listener.
func sockets(t *testing.T, network, address string) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err = net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// files is a connection over two pipes.
type files struct{ in, out *os.File }

func (f files) Read(p []byte) (int, error)  { return f.in.Read(p) }
func (f files) Write(p []byte) (int, error) { return f.out.Write(p) }

func (f files) Close() error {
	f.out.Close()
	return f.in.Close()
}
