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
	lent   *lending      // of a goroutine that reads; nil with Config.CallerReads
}

// newReadToken makes the token of a connection with Config.CallerReads.
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

// newLentToken makes the token of a connection whose goroutine reads, and lends
// that to callers; nil if the Stream cannot be interrupted.
func newLentToken(c *Conn) *readToken {
	stream, ok := c.stream.(readDeadliner)
	if !ok {
		return nil
	}
	t := &readToken{c: c, stream: stream, free: make(chan struct{}, 1)}
	t.lent = newLending(t)
	return t
}

// inHand says whether callers are to read: with Config.CallerReads, and while
// that is lent to them.
func (t *readToken) inHand() bool {
	return t != nil && (t.lent == nil || t.lent.lent.Load())
}

// await waits until the call is settled, reading when it is its turn. With an
// error the slot is free again.
func (t *readToken) await(ctx context.Context, s *slot, call *outCall) error {
	select {
	case <-s.done: // while it was sent, or in a batch
	case <-t.free:
		if !t.read(ctx, s, call) {
			return t.c.abandon(ctx, s, call)
		}
	default:
		if t.lent != nil {
			t.lent.recall.Store(true)
		}
		select {
		case <-s.done:
		case <-t.free:
			if !t.read(ctx, s, call) {
				return t.c.abandon(ctx, s, call)
			}
		case <-ctx.Done():
			return t.c.abandon(ctx, s, call)
		}
	}
	err := s.err
	if err != nil {
		t.c.failed(s, call, err)
	}
	return err
}

// read reads with the token until the call is settled, and says whether it is:
// else its context has ended.
func (t *readToken) read(ctx context.Context, s *slot, call *outCall) (settled bool) {
	gone := true
	defer func() {
		if gone { // by a handler's runtime.Goexit, or a panic of a hook
			t.c.in.assembly.breakOff(errReaderGone)
			t.c.end(errReaderGone, true)
			t.c.giveUp(s, call)
		}
		t.release()
	}()
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, t.interrupt)()
	}
	settled = t.readUntil(ctx, s)
	gone = false
	return settled
}

func (t *readToken) readUntil(ctx context.Context, s *slot) bool {
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

// release passes the token on.
func (t *readToken) release() {
	if t.lent != nil {
		t.lent.release(t.c)
		return
	}
	t.free <- struct{}{}
}

// interrupt makes who reads look whether its call has ended in another way.
func (t *readToken) interrupt() { _ = t.stream.SetReadDeadline(time.Unix(1, 0)) }
