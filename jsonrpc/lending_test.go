package jsonrpc

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lendTo makes lone calls until reading is lent to the callers.
func lendTo(t *testing.T, c *Conn, peer *rawPeer) {
	t.Helper()
	for i := 0; !c.token.inHand(); i++ {
		if i > lendAfter { // one more than needed, after a request of the peer
			t.Fatal("not lent")
		}
		done := make(chan struct{})
		go func() { defer close(done); peer.answer() }()
		if err := c.Call(t.Context(), "m", []int{i}, nil); err != nil {
			t.Fatal(err)
		}
		<-done
		if i < lendAfter-1 && c.token.inHand() {
			t.Fatalf("lent after %d calls", i+1)
		}
	}
}

// backAgain checks that the goroutine of the connection reads again, and does
// so with everything it takes.
func backAgain(t *testing.T, c *Conn, peer *rawPeer) {
	t.Helper()
	synctest.Wait()
	if c.token.inHand() {
		t.Fatal("still lent")
	}
	peer.quiet()
	lendTo(t, c, peer)
}

// TestLent proves that callers who are alone read for themselves, and that
// nobody else is forgotten: what the peer sends of its own is read within two
// ticks, together with an answer at once, and its end is noticed.
func TestLent(t *testing.T) {
	var got chan time.Time
	handler := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		if req.Method() == "push" {
			got <- time.Now()
		}
		return nil, nil
	})
	push := `{"jsonrpc":"2.0","method":"push"}`
	withPeer(t, Config{Handler: handler}, func(t *testing.T, c *Conn, peer *rawPeer) {
		got = make(chan time.Time, 1)
		lendTo(t, c, peer)
		sent := time.Now()
		peer.send(push)
		if late := (<-got).Sub(sent); late > 2*lendTime {
			t.Errorf("a notification was read after %v", late)
		}
		backAgain(t, c, peer)

		go func() {
			var m message
			m.scan([]byte(peer.next()), maxRecursion)
			sent = time.Now()
			peer.send(`{"jsonrpc":"2.0","id":` + string(m.id) + `,"result":1}` + "\n" + push)
		}()
		if err := c.Call(t.Context(), "m", nil, nil); err != nil {
			t.Error(err)
		}
		if at := <-got; at != sent {
			t.Errorf("a notification beside an answer was read after %v", at.Sub(sent))
		}
		backAgain(t, c, peer)

		peer.s.Close()
		closed := time.Now()
		<-c.Done()
		if late := time.Since(closed); late > 2*lendTime {
			t.Errorf("the end was noticed after %v", late)
		}
	})
}

// TestLentIdle proves that the goroutine reads again when no call has for a
// while, without any that waits being disturbed.
func TestLentIdle(t *testing.T) {
	withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
		lendTo(t, c, peer)
		time.Sleep(2 * lendTime)
		backAgain(t, c, peer)

		failed := make(chan error, 1)
		go func() { failed <- c.Call(t.Context(), "m", []int{1}, nil) }()
		time.Sleep(time.Minute / 4)
		if !c.token.inHand() {
			t.Error("taken from a caller that reads")
		}
		peer.answer()
		if err := <-failed; err != nil {
			t.Error(err)
		}
		time.Sleep(2 * lendTime)
		backAgain(t, c, peer)
	})
}

// TestLentShared proves that a second call beside the one that reads gets its
// answer, whichever comes first, and that the goroutine reads afterwards.
func TestLentShared(t *testing.T) {
	withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for _, order := range [][2]string{{"first", "second"}, {"second", "first"}} {
			lendTo(t, c, peer)
			ids := make(map[string]string)
			var wg sync.WaitGroup
			for _, name := range []string{"first", "second"} {
				wg.Go(func() {
					var got string
					if err := c.Call(t.Context(), name, nil, &got); err != nil || got != name {
						t.Errorf("%s: %q, %v", name, got, err)
					}
				})
				synctest.Wait()
				var m message
				m.scan([]byte(peer.next()), maxRecursion)
				ids[name] = string(m.id)
			}
			for _, name := range order {
				peer.send(`{"jsonrpc":"2.0","id":` + ids[name] + `,"result":"` + name + `"}`)
				synctest.Wait()
			}
			wg.Wait()
			synctest.Wait()
			if c.token.inHand() {
				t.Error("still lent after two calls at once")
			}
		}
	})
}

// TestLentGivenUp proves that a caller that reads is ended by its context, by
// the timeout and by Close like any other.
func TestLentGivenUp(t *testing.T) {
	withPeer(t, Config{Timeout: time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		lendTo(t, c, peer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		start := time.Now()
		if err := c.Call(ctx, "m", nil, nil); !errors.Is(err, ErrTimeout) || time.Since(start) != time.Second/2 {
			t.Errorf("context: %v after %v", err, time.Since(start))
		}
		peer.next()
		time.Sleep(2 * lendTime)
		backAgain(t, c, peer)

		start = time.Now()
		if err := c.Call(t.Context(), "m", nil, nil); !errors.Is(err, ErrTimeout) || time.Since(start) > 2*time.Second {
			t.Errorf("timeout: %v after %v", err, time.Since(start))
		}
		peer.next()
		time.Sleep(2 * lendTime)
		backAgain(t, c, peer)

		failed := make(chan error, 1)
		go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
		synctest.Wait()
		start = time.Now()
		if err := c.Close(); err != nil || time.Since(start) != 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestLentHandlers proves that Close leaves handlers their grace while a caller
// reads, and that their answers get out.
func TestLentHandlers(t *testing.T) {
	handler := HandlerFunc(func(ctx context.Context, _ *Request) (any, error) {
		time.Sleep(time.Second)
		return 1, ctx.Err()
	})
	withPeer(t, Config{Handler: handler}, func(t *testing.T, c *Conn, peer *rawPeer) {
		lendTo(t, c, peer)
		failed := make(chan error, 1)
		go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
		peer.next()
		peer.send(`{"jsonrpc":"2.0","id":"slow","method":"m"}`)
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		select {
		case err := <-failed:
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		default:
			t.Error("the call goes on while the handler does")
		}
		peer.send(`{"jsonrpc":"2.0","id":"late","method":"m"}`)
		peer.want(`{"jsonrpc":"2.0","id":"late","error":{"code":-32052,"message":"connection closing"}}`, `{"jsonrpc":"2.0","id":"slow","result":1}`)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// TestNotLent proves that nothing is lent while the peer asks things of its
// own, nor while a call waits that does not know of it.
func TestNotLent(t *testing.T) {
	withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for i := range 3 * lendAfter {
			go func() {
				peer.send(`{"jsonrpc":"2.0","method":"push"}`)
				peer.answer()
			}()
			if err := c.Call(t.Context(), "m", []int{i}, nil); err != nil {
				t.Fatal(err)
			}
			if c.token.inHand() {
				t.Fatal("lent in spite of notifications")
			}
		}

		done := make(chan error, 2)
		go func() { done <- c.Call(t.Context(), "m", []int{1}, nil) }()
		go func() { done <- c.Call(t.Context(), "m", []int{2}, nil) }()
		synctest.Wait()
		l := c.token.lent
		l.ask.Store(asked) // as if a third one had asked before these began
		c.token.interrupt()
		<-l.settled
		if c.token.inHand() {
			t.Error("lent while calls wait for the goroutine")
		}
		peer.answer()
		peer.answer()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLentBusy proves that a caller whose call is over does not wait for a
// goroutine that cannot lend, as when the peer takes no answers, and that the next
// callers do not either.
func TestLentBusy(t *testing.T) {
	var hold chan struct{}
	stuck := inlineAll{HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		if req.Method() == "stuck" {
			<-hold
		}
		return nil, nil
	})}
	withPeer(t, Config{Handler: stuck}, func(t *testing.T, c *Conn, peer *rawPeer) {
		hold = make(chan struct{})
		peer.send(`{"jsonrpc":"2.0","method":"stuck"}`)
		synctest.Wait()
		l := c.token.lent
		l.alone.Store(lendAfter)
		l.requests.Store(c.report.requests.Load())
		start := time.Now()
		l.called(c)
		if took := time.Since(start); took != askTime {
			t.Errorf("the caller waited for %v", took)
		}
		if l.called(c); time.Since(start) != askTime {
			t.Error("the next caller waited too")
		}
		l.alone.Store(lendAfter)
		l.requests.Store(c.report.requests.Load())
		start = time.Now()
		go func() { // as the goroutine does that answers at the last moment
			time.Sleep(askTime / 2)
			l.ask.Store(answering)
			time.Sleep(askTime)
			l.ask.Store(notAsked)
			l.settled <- struct{}{}
		}()
		if l.called(c); time.Since(start) != 3*askTime/2 || len(l.settled) != 0 {
			t.Errorf("after %v the caller has not heard what was decided", time.Since(start))
		}
		close(hold)
		backAgain(t, c, peer)
	})
}

// TestLentGoexit proves that an inline handler that ends the goroutine of a caller
// who reads ends the connection, as it does with the goroutine that reads, and
// leaves no slot taken. A hook that panics does the same.
func TestLentGoexit(t *testing.T) {
	exit := inlineAll{HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		if req.Method() == "exit" {
			runtime.Goexit()
		}
		return nil, nil
	})}
	panics := Hooks{RequestDone: func(info RequestInfo) {
		if info.Method == "hook" {
			panic("a hook")
		}
	}}
	for _, method := range []string{"exit", "hook"} {
		withPeer(t, Config{Handler: exit, Hooks: panics}, func(t *testing.T, c *Conn, peer *rawPeer) {
			lendTo(t, c, peer)
			gone := make(chan any)
			go func() {
				defer func() { gone <- recover() }()
				t.Error(c.Call(t.Context(), "m", nil, nil))
			}()
			peer.next()
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`)
			if v := <-gone; (v != nil) != (method == "hook") {
				t.Error(v)
			}
			if n := c.Stats().Pending; n != 0 {
				t.Errorf("%d calls pending", n)
			}
			if err := c.Call(t.Context(), "m", nil, nil, WithTimeout(time.Hour)); !errors.Is(err, errReaderGone) {
				t.Errorf("a call afterwards: %v", err)
			}
			if err := c.Close(); !errors.Is(err, errReaderGone) {
				t.Errorf("Close: %v", err)
			}
		})
	}
}
