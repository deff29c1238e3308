package jsonrpcbench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/rpc"
	rpcjson "net/rpc/jsonrpc"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	sourcegraph "github.com/sourcegraph/jsonrpc2"
	xexp "golang.org/x/exp/jsonrpc2"
)

// onConn is a dialer of golang.org/x/exp/jsonrpc2 for a connection that is
// there already.
type onConn struct{ net.Conn }

// Dial returns the connection.
func (c onConn) Dial(context.Context) (io.ReadWriteCloser, error) { return c.Conn, nil }

func xexpConn(ctx context.Context, client, server net.Conn) (*remote, error) {
	var handled atomic.Int64
	serve := xexp.HandlerFunc(func(_ context.Context, req *xexp.Request) (any, error) {
		if !req.IsCall() {
			handled.Add(1)
			return nil, nil
		}
		if req.Method == typed {
			t := new(task)
			return t, json.Unmarshal(req.Params, t)
		}
		return req.Params, nil
	})
	s, err := xexp.Dial(ctx, onConn{server}, xexp.ConnectionOptions{Framer: xexp.RawFramer(), Handler: serve})
	if err != nil {
		return nil, err
	}
	c, err := xexp.Dial(ctx, onConn{client}, xexp.ConnectionOptions{Framer: xexp.RawFramer()})
	if err != nil {
		return nil, err
	}
	return &remote{
		call: func(ctx context.Context, params []byte, into *[]byte) error {
			return c.Call(ctx, method, rawJSON(params)).Await(ctx, (*json.RawMessage)(into))
		},
		typed: func(ctx context.Context, in, out *task) error {
			return c.Call(ctx, typed, in).Await(ctx, out)
		},
		notify:   func(ctx context.Context, params []byte) error { return c.Notify(ctx, method, rawJSON(params)) },
		received: handled.Load,
		close:    func() error { return errors.Join(ignoreClosed(c.Close()), ignoreClosed(s.Close())) },
	}, nil
}

func sourcegraphConn(async bool) func(ctx context.Context, client, server net.Conn) (*remote, error) {
	return func(ctx context.Context, client, server net.Conn) (*remote, error) {
		var handled atomic.Int64
		var h sourcegraph.Handler = sourcegraph.HandlerWithError(
			func(_ context.Context, _ *sourcegraph.Conn, req *sourcegraph.Request) (any, error) {
				if req.Notif {
					handled.Add(1)
					return nil, nil
				}
				if req.Method == typed {
					t := new(task)
					return t, json.Unmarshal(*req.Params, t)
				}
				return req.Params, nil
			},
		)
		if async {
			h = sourcegraph.AsyncHandler(h)
		}
		quiet := sourcegraph.SetLogger(log.New(io.Discard, "", 0))
		s := sourcegraph.NewConn(ctx, sourcegraph.NewPlainObjectStream(server), h, quiet)
		c := sourcegraph.NewConn(ctx, sourcegraph.NewPlainObjectStream(client), h, quiet)
		return &remote{
			call: func(ctx context.Context, params []byte, into *[]byte) error {
				return c.Call(ctx, method, rawJSON(params), (*json.RawMessage)(into))
			},
			typed:    func(ctx context.Context, in, out *task) error { return c.Call(ctx, typed, in, out) },
			notify:   func(ctx context.Context, params []byte) error { return c.Notify(ctx, method, rawJSON(params)) },
			received: handled.Load,
			close: func() error {
				err := c.Close()
				<-s.DisconnectNotify()
				return err
			},
		}, nil
	}
}

// rawMCP is the params and the result of a custom method of the MCP SDK. It is
// encoded as the bytes that it holds: what is measured is the SDK's way from a
// typed call through its middleware, JSON-RPC and line transport to a typed
// handler, and back.
type rawMCP struct {
	mcp.ParamsBase
	raw json.RawMessage
}

// MarshalJSON returns the bytes.
func (r *rawMCP) MarshalJSON() ([]byte, error) { return r.raw, nil }

// UnmarshalJSON keeps a copy.
func (r *rawMCP) UnmarshalJSON(b []byte) error {
	r.raw = append(r.raw[:0], b...)
	return nil
}

// rawResult is rawMCP on the way back; the SDK wants another type for it.
type rawResult struct {
	mcp.ResultBase
	raw json.RawMessage
}

// MarshalJSON returns the bytes.
func (r *rawResult) MarshalJSON() ([]byte, error) { return r.raw, nil }

// UnmarshalJSON keeps a copy.
func (r *rawResult) UnmarshalJSON(b []byte) error {
	r.raw = append(r.raw[:0], b...)
	return nil
}

func gosdkConn(ctx context.Context, client, server net.Conn) (*remote, error) {
	const custom = "bench/echo"
	info := &mcp.Implementation{Name: "bench", Version: "1"}
	s, c := mcp.NewServer(info, nil), mcp.NewClient(info, nil)
	err := mcp.AddReceivingCustomMethod(s, custom, func(_ context.Context, _ *mcp.ServerSession, p *rawMCP) (*rawResult, error) {
		return &rawResult{raw: p.raw}, nil
	})
	if err == nil {
		err = mcp.AddSendingCustomMethod[*rawMCP, *rawResult](c, custom)
	}
	if err != nil {
		return nil, err
	}
	ss, err := s.Connect(ctx, &mcp.IOTransport{Reader: server, Writer: server}, nil)
	if err != nil {
		return nil, err
	}
	cs, err := c.Connect(ctx, &mcp.IOTransport{Reader: client, Writer: client}, nil)
	if err != nil {
		return nil, err
	}
	return &remote{
		call: func(ctx context.Context, params []byte, into *[]byte) error {
			r, err := mcp.CallCustomMethod[*rawMCP, *rawResult](ctx, cs, custom, &rawMCP{raw: params})
			if err == nil {
				*into = r.raw
			}
			return err
		},
		close: func() error {
			err := cs.Close() // ends the server too, which closes the socket on its own
			_ = ss.Close()
			return ignoreClosed(err)
		},
	}, nil
}

// NetRPC is a service of net/rpc, which finds it by reflection.
type NetRPC struct{}

// Echo answers with the params.
func (NetRPC) Echo(params, result *json.RawMessage) error {
	*result = *params
	return nil
}

// Typed answers with the struct.
func (NetRPC) Typed(in, out *Task) error {
	*out = *in
	return nil
}

// Task is task under a name that net/rpc accepts.
type Task task

// netrpcConn is the standard library's JSON-RPC 1.0, with params as the one
// element of an array, a goroutine for each request, and no context.
func netrpcConn(_ context.Context, client, server net.Conn) (*remote, error) {
	s := rpc.NewServer()
	if err := s.RegisterName("Bench", NetRPC{}); err != nil {
		return nil, err
	}
	var serving sync.WaitGroup
	serving.Go(func() { s.ServeCodec(rpcjson.NewServerCodec(server)) })
	c := rpcjson.NewClient(client)
	return &remote{
		call: func(_ context.Context, params []byte, into *[]byte) error {
			p := rawJSON(params)
			return c.Call("Bench.Echo", &p, (*json.RawMessage)(into))
		},
		typed: func(_ context.Context, in, out *task) error {
			return c.Call("Bench.Typed", (*Task)(in), (*Task)(out))
		},
		close: func() error {
			err := c.Close()
			serving.Wait()
			return err
		},
	}, nil
}
