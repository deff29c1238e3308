package jsonrpc

import (
	"context"
	"sync"
	"time"
)

// A requestContext is the context of one request. Few handlers ask for Done,
// so that the real context, which has a price, is made when the first one
// does. A requestContext is never used again: one that a handler keeps stays
// ended for ever, and is not some later request's.
type requestContext struct {
	base context.Context //nolint:containedctx // it is a context itself

	mu     sync.Mutex
	inner  context.Context //nolint:containedctx // the real one; nil until asked for
	cancel context.CancelCauseFunc
	cause  error // why it ended, when it has
}

// Deadline implements context.Context.
func (c *requestContext) Deadline() (time.Time, bool) { return c.base.Deadline() }

// Done implements context.Context.
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithCancelCause(c.base)
		if c.cause != nil {
			c.cancel(c.cause)
		}
	}
	return c.inner.Done()
}

// Err implements context.Context.
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.inner != nil:
		return c.inner.Err()
	case c.cause != nil:
		return context.Canceled
	}
	return c.base.Err()
}

// Value implements context.Context. The inner context is asked because package
// context finds its own contexts by a value, which makes contexts derived from
// this one cheap.
func (c *requestContext) Value(key any) any {
	c.mu.Lock()
	ctx := c.inner
	c.mu.Unlock()
	if ctx == nil {
		ctx = c.base
	}
	return ctx.Value(key)
}

// end ends the context for good.
func (c *requestContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	c.cause = cause
	if c.cancel != nil {
		c.cancel(cause)
	}
}

// endedBy says that the context ended first for that cause.
func (c *requestContext) endedBy(cause error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause == cause //nolint:errorlint // one of our own
}

// A contextSlab makes requestContexts, several with one allocation. It is used
// by one goroutine. A nil slab makes one at a time.
type contextSlab struct{ rest []requestContext }

const slabContexts = 16

// reserve makes one allocation do for the next n contexts.
func (s *contextSlab) reserve(n int) {
	if len(s.rest) < n {
		s.rest = make([]requestContext, max(n, slabContexts))
	}
}

func (s *contextSlab) next(base context.Context) *requestContext {
	if s == nil {
		return &requestContext{base: base}
	}
	if len(s.rest) == 0 {
		s.rest = make([]requestContext, slabContexts)
	}
	c := &s.rest[0]
	s.rest = s.rest[1:]
	c.base = base
	return c
}
