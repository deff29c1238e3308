package rpcws_test

import (
	"io"
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
