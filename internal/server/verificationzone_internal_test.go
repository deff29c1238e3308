package server

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A oneConn is a listener to which one connection comes.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l oneConn) Close() error {
	close(l.closed)
	return nil
}

func (oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestVerificationAnswerNotTaken: who takes nothing of the answer loses the connection, and holds
// nothing of the zone any more; who takes all of it gets it, if slowly.
func TestVerificationAnswerNotTaken(t *testing.T) {
	t.Parallel()
	for pause, want := range map[time.Duration]bool{time.Second: true, 2 * time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			v := &Verification{log: slog.New(slog.DiscardHandler)}
			srv := v.server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat("metric 1\n", 25_000))
			}))
			near, far := net.Pipe()
			ln := oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
			ln.conn <- far
			served := make(chan error)
			go func() { served <- srv.Serve(ln) }()
			fmt.Fprint(near, "GET /metrics HTTP/1.1\r\nHost: zone\r\n\r\n")
			answer := bufio.NewReaderSize(near, 16<<10)
			var err error
			for n := 0; n < 180_000 && err == nil; n += 16 << 10 {
				time.Sleep(pause)
				_, err = answer.Discard(16 << 10)
			}
			if got := err == nil; got != want {
				t.Errorf("with %v between two reads: %v", pause, err)
			}
			near.Close()
			srv.Close()
			<-served
		})
	}
}
