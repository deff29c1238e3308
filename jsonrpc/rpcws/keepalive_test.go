package rpcws_test

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// watched returns a server's Stream with pings after 20 s and a patience of 5 s, and
// its peer in memory, which answers nothing by itself. Pings are noted.
func watched(t *testing.T) (*rawPeer, jsonrpc.Stream, <-chan time.Time) {
	t.Helper()
	network := newMemory()
	accepted := network.accepting(t, rpcws.AcceptConfig{PingInterval: 20 * time.Second, PingTimeout: 5 * time.Second})
	conn, err := network.DialContext(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	peer := dialRaw(t, conn)
	pings := make(chan time.Time, 100)
	go func() {
		for {
			first, _, err := peer.frame()
			if err != nil {
				return
			}
			if first == fin|opPing {
				pings <- time.Now()
			}
		}
	}()
	return peer, <-accepted, pings
}

// TestPongUnseen: a peer whose pong could not be seen all the time, since nobody was
// reading, is not given up.
func TestPongUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		peer, server, _ := watched(t)
		time.Sleep(24 * time.Second) // a handler takes its time; the ping was sent at 20 s
		got := make(chan string, 1)
		go func() {
			msg, _, err := message(server)
			if err != nil {
				msg = err.Error()
			}
			got <- msg
		}()
		time.Sleep(3 * time.Second) // for 3 s of 5 somebody has read
		peer.send(t, fin|opText, "1")
		if msg := <-got; msg != "1" {
			t.Fatalf("read %s", msg)
		}
		wants(t, "Read", drain(server), rpcws.ErrNoPong)
		if d := time.Since(begin); d != 65*time.Second {
			t.Errorf("found out after %v", d)
		}
	})
}

// TestMessageInsteadOfPong: a peer that says something is there, whether it answers
// pings or not; one that is busy is not pinged.
func TestMessageInsteadOfPong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		peer, server, pings := watched(t)
		go func() {
			for _, at := range []int{5, 30, 62, 63} { // seconds
				time.Sleep(time.Until(begin.Add(time.Duration(at) * time.Second)))
				peer.send(t, fin|opText, "1")
			}
		}()
		wants(t, "Read", drain(server), rpcws.ErrNoPong)
		// At 20 s and 40 s something had come, at 60 s there was a ping, and 62 s
		// was in time; 80 s finds that, and 100 s nothing.
		if d := time.Since(begin); d != 105*time.Second {
			t.Errorf("found out after %v", d)
		}
		for _, want := range []time.Duration{60 * time.Second, 100 * time.Second} {
			if got := (<-pings).Sub(begin); got != want {
				t.Errorf("a ping after %v, want %v", got, want)
			}
		}
		if len(pings) > 0 {
			t.Errorf("%d more pings", len(pings))
		}
	})
}

// TestHangUpInsteadOfPong: a peer that hangs up when it is pinged has hung up.
func TestHangUpInsteadOfPong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, server, pings := watched(t)
		go func() {
			<-pings
			time.Sleep(time.Second)
			peer.Close()
		}()
		wants(t, "Read", drain(server), io.ErrUnexpectedEOF)
	})
}

// A slowLine is a connection over a line that takes two seconds for 64 KiB, and keeps what
// waits for it, as a system does.
type slowLine struct {
	net.Conn
	queue  chan []byte
	closed chan struct{}
	once   sync.Once
}

func newSlowLine(c net.Conn) net.Conn {
	l := &slowLine{Conn: c, queue: make(chan []byte, 1000), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-l.queue:
				time.Sleep(2 * time.Second * time.Duration(len(p)) / (64 << 10))
				_, _ = c.Write(p) // who has gone needs it no more
			case <-l.closed:
				return
			}
		}
	}()
	return l
}

func (l *slowLine) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

func (l *slowLine) Write(p []byte) (int, error) {
	l.queue <- slices.Clone(p)
	return len(p), nil
}

// TestLongMessageInsteadOfPong: a peer that is taking a long message answers a ping behind
// it only, and is not given up before; nor is it without end.
func TestLongMessageInsteadOfPong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		network.wrap = newSlowLine
		accepted := network.accepting(t, rpcws.AcceptConfig{PingInterval: 20 * time.Second, PingTimeout: 5 * time.Second})
		conn, err := network.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		peer := dialRaw(t, conn)
		server := <-accepted
		begin, pongs := time.Now(), 3
		go func() {
			for {
				first, _, err := peer.frame()
				if err != nil {
					return
				}
				if first == fin|opPing && pongs > 0 {
					pongs--
					peer.send(t, fin|opText, "1") // does for a pong
				}
			}
		}()
		go func() {
			text := strings.Repeat("x", 1<<20) + "\n"
			for i := 0; i < len(text); i += 64 << 10 {
				if _, err := io.WriteString(server, text[i:min(len(text), i+64<<10)]); err != nil {
					return // Read tells
				}
			}
		}()
		wants(t, "Read", drain(server), rpcws.ErrNoPong)
		// Sent in 32 s: no ping at 20 s. Those at 40 s, 80 s and 120 s were answered, each of
		// which did for 20 s more; that at 160 s was not.
		if d := time.Since(begin); d.Round(time.Second) != 165*time.Second { // the line takes its time for the handshake, too
			t.Errorf("found out after %v", d)
		}
	})
}
