package jsonrpc

import (
	"context"
	"errors"
	"os"
	"time"
)

// A readToken makes the callers of a connection read it themselves, one at a
// time: who has the token reads until its own answer has come, gives others'
// answers to them on the way, and then passes the token on to one of those who
// still wait. A call on a quiet connection thus never changes goroutines.
type readToken struct {
	c      *Conn
	stream readDeadliner
	free   chan struct{} // holds the token while nobody reads
}

func newReadToken(c *Conn) *readToken {
	stream, ok := c.stream.(readDeadliner)
	if !ok {
		panic("jsonrpc: Config.CallerReads needs a Stream with SetReadDeadline")
	}
	if c.cfg.Handler != nil {
		panic("jsonrpc: Config.CallerReads is for connections without a Handler")
	}
	t := &readToken{c: c, stream: stream, free: make(chan struct{}, 1)}
	t.free <- struct{}{}
	return t
}

// await waits until the call is settled, reading when it is its turn. With an
// error the slot is free again.
func (t *readToken) await(ctx context.Context, s *slot, call *outCall) error {
	select {
	case <-s.done: // while it was sent, or in a batch
	case <-t.free:
		if !t.read(ctx, s) {
			return t.c.abandon(ctx, s, call)
		}
	default:
		select {
		case <-s.done:
		case <-t.free:
			if !t.read(ctx, s) {
				return t.c.abandon(ctx, s, call)
			}
		case <-ctx.Done():
			return t.c.abandon(ctx, s, call)
		}
	}
	err := s.err
	if err != nil {
		t.c.pending.release(s)
	}
	return err
}

// read reads with the token until the call is settled, and says whether it is:
// else its context has ended.
func (t *readToken) read(ctx context.Context, s *slot) bool {
	defer func() { t.free <- struct{}{} }()
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, t.interrupt)()
	}
	for {
		select {
		case <-s.done:
			return true
		default:
		}
		if ctx.Err() != nil {
			return false
		}
		err := t.c.in.next()
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			// Someone has interrupted us, or one who read before us. What it
			// was for shows above, since that came first.
			_ = t.stream.SetReadDeadline(time.Time{})
		default:
			t.c.end(err, !isHangUp(err))
			<-s.done
			return true
		}
	}
}

// interrupt makes who reads look whether its call has ended in another way.
func (t *readToken) interrupt() { _ = t.stream.SetReadDeadline(time.Unix(1, 0)) }
