//go:build unix

package bridge_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/parley-project/parley/internal/bridge"
)

// watchedDialer remembers the connection that it opened last.
type watchedDialer struct{ last *net.TCPConn }

func (d *watchedDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var nd net.Dialer
	c, err := nd.DialContext(ctx, network, address)
	if err == nil {
		d.last = c.(*net.TCPConn)
	}
	return c, err
}

// arrived waits until what the agent has written, or its end, can be read on the
// connection, which takes the kernel a moment after the agent's call. A connection
// that is closed on this side already has seen it.
func (d *watchedDialer) arrived(t *testing.T) {
	t.Helper()
	raw, err := d.last.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return !errors.Is(err, syscall.EAGAIN)
	})
	if err != nil && !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// TestDirectSeesClosedConnection: a kept connection that the agent has closed
// meanwhile costs nothing: it is noticed before anything is written.
func TestDirectSeesClosedConnection(t *testing.T) {
	closed := make(chan struct{}, 1)
	agent, conns := scriptedAgent(t, func(_ int64, c net.Conn, in *bufio.Reader) {
		if readPost(in) == nil {
			_, _ = io.WriteString(c, short)
		}
		_ = c.Close()
		closed <- struct{}{}
	})
	watch := &watchedDialer{}
	x := newExchange(t, bridge.ExchangeConfig{DialContext: watch.DialContext})
	for range 20 {
		if _, err := x.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		<-closed
		watch.arrived(t)
	}
	if conns.Load() != 20 {
		t.Errorf("%d connections, want 20", conns.Load())
	}
}

// TestDirectUnsolicited: bytes that nobody asked for are not taken for the
// answer to the next request.
func TestDirectUnsolicited(t *testing.T) {
	answered, said := make(chan struct{}), make(chan struct{}, 2)
	agent, conns := scriptedAgent(t, func(n int64, c net.Conn, in *bufio.Reader) {
		for readPost(in) == nil {
			_, _ = io.WriteString(c, short)
			if n == 1 {
				<-answered // else both are read together
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n\"evil\"")
				said <- struct{}{}
			}
		}
	})
	watch := &watchedDialer{}
	x := newExchange(t, bridge.ExchangeConfig{DialContext: watch.DialContext})
	for i := range 2 {
		reply, err := x.Post(t.Context(), testTask(), agent, []byte("{}"))
		if err != nil || string(reply.Body) != "{}" {
			t.Fatalf("call %d: %q, %v", i+1, reply.Body, err)
		}
		if i == 0 {
			close(answered)
			<-said
			watch.arrived(t)
		}
	}
	if conns.Load() != 2 {
		t.Errorf("%d connections, want 2: the first one is spoilt", conns.Load())
	}
}
