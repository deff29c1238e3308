//go:build unix

package rpcws

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// sockets returns the two ends of a connection, of a kind of network.
func sockets(t *testing.T, network, address string) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err = net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// TestSocketTries: an attempt takes what goes, and never waits; it says so when the
// other end is gone.
func TestSocketTries(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		near, far := sockets(t, network, address)
		try := tryWriterOf(near)
		if try == nil {
			t.Fatalf("%s: nothing to try with", network)
		}
		if n, err := try.tryWrite(nil); n != 0 || err != nil {
			t.Errorf("%s: nothing: %d, %v", network, n, err)
		}
		sent, p := 0, make([]byte, 100<<10)
		for full := 0; full < 3; { // and goes on not waiting
			n, err := try.tryWrite(p)
			if err != nil {
				t.Fatal(err)
			}
			if sent += n; n == 0 {
				full++
			} else {
				full = 0
			}
		}
		if got := try.(*socket).p; got != nil {
			t.Errorf("%s: %d bytes are kept", network, len(got))
		}
		near.(interface{ CloseWrite() error }).CloseWrite()
		if n, err := io.Copy(io.Discard, far); err != nil || n != int64(sent) {
			t.Errorf("%s: %d bytes of %d arrived, %v", network, n, sent, err)
		}
		if n, err := try.tryWrite(p); err == nil || n != 0 {
			t.Errorf("%s: after the end %d bytes, %v", network, n, err)
		}
		near.Close()
		if n, err := try.tryWrite(p); !errors.Is(err, net.ErrClosed) || n != 0 {
			t.Errorf("%s: closed: %d bytes, %v", network, n, err)
		}
	}
	pipe, other := net.Pipe()
	defer pipe.Close()
	defer other.Close()
	if tryWriterOf(pipe) != nil || tryWriterOf(struct{ net.Conn }{pipe}) != nil || tryWriterOf(nil) != nil {
		t.Error("tried what is no socket")
	}
}

// TestSocketError: an error of one attempt is not that of the next.
func TestSocketError(t *testing.T) {
	near, far := sockets(t, "tcp", "127.0.0.1:0")
	w := tryWriterOf(near).(*socket)
	w.errno, w.n = errors.New("old"), 7
	if n, err := w.tryWrite([]byte("x")); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := far.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := far.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("%d, %v arrived", n, err)
	}
}
