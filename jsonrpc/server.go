package jsonrpc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// A server handles requests, for a Conn or a Responder: it runs the handler in
// its context, keeps its panics in, tells the hooks, and makes of what it
// returns something fit for the wire.
type server struct {
	cfg      *Config
	report   *reporter
	bufs     *buffers
	conn     *Conn // nil for a Responder
	handler  Handler
	inliner  Inliner         // nil: no method is handled inline
	streamer ParamsStreamer  // nil: no params are streamed
	base     context.Context //nolint:containedctx // that of all handlers
	cancel   context.CancelCauseFunc
	clock    clock
	pool     pool
	jobs     sync.Pool
	running  running
	asked    atomic.Bool // there was a request, and no notification
}

// A job is one request on its way through a handler.
type job struct {
	req    Request
	buf    *buffer     // what req points into; nil when it points into the read buffer
	undo   func() bool // frees what the context hangs on; may be nil
	batch  *batch      // that it is an entry of
	entry  int         // of batch
	next   *job        // in the pool's queue
	worker *worker     // of the pool, that runs it
}

func newServer(cfg *Config, report *reporter, bufs *buffers, conn *Conn) *server {
	s := &server{cfg: cfg, report: report, bufs: bufs, conn: conn, handler: cfg.Handler, clock: clock{time.Now()}}
	if s.handler == nil {
		s.handler = HandlerFunc(methodNotFound)
	}
	s.inliner, _ = s.handler.(Inliner)
	s.streamer, _ = s.handler.(ParamsStreamer)
	s.base, s.cancel = context.WithCancelCause(context.Background())
	s.pool.max, s.pool.run = cfg.MaxHandlers, s.serve
	if method, member := cfg.Cancel.method(); method != "" {
		s.running = running{method: method, member: member, contexts: make(map[string]*requestContext)}
	}
	return s
}

// fill makes a job of a message, whose bytes it points into. name is the
// message's method.
func (s *server) fill(j *job, m *message, name string) {
	j.req = Request{conn: s.conn, codec: s.cfg.Codec, method: name, params: m.params}
	if m.kind == kindRequest {
		j.req.id = m.id
	}
	if m.hasMeta() {
		j.req.meta = m.metadata()
	}
}

// newJob makes a job of a message, with a copy of its bytes.
func (s *server) newJob(m *message, name string) *job {
	j, ok := s.jobs.Get().(*job)
	if !ok {
		j = new(job)
	}
	s.fill(j, m, name)
	j.buf = s.bufs.get()
	n := len(j.req.id)
	j.buf.b = append(append(j.buf.b[:0], j.req.id...), j.req.params...)
	if j.req.id != nil {
		j.req.id = j.buf.b[:n:n]
	}
	if j.req.params != nil {
		j.req.params = j.buf.b[n:]
	}
	return j
}

// free gives back a job from newJob.
func (s *server) free(j *job) {
	if j.undo != nil {
		j.undo()
	}
	s.bufs.put(j.buf)
	*j = job{}
	s.jobs.Put(j)
}

// begin gives the job its context, see newContext, and counts it.
func (s *server) begin(base context.Context, slab *contextSlab, j *job) {
	s.newContext(base, slab, j)
	s.count(j.req.id != nil)
}

// newContext gives the job a context of slab, which derives from base and can be
// cancelled by the peer from now on.
func (s *server) newContext(base context.Context, slab *contextSlab, j *job) {
	if j.req.meta != (Meta{}) {
		base = WithMeta(base, j.req.meta)
	}
	j.req.ctx = slab.next(base)
	s.running.add(j.req.id, j.req.ctx)
}

// count counts a message that is given to a handler; answered says that it is a
// request.
func (s *server) count(answered bool) {
	s.report.requests.Add(1)
	if answered && !s.asked.Load() {
		s.asked.Store(true)
	}
}

// handle runs the handler.
func (s *server) handle(j *job) (result any, err error) {
	req := &j.req
	if s.report.hooks.RequestDone == nil {
		return s.invoke(j)
	}
	start := s.clock.now()
	result, err = s.invoke(j)
	s.report.hooks.RequestDone(RequestInfo{
		Conn: s.report.conn, Method: req.method, Notification: req.IsNotification(), Meta: req.meta,
		Elapsed: time.Duration(s.clock.now() - start), Err: err,
	})
	return result, err
}

// invoke calls the handler, whose panics become errors.
func (s *server) invoke(j *job) (result any, err error) {
	defer func() {
		s.running.remove(j.req.id, j.req.ctx)
		j.req.ctx.end(errHandled)
		if err != nil {
			j.req.broken = s.whyBroken(j.req.ctx)
		}
		if v := recover(); v != nil {
			result, err = nil, s.panicked(&j.req, v)
		}
	}()
	result, err = s.handler.Handle(j.req.ctx, &j.req)
	if e, ok := err.(*Error); ok && e == nil { //nolint:errorlint // a wrapped one says something
		err = s.nilError(&j.req)
	}
	return result, err
}

// errNil is what an *Error that is nil says as the error of a handler, which most
// likely meant that there was none.
var errNil = errors.New("jsonrpc: the handler returned an *Error that is nil: return nil by itself where there is no error")

// nilError takes the place of such an error: what the peer is answered with, and
// errNil for the hooks, who are told of a notification's error anyway.
func (s *server) nilError(req *Request) error {
	told := s.handlerError(req, errNil)
	if !req.IsNotification() {
		s.report.notice(NoticeHandlerError, told)
	}
	return fmt.Errorf("%w: %w", internalError(req.meta.CorrelationID), errNil)
}

// panicked tells the hooks of a panic, with its stack.
func (s *server) panicked(req *Request, v any) error {
	if req.meta.CorrelationID == "" {
		req.meta.CorrelationID = rand.Text()
	}
	e := &PanicError{Method: req.method, CorrelationID: req.meta.CorrelationID, Value: v, Stack: debug.Stack()}
	s.report.notice(NoticePanic, e)
	return e
}

// panickedIn says that err is, or was made of, a panic of the request's own
// handler, which the hooks know already.
func panickedIn(req *Request, err error) bool {
	p, ok := errors.AsType[*PanicError](err)
	return ok && p.CorrelationID == req.meta.CorrelationID && p.Method == req.method
}

// A response is an answer that is ready to be written.
type response struct {
	raw     []byte    // the result, checked; nil for null
	err     *Error    // in place of a result
	scratch *buffer   // what raw points into, to be given back; may be nil
	stream  io.Reader // the rest of the result, which begins with raw
	check   *valueChecker
}

// respond makes a response of what a handler returned.
func (s *server) respond(req *Request, result any, err error) response {
	succeeded := err == nil
	if succeeded {
		var r response
		if r, err = s.encode(req, result); err == nil {
			return r
		}
		s.bufs.put(r.scratch)
	}
	switch {
	case panickedIn(req, err):
		return response{err: internalError(req.meta.CorrelationID)}
	case req.broken != nil && (succeeded || brokenOff(err)):
		return response{err: req.broken}
	case succeeded:
		s.report.notice(NoticeUnencodable, s.handlerError(req, err))
		return response{err: internalError(req.meta.CorrelationID)}
	}
	e, hidden := wireError(err, req.meta.CorrelationID)
	if hidden {
		s.report.notice(NoticeHandlerError, s.handlerError(req, err))
		e = internalError(req.meta.CorrelationID)
	}
	return response{err: s.sendable(req, e)}
}

// sendable returns e, without data that is no JSON or nested too deeply, which is two
// levels down in its message. The hooks are told of it.
func (s *server) sendable(req *Request, e *Error) *Error {
	if len(e.Data) == 0 {
		return e
	}
	err := checkValue(e.Data, s.cfg.MaxDepth-2)
	if err == nil {
		return e
	}
	err = fmt.Errorf("jsonrpc: the data of the error %d is left out: %w", int64(e.Code), err)
	s.report.notice(NoticeUnencodable, &HandlerError{Method: req.method, CorrelationID: req.meta.CorrelationID, Err: err})
	return &Error{Code: e.Code, Message: e.Message}
}

// whyBroken returns what the peer is told of a request that was broken off by the end
// of its context; nil when neither side did that. When it is this side, which closes the
// connection, the peer did not cancel anything, and is better told that the time was
// over (RPC-22): not CodeClosing, after which it could repeat what may have been done.
func (s *server) whyBroken(ctx *requestContext) *Error {
	switch {
	case ctx.endedBy(errPeerGone):
		return &Error{Code: CodeCancelled, Message: CodeCancelled.String()}
	case s.base.Err() != nil:
		return &Error{Code: CodeTimeout, Message: "broken off: the connection is closing"}
	case ctx.base.Err() != nil: // whoever waits for a Responder does so no longer
		return &Error{Code: CodeCancelled, Message: CodeCancelled.String()}
	}
	return nil
}

// brokenOff says that a handler failed since its context, or a connection, has
// ended: in a call of its own, too, which it had made for the request.
func brokenOff(err error) bool {
	if _, own := errors.AsType[*Error](err); own {
		return false
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, ErrClosed)
}

// handlerError says for the hooks what the peer is not told, and sees to it
// that there is a word by which both are found.
func (s *server) handlerError(req *Request, err error) error {
	if req.meta.CorrelationID == "" {
		req.meta.CorrelationID = rand.Text()
	}
	return &HandlerError{Method: req.method, CorrelationID: req.meta.CorrelationID, Err: err}
}

// encode makes the JSON text of a result. That may run code of the handler's
// side, a json.Marshaler for one, whose panics become errors like the handler's.
func (s *server) encode(req *Request, result any) (r response, err error) {
	defer func() {
		if v := recover(); v != nil {
			r, err = response{}, s.panicked(req, v)
		}
	}()
	switch v := result.(type) {
	case nil:
		return response{}, nil
	case json.RawMessage:
		return s.encodeRaw(req, v)
	case *json.RawMessage:
		if v == nil {
			return response{}, nil
		}
		return s.encodeRaw(req, *v)
	case io.Reader:
		s.watchResult(req, v)
		return s.encodeReader(&resultReader{v, s, req})
	}
	r = response{scratch: s.bufs.get()}
	text, err := appendWithin(s.cfg.Codec, r.scratch.b[:0], result, s.cfg.MaxDepth-1)
	if err != nil {
		return r, err
	}
	r.scratch.b, r.raw = text, text
	return r, nil
}

// encodeReader begins to read a result.
func (s *server) encodeReader(from *resultReader) (response, error) {
	r := response{scratch: s.bufs.get(), check: newStreamChecker(s.cfg)}
	more, err := beginStream(from, r.scratch, r.check)
	r.raw = r.scratch.b
	if more {
		r.stream = from
	}
	return r, err
}

// encodeRaw takes a JSON text that the handler made.
func (s *server) encodeRaw(req *Request, text json.RawMessage) (response, error) {
	switch {
	case text == nil:
		return response{}, nil
	case s.cfg.TrustRaw && len(text) > 0:
		return response{raw: text}, nil
	case len(text) == len(req.params) && len(text) > 0 && &text[0] == &req.params[0]:
		return response{raw: text}, nil // an echo: it was checked when it came
	}
	return response{raw: text}, checkValue(text, s.cfg.MaxDepth-1)
}

// append appends the response to the request with the id.
func (r *response) append(dst, id []byte) []byte {
	if r.err != nil {
		return appendErrorResponse(dst, id, r.err)
	}
	return appendResult(dst, id, r.raw)
}

// busy is the answer to a request beyond the bound on handlers.
func (s *server) busy(req *Request) *Error {
	s.report.notice(NoticeBusy, s.handlerError(req, &ResourceError{
		What: "requests being handled", Limit: s.cfg.MaxHandlers, Unit: "requests",
	}))
	e := &Error{Code: CodeServerBusy, Message: CodeServerBusy.String()}
	e.Data = appendLimit(nil, s.cfg.MaxHandlers, "requests")
	return e
}
