package jsonrpc_test

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcpractice"
	"github.com/parley-project/parley/jsonrpc/rpctest"
)

// TestConformanceConn runs the conformance cases over a Conn on lines, with
// handlers in the pool and inline (RPC-1 to RPC-6, RPC-9, RPC-24, RPC-25).
func TestConformanceConn(t *testing.T) {
	for name, h := range map[string]jsonrpc.Handler{"pool": rpcpractice.NewMux(), "inline": inline{rpcpractice.NewMux()}} {
		t.Run(name, func(t *testing.T) {
			near, far := jsonrpc.Pipe()
			cfg := rpctest.ConformanceConfig()
			cfg.Handler = h
			c := jsonrpc.NewConn(near, cfg)
			defer c.Close()
			defer far.Close()
			rpctest.RunConformance(t, rpctest.StreamExchange(far), rpctest.ConformanceOptions{})
		})
	}
}

type inline struct{ jsonrpc.Handler }

func (inline) Inline([]byte) bool { return true }

// TestConformanceResponder runs the conformance cases over a Responder.
func TestConformanceResponder(t *testing.T) {
	cfg := rpctest.ConformanceConfig()
	cfg.Handler = rpcpractice.NewMux()
	r := jsonrpc.NewResponder(cfg)
	defer r.Close()
	exchange := func(ctx context.Context, send []byte, _ int) (out []byte, err error) {
		for line := range bytes.SplitSeq(send, []byte("\n")) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			n := len(out)
			if out, err = r.Respond(ctx, slices.Clone(line), out); err != nil {
				return out, err
			}
			if len(out) > n {
				out = append(out, '\n')
			}
		}
		return out, nil
	}
	rpctest.RunConformance(t, exchange, rpctest.ConformanceOptions{})
}
