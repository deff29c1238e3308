package jsonrpcbench

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http/httptest"
	"sync/atomic"

	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/channel"
	"github.com/creachadair/jrpc2/handler"
	"github.com/creachadair/jrpc2/jhttp"
)

func jrpc2Methods(handled *atomic.Int64) handler.Map {
	return handler.Map{
		method: func(_ context.Context, req *jrpc2.Request) (any, error) {
			if req.IsNotification() {
				handled.Add(1)
				return nil, nil
			}
			var p json.RawMessage
			err := req.UnmarshalParams(&p)
			return p, err
		},
		typed: handler.New(func(_ context.Context, t *task) (*task, error) { return t, nil }),
	}
}

func jrpc2Conn(_ context.Context, client, server net.Conn) (*remote, error) {
	var handled atomic.Int64
	s := jrpc2.NewServer(jrpc2Methods(&handled), nil).Start(channel.Line(server, server))
	c := jrpc2.NewClient(channel.Line(client, client), nil)
	r := jrpc2Remote(c)
	r.received = handled.Load
	r.close = func() error {
		err := c.Close()
		return errors.Join(err, ignoreClosed(s.Wait()))
	}
	return r, nil
}

func jrpc2Remote(c *jrpc2.Client) *remote {
	return &remote{
		call: func(ctx context.Context, params []byte, into *[]byte) error {
			return c.CallResult(ctx, method, rawJSON(params), (*json.RawMessage)(into))
		},
		typed: func(ctx context.Context, in, out *task) error { return c.CallResult(ctx, typed, in, out) },
		notify: func(ctx context.Context, params []byte) error {
			return c.Notify(ctx, method, rawJSON(params))
		},
		batch: func(ctx context.Context, params []byte, into [][]byte) error {
			specs := make([]jrpc2.Spec, len(into))
			for i := range specs {
				specs[i] = jrpc2.Spec{Method: method, Params: rawJSON(params)}
			}
			answers, err := c.Batch(ctx, specs)
			for i, a := range answers {
				err = errors.Join(err, a.UnmarshalResult((*json.RawMessage)(&into[i])))
			}
			return err
		},
	}
}

// jrpc2HTTP is its HTTP bridge and channel.
func jrpc2HTTP(context.Context, load) (*remote, error) {
	b := jhttp.NewBridge(jrpc2Methods(new(atomic.Int64)), nil)
	s := httptest.NewServer(b)
	c := jrpc2.NewClient(jhttp.NewChannel(s.URL, &jhttp.ChannelOptions{Client: httpClient()}), nil)
	r := jrpc2Remote(c)
	r.close = func() error {
		err := c.Close()
		s.Close()
		return errors.Join(err, b.Close())
	}
	return r, nil
}
