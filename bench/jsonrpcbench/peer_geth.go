package jsonrpcbench

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/rpc"
)

// Geth is a service of go-ethereum/rpc, which finds it by reflection.
type Geth struct{ handled atomic.Int64 }

// Echo is bench_echo.
func (*Geth) Echo(params json.RawMessage) json.RawMessage { return params }

// Typed is bench_typed.
func (*Geth) Typed(t *task) *task { return t }

// Note is bench_note: the service cannot tell a notification from a call.
func (g *Geth) Note(json.RawMessage) { g.handled.Add(1) }

func newGeth() (*rpc.Server, *Geth, error) {
	s, g := rpc.NewServer(), new(Geth)
	return s, g, s.RegisterName("bench", g)
}

func gethConn(ctx context.Context, client, server net.Conn) (*remote, error) {
	s, g, err := newGeth()
	if err != nil {
		return nil, err
	}
	var serving sync.WaitGroup
	serving.Go(func() { s.ServeCodec(rpc.NewCodec(server), 0) })
	c, err := rpc.DialIO(ctx, client, client)
	if err != nil {
		return nil, err
	}
	r := gethRemote(c)
	r.received = g.handled.Load
	r.close = func() error {
		err := client.Close() // before the next line, which waits for the reader
		c.Close()
		s.Stop()
		serving.Wait()
		return ignoreClosed(err)
	}
	return r, nil
}

// gethRemote sends params as the one positional argument.
func gethRemote(c *rpc.Client) *remote {
	return &remote{
		call: func(ctx context.Context, params []byte, into *[]byte) error {
			return c.CallContext(ctx, (*json.RawMessage)(into), method, rawJSON(params))
		},
		typed: func(ctx context.Context, in, out *task) error { return c.CallContext(ctx, out, typed, in) },
		notify: func(ctx context.Context, params []byte) error {
			return c.Notify(ctx, "bench_note", rawJSON(params))
		},
		batch: func(ctx context.Context, params []byte, into [][]byte) error {
			elems := make([]rpc.BatchElem, len(into))
			for i := range elems {
				elems[i] = rpc.BatchElem{Method: method, Args: []any{rawJSON(params)}, Result: (*json.RawMessage)(&into[i])}
			}
			err := c.BatchCallContext(ctx, elems)
			for _, e := range elems {
				err = errors.Join(err, e.Error)
			}
			return err
		},
	}
}

func gethHTTP(ctx context.Context, _ load) (*remote, error) {
	s, _, err := newGeth()
	if err != nil {
		return nil, err
	}
	h := httptest.NewServer(s)
	c, err := rpc.DialOptions(ctx, h.URL, rpc.WithHTTPClient(httpClient()))
	if err != nil {
		h.Close()
		return nil, err
	}
	r := gethRemote(c)
	r.close = func() error {
		c.Close()
		h.Close()
		s.Stop()
		return nil
	}
	return r, nil
}

func gethWS(ctx context.Context, _ load) (*remote, error) {
	s, _, err := newGeth()
	if err != nil {
		return nil, err
	}
	h := httptest.NewServer(s.WebsocketHandler([]string{"*"}))
	c, err := rpc.DialWebsocket(ctx, "ws"+strings.TrimPrefix(h.URL, "http"), "")
	if err != nil {
		h.Close()
		return nil, err
	}
	r := gethRemote(c)
	r.close = func() error {
		c.Close()
		s.Stop()
		h.Close()
		return nil
	}
	return r, nil
}
