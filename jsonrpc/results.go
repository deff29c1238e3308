package jsonrpc

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// A resultReader is a result that is streamed: its panics are the handler's, and it
// ends with what the handler's context came from. It may give a little now and then,
// for ever.
type resultReader struct {
	io.Reader
	s   *server
	req *Request
}

func (r *resultReader) Read(p []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			n, err = 0, r.s.panicked(r.req, v)
		}
	}()
	if err := r.over(); err != nil {
		return 0, err
	}
	n, err = r.Reader.Read(p)
	_ = p[:n:len(p)] // a count of more than there is room for is a panic, too

	// Whatever it says of having been closed, that is not how the result ends.
	if err != nil && r.req.end.isEarly() {
		return 0, r.over()
	}
	return n, err
}

// over says why nobody waits for the result any more; nil when somebody does.
func (r *resultReader) over() error {
	for _, ctx := range r.s.bases(r.req) {
		if ctx.Err() != nil {
			r.req.broken = r.s.whyBroken(r.req.ctx)
			return fmt.Errorf("jsonrpc: the result was broken off: %w", context.Cause(ctx))
		}
	}
	return nil
}

// bases are the contexts that end a result: the handler's own is over already.
func (s *server) bases(req *Request) [2]context.Context {
	return [...]context.Context{s.base, req.ctx.base}
}

// A resultEnd closes a result that is an io.ReadCloser, once: when it is not read any
// more, or with what the handler's context came from. Its Read may wait for something
// then that never comes, and whoever gives it has no other way to learn of the end.
type resultEnd struct {
	result io.Closer
	s      *server
	told   Request // what the hooks are told of it
	once   sync.Once
	early  atomic.Bool // it may be closed while it is read
	stop   []func() bool
	tasks  sync.WaitGroup // of contexts that have ended
}

// watchResult sees to it that result, which is about to be read, is closed in time.
// closeResult ends that.
func (s *server) watchResult(req *Request, result any) {
	c, ok := result.(io.ReadCloser)
	if !ok {
		return
	}
	e := &resultEnd{result: c, s: s, told: Request{method: req.method, meta: req.meta}}
	req.end = e
	for _, ctx := range s.bases(req) {
		e.tasks.Add(1)
		e.stop = append(e.stop, context.AfterFunc(ctx, func() {
			defer e.tasks.Done()
			e.early.Store(true)
			e.close()
		}))
	}
}

// isEarly says that the result may have been closed while it was read.
func (e *resultEnd) isEarly() bool { return e != nil && e.early.Load() }

// close closes the result, the first time it is called.
func (e *resultEnd) close() { e.once.Do(func() { e.s.closeNow(&e.told, e.result) }) }

// closeResult closes a result that is an io.ReadCloser, which is not read any more.
// Nobody else knows when that is: whoever writes to the other end of a pipe could wait
// for ever.
func (s *server) closeResult(req *Request, result any) {
	e := req.end
	if e == nil { // it was never read
		if c, ok := result.(io.ReadCloser); ok {
			s.closeNow(req, c)
		}
		return
	}
	for _, stop := range e.stop {
		if stop() {
			e.tasks.Done()
		}
	}
	e.close()
	e.tasks.Wait()
}

func (s *server) closeNow(req *Request, c io.Closer) {
	defer func() {
		if v := recover(); v != nil {
			_ = s.panicked(req, v) // the hooks know; the answer is on its way
		}
	}()
	_ = c.Close() // what was read of it counts
}
