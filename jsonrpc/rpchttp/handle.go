package rpchttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/parley-project/parley/jsonrpc"
)

// A handler stands between the Responder and the Handler that was configured.
// It says when a notification begins to be handled, and lets the notifications
// of a session cancel its requests.
type handler struct {
	next    jsonrpc.Handler
	inliner jsonrpc.Inliner // next, or nil
	cancel  cancelling
}

func newHandler(cfg *jsonrpc.Config) *handler {
	h := &handler{next: cfg.Handler, cancel: cancellingOf(cfg.Cancel)}
	if h.next == nil {
		h.next = new(jsonrpc.Mux)
	}
	h.inliner, _ = h.next.(jsonrpc.Inliner)
	return h
}

// Inline implements jsonrpc.Inliner. Cancelling is quick.
func (h *handler) Inline(method []byte) bool {
	return h.cancel.is(string(method)) || h.inliner != nil && h.inliner.Inline(method)
}

// Handle implements jsonrpc.Handler.
func (h *handler) Handle(ctx context.Context, req *jsonrpc.Request) (any, error) {
	if req.IsNotification() {
		return h.notified(ctx, req)
	}
	if !h.cancel.on() {
		return h.next.Handle(ctx, req)
	}
	ses, ok := SessionFrom(ctx)
	if !ok {
		return h.next.Handle(ctx, req)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if id := req.ID().String(); ses.running.add(id, cancel) {
		defer ses.running.remove(id)
	}
	result, err := h.next.Handle(ctx, req)
	if context.Cause(ctx) == errCancelled && errors.Is(err, context.Canceled) { //nolint:errorlint // our own
		return nil, context.Canceled // also when it was a call of the handler's own that was cancelled
	}
	return result, err
}

func (h *handler) notified(ctx context.Context, req *jsonrpc.Request) (any, error) {
	if a, ok := ctx.Value(acceptanceKey{}).(*acceptance); ok {
		if h.Inline([]byte(req.Method())) {
			defer a.begin() // what comes next finds it done
		} else {
			a.begin()
		}
	}
	if !h.cancel.is(req.Method()) {
		return h.next.Handle(ctx, req)
	}
	if ses, ok := SessionFrom(ctx); ok {
		ses.running.cancel(h.cancel.target(req.Params()))
	}
	return nil, nil
}

// running knows how to cancel the requests of a session, by their raw ids. They
// are no more than the handlers that Config.MaxHandlers allows.
type running struct {
	mu      sync.Mutex
	cancels map[string]context.CancelCauseFunc
}

// add remembers a request. Of two with the same id, which is the client's
// mistake, the first is remembered, and false returned for the second.
func (r *running) add(id string, cancel context.CancelCauseFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancels == nil {
		r.cancels = make(map[string]context.CancelCauseFunc)
	}
	if r.cancels[id] != nil {
		return false
	}
	r.cancels[id] = cancel
	return true
}

func (r *running) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cancels, id)
}

// cancel cancels a request. One that does not run is ignored: its answer was on
// its way.
func (r *running) cancel(id []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.cancels[string(id)]; cancel != nil {
		cancel(errCancelled)
	}
}

type acceptanceKey struct{}

// An acceptance counts the notifications of a POST that are being handled.
type acceptance struct {
	want  int64
	begun atomic.Int64
	all   chan struct{} // closed when all have begun, the inline ones ended
}

func (a *acceptance) begin() {
	if a.begun.Add(1) == a.want {
		close(a.all)
	}
}

// mayNotify says whether msg can hold notifications only, at a glance.
func mayNotify(msg []byte) bool {
	i := skipSpace(msg, 0)
	return i < len(msg) && (msg[i] == '[' || kindOf(msg) == isNotification)
}

// notify handles notifications. They are answered as soon as all of them are
// being handled, which goes on without the client; but those that are handled
// inline are answered afterwards, so that whoever waits for one answer before
// it sends the next message keeps the order.
func (s *Server) notify(ctx context.Context, w http.ResponseWriter, x *exchange) {
	x.accepts = &acceptance{want: int64(x.look.entries), all: make(chan struct{})}
	ctx = context.WithValue(context.WithoutCancel(ctx), acceptanceKey{}, x.accepts)
	if x.look.entries == 1 && s.handler.Inline(x.look.method) {
		out, err := s.responder.Respond(ctx, x.body, x.out[:0])
		s.answer(w, x, out, err)
		return
	}
	var out []byte
	err := errShut
	done := make(chan struct{})
	x.users.Add(1)
	release := func() {}
	if x.ses != nil {
		release = x.ses.use()
	}
	if !s.begin(func() {
		defer s.recycle(x)
		defer release()
		defer close(done)
		err = nil // in case that a handler ends the goroutine
		out, err = s.responder.Respond(ctx, x.body, x.out[:0])
	}) {
		s.recycle(x)
		release()
		close(done)
	}
	select {
	case <-x.accepts.all:
		w.WriteHeader(s.accepted)
	case <-done:
		s.answer(w, x, out, err)
	}
}

// begin runs f on a goroutine that Close waits for, unless it was called
// already.
func (s *Server) begin(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	s.wg.Go(f)
	return true
}

// dropped says whether the Responder had no place for the notifications in x,
// and sees to it that those that make places find one.
func (s *Server) dropped(x *exchange) bool {
	if x.accepts == nil || x.accepts.begun.Load() > 0 {
		return false
	}
	id, ok := s.handler.cancel.targetOf(x.body)
	if ok && x.ses != nil {
		x.ses.running.cancel(id)
	}
	return !ok
}
