package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
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
// encodes it: params that the peer would refuse do not leave, a result becomes an error
// here, and an error goes without its data (RPC-24).
func TestDepthOutgoing(t *testing.T) {
	for name, codec := range map[string]Codec{"strict": StrictCodec(), "lenient": LenientCodec(), "own": struct{ Codec }{StrictCodec()}} {
		t.Run(name, func(t *testing.T) {
			var seen notices
			h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
				switch req.Method() {
				case "deep":
					return nested(10), nil
				case "deep data":
					return nil, Errorf(5, "deep").WithData(nested(9))
				case "data":
					return nil, Errorf(5, "not so deep").WithData(nested(8))
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
				// The call fails as the handler says, also where the peer would refuse what
				// else that says.
				peer.send(`{"jsonrpc":"2.0","id":3,"method":"deep data"}`)
				peer.want(`{"jsonrpc":"2.0","id":3,"error":{"code":5,"message":"deep"}}`)
				peer.send(`{"jsonrpc":"2.0","id":4,"method":"data"}`)
				peer.want(`{"jsonrpc":"2.0","id":4,"error":{"code":5,"message":"not so deep","data":[[[[[[[[]]]]]]]]}}`)
				if got := seen.text(); got != "unencodable result, unencodable result" {
					t.Errorf("told of %s", got)
				}
			})
		})
	}
}

// TestDepthStreamed proves that Config.MaxDepth holds to the level for values that
// are streamed, in both directions (RPC-24): the message around a value is a level,
// too. More than this package follows by recursion is not allowed by any Config.
func TestDepthStreamed(t *testing.T) {
	for given, depth := range map[int]int{10: 10, math.MaxInt: maxRecursion} {
		testDepthStreamed(t, given, depth)
	}
}

// testDepthStreamed tests a Config.MaxDepth by which depth levels are allowed.
func testDepthStreamed(t *testing.T, given, depth int) {
	long := `"` + strings.Repeat("x", 400<<10) + `"`
	value := func(levels int) string {
		return "[" + long + "," + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + "]"
	}
	h := func(_ context.Context, req *Request) (any, error) {
		if req.Method() == "whole" { // which is none of uploads' streamed ones
			var levels int
			err := json.Unmarshal(req.Params(), &[]any{&levels})
			return strings.NewReader(value(levels)), err
		}
		_, err := io.Copy(io.Discard, req.ParamsReader())
		return "read", err
	}
	withPeer(t, Config{MaxDepth: given, Handler: uploads{h}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for levels, fits := range map[int]bool{depth - 1: true, depth: false} {
			go peer.send(`{"jsonrpc":"2.0","id":1,"method":"upload","params":` + value(levels) + `}`)
			if got := peer.next(); strings.Contains(got, `"result":"read"`) != fits {
				t.Errorf("params of %d levels: answered %s", levels, got)
			}

			peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"whole","params":[%d]}`, levels))
			got := peer.next()
			if strings.HasPrefix(got, `{"jsonrpc":"2.0","id":2,"result":[`) && json.Valid([]byte(got)) != fits {
				t.Errorf("a result of %d levels: %.60s… of %d bytes", levels, got, len(got))
			}
			if !fits {
				peer.next() // the error, behind what was cut off
			}

			done := make(chan error, 1)
			go func() { done <- c.Call(t.Context(), "m", strings.NewReader(value(levels)), io.Discard) }()
			if fits {
				id := requestID(t, peer.next())
				peer.send(`{"jsonrpc":"2.0","id":` + id + `,"result":null}`)
			} else {
				peer.next()
			}
			if err := <-done; (err == nil) != fits {
				t.Errorf("params of %d levels from a reader: %v", levels, err)
			}

			go func() { done <- c.Call(t.Context(), "m", nil, io.Discard) }()
			id := requestID(t, peer.next())
			go peer.send(`{"jsonrpc":"2.0","id":` + id + `,"result":` + value(levels) + `}`)
			if err := <-done; (err == nil) != fits {
				t.Errorf("a result of %d levels into a writer: %v", levels, err)
			}
		}
	})
}

// requestID returns the id of a request.
func requestID(t *testing.T, text string) string {
	t.Helper()
	var req struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(text), &req); err != nil {
		t.Error(err)
	}
	return string(req.ID)
}
