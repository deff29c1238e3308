package jsonrpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

// A panicky stream panics with the first byte that is wanted of it, or given to
// it, and a panicky value where it is encoded or decoded.
type (
	panicky      struct{}
	panickyValue struct{}
)

func (panicky) Read([]byte) (int, error)           { panic("read") }
func (panicky) Write([]byte) (int, error)          { panic("write") }
func (panickyValue) MarshalJSON() ([]byte, error)  { panic("marshal") }
func (*panickyValue) UnmarshalJSON(_ []byte) error { panic("unmarshal") }

// TestPanicsOfCallers proves that what a caller gives to a call and panics takes
// neither the connection nor one of its pending calls with it (RPC-23): a panic
// on the caller's goroutine is the caller's, one on that of the connection
// becomes the error of the call, with its stack (RPC-21).
func TestPanicsOfCallers(t *testing.T) {
	long := strings.Repeat("x", streamPiece)
	late := func() io.Reader { return io.MultiReader(strings.NewReader(`["`+long+`"`), panicky{}) }
	type call = func(ctx context.Context, c *Conn)
	batch := func(params, result any) call {
		return func(ctx context.Context, c *Conn) {
			var b Batch
			b.Call("m", nil, nil)
			b.Call("m", params, result)
			b.Call("m", nil, nil)
			_ = c.Batch(ctx, &b)
		}
	}
	single := func(params, result any) call {
		return func(ctx context.Context, c *Conn) { _ = c.Call(ctx, "m", params, result) }
	}
	for name, panics := range map[string]call{
		"params":           single(panickyValue{}, nil),
		"reader":           single(panicky{}, nil),
		"reader, late":     single(late(), nil),
		"result":           single(nil, new(panickyValue)),
		"batch of params":  batch(panickyValue{}, nil),
		"batch of readers": batch(late(), nil),
		"batch of results": batch(nil, new(panickyValue)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := Pipe()
				c := NewConn(near, Config{MaxPending: 8})
				peer := NewConn(far, Config{Handler: HandlerFunc(func(context.Context, *Request) (any, error) { return 7, nil })})
				for range 20 {
					if panicOf(func() { panics(t.Context(), c) }) == nil {
						t.Fatal("the panic was kept from the caller")
					}
				}
				if err := c.Call(t.Context(), "m", nil, nil); err != nil {
					t.Error(err)
				}
				if n := c.Stats().Pending; n != 0 {
					t.Errorf("%d calls are pending", n)
				}
				c.Close()
				peer.Close()
			})
		})
	}
}

// panicOf returns what f panics with.
func panicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// TestPanicOfWriter proves the same for the Writer of a result, which is written
// to by the goroutine that reads when the result is long.
func TestPanicOfWriter(t *testing.T) {
	for name, result := range map[string]string{"short": "7", "long": `"` + strings.Repeat("x", 300<<10) + `"`} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, Config{MaxMessage: 8 << 20}, func(t *testing.T, c *Conn, peer *rawPeer) {
				failed := make(chan error, 1)
				go func() { failed <- c.Call(t.Context(), "m", nil, io.Writer(panicky{})) }()
				peer.next()
				peer.send(`{"jsonrpc":"2.0","id":4096,"result":` + result + `}`)
				err := <-failed
				var v *PanicError
				if !errors.As(err, &v) || !strings.Contains(string(v.Stack), "panicky") || !strings.Contains(err.Error(), "the Writer of the result panicked: write") {
					t.Error(err)
				}
				synctest.Wait()
				if s := c.Stats(); s.Pending != 0 || c.State() != StateConnected {
					t.Errorf("%+v, %v", s, c.State())
				}
			})
		})
	}
}
