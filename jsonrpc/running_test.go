package jsonrpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestCancelNothingElse proves that nothing but the notification of the
// Config.Cancel is taken for a cancellation, and that one ends the request that it
// names and no other.
func TestCancelNothingElse(t *testing.T) {
	told := make(chan string, 10)
	h := HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
		if req.Method() != "wait" {
			told <- req.Method()
			return nil, nil
		}
		select {
		case <-ctx.Done():
			told <- "cancelled"
		case <-time.After(time.Minute):
			told <- "waited"
		}
		return nil, ctx.Err()
	})
	heard := func(t *testing.T, want string) {
		t.Helper()
		synctest.Wait()
		select {
		case got := <-told:
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		default:
			t.Errorf("nothing, want %q", want)
		}
	}
	for name, style := range map[string]CancelStyle{"silent": CancelSilent, "LSP": LSPCancel} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, Config{Cancel: style, Handler: h}, func(t *testing.T, c *Conn, peer *rawPeer) {
				peer.send(`{"jsonrpc":"2.0","method":"note","params":{"id":1}}`)
				heard(t, "note")
				peer.send(`{"jsonrpc":"2.0","method":""}`)
				heard(t, "")
				peer.send(`{"jsonrpc":"2.0","id":1,"method":"$/cancelRequest","params":{"id":1}}`)
				peer.want(`{"jsonrpc":"2.0","id":1,"result":null}`) // a request is answered
				heard(t, "$/cancelRequest")

				peer.send(`{"jsonrpc":"2.0","method":"wait"}`, `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{}}`)
				if style == CancelSilent {
					heard(t, "$/cancelRequest")
				}
				time.Sleep(time.Minute)
				heard(t, "waited") // a notification has no id by which it could be named
			})
		})
	}
}

// TestCancelSameIDAgain proves that a request with the id of one that was answered
// can be cancelled as that one could, and that those answered take no memory.
func TestCancelSameIDAgain(t *testing.T) {
	h := HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
		if req.Method() == "wait" {
			<-ctx.Done()
		}
		return nil, ctx.Err()
	})
	withPeer(t, Config{Cancel: LSPCancel, Handler: h}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for _, msg := range []string{
			`{"jsonrpc":"2.0","id":7,"method":"m"}`, `[{"jsonrpc":"2.0","id":7,"method":"m"}]`,
		} {
			peer.send(msg)
			peer.next()
		}
		for range 2 {
			start := time.Now()
			peer.send(`{"jsonrpc":"2.0","id":7,"method":"wait"}`)
			peer.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":7}}`)
			time.AfterFunc(time.Minute, func() { peer.s.Close() })
			if got := peer.next(); !strings.Contains(got, "-32800") || time.Since(start) != 0 {
				t.Errorf("after %v: %s", time.Since(start), got)
			}
		}
		synctest.Wait()
		c.srv.running.mu.Lock()
		if n := len(c.srv.running.contexts); n != 0 {
			t.Errorf("%d requests are remembered", n)
		}
		c.srv.running.mu.Unlock()
	})
}

// TestCancelUnsent proves that the peer is not told of the end of a call that it
// never got.
func TestCancelUnsent(t *testing.T) {
	withPeer(t, Config{Cancel: LSPCancel, WriteBuffer: 100, StallTimeout: -1}, func(t *testing.T, c *Conn, peer *rawPeer) {
		c.w.mu.Lock()
		c.w.flying += 1000 // as if that much were being written
		c.w.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { // when the time of the call is over there is room again
			time.Sleep(time.Second / 2)
			c.w.mu.Lock()
			time.Sleep(time.Second / 2)
			c.w.flying -= 1000
			c.w.mu.Unlock()
		}()
		if err := c.Call(ctx, "m", nil, nil); !errors.Is(err, ErrTimeout) {
			t.Error(err)
		}
		peer.quiet()
	})
}

// TestCancelWithoutRoom proves that the peer is told of a call that was given up also
// where senders wait for room, or for the end of a streamed message: a peer that is late
// would go on in vain, and a Stream that heeds the notice would keep a place for it.
func TestCancelWithoutRoom(t *testing.T) {
	const notice = `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":4096}}`
	begun := func(t *testing.T, c *Conn, peer *rawPeer) (giveUp func()) {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- c.Call(ctx, "m", nil, nil) }()
		peer.want(`{"jsonrpc":"2.0","id":4096,"method":"m"}`)
		return func() {
			cancel()
			if err := <-gone; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}
	cfg := Config{Cancel: LSPCancel, WriteBuffer: 100, StallTimeout: -1}
	t.Run("full", func(t *testing.T) {
		withPeer(t, cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
			giveUp := begun(t, c, peer)
			writing := func(bytes int) { // as if that much were being written
				c.w.mu.Lock()
				defer c.w.mu.Unlock()
				c.w.flying += bytes
			}
			writing(1000)
			giveUp()
			writing(-1000)
			peer.want(notice)
		})
	})
	t.Run("streamed", func(t *testing.T) {
		withPeer(t, cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
			giveUp := begun(t, c, peer)
			text := "[" + strings.Repeat(" ", 4*writePiece) + "]"
			sent := make(chan error, 1)
			go func() { sent <- c.Notify(t.Context(), "s", io.Reader(strings.NewReader(text))) }()
			synctest.Wait() // until the peer reads
			giveUp()
			peer.want(`{"jsonrpc":"2.0","method":"s","params":`+text+"}", notice)
			if err := <-sent; err != nil {
				t.Error(err)
			}
		})
	})
}

// TestContextEndsTheConnection proves that a call whose context has ended tells of
// that, and what the peer said meanwhile, even where the end of the connection was
// noticed first: with a child process both come from the same context.
func TestContextEndsTheConnection(t *testing.T) {
	withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
		ctx := &endsUnnoticed{Context: t.Context()}
		var result int
		batch := &Batch{}
		asked := batch.Call("m", nil, &result)
		time.AfterFunc(time.Second, func() {
			peer.send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`)
			ctx.ended.Store(true)
			peer.s.Close()
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := c.Batch(ctx, batch); err != nil {
				t.Error(err)
			}
			if err := asked.Err(); !errors.Is(err, ErrTimeout) {
				t.Error(err)
			}
		})
		err := c.Call(ctx, "m", nil, &result)
		wg.Wait()
		late, ok := errors.AsType[*TimeoutError](err)
		if !ok || late.After != time.Second || late.Peer == nil {
			t.Errorf("%v: %+v", err, late)
		}
	})
}

// endsUnnoticed is a context whose end nobody is woken by.
type endsUnnoticed struct {
	context.Context //nolint:containedctx // it is one
	ended           atomic.Bool
}

func (c *endsUnnoticed) Err() error {
	if c.ended.Load() {
		return context.DeadlineExceeded
	}
	return nil
}
