package jsonrpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestClientDefaults proves that a Client that was told nothing gives a call 30 s,
// tries to connect 101 times, with a pause that never falls, and then gives up.
func TestClientDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{down: syscall.ECONNREFUSED}
		cl := NewClient(s.dial, ClientConfig{Random: noJitter})
		start := time.Now()
		if err := cl.Call(context.Background(), "m", nil, nil); !errors.Is(err, ErrTimeout) || time.Since(start) != 30*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := cl.Call(context.Background(), "m", nil, nil, WithTimeout(0)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
		if n := len(s.dials); n != 101 {
			t.Fatalf("%d dials", n)
		}
		for i := range s.dials[1:] {
			want := min(100*time.Millisecond<<min(i, 20), 30*time.Second)
			if got := s.dials[i+1].Sub(s.dials[i]); got != want {
				t.Errorf("pause %d took %v, want %v", i+1, got, want)
			}
		}
		cl.Close()
	})
}

// TestClientDialContext proves that the context of dialing ends with the connection,
// and with a dial that failed, while the Client goes on; and that the Stream is closed.
func TestClientDialContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type dialed struct {
			ctx       context.Context //nolint:containedctx // that of the dial
			near, far Stream
		}
		dials, n := make(chan dialed, 9), 0
		cl := NewClient(func(ctx context.Context) (Stream, error) {
			if n++; n == 1 {
				dials <- dialed{ctx: ctx}
				return nil, syscall.ECONNREFUSED
			}
			near, far := Pipe()
			dials <- dialed{ctx, near, far}
			return near, nil
		}, ClientConfig{})
		failed, first := <-dials, <-dials
		if failed.ctx.Err() == nil || first.ctx.Err() != nil {
			t.Errorf("%v after a dial that failed, %v after one that did not", failed.ctx.Err(), first.ctx.Err())
		}
		synctest.Wait()
		first.far.Close()
		second := <-dials
		if first.ctx.Err() == nil || second.ctx.Err() != nil {
			t.Errorf("%v after the end of the connection, %v for the next one", first.ctx.Err(), second.ctx.Err())
		}
		if _, err := first.near.Write([]byte("{}\n")); err == nil {
			t.Error("the Stream of the connection that ended is open")
		}
		cl.Close()
		if second.ctx.Err() == nil {
			t.Error("a context outlives the Client")
		}
		second.far.Close()
	})
}

// TestClientAnsweredIsOver proves that a call is not made again that was answered,
// whatever the answer advises, and that the hook is told of each call once.
func TestClientAnsweredIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, told := 0, 0
		s := &site{cfg: Config{Handler: HandlerFunc(func(_ context.Context, req *Request) (any, error) {
			calls++
			if req.Method() == "busy" {
				return nil, Errorf(CodeServerBusy, "busy")
			}
			return 1, nil
		})}}
		cl := NewClient(s.dial, ClientConfig{Config: Config{Hooks: Hooks{CallDone: func(CallInfo) { told++ }}}})
		err := cl.Call(t.Context(), "busy", nil, nil, Idempotent())
		if !errors.Is(err, &Error{Code: CodeServerBusy}) || AdviceFor(err) != AdviceRetry || calls != 1 || told != 1 {
			t.Errorf("%v after %d calls, %d told", err, calls, told)
		}
		if err := cl.Call(t.Context(), "m", nil, nil); err != nil || calls != 2 || told != 2 {
			t.Errorf("%v after %d calls, %d told", err, calls, told)
		}
		cl.Close()
		s.hangUp()
		var b Batch
		b.Call("m", nil, nil)
		if err := cl.Batch(t.Context(), &b); !errors.Is(err, ErrClosed) {
			t.Errorf("a batch after Close: %v", err)
		}
	})
}

// TestClientRepeatsWithoutTimeout proves that a call that has no bound is made again
// like any other, after a pause of MaxBackoff at most.
func TestClientRepeatsWithoutTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPosts(func(n int) error {
			if n > 1 {
				return nil
			}
			return &UndeliveredError{Err: verdictError(true), NotSent: true, RetryAfter: 30 * time.Second}
		})
		cl := NewClient(func(context.Context) (Stream, error) { return s, nil }, ClientConfig{})
		defer cl.Close()
		start := time.Now()
		if err := cl.Call(context.Background(), "m", nil, nil, WithTimeout(0)); err != nil || s.n != 2 || time.Since(start) != 30*time.Second {
			t.Errorf("%v after %v and %d posts", err, time.Since(start), s.n)
		}
	})
}

// TestClientBatchPartlyAnswered proves that an Idempotent batch is made again as a
// whole when the connection ends before the last of its answers (RPC-22).
func TestClientBatchPartlyAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fars := make(chan Stream, 2)
		cl := NewClient(func(context.Context) (Stream, error) {
			near, far := Pipe()
			fars <- far
			return near, nil
		}, ClientConfig{})
		var one, two int
		var b Batch
		calls := []*BatchCall{b.Call("a", nil, &one), b.Call("b", nil, &two)}
		var peer sync.WaitGroup
		peer.Go(func() {
			far := <-fars
			readMessage(far)
			io.WriteString(far, `{"jsonrpc":"2.0","id":4096,"result":1}`+"\n")
			synctest.Wait()
			far.Close()
			far = <-fars
			readMessage(far)
			io.WriteString(far, `[{"jsonrpc":"2.0","id":4096,"result":3},{"jsonrpc":"2.0","id":4097,"result":4}]`+"\n")
			readMessage(far) // until the Client is closed
			far.Close()
		})
		if err := cl.Batch(t.Context(), &b, Idempotent()); err != nil || calls[0].Err() != nil || calls[1].Err() != nil || one != 3 || two != 4 {
			t.Errorf("%v, %v, %v, results %d and %d", err, calls[0].Err(), calls[1].Err(), one, two)
		}
		cl.Close()
		peer.Wait()
	})
}

// readMessage reads one message of a Stream.
func readMessage(s Stream) {
	for {
		if part, err := s.Read(); err != nil || part.End {
			return
		}
	}
}

// TestClientBatchWaitsInVain proves that the entries of a batch say why it could not
// be made again, as a call does: not what had become of the attempt before. Their
// hooks are told of both; those that were answered stay so.
func TestClientBatchWaitsInVain(t *testing.T) {
	for _, sent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var far Stream
			dials := 0
			var told []string
			cl := NewClient(func(ctx context.Context) (Stream, error) {
				if dials++; dials > 1 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				var near Stream
				near, far = Pipe()
				return near, nil
			}, ClientConfig{Config: Config{WriteBuffer: 100, StallTimeout: -1, Hooks: Hooks{CallDone: func(i CallInfo) {
				if i.Err != nil {
					told = append(told, i.Method)
				}
			}}}})
			synctest.Wait()
			if !sent { // then the batch still waits for room when the connection ends
				cl.conn.w.mu.Lock()
				cl.conn.w.flying += 1000
				cl.conn.w.mu.Unlock()
			}
			go func() {
				time.Sleep(time.Second)
				if sent {
					readMessage(far)
					io.WriteString(far, `{"jsonrpc":"2.0","id":4096,"result":1}`+"\n")
					synctest.Wait()
				}
				far.Close()
			}()
			var b Batch
			calls := []*BatchCall{b.Call("a", nil, nil), b.Call("b", nil, nil), b.Notify("n", nil)}
			start := time.Now()
			err := cl.Batch(t.Context(), &b, WithTimeout(5*time.Second), Idempotent())
			if took := time.Since(start); took != 5*time.Second || (err == nil) != sent {
				t.Errorf("%v after %v", err, took)
			}
			want := "a b a b"
			for i, c := range calls {
				if sent && i != 1 {
					want = "b b"
					if c.Err() != nil {
						t.Errorf("%s: %v", c.method, c.Err())
					}
					continue
				}
				e, ok := errors.AsType[*CallError](c.Err())
				if !ok || !errors.Is(e, ErrTimeout) || e.Method != c.method || e.Elapsed != 5*time.Second || e.Sent != sent {
					t.Errorf("%s, sent %v: %v", c.method, sent, c.Err())
				}
			}
			if got := strings.Join(told, " "); got != want {
				t.Errorf("the hook was told %s, want %s", got, want)
			}
			cl.Close()
		})
	}
}

// TestClientBatchWriter proves that a batch one of whose results goes to a Writer is
// not made again, which may have got something of it.
func TestClientBatchWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fars := make(chan Stream, 2)
		cl := NewClient(func(context.Context) (Stream, error) {
			near, far := Pipe()
			fars <- far
			return near, nil
		}, ClientConfig{})
		var text strings.Builder
		var b Batch
		written, lost := b.Call("a", nil, &text), b.Call("b", nil, nil)
		go func() {
			far := <-fars
			readMessage(far)
			io.WriteString(far, `{"jsonrpc":"2.0","id":4096,"result":1}`+"\n")
			synctest.Wait()
			far.Close()
		}()
		if err := cl.Batch(t.Context(), &b, Idempotent()); err != nil || written.Err() != nil || text.String() != "1" {
			t.Errorf("%v, %v, %q", err, written.Err(), text.String())
		}
		if e, ok := errors.AsType[*CallError](lost.Err()); !ok || !e.Sent || AdviceFor(e) != AdviceReconnect {
			t.Errorf("%v", lost.Err())
		}
		next := <-fars // with nothing to do
		cl.Close()
		next.Close()
	})
}

// TestClientToldAttempts proves that what the hook was told of an attempt stays as it
// was, whatever becomes of the call.
func TestClientToldAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPosts(func(n int) error {
			return &UndeliveredError{Err: verdictError(true), NotSent: n > 1}
		})
		var told []error
		cl := NewClient(func(context.Context) (Stream, error) { return s, nil }, ClientConfig{
			MaxAttempts: 2, Config: Config{Hooks: Hooks{CallDone: func(i CallInfo) { told = append(told, i.Err) }}},
		})
		defer cl.Close()
		err := cl.Call(t.Context(), "m", nil, nil, Idempotent())
		var sent []bool
		for _, err := range append([]error{err}, told...) {
			e, ok := errors.AsType[*CallError](err)
			sent = append(sent, ok && e.Sent)
		}
		if len(sent) != 3 || !sent[0] || !sent[1] || sent[2] {
			t.Errorf("sent: call and attempts %v", sent)
		}
	})
}

// TestClientCallsFromHook proves that a hook that hears of the connection may use it,
// and wait for the next one when it ends: the Client goes on meanwhile, and Close ends it.
func TestClientCallsFromHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{cfg: Config{Handler: HandlerFunc(echo)}}
		lost, dials := 2, 0 // connections whose peer goes when it is asked
		dial := func(ctx context.Context) (Stream, error) {
			if dials++; dials > lost {
				return s.dial(ctx)
			}
			near, far := Pipe()
			go func() {
				readMessage(far)
				far.Close()
			}()
			return near, nil
		}
		called := make(chan error, 9)
		ready := make(chan *Client, 1)
		cl := NewClient(dial, ClientConfig{Random: noJitter, Config: Config{Timeout: -1, Hooks: Hooks{StateChange: func(change StateChange) {
			if change.To == StateConnected {
				cl := <-ready
				ready <- cl
				called <- cl.Call(context.Background(), "m", nil, nil, Idempotent())
			}
		}}}})
		ready <- cl
		start := time.Now()
		if err := <-called; err != nil || time.Since(start) != 300*time.Millisecond { // two pauses
			t.Errorf("%v after %v", err, time.Since(start))
		}
		synctest.Wait()
		lost = 99
		s.hangUp()
		synctest.Wait()
		time.Sleep(150 * time.Millisecond)
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
		for len(called) > 1 {
			<-called // of connections that had gone when the hook heard of them
		}
		if err := <-called; !errors.Is(err, ErrClosed) {
			t.Errorf("the hook that waited as the Client was closed: %v", err)
		}
	})
}

// TestClientConnectedBeforeCalls proves that no call has a connection while the Client's
// state says that it has none yet (RPC-22).
func TestClientConnectedBeforeCalls(t *testing.T) {
	dialed := make(chan struct{})
	cl := NewClient(func(context.Context) (Stream, error) {
		<-dialed
		s, peer := Pipe()
		t.Cleanup(func() { _ = peer.Close() })
		return s, nil
	}, ClientConfig{})
	defer cl.Close()
	cl.state.mu.Lock() // nobody can change the state
	close(dialed)
	for range 50 {
		if cl.present() != nil {
			t.Error("there is a connection, and the state is", cl.State())
			break
		}
		time.Sleep(time.Millisecond)
	}
	cl.state.mu.Unlock()
}
