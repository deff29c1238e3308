package jsonrpc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestCallerReadsRefuses proves that the mode is refused where it cannot work.
func TestCallerReadsRefuses(t *testing.T) {
	a, b := Pipe()
	defer a.Close()
	defer b.Close()
	for _, f := range []func(){
		func() { NewConn(a, Config{CallerReads: true, Handler: HandlerFunc(echo)}) },
		func() { NewConn(noTry{a}, Config{CallerReads: true}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		}()
	}
}

// TestCallerReadsToken proves that callers read for each other: the one who
// reads gives up, or is answered first or last, and the others still get their
// answers.
func TestCallerReadsToken(t *testing.T) {
	withPeer(t, Config{CallerReads: true}, func(t *testing.T, c *Conn, peer *rawPeer) {
		var wg sync.WaitGroup
		ends := make([]time.Duration, 4)
		errs := make([]error, 4)
		start := time.Now()
		for i, timeout := range []time.Duration{time.Second, time.Minute, 2 * time.Second, time.Hour} {
			synctest.Wait()
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				errs[i] = c.Call(ctx, "m", nil, nil)
				ends[i] = time.Since(start)
			})
		}
		for range 4 {
			peer.next()
		}
		time.Sleep(5 * time.Second)
		peer.send(`{"jsonrpc":"2.0","id":4099,"result":1}`)
		time.Sleep(5 * time.Second)
		peer.send(`{"jsonrpc":"2.0","id":4097,"result":1}`)
		wg.Wait()
		for i, want := range []time.Duration{time.Second, 10 * time.Second, 2 * time.Second, 5 * time.Second} {
			if ends[i] != want || (errs[i] == nil) != (i%2 == 1) || errs[i] != nil && !errors.Is(errs[i], ErrTimeout) {
				t.Errorf("call %d ended after %v: %v", i, ends[i], errs[i])
			}
		}
		go peer.answer()
		if err := c.Call(t.Context(), "m", []int{1}, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestCallerReadsClose proves that Close wakes the caller that reads.
func TestCallerReadsClose(t *testing.T) {
	withPeer(t, Config{CallerReads: true}, func(t *testing.T, c *Conn, peer *rawPeer) {
		failed := make(chan error, 2)
		for range 2 {
			go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
		}
		synctest.Wait()
		start := time.Now()
		if err := c.Close(); err != nil || time.Since(start) != 0 {
			t.Error(err, time.Since(start))
		}
		for range 2 {
			if err := <-failed; !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
	})
}

// TestCallerReadsCloseStuck proves that Close fails the call that reads at once, too,
// though a peer that takes nothing holds the end of the connection up (RPC-14).
func TestCallerReadsCloseStuck(t *testing.T) {
	withPeer(t, Config{CallerReads: true}, func(t *testing.T, c *Conn, _ *rawPeer) {
		start := time.Now()
		failed := make(chan error)
		go func() {
			x := strings.Repeat("x", 2*pipeBufferSize)
			failed <- c.Call(t.Context(), "m", []string{x}, nil)
		}()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		if err := <-failed; !errors.Is(err, ErrClosed) || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := <-closed; err != nil || time.Since(start) != flushGrace {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
	})
}
