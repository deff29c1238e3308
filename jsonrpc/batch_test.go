package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestServeBatch proves how batches are answered (JSON-RPC 2.0 section 6): by
// one array in the order of the entries, though they are handled side by side.
func TestServeBatch(t *testing.T) {
	var running, most atomic.Int32
	slow := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		most.Store(max(most.Load(), running.Add(1)))
		time.Sleep(time.Second)
		running.Add(-1)
		if req.Method() == "panic" {
			panic("x")
		}
		return req.Params(), nil
	})
	withPeer(t, Config{Handler: slow, MaxHandlers: 8, MaxBatch: 30}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for _, tt := range []struct {
			send, want string
			took       time.Duration
		}{
			{
				`[{"jsonrpc":"2.0","id":1,"method":"m","params":[1]},{"jsonrpc":"2.0","method":"n"},7,{"jsonrpc":"2.0","id":2,"method":"m"}]`,
				`[{"jsonrpc":"2.0","id":1,"result":[1]},{"jsonrpc":"2.0","id":null,"error":{"code":-32600,` +
					`"message":"invalid request: an entry of a batch is an object"}},{"jsonrpc":"2.0","id":2,"result":null}]`, time.Second,
			},
			{`[]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request: a batch has at least one entry"}}`, 0},
			{`[` + strings.Repeat(`{"jsonrpc":"2.0","method":"m"},`, 30) + `1]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,` +
				`"message":"invalid request: the batch has too many entries","data":{"limit":30,"unit":"entries"}}}`, 0},
			{
				`[` + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"m"},`, 20) + `{"jsonrpc":"2.0","id":1,"method":"m"}]`,
				`[` + strings.Repeat(`{"jsonrpc":"2.0","id":1,"result":null},`, 20) + `{"jsonrpc":"2.0","id":1,"result":null}]`, 3 * time.Second,
			},
		} {
			start := time.Now()
			peer.send(tt.send)
			peer.want(tt.want)
			if took := time.Since(start); took != tt.took {
				t.Errorf("%.50s took %v", tt.send, took)
			}
		}
		if most.Load() != 8 {
			t.Errorf("%d at once", most.Load())
		}
		peer.send(`[{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","method":"n"}]`, `[{"jsonrpc":"2.0","id":1,"method":"panic","correlation_id":"c"}]`)
		peer.want(`[{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"c"}}}]`)
	})
	withPeer(t, Config{Handler: inlineAll{echo}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(`[{"jsonrpc":"2.0","method":"n"}]`, `[{"jsonrpc":"2.0","id":1,"method":"m","params":[1]},{"jsonrpc":"2.0","id":2,"method":"m"}]`)
		peer.want(`[{"jsonrpc":"2.0","id":1,"result":[1]},{"jsonrpc":"2.0","id":2,"result":null}]`)
	})
}

// TestCallBatch proves that a batch goes out as one array, that answers are
// matched in any order and any number of messages, and that a missing one
// times out by itself.
func TestCallBatch(t *testing.T) {
	for _, reads := range []bool{false, true} {
		withPeer(t, Config{CallerReads: reads, Timeout: 4 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
			var b Batch
			var one []int
			var two string
			var text strings.Builder
			var raw json.RawMessage
			calls := []*BatchCall{
				b.Call("a", []int{1}, &one), b.Notify("n", strings.NewReader("[\n]")), b.Call("b", nil, &two),
				b.Call("c", strings.NewReader(`{"x":1}`), &text), b.Call("d", nil, &raw), b.Call("e", nil, nil),
			}
			go func() {
				peer.want(`[{"jsonrpc":"2.0","id":4096,"method":"a","params":[1]},{"jsonrpc":"2.0","method":"n","params":[ ]},` +
					`{"jsonrpc":"2.0","id":4097,"method":"b"},{"jsonrpc":"2.0","id":4098,"method":"c","params":{"x":1}},` +
					`{"jsonrpc":"2.0","id":4099,"method":"d"},{"jsonrpc":"2.0","id":4100,"method":"e"}]`)
				peer.send(`[{"jsonrpc":"2.0","id":4098,"result":"text"},{"jsonrpc":"2.0","id":4099,"result":[0]}]`,
					`{"jsonrpc":"2.0","id":4096,"result":[7]}`, `[{"jsonrpc":"2.0","id":4097,"error":{"code":5,"message":"no"}},1]`)
			}()
			start := time.Now()
			if err := c.Batch(t.Context(), &b); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took < 4*time.Second || took > 5*time.Second {
				t.Error(took)
			}
			for i, want := range []error{nil, nil, &Error{Code: 5}, nil, nil, ErrTimeout} {
				if err := calls[i].Err(); !errors.Is(err, want) || (err == nil) != (want == nil) {
					t.Errorf("entry %d: %v", i, err)
				}
			}
			if len(one) != 1 || one[0] != 7 || text.String() != `"text"` || string(raw) != `[0]` || c.Stats().Pending != 0 {
				t.Error(one, text.String(), string(raw), c.Stats())
			}
		})
	}
}

// TestBatchRefused proves that a batch that cannot be sent as a whole is not
// sent at all.
func TestBatchRefused(t *testing.T) {
	withPeer(t, Config{MaxPending: 3, MaxBatch: 5}, func(t *testing.T, c *Conn, peer *rawPeer) {
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for name, tt := range map[string]struct {
			over bool // the context is
			fill func(*Batch)
			want error
		}{
			"pending":  {false, func(b *Batch) { fillBatch(b, 4) }, ErrExhausted},
			"entries":  {false, func(b *Batch) { fillBatch(b, 6) }, ErrExhausted},
			"params":   {false, func(b *Batch) { fillBatch(b, 1); b.Call("m", 7, nil) }, errScalarParams},
			"context":  {true, func(b *Batch) { fillBatch(b, 1) }, context.Canceled},
			"no batch": {true, func(*Batch) {}, nil},
		} {
			var b Batch
			tt.fill(&b)
			ctx := t.Context()
			if tt.over {
				ctx = cancelled
			}
			if err := c.Batch(ctx, &b); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
			for _, e := range b.calls {
				if !errors.Is(e.Err(), tt.want) {
					t.Errorf("%s: %v", name, e.Err())
				}
			}
		}
		if s := c.Stats(); s.Pending != 0 {
			t.Errorf("%+v", s)
		}
		peer.quiet()
		synctest.Wait()
	})
}

func fillBatch(b *Batch, n int) {
	for range n {
		b.Call("m", nil, nil)
	}
}

// TestBatchWhileClosing proves that the entries of a batch that comes while the
// connection closes are refused, as requests by themselves are, and not handled.
func TestBatchWhileClosing(t *testing.T) {
	h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		if req.Method() != "slow" {
			t.Error(req.Method(), "was handled")
		}
		time.Sleep(time.Second)
		return "done", nil
	})
	withPeer(t, Config{Handler: h}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		synctest.Wait()
		go c.Close()
		synctest.Wait()
		peer.send(`[{"jsonrpc":"2.0","id":2,"method":"m"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":3,"method":"m"}]`,
			`[{"jsonrpc":"2.0","method":"n"}]`)
		const closing = `"error":{"code":-32052,"message":"connection closing"}}`
		peer.want(`[{"jsonrpc":"2.0","id":2,`+closing+`,{"jsonrpc":"2.0","id":3,`+closing+`]`, `{"jsonrpc":"2.0","id":1,"result":"done"}`)
	})
}

// TestBatchInline proves that the inline entries of a batch are handled where it is
// read: in order, and with all places taken.
func TestBatchInline(t *testing.T) {
	var mux Mux
	var order []string
	mux.RegisterInline("quick", HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		order = append(order, string(req.Params())) // without a lock
		return nil, nil
	}))
	mux.Register("slow", HandlerFunc(func(context.Context, *Request) (any, error) {
		time.Sleep(time.Second)
		return nil, nil
	}))
	withPeer(t, Config{Handler: &mux, MaxHandlers: 1}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		synctest.Wait()
		start := time.Now()
		const entry = `{"jsonrpc":"2.0","id":2,"method":"quick","params":[`
		peer.send(`[` + entry + `1]},` + entry + `2]},` + entry + `3]}]`)
		peer.want(`[{"jsonrpc":"2.0","id":2,"result":null},{"jsonrpc":"2.0","id":2,"result":null},{"jsonrpc":"2.0","id":2,"result":null}]`)
		if got := strings.Join(order, ""); got != "[1][2][3]" || time.Since(start) != 0 {
			t.Errorf("%s after %v", got, time.Since(start))
		}
	})
}

// TestBatchNotificationsOnly proves that nothing at all is written for a batch of
// notifications, an empty line neither, however they are handled, and that their
// errors are told.
func TestBatchNotificationsOnly(t *testing.T) {
	failing := func(context.Context, *Request) (any, error) { return nil, errors.New("secret") }
	for name, h := range map[string]Handler{"pool": HandlerFunc(failing), "inline": inlineAll{failing}} {
		var seen notices
		synctest.Test(t, func(t *testing.T) {
			near, far := bytePipe()
			c := NewConn(NewLineStream(near), Config{Handler: h, Hooks: Hooks{Notice: seen.add}})
			far.Write([]byte(`[{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","method":"n"}]` + "\n"))
			far.CloseWrite()
			if got, err := io.ReadAll(far); len(got) > 0 || err != nil {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			c.Close()
			far.Close()
		})
		if got := seen.text(); got != "handler error, handler error" {
			t.Errorf("%s: notices %s", name, got)
		}
	}
}

// TestBatchRefusedForgotten proves that a request of a batch for which there was no
// place is not remembered: the next one with its id can be cancelled.
func TestBatchRefusedForgotten(t *testing.T) {
	h := HandlerFunc(func(ctx context.Context, _ *Request) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	withPeer(t, Config{Handler: h, MaxHandlers: 1, Cancel: LSPCancel}, func(t *testing.T, c *Conn, peer *rawPeer) {
		cancel := func(id string) {
			peer.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":` + id + `}}`)
			time.AfterFunc(time.Minute, func() { peer.s.Close() })
			if got := peer.next(); !strings.Contains(got, "-32800") {
				t.Errorf("request %s: %s", id, got)
			}
		}
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		synctest.Wait()
		peer.send(`[{"jsonrpc":"2.0","id":2,"method":"m"}]`)
		if got := peer.next(); !strings.Contains(got, "-32050") {
			t.Error(got)
		}
		cancel("1")
		synctest.Wait()
		peer.send(`{"jsonrpc":"2.0","id":2,"method":"m"}`)
		synctest.Wait()
		cancel("2")
	})
}

// TestBatchAnswerWaitsForRoom proves that the answer to a batch waits for room to
// write like any other message: by its size, and in its turn.
func TestBatchAnswerWaitsForRoom(t *testing.T) {
	result := json.RawMessage(`"` + strings.Repeat("x", 5000) + `"`)
	h := HandlerFunc(func(context.Context, *Request) (any, error) {
		time.Sleep(time.Second)
		return result, nil
	})
	withPeer(t, Config{Handler: h, WriteBuffer: 1000, StallTimeout: -1}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`)
		synctest.Wait()
		c.w.mu.Lock()
		c.w.flying += 2000 // as if that much were being written
		c.w.mu.Unlock()
		time.Sleep(2 * time.Second)
		c.w.mu.Lock()
		if r := c.w.room.first; r == nil || r.size < 10_000 || r.size > 11_000 {
			t.Errorf("%+v waits", r)
		}
		c.w.flying -= 2000
		c.w.tellRoom()
		c.w.mu.Unlock()
		if got := peer.next(); len(got) < 10_000 {
			t.Error(got)
		}
	})
}

// TestBatchAllRefused proves that with no place to be had each request of a batch is
// told so under its own id, and notifications are dropped (RPC-23).
func TestBatchAllRefused(t *testing.T) {
	h := HandlerFunc(func(ctx context.Context, _ *Request) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	withPeer(t, Config{Handler: h, MaxHandlers: 1, Grace: -1}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		synctest.Wait()
		peer.send(`[{"jsonrpc":"2.0","id":2,"method":"m"},{"jsonrpc":"2.0","method":"n"},5,{"jsonrpc":"2.0","id":"3","method":"m"},{"jsonrpc":"2.0","id":4,"method":"m"}]`)
		const busy = `,"error":{"code":-32050,"message":"server busy","data":{"limit":1,"unit":"requests"}}}`
		peer.want(`[{"jsonrpc":"2.0","id":2` + busy + `,{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request: an entry of a batch is an object"}},` +
			`{"jsonrpc":"2.0","id":"3"` + busy + `,{"jsonrpc":"2.0","id":4` + busy + `]`)
		if s := c.Stats(); s.Busy != 4 {
			t.Errorf("%+v", s)
		}
	})
}
