package rpchttp

import (
	"net/http"
	"strconv"
	"time"
)

// back answers a GET: the way back of a session.
func (s *Server) back(w http.ResponseWriter, r *http.Request) {
	cfg := &s.sessions.cfg
	if !accepts(r.Header["Accept"], eventType) {
		refuse(w, http.StatusNotAcceptable, invalid("the way back is "+eventType+", which the Accept header has to allow"))
		return
	}
	after, resume := uint64(0), false
	if id := r.Header.Get("Last-Event-Id"); id != "" {
		var err error
		if after, err = strconv.ParseUint(id, 10, 63); err != nil {
			refuse(w, http.StatusBadRequest, invalid("this Last-Event-ID was not given here"))
			return
		}
		resume = true
	}
	var ses *Session
	switch id := r.Header[cfg.Header]; {
	case len(id) > 0:
		ses = s.find(w, r, id[0])
	case after > 0: // of a session that is not named
		refuseGone(w)
	default:
		ses = s.open(w, r)
	}
	if ses == nil {
		return
	}
	defer ses.use()()
	after, more, kick, ok := ses.stream.out.attach(after, resume)
	if !ok {
		refuseGone(w)
		return
	}
	w = impatient(w)
	h := w.Header()
	h[cfg.Header] = []string{ses.id}
	h.Set("Content-Type", eventType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // what the proxy nginx needs to pass events on at once
	p := &pump{
		out: ses.stream.out, cursor: after, more: more,
		w: w, control: http.NewResponseController(w), timeout: cfg.WriteTimeout,
	}
	// For the proper end of the answer; the http.Server makes it none afterwards.
	defer func() { _ = p.control.SetWriteDeadline(time.Now().Add(cfg.WriteTimeout)) }()
	p.buf = appendPrimer(p.buf, after)
	keepAlives := time.NewTicker(cfg.KeepAlive)
	defer keepAlives.Stop()
	for p.send() {
		select {
		case <-p.more:
		case <-keepAlives.C:
			p.buf = append(p.buf, keepAlive...)
		case <-kick:
			return
		case <-r.Context().Done():
			return
		case <-ses.stream.over:
			p.send()
			return
		}
	}
}

func refuseGone(w http.ResponseWriter) {
	refuse(w, http.StatusGone, invalid("the events after this Last-Event-ID are not kept any more; open a new session"))
}

// A pump sends the events of a session to the client.
type pump struct {
	out     *backlog
	cursor  uint64 // id of the last event that was sent
	more    <-chan struct{}
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	buf     []byte // to be sent first
}

// send sends what is there; false when the client does not take it.
func (p *pump) send() bool {
	for {
		p.buf, p.cursor = p.out.appendAfter(p.buf, p.cursor, p.more)
		if len(p.buf) == 0 {
			_ = p.control.SetWriteDeadline(time.Time{}) // in HTTP/2 it ends silence, too
			return true
		}
		// Not every ResponseWriter knows deadlines; then TCP's have to do.
		_ = p.control.SetWriteDeadline(time.Now().Add(p.timeout))
		_, err := p.w.Write(p.buf)
		if err == nil {
			err = p.control.Flush()
		}
		if err != nil {
			return false
		}
		if p.buf = p.buf[:0]; cap(p.buf) > keptBuffer {
			p.buf = nil
		}
	}
}

// delete answers a DELETE: the client ends its session.
func (s *Server) delete(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(s.sessions.cfg.Header)
	if id == "" {
		refuse(w, http.StatusBadRequest, invalid("the header "+s.sessions.cfg.Header+" has to name the session to end"))
		return
	}
	if ses := s.find(w, r, id); ses != nil {
		ses.stream.hangUp()
		w.WriteHeader(http.StatusNoContent)
	}
}
