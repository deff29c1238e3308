package jsonrpc

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// nested returns n levels of arrays.
func nested(n int) []any {
	v := []any{}
	for range n - 1 {
		v = []any{v}
	}
	return v
}

// TestDepthOutgoing proves that Config.MaxDepth holds for what is sent too, whatever
// encodes it: params that the peer would refuse do not leave, and a result becomes
// an error here (RPC-24).
func TestDepthOutgoing(t *testing.T) {
	for name, codec := range map[string]Codec{"strict": StrictCodec(), "lenient": LenientCodec(), "own": struct{ Codec }{StrictCodec()}} {
		t.Run(name, func(t *testing.T) {
			var seen notices
			h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
				if req.Method() == "deep" {
					return nested(10), nil
				}
				return nested(9), nil
			})
			withPeer(t, Config{Codec: codec, MaxDepth: 10, Handler: h, Hooks: Hooks{Notice: seen.add}}, func(t *testing.T, c *Conn, peer *rawPeer) {
				err := c.Notify(t.Context(), "m", nested(10))
				limit, ok := errors.AsType[*ResourceError](err)
				if !ok || limit.Unit != unitLevels || AdviceFor(err) != AdviceGiveUp {
					t.Errorf("params of 10 levels in a message of 10: %v", err)
				}
				peer.quiet()
				if err := c.Notify(t.Context(), "m", nested(9)); err != nil {
					t.Error(err)
				}
				peer.want(`{"jsonrpc":"2.0","method":"m","params":` + strings.Repeat("[", 9) + strings.Repeat("]", 9) + `}`)
				peer.send(`{"jsonrpc":"2.0","id":1,"method":"deep"}`, `{"jsonrpc":"2.0","id":2,"method":"not so deep"}`)
				if got := peer.next() + peer.next(); !strings.Contains(got, `"id":1,"error":{"code":-32603`) || !strings.Contains(got, `"id":2,"result":[`) {
					t.Error(got)
				}
			})
		})
	}
}
