package jsonrpcbench

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// parley is Parley over any stream: the handler inline, as the fastest peer
// has it; and beside it with pooled handlers, which is what a program gets
// that promises nothing, with params that are sent unchecked, as every peer
// sends them, and called with a context that can be cancelled.
func parley() []entrant {
	return []entrant{
		{name: "Parley", role: ours, open: overSocket(parleyConn(true))},
		{name: "pooled handlers", role: variant, open: overSocket(parleyConn(false))},
		{name: "trusted params", role: variant, open: overSocket(parleyTrusted)},
		{name: "cancellable calls", role: variant, open: cancellable(overSocket(parleyConn(true)))},
	}
}

// parleyCaller is Parley with Config.CallerReads.
func parleyCaller(as role) []entrant {
	name := "Parley"
	if as == variant {
		name = "caller reads"
	}
	return []entrant{{name: name, role: as, open: overSocket(parleyCallerReads)}}
}

// parleyPipe is Parley over its own pipe in memory.
func parleyPipe() entrant {
	return entrant{name: "jsonrpc.Pipe", role: variant, open: func(context.Context, load) (*remote, error) {
		a, b := jsonrpc.Pipe()
		return parleyEnds(jsonrpc.NewConn(a, jsonrpc.Config{}), b, true), nil
	}}
}

// parleyMethods are the methods of the server; handled counts notifications.
func parleyMethods(inline bool, handled *atomic.Int64) jsonrpc.Handler {
	m := new(jsonrpc.Mux)
	register := m.Register
	if inline {
		register = m.RegisterInline
	}
	register(method, jsonrpc.HandlerFunc(func(_ context.Context, req *jsonrpc.Request) (any, error) {
		if req.IsNotification() {
			handled.Add(1)
			return nil, nil
		}
		return req.Params(), nil
	}))
	register(typed, jsonrpc.Typed(func(_ context.Context, t task) (*task, error) { return &t, nil }))
	return m
}

func parleyConn(inline bool) func(context.Context, net.Conn, net.Conn) (*remote, error) {
	return func(_ context.Context, client, server net.Conn) (*remote, error) {
		c := jsonrpc.NewConn(jsonrpc.NewLineStream(client), jsonrpc.Config{})
		return parleyEnds(c, jsonrpc.NewLineStream(server), inline), nil
	}
}

func parleyTrusted(_ context.Context, client, server net.Conn) (*remote, error) {
	c := jsonrpc.NewConn(jsonrpc.NewLineStream(client), jsonrpc.Config{TrustRaw: true})
	return parleyEnds(c, jsonrpc.NewLineStream(server), true), nil
}

func parleyCallerReads(_ context.Context, client, server net.Conn) (*remote, error) {
	c := jsonrpc.NewConn(jsonrpc.NewLineStream(client), jsonrpc.Config{CallerReads: true})
	return parleyEnds(c, jsonrpc.NewLineStream(server), true), nil
}

// parleyEnds serves one end and calls from the other.
func parleyEnds(c *jsonrpc.Conn, server jsonrpc.Stream, inline bool) *remote {
	handled := new(atomic.Int64)
	s := jsonrpc.NewConn(server, jsonrpc.Config{Handler: parleyMethods(inline, handled)})
	r := parleyRemote(c)
	r.received = handled.Load
	if !inline {
		r.notify = nil // beyond Config.MaxHandlers they are dropped, which is no work to compare
	}
	r.close = func() error { return errors.Join(c.Close(), s.Close()) }
	return r
}

func parleyRemote(c *jsonrpc.Conn) *remote {
	return &remote{
		call: func(ctx context.Context, params []byte, into *[]byte) error {
			return c.Call(ctx, method, rawJSON(params), (*json.RawMessage)(into))
		},
		typed:  func(ctx context.Context, in, out *task) error { return c.Call(ctx, typed, in, out) },
		notify: func(ctx context.Context, params []byte) error { return c.Notify(ctx, method, rawJSON(params)) },
		batch: func(ctx context.Context, params []byte, into [][]byte) error {
			var b jsonrpc.Batch
			raw := rawJSON(params)
			for i := range into {
				b.Call(method, &raw, (*json.RawMessage)(&into[i]))
			}
			return c.Batch(ctx, &b)
		},
	}
}

// cancellable gives every call one context that could be cancelled.
func cancellable(open func(context.Context, load) (*remote, error)) func(context.Context, load) (*remote, error) {
	return func(ctx context.Context, l load) (*remote, error) {
		r, err := open(ctx, l)
		if err != nil {
			return nil, err
		}
		live, cancel := context.WithCancel(ctx)
		call, end := r.call, r.close
		return &remote{
			call: func(_ context.Context, params []byte, into *[]byte) error { return call(live, params, into) },
			close: func() error {
				err := end()
				cancel()
				return err
			},
		}, nil
	}
}

// parleyHTTP is package rpchttp on both sides.
func parleyHTTP() []entrant {
	return []entrant{
		{name: "Parley", role: ours, open: parleyPosts(true)},
		{name: "pooled handlers", role: variant, open: parleyPosts(false)},
	}
}

func parleyPosts(inline bool) func(context.Context, load) (*remote, error) {
	return func(context.Context, load) (*remote, error) {
		h := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: parleyMethods(inline, new(atomic.Int64))}})
		s := httptest.NewServer(h)
		stream, err := rpchttp.NewStream(s.URL, rpchttp.ClientConfig{})
		if err != nil {
			s.Close()
			return nil, errors.Join(err, h.Close())
		}
		c := jsonrpc.NewConn(stream, jsonrpc.Config{})
		r := parleyRemote(c)
		r.close = func() error {
			err := c.Close()
			s.Close()
			return errors.Join(err, h.Close())
		}
		return r, nil
	}
}

// parleyWS is package rpcws on both sides.
func parleyWS() []entrant {
	return []entrant{
		{name: "Parley", role: ours, open: parleySocket(true)},
		{name: "pooled handlers", role: variant, open: parleySocket(false)},
	}
}

func parleySocket(inline bool) func(context.Context, load) (*remote, error) {
	return func(ctx context.Context, _ load) (*remote, error) {
		methods := parleyMethods(inline, new(atomic.Int64))
		h := rpcws.Handler(rpcws.AcceptConfig{}, func(_ context.Context, stream jsonrpc.Stream) {
			<-jsonrpc.NewConn(stream, jsonrpc.Config{Handler: methods}).Done()
		})
		s := httptest.NewServer(http.Handler(h))
		stream, err := rpcws.Dial(ctx, "ws"+strings.TrimPrefix(s.URL, "http"), rpcws.DialConfig{})
		if err != nil {
			s.Close()
			return nil, errors.Join(err, h.Close())
		}
		c := jsonrpc.NewConn(stream, jsonrpc.Config{})
		r := parleyRemote(c)
		r.close = func() error {
			err := errors.Join(c.Close(), h.Close())
			s.Close()
			return err
		}
		return r, nil
	}
}
