package jsonrpc

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
)

// exiting ends its goroutine when it is asked to.
var exiting = HandlerFunc(func(_ context.Context, req *Request) (any, error) {
	if req.Method() == "exit" {
		runtime.Goexit()
	}
	return req.Params(), nil
})

// lingering keeps who wrote a message from going on, though the peer has it.
type lingering struct {
	Stream
	release chan struct{}
}

func (s lingering) TryWrite(p []byte) (int, error) {
	n, err := s.Write(p)
	<-s.release
	return n, err
}

// TestAnsweredHoldsNoPlace proves that a peer that has its answer is not told
// busy for the handler that gave it (RPC-23): the goroutine that ran it may get
// to its end whenever it likes.
func TestAnsweredHoldsNoPlace(t *testing.T) {
	for name, tt := range map[string]struct{ first, answer, second, want string }{
		"request": {
			`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":1,"result":null}`,
			`{"jsonrpc":"2.0","id":2,"method":"m"}`, `{"jsonrpc":"2.0","id":2,"result":null}`,
		},
		"batch": {
			`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","method":"m"}]`, `[{"jsonrpc":"2.0","id":1,"result":null}]`,
			`[{"jsonrpc":"2.0","id":2,"method":"m"}]`, `[{"jsonrpc":"2.0","id":2,"result":null}]`,
		},
		"batch, exiting": {
			`[{"jsonrpc":"2.0","id":1,"method":"exit","correlation_id":"c"},{"jsonrpc":"2.0","id":2,"method":"m"}]`,
			`[{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"c"}}},{"jsonrpc":"2.0","id":2,"result":null}]`,
			`{"jsonrpc":"2.0","id":3,"method":"m"}`, `{"jsonrpc":"2.0","id":3,"result":null}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := Pipe()
				s := lingering{near, make(chan struct{})}
				c := NewConn(s, Config{Handler: exiting, MaxHandlers: 1})
				peer := &rawPeer{t, far}
				peer.send(tt.first)
				peer.want(tt.answer)
				if n := c.Stats().Handling; n != 0 {
					t.Errorf("%d handlers hold a place", n)
				}
				peer.send(tt.second)
				synctest.Wait()
				close(s.release)
				peer.want(tt.want)
				c.Close()
				far.Close()
				if s := c.Stats(); s.Busy != 0 || s.Handling != 0 || c.srv.pool.released.Load() != 0 {
					t.Errorf("%+v, %d released", s, c.srv.pool.released.Load())
				}
			})
		})
	}
}
