package jsonrpc

import (
	"context"
	"errors"
)

// inlines says whether the method is handled by the goroutine that reads.
func (s *server) inlines(method []byte) bool {
	return s.inliner != nil && s.inliner.Inline(method)
}

// serve handles a job on a goroutine of the pool, and answers.
func (s *server) serve(j *job) {
	if j.batch != nil {
		j.batch.run(j)
		return
	}
	var result any
	err := errExited
	defer func() { // deferred for handlers that end their goroutine
		switch p := j.req.stream; {
		case j.req.IsNotification(), p != nil && !p.ended(s.conn.done):
			s.dropped(&j.req, err)
		default:
			s.conn.answer(j, result, err)
		}
		s.closeResult(&j.req, result)
		s.free(j)
	}()
	result, err = s.handle(j)
}

// errExited is the error of a handler that called runtime.Goexit, as testing's
// FailNow does.
var errExited = errors.New("jsonrpc: the handler ended its goroutine")

// dropped reports the error of a notification's handler, which nobody is told
// otherwise.
func (s *server) dropped(req *Request, err error) {
	if err == nil {
		return
	}
	if _, told := err.(*PanicError); !told { //nolint:errorlint // our own, from invoke
		s.report.notice(NoticeHandlerError, s.handlerError(req, err))
	}
}

// answer answers a request from a goroutine of the pool, which waits for room
// as long as the connection stands.
func (c *Conn) answer(j *job, result any, err error) {
	r := c.srv.respond(&j.req, result, err)
	c.writeResponse(j, &r)
	c.bufs.put(r.scratch)
}

func (c *Conn) writeResponse(j *job, r *response) {
	w, req := c.w, &j.req
	if w.lock(context.Background(), 0, sendsAnswer, len(r.raw)+envelopeSize) != nil {
		return
	}
	if r.stream != nil {
		w.buf = appendResultHead(w.buf, req.id)
		if err := w.streamLocked(context.Background(), r.raw, r.stream, r.check, nil); err != nil {
			failed := c.srv.respond(req, nil, err) // behind the line that was cut off
			c.writeResponse(j, &failed)
		}
		return
	}
	start := len(w.buf)
	w.buf = endLine(r.append(w.buf, req.id), start)
	c.srv.pool.release(j.worker)
	w.flush(c.srv.pool.busy())
}
