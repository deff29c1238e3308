package jsonrpc

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A watchedContext counts the contexts and functions that hang on it.
type watchedContext struct {
	context.Context //nolint:containedctx // it is a context itself

	done chan struct{}
	n    atomic.Int64
	most atomic.Int64
}

func watch(t *testing.T) *watchedContext {
	return &watchedContext{Context: t.Context(), done: make(chan struct{})}
}

func (c *watchedContext) Done() <-chan struct{} { return c.done }

// AfterFunc is what package context looks for in a context that is none of its own.
func (c *watchedContext) AfterFunc(func()) func() bool {
	c.most.Store(max(c.most.Load(), c.n.Add(1)))
	return func() bool {
		c.n.Add(-1)
		return true
	}
}

// TestNothingHangsOnContexts proves that nothing hangs on the context of a call any
// more when the call is over, nor on that of a message when it was answered: a program
// may use one context for all of its life.
func TestNothingHangsOnContexts(t *testing.T) {
	handler := HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
		ctx.Done()
		return req.Params(), nil
	})
	reader := func() any { return strings.NewReader(`["x"]`) }
	within := WithTimeout(time.Hour)
	for name, do := range map[string]func(ctx context.Context, cl *Client, c *Conn, r *Responder) error{
		"call": func(ctx context.Context, _ *Client, c *Conn, _ *Responder) error {
			return c.Call(ctx, "m", nil, nil, within)
		},
		"reader": func(ctx context.Context, _ *Client, c *Conn, _ *Responder) error {
			return c.Call(ctx, "m", reader(), nil)
		},
		"notify": func(ctx context.Context, _ *Client, c *Conn, _ *Responder) error { return c.Notify(ctx, "m", reader()) },
		"batch": func(ctx context.Context, _ *Client, c *Conn, _ *Responder) error {
			var b Batch
			b.Call("m", nil, nil)
			return c.Batch(ctx, &b, within)
		},
		"batch of readers": func(ctx context.Context, _ *Client, c *Conn, _ *Responder) error {
			var b Batch
			b.Call("m", reader(), nil)
			return c.Batch(ctx, &b)
		},
		"client": func(ctx context.Context, cl *Client, _ *Conn, _ *Responder) error {
			return cl.Call(ctx, "m", nil, nil, within) // it waits for the connection
		},
		"respond": func(ctx context.Context, _ *Client, _ *Conn, r *Responder) error {
			_, err := r.Respond(ctx, []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`), nil)
			return err
		},
		"respond to a batch": func(ctx context.Context, _ *Client, _ *Conn, r *Responder) error {
			_, err := r.Respond(ctx, []byte(`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","method":"m"}]`), nil)
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := NewResponder(Config{Handler: handler})
			near, far := Pair(Config{}, Config{Handler: handler})
			s := &site{cfg: Config{Handler: handler}}
			cl := NewClient(func(ctx context.Context) (Stream, error) {
				time.Sleep(time.Second)
				return s.dial(ctx)
			}, ClientConfig{})
			ctx := watch(t)
			if err := do(ctx, cl, near, r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			if ctx.n.Load() != 0 || ctx.most.Load() == 0 {
				t.Errorf("%s: %d still hang on the context, of %d", name, ctx.n.Load(), ctx.most.Load())
			}
			r.Close()
			near.Close()
			far.Close()
			cl.Close()
			for _, peer := range s.peers {
				peer.Close()
			}
		})
	}
}
