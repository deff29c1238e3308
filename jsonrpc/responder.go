package jsonrpc

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// A Responder answers messages that come without a connection, one by one: the
// bodies of HTTP requests, for example. It may be used by several goroutines
// at once. Of its Config the limits, the Handler, the Codec and the Hooks count.
type Responder struct {
	cfg    Config
	report reporter
	bufs   buffers
	srv    *server

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // of Respond
}

// NewResponder returns a Responder. Close it when it is no longer needed.
func NewResponder(cfg Config) *Responder {
	r := &Responder{cfg: cfg.withDefaults()}
	r.report.conn, r.report.hooks = r.cfg.Name, r.cfg.Hooks
	r.srv = newServer(&r.cfg, &r.report, &r.bufs, nil)
	return r
}

// Respond handles msg, a request, a notification or a batch, and appends the
// answer to dst, without a line break. It appends nothing when there is
// nothing to answer: for notifications, batches of nothing else, and
// responses. It waits for the handlers, whose contexts derive from ctx. A Meta
// that ctx carries is the requests' own where they have none themselves. msg is
// not used after it returned.
//
// The error is a *ConnError after Close, and nil otherwise: what is wrong with
// msg is part of the answer (RPC-4, RPC-5, RPC-24).
func (r *Responder) Respond(ctx context.Context, msg, dst []byte) ([]byte, error) {
	return r.RespondTo(ctx, msg, dst, nil)
}

// RespondTo is Respond for a transport that need not have an answer whole before it
// sends it: that of a single request whose result comes from an io.Reader, and is
// longer than 32 KiB, is written to w while it is read, and nothing is appended
// (RPC-24). A nil w is Respond.
//
// Any error but a *ConnError says that what was written is not whole, since the
// reader has failed or gives no JSON, or w has. There is no way to take it back: the
// transport must break off, so that nobody takes it for an answer.
func (r *Responder) RespondTo(ctx context.Context, msg, dst []byte, w io.Writer) ([]byte, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return dst, &ConnError{Conn: r.cfg.Name, State: StateDisconnected, Err: ErrClosed}
	}
	r.calls.Add(1)
	r.mu.Unlock()
	defer r.calls.Done()

	if len(msg) > r.cfg.MaxMessage {
		r.report.notice(NoticeOversize, tooLong(r.cfg.MaxMessage))
		return appendErrorResponse(dst, nil, oversizeError(r.cfg.MaxMessage)), nil
	}
	var m message
	m.scan(msg, r.cfg.MaxDepth)
	switch m.kind {
	case kindBatch:
		return r.batch(ctx, msg, dst), nil
	case kindRequest, kindNotification:
		return r.single(ctx, &m, dst, w)
	case kindResult, kindError:
		r.report.notice(NoticeUnknown, noSuchCall(m.id))
		return dst, nil
	}
	return r.refuse(&m, dst), nil
}

// Stats returns what happened so far.
func (r *Responder) Stats() Stats {
	s := r.report.stats()
	s.Handling = r.srv.pool.handling()
	return s
}

// Close refuses further messages, ends the contexts of running handlers after
// Config.Grace, closes results that are being read, and waits until they have
// answered.
func (r *Responder) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	grace, cancel := context.WithTimeout(context.Background(), max(r.cfg.Grace, 0))
	r.srv.pool.wait(grace)
	cancel()
	r.srv.cancel(ErrClosed)
	r.calls.Wait()
	r.srv.pool.close()
	return nil
}

// refuse appends the answer to what is no message.
func (r *Responder) refuse(m *message, dst []byte) []byte {
	e := m.fail()
	kind := NoticeInvalid
	if m.kind == kindMalformed {
		kind = NoticeMalformed
	}
	r.report.notice(kind, e)
	return appendErrorResponse(dst, m.answerID(), e)
}

// single handles one request on the caller's goroutine.
func (r *Responder) single(ctx context.Context, m *message, dst []byte, w io.Writer) ([]byte, error) {
	s, j := r.srv, new(job)
	s.fill(j, m, string(m.methodName(nil)))
	j.req.meta = j.req.meta.over(ctx)
	if !s.pool.enter() {
		e := s.busy(&j.req)
		if j.req.IsNotification() {
			return dst, nil
		}
		return appendErrorResponse(dst, j.req.id, e), nil
	}
	defer s.pool.leave()
	stop := s.both(ctx, j)
	defer stop()
	result, err := s.handle(j)
	defer s.closeResult(&j.req, result)
	if j.req.IsNotification() {
		s.dropped(&j.req, err)
		return dst, nil
	}
	answer := s.respond(&j.req, result, err)
	if answer.stream != nil && w != nil {
		return dst, s.streamTo(w, &j.req, answer)
	}
	if answer.stream != nil {
		answer = s.readAll(&j.req, answer)
	}
	dst = answer.append(dst, j.req.id)
	s.bufs.put(answer.scratch)
	return dst, nil
}

// streamTo writes the answer to a request whose result is being read. The hooks are
// told of a result that is none.
func (s *server) streamTo(w io.Writer, req *Request, r response) error {
	defer s.bufs.put(r.scratch)
	piece := append(appendResultHead(make([]byte, 0, streamPiece+len(r.raw)), req.id), r.raw...)
	for ended := false; ; {
		if _, err := w.Write(piece); err != nil || ended {
			return err
		}
		n, err := r.stream.Read(piece[:streamPiece])
		piece = piece[:n]
		ended = isEnd(err)
		fault := r.check.Write(piece)
		switch {
		case fault == nil && ended:
			fault = r.check.Close()
			piece = append(piece, '}')
		case fault == nil && err != nil:
			fault = fmt.Errorf("jsonrpc: reading a value to be sent: %w", err)
		}
		if fault != nil {
			if req.broken == nil && !panickedIn(req, fault) {
				s.report.notice(NoticeUnencodable, s.handlerError(req, fault))
			}
			return fault
		}
	}
}

// both begins the job in a context that derives from ctx and ends with the
// server's too.
func (s *server) both(ctx context.Context, j *job) (undo func() bool) {
	s.begin(ctx, nil, j)
	return context.AfterFunc(s.base, func() { j.req.ctx.end(ErrClosed) })
}

// batch handles a batch: its entries side by side on the pool, those to be
// handled inline here.
func (r *Responder) batch(ctx context.Context, msg, dst []byte) []byte {
	var m message
	entries := m.scanBatch(nil, msg, r.cfg.MaxDepth, r.cfg.MaxBatch)
	if m.kind != kindBatch {
		return r.refuse(&m, dst)
	}
	done := make(chan struct{})
	b := &batch{s: r.srv, left: 1, spans: make([]span, len(entries)), reply: func(*batch) { close(done) }}
	for i := range entries {
		r.batchEntry(ctx, b, i, &entries[i])
	}
	b.start()
	if !b.last() {
		<-done
	}
	defer b.free()
	return b.appendTo(dst)
}

func (r *Responder) batchEntry(ctx context.Context, b *batch, i int, e *message) {
	s := r.srv
	switch e.kind {
	case kindRequest, kindNotification:
	case kindResult, kindError:
		r.report.notice(NoticeUnknown, noSuchCall(e.id))
		return
	default:
		fault := e.fail()
		r.report.notice(NoticeInvalid, fault)
		b.append(i, e.answerID(), &response{err: fault})
		return
	}
	name := e.methodName(nil)
	if s.inlines(name) {
		j := new(job)
		s.fill(j, e, string(name))
		j.req.meta = j.req.meta.over(ctx)
		stop := s.both(ctx, j)
		result, err := s.handle(j)
		stop()
		b.answer(i, &j.req, result, err)
		return
	}
	j := s.newJob(e, string(name))
	j.req.meta = j.req.meta.over(ctx)
	j.undo = s.both(ctx, j)
	b.add(i, j)
}
