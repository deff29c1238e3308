package rpchttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

const (
	jsonType  = "application/json"
	eventType = "text/event-stream"
)

// A job is a message on its way. Its bytes are not used again: net/http may look
// at them after it gave the answer.
type job struct {
	msg    []byte
	reader bytes.Reader
	lane   *lane    // in which it waits
	ids    []string // raw ids of its calls: with ClientConfig.Cancel all, without it those of a batch that are wanted, once one is not

	// guarded by Stream.mu
	cancel  context.CancelCauseFunc // cuts it short; nil while it waits
	wanted  int                     // calls that nobody gave up
	givenUp bool                    // all of them
	inParts bool                    // its answer is being handed over in parts
}

// body returns the message for a request. net/http knows this type, and sends
// head and body at once.
func (j *job) body() io.ReadCloser {
	j.reader.Reset(j.msg)
	return io.NopCloser(&j.reader)
}

// again returns it once more, while the first one may still be in use.
func (j *job) again() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(j.msg)), nil
}

// A lease is a context for one request after the other, until one of them is
// cut short: making a context with a timeout for each would cost more than the
// rest of what the client adds to net/http.
type lease struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer   // nil while nothing ends the request
	span   time.Duration // what a request has; none: as long as it takes
}

func newLease(base context.Context, span time.Duration) (context.Context, *lease) {
	ctx, cancel := context.WithCancelCause(base)
	l := &lease{cancel: cancel, span: span}
	l.touch()
	return ctx, l
}

// touch begins the span anew.
func (l *lease) touch() {
	if l.span > 0 {
		l.end(l.span)
	}
}

// soon lets the span end early: what was asked for is there.
func (l *lease) soon() {
	if l.span > 0 {
		l.end(min(l.span, afterAnswer))
		return
	}
	l.end(afterAnswer)
}

// end cuts the request short when d has passed.
func (l *lease) end(d time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(d, func() { l.cancel(ErrTimeout) })
		return
	}
	l.timer.Reset(d)
}

// afterAnswer is how long a stream of events may stay open after the answer was
// in it, for what else the server wants to say.
const afterAnswer = time.Second

// rest says that no request is running; false: the lease is used up.
func (l *lease) rest() bool {
	if l.timer == nil {
		return true
	}
	usable := l.timer.Stop()
	if l.span <= 0 {
		l.timer = nil // the next request has all the time that there is
	}
	return usable
}

// work is a worker of first's lane: it delivers first, and then what it finds there.
func (s *Stream) work(base context.Context, first *job) {
	sl := new(slot)
	s.mu.Lock()
	s.slots = append(s.slots, sl)
	s.mu.Unlock()
	for j := first; j != nil; {
		j = s.workOn(base, sl, j)
	}
}

// workOn delivers j and what comes after it until its lease is used up, and
// returns the next job then.
func (s *Stream) workOn(base context.Context, sl *slot, j *job) *job {
	ctx, l := newLease(base, s.cfg.Timeout)
	defer func() { l.rest(); l.cancel(nil) }()
	for {
		if s.take(sl, j, l) {
			l.touch()
			s.post(ctx, j, l)
		}
		s.release(sl, j)
		j.lane.ended()
		usable := l.rest() && ctx.Err() == nil
		if j = s.next(j.lane); j == nil || !usable {
			return j
		}
	}
}

// next returns the next job, nil when the Stream is closing and none is left.
func (s *Stream) next(l *lane) *job {
	j, opened := l.next()
	if opened {
		s.roomMade()
	}
	return j
}

// take notes that a worker begins with j; false when it must not any more,
// because nobody waits for the answers.
func (s *Stream) take(sl *slot, j *job, l *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.givenUp || s.isOver && peek(j.msg).calls > 0 {
		return false
	}
	sl.job, j.cancel = j, l.cancel
	return true
}

func (s *Stream) release(sl *slot, j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.job, j.cancel = nil, nil
	s.forgetLocked(j)
}

// request makes a request of the Stream, with everything but its body.
func (s *Stream) request(ctx context.Context, method string, header http.Header) (*http.Request, error) {
	id := s.session.Load()
	if s.cfg.Headers != nil || s.client.Jar != nil || id != nil {
		header = header.Clone()
	}
	// That of the URL. The header of POSTs, which all workers share, has it.
	if auth := s.header["Authorization"]; auth != nil && header["Authorization"] == nil {
		header["Authorization"] = auth
	}
	if id != nil {
		header[s.cfg.SessionHeader] = []string{*id}
	}
	req := (&http.Request{
		Method: method, URL: s.url, Host: s.url.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if s.cfg.Headers == nil {
		return req, nil
	}
	if err := s.cfg.Headers(ctx, header); err != nil {
		may := never
		if jsonrpc.Recoverable(err) {
			may = later
		}
		return nil, &Error{
			Method: method, URL: bareURL(s.url), NotSent: true, Err: err, verdict: may,
			Problem: "no header for the request", Advice: "see why ClientConfig.Headers failed",
		}
	}
	return req, nil
}

// post delivers j and hands over its answer.
func (s *Stream) post(ctx context.Context, j *job, l *lease) {
	if !s.ready(ctx) {
		s.lost(j, j.msg, s.notEstablished())
		return
	}
	req, err := s.request(ctx, http.MethodPost, s.header)
	if err != nil {
		s.lost(j, j.msg, err)
		return
	}
	req.Body, req.ContentLength = j.body(), int64(len(j.msg))
	req.GetBody = j.again
	res, err := s.send(req)
	if err != nil {
		s.lost(j, j.msg, failed(req, err))
		return
	}
	defer res.Body.Close()
	if id := res.Header[s.cfg.SessionHeader]; len(id) > 0 {
		defer s.learn(id[0])()
	}
	a := answer{s: s, job: j, res: res, lease: l, rcv: receiver{in: s.in, limit: s.cfg.MaxMessage}}
	if s.cancel.on() {
		a.rcv.inParts = func(on bool) { s.inParts(j, on) }
	}
	if err := a.deliver(ctx); err != nil {
		a.rcv.drop()
		over := s.sessionOver(req, res, err)
		s.lost(j, j.msg, err)
		if over != nil {
			s.in.fail(over)
		}
	}
}

// send is client.Do. Where the caller has no wishes for redirects, cookies and
// time, which cost as much as the rest of what the client does, it goes to the
// transport directly, and follows redirects only to the same server with the
// same method: a message and its credentials go nowhere else.
func (s *Stream) send(req *http.Request) (*http.Response, error) {
	if !s.direct {
		return s.client.Do(req)
	}
	transport := s.client.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	for hops := 0; ; hops++ {
		res, err := transport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if res.StatusCode != http.StatusTemporaryRedirect && res.StatusCode != http.StatusPermanentRedirect || hops == maxRedirects {
			return res, nil
		}
		to, err := res.Location()
		if err != nil || to.Scheme != req.URL.Scheme || to.Host != req.URL.Host {
			return res, nil //nolint:nilerr // the caller explains the redirect
		}
		res.Body.Close()
		req = req.WithContext(req.Context())
		req.URL = to
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

const maxRedirects = 4

// ready waits until the way back is open, where it has to be.
func (s *Stream) ready(ctx context.Context) bool {
	if s.established == nil {
		return true
	}
	select {
	case <-s.established:
		return true
	default:
	}
	select {
	case <-s.established:
		return true
	case <-s.in.dead:
	case <-ctx.Done():
	case <-s.closing: // Close has ended the way back
	}
	return false
}

func (s *Stream) notEstablished() error {
	err := s.in.failure()
	over := err != nil
	if !over {
		err = ErrTimeout
	}
	return &Error{
		Method: http.MethodPost, URL: bareURL(s.url), NotSent: true, Err: err, over: over,
		Problem: "the session was not opened", Advice: "see the cause, then dial again",
	}
}

// lost reports that msg, which is the message of j or what it says of some calls,
// was not delivered, unless nobody wants to know.
func (s *Stream) lost(j *job, msg []byte, err error) {
	s.mu.Lock()
	givenUp := j.givenUp
	s.mu.Unlock()
	switch {
	case givenUp:
	case s.told != nil && j.lane == &s.lanes[answerLane]:
		s.in.lostAnswer(msg, err)
	default:
		s.in.undelivered(msg, err)
	}
}

// learn takes the session id that an answer brought. greeted is to be called when that
// answer was handed over.
func (s *Stream) learn(id string) (greeted func()) {
	greeted = func() {}
	if old := s.session.Load(); old != nil && *old == id {
		return greeted
	}
	s.session.Store(&id)
	if s.cfg.WayBack == WayBackWithSession {
		s.backOnce.Do(func() {
			done := make(chan struct{})
			greeted = func() { close(done) }
			s.startBack(done)
		})
	}
	return greeted
}

// sessionOver returns what ends the Stream when the server does not know the
// session any more, else nil: every later message would fail the same way, until
// there is a new one. err, that of the message, says so then.
func (s *Stream) sessionOver(req *http.Request, res *http.Response, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || res.StatusCode != http.StatusNotFound || req.Header.Get(s.cfg.SessionHeader) == "" {
		return nil
	}
	e.NotSent, e.verdict = true, later
	e.Problem, e.Advice = "the session is over", "dial again"
	ended := *e // it is not this side that closed the connection
	e.over = true
	return &ended
}
