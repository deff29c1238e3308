package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
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
