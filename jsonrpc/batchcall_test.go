package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestBatchLimit proves that Config.MaxBatch bounds what is sent, whatever the
// bound on calls is, and that each entry of a batch that was refused says so by
// its own name (RPC-19, RPC-21).
func TestBatchLimit(t *testing.T) {
	withPeer(t, Config{MaxBatch: 3}, func(t *testing.T, c *Conn, peer *rawPeer) {
		var most Batch
		for range 3 {
			most.Notify("n", nil)
		}
		if err := c.Batch(t.Context(), &most); err != nil {
			t.Errorf("as many as allowed: %v", err)
		}
		peer.next()
		var b Batch
		for _, method := range []string{"a", "b", "c"} {
			b.Call(method, nil, nil)
		}
		b.Notify("d", nil)
		err := c.Batch(t.Context(), &b)
		if limit, ok := errors.AsType[*ResourceError](err); !ok || limit.What != "batch" || limit.Limit != 3 {
			t.Errorf("one more: %v", err)
		}
		for i, method := range []string{"a", "b", "c", "d"} {
			e, ok := errors.AsType[*CallError](b.calls[i].Err())
			if !ok || e.Method != method || e.Sent || !errors.Is(e, ErrExhausted) {
				t.Errorf("entry %s: %v", method, b.calls[i].Err())
			}
		}
		if s := c.Stats(); s.Calls != 0 || s.Notifications != 3 {
			t.Errorf("%+v", s)
		}
		peer.quiet()
	})
}

// TestBatchEntries proves that the entries of a batch are what calls and
// notifications are by themselves: counted, with the metadata of the context, and
// failed by a result that does not fit.
func TestBatchEntries(t *testing.T) {
	withPeer(t, Config{SendMeta: true}, func(t *testing.T, c *Conn, peer *rawPeer) {
		var n int
		var b Batch
		call, note := b.Call("a", nil, &n), b.Notify("n", nil)
		note.err = errors.New("of the attempt before")
		go func() {
			peer.want(`[{"jsonrpc":"2.0","id":4096,"method":"a","correlation_id":"c"},{"jsonrpc":"2.0","method":"n","correlation_id":"c"}]`)
			peer.send(`[{"jsonrpc":"2.0","id":4096,"result":"no number"}]`)
		}()
		if err := c.Batch(WithMeta(t.Context(), Meta{CorrelationID: "c"}), &b); err != nil {
			t.Error(err)
		}
		if e, ok := errors.AsType[*CallError](call.Err()); !ok || !e.Sent || e.CorrelationID != "c" {
			t.Errorf("a result that does not fit: %v", call.Err())
		}
		if note.Err() != nil {
			t.Error(note.Err())
		}
		if s := c.Stats(); s.Calls != 1 || s.Notifications != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestBatchPeerNeverReads proves that batches honour their timeouts while they
// wait for room to write, and that what waits to be written stays bounded.
func TestBatchPeerNeverReads(t *testing.T) {
	large := json.RawMessage(`["` + strings.Repeat("x", 100_000) + `"]`)
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe()
		c := NewConn(near, Config{StallTimeout: -1, WriteBuffer: 200_000})
		defer far.Close()
		defer c.Close()
		start := time.Now()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				var b Batch
				note, call := b.Notify("n", large), b.Call("m", nil, nil)
				err := c.Batch(t.Context(), &b, WithTimeout(time.Second))
				if took := time.Since(start); took < time.Second || took > 2*time.Second {
					t.Errorf("after %v", took)
				}
				if err != nil && (!errors.Is(err, ErrTimeout) || !errors.Is(note.Err(), ErrTimeout)) || !errors.Is(call.Err(), ErrTimeout) {
					t.Errorf("%v, %v, %v", err, note.Err(), call.Err())
				}
			})
		}
		synctest.Wait()
		c.w.mu.Lock()
		if n := len(c.w.buf); n > 400_000 {
			t.Errorf("%d bytes wait to be written", n)
		}
		c.w.mu.Unlock()
		wg.Wait()
	})
}

// TestBatchContext proves that nothing is sent in a context that has ended,
// notifications neither.
func TestBatchContext(t *testing.T) {
	withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var b Batch
		b.Notify("n", nil)
		if err := c.Batch(ctx, &b); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		peer.quiet()
	})
}

// TestBatchSentLater proves that a notification whose batch went out with a later
// attempt is told as sent, and that the batch is not made once more for it (RPC-22).
func TestBatchSentLater(t *testing.T) {
	large := json.RawMessage(`["` + strings.Repeat("x", 900_000) + `"]`)
	synctest.Test(t, func(t *testing.T) {
		var peers []io.Closer
		var got atomic.Int64
		dial := func(context.Context) (Stream, error) {
			near, far := Pipe()
			if len(peers) == 0 {
				peers = append(peers, far) // that never reads
				return near, nil
			}
			peers = append(peers, NewConn(far, Config{Handler: HandlerFunc(func(_ context.Context, req *Request) (any, error) {
				if req.Method() == "once" {
					got.Add(1)
				}
				return nil, nil
			})}))
			return near, nil
		}
		cl := NewClient(dial, ClientConfig{Config: Config{StallTimeout: -1, WriteBuffer: 1000}})
		for range 3 {
			go cl.Notify(t.Context(), "large", large)
		}
		synctest.Wait()
		time.AfterFunc(time.Second, func() { peers[0].Close() })
		var b Batch
		note, call := b.Notify("once", nil), b.Call("m", nil, nil)
		if err := cl.Batch(t.Context(), &b, Idempotent()); err != nil || note.Err() != nil || call.Err() != nil {
			t.Errorf("%v, %v, %v", err, note.Err(), call.Err())
		}
		synctest.Wait()
		if n := got.Load(); n != 1 || len(peers) != 2 {
			t.Errorf("the batch came %d times, over %d connections", n, len(peers))
		}
		cl.Close()
		for _, p := range peers {
			p.Close()
		}
	})
}

// TestBatchWaitsForRoom proves that a batch waits for room to write by its size, in
// its turn, and no longer than Config.Timeout where there is no other bound.
func TestBatchWaitsForRoom(t *testing.T) {
	large := json.RawMessage(`["` + strings.Repeat("x", 5000) + `"]`)
	withPeer(t, Config{WriteBuffer: 1000, StallTimeout: -1, Timeout: 3 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		c.w.mu.Lock()
		c.w.flying += 2000 // as if that much were being written
		c.w.mu.Unlock()
		notify := func() error {
			var b Batch
			b.Notify("m", large)
			b.Notify("m", large)
			return c.Batch(context.Background(), &b)
		}
		start := time.Now()
		err := notify()
		if late, ok := errors.AsType[*TimeoutError](err); !ok || late.After != 3*time.Second || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		var sent sync.WaitGroup
		sent.Go(func() {
			if err := notify(); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		c.w.mu.Lock()
		if r := c.w.room.first; r == nil || r.size < 10_000 || r.size > 11_000 {
			t.Errorf("%+v waits", r)
		}
		c.w.flying -= 2000
		c.w.tellRoom()
		c.w.mu.Unlock()
		sent.Wait()
		if got := peer.next(); len(got) < 10_000 {
			t.Error(got)
		}
	})
}

// TestBatchEntriesSayWhich proves that the error of an entry tells of this call: its
// method, its id, its time; and that hooks are told of calls and not of notifications.
func TestBatchEntriesSayWhich(t *testing.T) {
	var told []string
	cfg := Config{MaxPending: 2, Hooks: Hooks{CallDone: func(i CallInfo) { told = append(told, i.Method) }}}
	withPeer(t, cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
		go func() {
			peer.next()
			time.Sleep(time.Second)
			peer.send(`[{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}},{"jsonrpc":"2.0","id":3,"error":{"code":2,"message":"no"}}]`)
		}()
		var b Batch
		calls := []*BatchCall{b.Call("a", nil, nil), b.Call("b", nil, nil)}
		b.Notify("n", nil)
		if err := c.Batch(t.Context(), &b); err != nil {
			t.Error(err)
		}
		for i, call := range calls {
			e, ok := errors.AsType[*CallError](call.Err())
			if !ok || e.Method != string(rune('a'+i)) || e.ID != IntegerID(int64(2+i)) || e.Elapsed != time.Second || !errors.Is(e, &Error{Code: Code(1 + i)}) {
				t.Errorf("entry %d: %+v", i, call.Err())
			}
		}
		var more Batch
		more.Notify("x", nil)
		more.Call("c", nil, nil)
		more.Notify("y", json.RawMessage("[1"))
		if err := c.Batch(t.Context(), &more); err == nil {
			t.Error("params that are no JSON were sent")
		}
		if got := strings.Join(told, " "); got != "a b c" {
			t.Errorf("the hook was told of %s", got)
		}
		if s := c.Stats(); s.Pending != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestBatchToldBeforeHandlers proves that a call whose answer has come in an array is
// told before the requests behind it are handled, and also when a hook ends the
// goroutine that reads.
func TestBatchToldBeforeHandlers(t *testing.T) {
	var release chan struct{}
	cfg := Config{
		Handler: inlineAll{HandlerFunc(func(context.Context, *Request) (any, error) { <-release; return 1, nil })},
		Hooks: Hooks{Notice: func(n Notice) {
			if n.Kind == NoticeUnknown {
				runtime.Goexit()
			}
		}},
	}
	for name, behind := range map[string]string{
		"handler": `{"jsonrpc":"2.0","id":7,"method":"slow"}`,
		"hook":    `{"jsonrpc":"2.0","id":"nobody's","result":2}`,
	} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
				release = make(chan struct{})
				defer close(release)
				go func() {
					var call struct{ ID json.RawMessage }
					if err := json.Unmarshal([]byte(peer.next()), &call); err != nil {
						t.Error(err)
					}
					peer.send(fmt.Sprintf(`[{"jsonrpc":"2.0","id":%s,"result":1},%s]`, call.ID, behind))
				}()
				var got int
				if err := c.Call(t.Context(), "m", nil, &got); err != nil || got != 1 {
					t.Errorf("%d, %v", got, err)
				}
			})
		})
	}
}
