package rpchttp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// A ServerConfig says how a Server behaves. The zero value answers every
// request that its method does not exist.
type ServerConfig struct {
	// Config is for the Responder that answers what is POSTed, and for the
	// Conns of sessions: Handler and all limits. StallTimeout is for answers to
	// POSTs, too, unless the http.Server has a WriteTimeout. With Cancel, a
	// notification that is POSTed in a session ends the context of the request
	// with that id in the same session; it never reaches the Handler.
	Config jsonrpc.Config
	// AllowedOrigins lists the origins, such as "https://app.example.com",
	// whose pages may call: they get the CORS headers that browsers ask for.
	// Every other request with an Origin header is refused with 403, since any
	// page could send it. "*" allows all. Default: none.
	AllowedOrigins []string
	// AllowedHosts lists the values of the Host header that are served, with or
	// without port; others are refused with 403. It protects against pages that
	// make their own name point to this machine (DNS rebinding). "*" allows
	// all. Default: all, except on connections to a loopback address, where
	// only the names and addresses of the loopback are served.
	AllowedHosts []string
	// NotificationStatus answers what has no answer, notifications and
	// responses: 202, which the Model Context Protocol asks for, or 204, which
	// some clients need. Default 202.
	NotificationStatus int
	// Sessions opens the way back. Default: none; GET and DELETE are answered
	// 405.
	Sessions *SessionConfig
}

// A Server answers JSON-RPC over HTTP. It is an http.Handler; Close ends it.
type Server struct {
	cfg       ServerConfig
	limit     int           // bytes of a body
	stall     time.Duration // of a client that takes no byte of its answer; negative: none
	handler   *handler
	responder *jsonrpc.Responder
	accepted  int       // status of what has no answer
	sessions  *sessions // nil: none
	hostSeen  atomic.Pointer[string]
	free      sync.Pool // of *exchange
	closed    atomic.Bool

	mu sync.Mutex     // orders wg.Go and closed
	wg sync.WaitGroup // of notifications that were accepted
}

// Handler returns a Server. Mount it at the path of your choice, and Close it
// after, or while, the http.Server shuts down; NewHTTPServer does so. It panics
// when cfg.NotificationStatus is neither 202 nor 204.
func Handler(cfg ServerConfig) *Server {
	setDefault(&cfg.NotificationStatus, http.StatusAccepted)
	if st := cfg.NotificationStatus; st != http.StatusAccepted && st != http.StatusNoContent {
		panic("rpchttp: NotificationStatus is " + strconv.Itoa(st) + "; it has to be 202 or 204")
	}
	s := &Server{cfg: cfg, limit: cfg.Config.MaxMessage, handler: newHandler(&cfg.Config), accepted: cfg.NotificationStatus}
	conf := cfg.Config
	conf.Handler, conf.Cancel = s.handler, jsonrpc.CancelSilent // ids mean something in a session only
	s.responder = jsonrpc.NewResponder(conf)
	if s.limit <= 0 {
		s.limit = 1 << 20
	}
	s.stall = cfg.Config.StallTimeout
	setDefault(&s.stall, 30*time.Second)
	if cfg.Sessions != nil {
		s.sessions = &sessions{cfg: cfg.Sessions.withDefaults(), byID: make(map[string]*Session)}
	}
	return s
}

// NewHTTPServer returns an http.Server for h with limits that a server on the
// open network should have: 10 s for a header, 30 s for a request with its
// body, 2 min for an idle connection, 64 KiB of headers. Its Shutdown closes h,
// so that open ways back do not hold it up.
func NewHTTPServer(addr string, h *Server) *http.Server {
	srv := &http.Server{
		Addr: addr, Handler: h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	srv.RegisterOnShutdown(func() { _ = h.Close() }) // it has no errors
	return srv
}

// Close ends all sessions and refuses new requests, then waits for running
// handlers as Responder.Close and Conn.Close do.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed.Store(true)
	s.mu.Unlock()
	if s.sessions != nil {
		s.sessions.close()
	}
	err := s.responder.Close()
	s.wg.Wait()
	return err
}

// ServeHTTP answers one request, as the package documentation describes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w = s.answerWriter(w, r)
	if s.closed.Load() {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, jsonrpc.Errorf(jsonrpc.CodeClosing, "the server is closing; try again later"))
		return
	}
	if !s.admit(w, r) {
		return
	}
	switch {
	case r.Method == http.MethodPost:
		s.post(w, r)
	case s.sessions != nil && r.Method == http.MethodGet:
		s.back(w, r)
	case s.sessions != nil && r.Method == http.MethodDelete:
		s.delete(w, r)
	case r.Method == http.MethodOptions && r.Header.Get("Origin") != "":
		s.preflight(w)
	default:
		w.Header().Set("Allow", s.methods())
		refuse(w, http.StatusMethodNotAllowed, invalid("JSON-RPC requests are sent with POST"))
	}
}

func (s *Server) methods() string {
	if s.sessions != nil {
		return "POST, GET, DELETE"
	}
	return "POST"
}

// An exchange is one POST, with its buffers, which are used again.
type exchange struct {
	body, out []byte
	look      envelope    // at the body, when it matters
	ses       *Session    // nil: none
	accepts   *acceptance // nil: not only notifications
	users     atomic.Int32
}

// exchange returns an empty one, for one user.
func (s *Server) exchange() *exchange {
	x, ok := s.free.Get().(*exchange)
	if !ok {
		x = new(exchange)
	}
	x.users.Store(1)
	return x
}

// recycle is called by each user of x.
func (s *Server) recycle(x *exchange) {
	if x.users.Add(-1) == 0 && cap(x.body) <= keptBuffer && cap(x.out) <= keptBuffer {
		x.body, x.out = x.body[:0], x.out[:0]
		x.look, x.ses, x.accepts = envelope{}, nil, nil
		s.free.Put(x)
	}
}

// post answers a POST.
func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	if !fits(w, r) {
		return
	}
	x := s.exchange()
	defer s.recycle(x)
	if err := s.readBody(x, r); err != nil {
		s.refuseBody(w, err)
		return
	}
	if s.sessions != nil || mayNotify(x.body) {
		x.look = peek(x.body)
	}
	ctx := r.Context()
	if s.sessions != nil {
		if s.inSession(w, r, x) {
			return
		}
		if x.ses != nil {
			defer x.ses.use()()
			ctx = context.WithValue(ctx, sessionKey{}, x.ses)
		}
	}
	ctx = s.withMeta(ctx, w, r)
	if x.look.entries > 0 && x.look.notifications == x.look.entries {
		s.notify(ctx, w, x)
		return
	}
	long := &longAnswer{w: w}
	out, err := s.responder.RespondTo(ctx, x.body, x.out[:0], long)
	if long.begun {
		if err != nil {
			panic(http.ErrAbortHandler) // so that nobody takes what was written for all of it
		}
		long.end()
		return
	}
	s.answer(w, x, out, err)
}

// answer writes what the Responder returned.
func (s *Server) answer(w http.ResponseWriter, x *exchange, out []byte, err error) {
	switch {
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, jsonrpc.Errorf(jsonrpc.CodeClosing, "the server is closing; try again later"))
		return
	case len(out) == 0 && s.dropped(x):
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, jsonrpc.Errorf(jsonrpc.CodeServerBusy, "too many requests are being handled; try again later"))
		return
	case len(out) == 0:
		w.WriteHeader(s.accepted)
		return
	}
	x.out = out
	h := w.Header()
	h["Content-Type"] = jsonTypeHeader()
	if len(out) > 2048 { // net/http counts short answers itself
		h["Content-Length"] = []string{strconv.Itoa(len(out))}
	}
	// What cannot be written is the loss of the client that hung up.
	_, _ = w.Write(out)
}

func jsonTypeHeader() []string { return []string{jsonType} }

// readBody reads the body into x, up to the limit.
func (s *Server) readBody(x *exchange, r *http.Request) error {
	if r.ContentLength > int64(s.limit) {
		return tooLarge(s.limit)
	}
	buf, need := x.body[:0], int(max(r.ContentLength, 1))
	// A large body has all of its memory only when some of it is there.
	if first := min(need, keptBuffer); cap(buf) < first {
		buf = make([]byte, 0, max(first, firstRead))
	}
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(need-len(buf), 1))
		}
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		x.body = buf
		if len(buf) > s.limit {
			return tooLarge(s.limit)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if int64(len(buf)) == r.ContentLength {
			return nil
		}
	}
}

func (s *Server) refuseBody(w http.ResponseWriter, err error) {
	// What is left of the body is not worth reading.
	w.Header().Set("Connection", "close")
	if _, ok := errors.AsType[limitError](err); ok {
		refuse(w, http.StatusRequestEntityTooLarge,
			invalid("the message is too long").WithData(map[string]any{"limit": s.limit, "unit": "bytes"}))
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		refuse(w, http.StatusRequestTimeout, invalid("the message did not arrive in time"))
		return
	}
	refuse(w, http.StatusBadRequest, jsonrpc.Errorf(jsonrpc.CodeParseError, "the message did not arrive whole"))
}

// inSession finds the session of a POST, or opens one, when there is to be one.
// True: the request was answered.
func (s *Server) inSession(w http.ResponseWriter, r *http.Request, x *exchange) (answered bool) {
	cfg := &s.sessions.cfg
	if id := r.Header[cfg.Header]; len(id) > 0 {
		if x.ses = s.find(w, r, id[0]); x.ses == nil {
			return true
		}
	}
	switch {
	case cfg.Accept != nil && x.ses == nil:
		refuse(w, http.StatusBadRequest, invalid("there is no session; open one with GET, and send its id in "+cfg.Header))
		return true
	case cfg.Accept != nil, x.ses != nil && x.look.responses > 0:
		s.deliver(w, r, x)
		return true
	case x.ses == nil && slices.Contains(cfg.OpenOn, string(x.look.method)):
		if x.ses = s.open(w, r); x.ses == nil {
			return true
		}
		w.Header()[cfg.Header] = []string{x.ses.id}
	}
	return false
}

// find returns the session with this id, or tells the client that there is
// none.
func (s *Server) find(w http.ResponseWriter, r *http.Request, id string) *Session {
	ses := s.sessions.find(r, id)
	if ses == nil {
		refuse(w, http.StatusNotFound, invalid("there is no such session, it may have ended; open a new one"))
	}
	return ses
}

// open opens a session, or tells the client why not.
func (s *Server) open(w http.ResponseWriter, r *http.Request) *Session {
	ses, err := s.sessions.open(r, s.cfg.Config)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, jsonrpc.Errorf(jsonrpc.CodeServerBusy, "too many sessions; try again later"))
	}
	return ses
}

// deliver hands the message to the reader of the session.
func (s *Server) deliver(w http.ResponseWriter, r *http.Request, x *exchange) {
	ses := x.ses
	defer ses.use()()
	if skipSpace(x.body, 0) == len(x.body) {
		w.WriteHeader(s.accepted)
		return
	}
	for !ses.stream.in.offer(x.body, int64(s.sessions.cfg.Backlog)) {
		select {
		case <-ses.stream.in.room:
		case <-r.Context().Done():
			return
		case <-ses.stream.over:
			refuse(w, http.StatusNotFound, invalid("the session has ended; open a new one"))
			return
		}
	}
	w.WriteHeader(s.accepted)
}

// Headers in their canonical form.
const (
	correlationHeader = "X-Correlation-Id"
	parentHeader      = "Traceparent"
	stateHeader       = "Tracestate"
)

// Limits of the values of these headers, in bytes; longer ones are ignored.
const (
	maxCorrelationID = 256
	maxTraceParent   = 256
	maxTraceState    = 1024
)

// withMeta puts the metadata of the request into the context, and repeats the
// correlation id in the answer.
func (s *Server) withMeta(ctx context.Context, w http.ResponseWriter, r *http.Request) context.Context {
	var meta jsonrpc.Meta
	if v := r.Header[correlationHeader]; len(v) > 0 && len(v[0]) <= maxCorrelationID {
		meta.CorrelationID = v[0]
		w.Header()[correlationHeader] = v[:1:1]
	}
	if v := r.Header[parentHeader]; len(v) > 0 && len(v[0]) <= maxTraceParent {
		meta.TraceParent = v[0]
	}
	if v := strings.Join(r.Header[stateHeader], ","); len(v) <= maxTraceState {
		meta.TraceState = v
	}
	if meta == (jsonrpc.Meta{}) {
		return ctx
	}
	return jsonrpc.WithMeta(ctx, meta)
}

func invalid(text string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: text}
}

// refuse answers with an HTTP error and the same in JSON-RPC:
//
//	{"jsonrpc":"2.0","error":{"code":-32600,"message":"…"},"id":null}
//
// The id is null because the message was not read.
func refuse(w http.ResponseWriter, status int, e *jsonrpc.Error) {
	type wire struct {
		Code    jsonrpc.Code    `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data,omitempty"`
	}
	text, err := json.Marshal(struct {
		Version string `json:"jsonrpc"`
		Error   wire   `json:"error"`
		ID      any    `json:"id"`
	}{"2.0", wire{e.Code, e.Message, e.Data}, nil})
	if err != nil { // strings and numbers always can be written
		text = nil
	}
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client that hung up needs no answer
}
