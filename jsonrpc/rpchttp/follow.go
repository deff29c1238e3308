package rpchttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// Delays between two attempts to open a stream of events again.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
	stable     = time.Second // a way back that lived so long was worth it
)

// hasResult is a quick look at what is nearly always true of an answer.
func hasResult(text []byte) bool { return bytes.Contains(text, []byte(`"result"`)) }

// follow parses body to its end; touch is called for whatever arrives. Nil
// says that the stream of events ended properly.
func follow(body io.Reader, p *eventParser, touch func()) error {
	buf := make([]byte, 8<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			touch()
			if err := p.feed(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// get opens a stream of events behind the event lastID. An error is an *Error.
func (s *Stream) get(ctx context.Context, lastID string) (*http.Response, error) {
	header := http.Header{"Accept": {eventType}, "Cache-Control": {"no-store"}}
	if lastID != "" {
		header["Last-Event-Id"] = []string{lastID}
	}
	req, err := s.request(ctx, http.MethodGet, header)
	if err != nil {
		return nil, err
	}
	res, err := s.send(req)
	if err != nil {
		return nil, failed(req, err)
	}
	if kind := mediaType(res.Header.Get("Content-Type")); res.StatusCode != http.StatusOK || kind != eventType {
		defer res.Body.Close()
		problem := "the way back was not opened"
		if res.StatusCode == http.StatusOK {
			problem += ": the answer is " + printable(kind) + ", not " + eventType
		}
		body := make([]byte, snippetSource)
		n, _ := io.ReadFull(res.Body, body) // what there is; an error adds nothing
		e := refused(res, problem)
		e.Snippet = snippet(body[:n], secretsOf(req))
		return nil, e
	}
	return res, nil
}

// pause waits before the attempt with this number, the first being 1: longer
// each time, and never in step with other clients. It is false when ctx ended.
func pause(ctx context.Context, attempt int, asked time.Duration) bool {
	d := min(minBackoff<<min(max(attempt-1, 0), 10), maxBackoff)
	d = max(d/2+rand.N(d/2+1), min(asked, maxBackoff))
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A backSink puts the events of the way back into the inbox.
type backSink struct{ rcv receiver }

func (b *backSink) data(p []byte) error { return b.rcv.add(p) }

func (b *backSink) event(kind string) error {
	if kind != "" && kind != "message" {
		b.rcv.drop()
		return nil
	}
	return b.rcv.end()
}

// wayBack keeps the way back open until ctx ends, the session ends, or it
// cannot be opened any more. greeted is closed when the answer that brought the
// session was handed over; nil: there was none.
func (s *Stream) wayBack(ctx context.Context, greeted <-chan struct{}) {
	// The Conn decides about messages that are too long, and answers them.
	sink := &backSink{rcv: receiver{in: s.in, limit: -1}}
	p := &eventParser{sink: sink}
	opened := false
	for attempt := 1; ; attempt++ {
		err := s.openBack(ctx, p, &opened, &attempt)
		sink.rcv.drop() // an event that was cut comes again, whole
		p.forget()
		if err != nil && greeted != nil { // the end of the Stream must not be quicker than that answer
			select {
			case <-greeted:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && s.over(err, opened, attempt) {
			return
		}
		if !pause(ctx, attempt, max(p.retry, askedIn(err))) {
			return
		}
	}
}

// askedIn gives how long the server that has refused with err asks to wait.
func askedIn(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// openBack opens the way back once and follows it to its end.
func (s *Stream) openBack(ctx context.Context, p *eventParser, opened *bool, attempt *int) error {
	ctx, l := newLease(ctx, s.cfg.Timeout)
	defer func() { l.rest(); l.cancel(nil) }()
	res, err := s.get(ctx, p.lastID)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if !l.rest() {
		return nil // headers and timeout came at the same time: come again
	}
	if id := res.Header[s.cfg.SessionHeader]; len(id) > 0 {
		s.learn(id[0])
	}
	if !*opened && s.established != nil {
		close(s.established)
	}
	*opened = true
	l.timer, l.span = nil, s.cfg.WayBackIdle
	l.touch()
	began := time.Now()
	err = follow(res.Body, p, l.touch)
	if time.Since(began) > stable {
		*attempt = 0
	}
	if errors.Is(err, errNoReader) && ctx.Err() == nil {
		return err
	}
	return nil // however it ended, the next attempt tells more
}

// over decides whether err, from an attempt to open the way back, ends it, and
// with it the Stream.
func (s *Stream) over(err error, opened bool, attempt int) bool {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok: // nobody reads any more
	case !opened && s.cfg.WayBack == WayBackWithSession && noWayBack(e.Status):
		// The server has none to offer.
	case opened && e.Status == http.StatusNotFound:
		s.in.fail(io.EOF)
	case (opened || s.cfg.WayBack == WayBackWithSession) && e.Recoverable() && (s.cfg.MaxReconnects < 0 || attempt < s.cfg.MaxReconnects):
		return false
	default:
		if opened && e.Status == http.StatusGone {
			e.verdict, e.Advice = later, "dial again; what the server said in between is lost"
		}
		s.in.fail(err)
	}
	return true
}

// noWayBack says whether a server with this answer offers no way back. It
// should be 405, and often is something else.
func noWayBack(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500 || status == http.StatusNotImplemented
}

// events hands over the messages of a stream of events that answers the POST.
// When the stream ends before the answer was in it, and its events had ids, it
// is opened again behind the last one, as the Model Context Protocol has it.
func (a *answer) events(ctx context.Context) error {
	a.want = peek(a.job.msg).calls
	p := &eventParser{sink: a}
	err := follow(a.res.Body, p, func() {})
	asked := time.Duration(0)
	for attempt := 1; a.responses < a.want && a.resumable(ctx, err) && p.lastID != ""; attempt++ {
		a.rcv.drop()
		p.forget()
		if attempt > a.s.cfg.MaxReconnects && a.s.cfg.MaxReconnects >= 0 || !pause(ctx, attempt, max(p.retry, asked)) {
			break
		}
		res, getErr := a.s.get(ctx, p.lastID)
		if asked = askedIn(getErr); getErr != nil {
			e, ok := errors.AsType[*Error](getErr)
			if ok && e.Recoverable() {
				continue
			}
			if ok {
				e.NotSent = false // this GET may not have been, but the message was
			}
			return getErr
		}
		err = follow(res.Body, p, func() { attempt = 0 })
		res.Body.Close()
	}
	a.rcv.drop()
	switch {
	case a.responses >= a.want, errors.Is(err, errNoReader) && ctx.Err() == nil:
		return nil
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return a.explain(err)
}

// resumable says whether a stream of events that ended with err may be opened
// again.
func (a *answer) resumable(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, errNoReader) {
		return false
	}
	if _, ok := errors.AsType[limitError](err); ok {
		return false
	}
	fault, ok := errors.AsType[*Error](err)
	return !ok || fault.Status == 0
}

// data takes a piece of an event.
func (a *answer) data(p []byte) error { return a.rcv.add(p) }

// event hands over an event.
func (a *answer) event(kind string) error {
	if kind != "" && kind != "message" {
		a.rcv.drop()
		return nil
	}
	text, whole := a.rcv.whole()
	if !whole {
		// Too long to be looked at, and so most likely the answer.
		a.count(1)
		return a.rcv.end()
	}
	e := peek(text)
	if e.fault != nil && e.responses == 1 {
		return a.unread(e.fault)
	}
	a.count(e.responses)
	return a.rcv.end()
}

// count counts responses. Only events give the server more time, not comments:
// a server that works on a call that was given up may send them for ever.
func (a *answer) count(responses int) {
	a.lease.touch()
	if a.responses += responses; a.responses >= a.want {
		a.lease.soon()
	}
}

// endSession tells the server that the session is over. Whether it hears is
// its own affair: sessions nobody uses end by themselves.
func (s *Stream) endSession() {
	if s.session.Load() == nil || s.in.failure() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.CloseTimeout)
	defer cancel()
	req, err := s.request(ctx, http.MethodDelete, http.Header{})
	if err != nil {
		return
	}
	if res, err := s.send(req); err == nil {
		res.Body.Close()
	}
}
