package jsonrpc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// A ParamsStreamer is a Handler that reads the params of some methods as they
// arrive, so that they take no more memory than a piece (RPC-24). It concerns
// requests on a Conn that come in parts, since they are longer than its Stream's
// buffer, and whose id, method and metadata come before their params, as this
// package writes them; any other request, and every notification, is there as a
// whole when its handler begins. Request.ParamsReader serves both.
//
// The rest of a connection waits while a handler does not read: it should read
// first, and call the peer back afterwards. One that takes nothing for
// Config.StallTimeout while there is something loses its params, and the
// connection goes on. A peer that stops in the middle lets the handler wait as
// long as the connection stands, and takes one of Config.MaxHandlers by it. What the
// handler returns is sent after the request has come to its end; if it turns
// out to be malformed or too long, ParamsReader fails and the peer is told that
// instead.
type ParamsStreamer interface {
	Handler
	// StreamsParams says whether the method with this name reads its params by
	// Request.ParamsReader only. The bytes are borrowed.
	StreamsParams(method []byte) bool
}

// A paramsStream hands params from the goroutine that reads the connection to a
// handler, piece by piece.
type paramsStream struct {
	in    *io.PipeReader
	out   *io.PipeWriter
	stall time.Duration // how long the handler may take nothing; negative: for ever
	valid chan bool     // gets whether the request was one, at its end

	mu      sync.Mutex
	waiting bool        // somebody writes
	taken   time.Time   // when the handler last took something, or was given it
	timer   *time.Timer // looks whether that is long ago
}

func newParamsStream(stall time.Duration) *paramsStream {
	s := &paramsStream{stall: stall, valid: make(chan bool, 1)}
	s.in, s.out = io.Pipe()
	s.timer = time.AfterFunc(time.Hour, s.look)
	s.timer.Stop()
	return s
}

// Read is the handler's.
func (s *paramsStream) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	s.mu.Lock()
	s.taken = time.Now()
	s.mu.Unlock()
	return n, err
}

// write waits until the handler has taken p, or is gone.
func (s *paramsStream) write(p []byte) {
	s.wait(true)
	_, _ = s.out.Write(p) // fails when the handler wants no more
	s.wait(false)
}

// wait begins, or ends, to count how long the handler takes nothing.
func (s *paramsStream) wait(begin bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.taken = begin, time.Now()
	if begin && s.stall > 0 {
		s.timer.Reset(s.stall)
	}
}

// look ends the params of a handler that has taken nothing for too long.
func (s *paramsStream) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiting {
		return
	}
	if left := s.stall - time.Since(s.taken); left > 0 {
		s.timer.Reset(left)
		return
	}
	s.end(fmt.Errorf("jsonrpc: the handler has read none of its params for %v", s.stall))
}

// end makes the handler's reading fail with err from now on, unless it has ended
// already. With nil it ends as a text does.
func (s *paramsStream) end(err error) { _ = s.out.CloseWithError(err) }

// settle tells the one who answers whether the request is to be answered; it is
// called once.
func (s *paramsStream) settle(valid bool) { s.valid <- valid }

// ended waits for the end of the request after its handler has returned, and
// says whether it is to be answered.
func (s *paramsStream) ended(down <-chan struct{}) bool {
	select {
	case valid := <-s.valid:
		return valid
	case <-down:
		return false
	}
}

// beginParams hands the request at hand to its handler, if that wants to read
// its params as they come: what has come of them is written. params is where
// they begin.
func (in *receiver) beginParams(params int) {
	a, s := &in.assembly, in.c.srv
	if s.streamer == nil || in.c.state.get() != StateConnected || in.c.token.inHand() {
		return
	}
	// The request with empty params tells everything but what they are.
	head := append(bytes.Clone(a.buf[:params+1]), a.buf[params]+2, '}') // ] is two behind [, } behind {
	in.msg.scan(head, in.c.cfg.MaxDepth)
	if in.msg.kind != kindRequest {
		return
	}
	raw, name := in.name(&in.msg)
	if !s.streamer.StreamsParams(raw) {
		return
	}
	stream := newParamsStream(in.c.cfg.StallTimeout)
	if !s.submitStreaming(s.newJob(&in.msg, name), stream, &in.contexts) {
		return // collected, and refused with its end if there is no place then
	}
	first := bytes.Clone(a.buf[params:])
	a.params, a.mode = stream, assemblyStream
	a.check = valueChecker{maxDepth: in.c.cfg.MaxDepth - 1}
	a.buf = append(a.buf[:0], head[:len(head)-1]...)
	in.streamValue(first)
}

// submitStreaming has a handler begin with j, whose params come by stream, and
// says whether there was a place for it.
func (s *server) submitStreaming(j *job, stream *paramsStream, slab *contextSlab) bool {
	j.req.params, j.req.stream = nil, stream
	s.newContext(s.base, slab, j)
	ctx := j.req.ctx
	// Who waits for a peer that has stopped in the middle has to see the end of
	// the context, and who writes that the handler has returned.
	j.undo = context.AfterFunc(ctx, func() { stream.end(context.Cause(ctx)) })
	if s.pool.submitSoon(j) {
		s.count(true)
		return true
	}
	s.running.remove(j.req.id, ctx)
	s.free(j)
	ctx.end(errHandled)
	return false
}

// endParams handles the end of a request whose params were streamed.
func (in *receiver) endParams() {
	a, m := &in.assembly, &in.msg
	m.scan(a.buf, in.c.cfg.MaxDepth)
	if a.deep && m.kind == kindRequest {
		m.tooDeep(in.c.cfg.MaxDepth)
	}
	valid := m.kind == kindRequest
	a.params.settle(valid)
	if !valid {
		in.refuse(m)
	}
}

// breakOff ends params being streamed whose request has no end.
func (a *assembly) breakOff(why error) {
	if a.params != nil {
		a.params.end(why)
		a.params.settle(false)
		a.params = nil
	}
}
