//go:build jsonrpc_poison

package jsonrpc

import (
	"context"
	"encoding/json"
	"testing"
)

// TestPoison proves that a handler that keeps what it borrowed is found when
// the tag is set (RPC-18), and that nobody else's bytes are spoiled: all other
// tests pass with the tag as well.
func TestPoison(t *testing.T) {
	for name, wrap := range map[string]func(HandlerFunc) Handler{
		"pool":   func(h HandlerFunc) Handler { return h },
		"inline": func(h HandlerFunc) Handler { return inlineAll{h} },
	} {
		for _, text := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"m","params":["kept"]}`,
			`[{"jsonrpc":"2.0","id":1,"method":"m","params":["kept"]}]`,
		} {
			var kept json.RawMessage
			var copied string
			h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
				kept, copied = req.Params(), string(req.Params())
				return nil, nil
			})
			withPeer(t, Config{Handler: wrap(h)}, func(t *testing.T, c *Conn, peer *rawPeer) {
				peer.send(text)
				peer.next()
				c.Close()
				if copied != `["kept"]` || json.Valid(kept) {
					t.Errorf("%s: kept params are still %q", name, kept)
				}
			})
		}
	}
}
