package main

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

const (
	// maxPostAnswer bounds an answer that is passed on to an HTTP client, in
	// bytes.
	maxPostAnswer = 64 << 20
	// maxPostTime bounds one POST to side B.
	maxPostTime = 10 * time.Minute
	// postHeaderTime bounds the time that a request's header takes.
	postHeaderTime = 10 * time.Second
	// postBodyTime is what a request has to be there with its body, as with rpc serve.
	postBodyTime = 30 * time.Second
	// postLinger is what a client gets to read that side B is lost.
	postLinger = time.Second
	// postIdleTime is how long a connection may wait for its next request.
	postIdleTime = 2 * time.Minute
)

// postConfig says how POSTs are taken.
type postConfig struct {
	connections int
	// bodyTime is what a request has to be there with its body.
	bodyTime time.Duration
	// ready is told where requests go to, once.
	ready func(url string)
	// serve carries one connection and closes it.
	serve func(jsonrpc.Stream)
}

// listenPosts serves each HTTP connection as one stream, until ctx ends.
func listenPosts(ctx context.Context, at rpcAddress, cfg postConfig) error {
	u, err := url.Parse(at.text)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	u.Host = l.Addr().String()
	var running sync.WaitGroup
	var streams sync.Map // of *postStream by net.Conn
	free := make(chan struct{}, cfg.connections)
	server := &http.Server{
		ReadHeaderTimeout: postHeaderTime, ReadTimeout: cfg.bodyTime, IdleTimeout: postIdleTime, MaxHeaderBytes: 64 << 10,
		Handler: http.HandlerFunc(servePost),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			s := newPostStream(c)
			select {
			case free <- struct{}{}:
				streams.Store(c, s)
				running.Go(func() {
					defer func() { <-free }()
					cfg.serve(s)
				})
			default:
				_ = s.Close()
			}
			return context.WithValue(ctx, postStreamKey{}, s)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if state != http.StateClosed {
				return
			}
			if s, ok := streams.LoadAndDelete(c); ok {
				_ = s.(*postStream).Close()
			}
		},
	}
	unstop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer unstop()
	cfg.ready(u.String())
	err = server.Serve(l)
	streams.Range(func(_, s any) bool { return s.(*postStream).Close() == nil })
	running.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

type postStreamKey struct{}

// servePost checks one request and gives it to the stream of its connection. A
// page in a browser must not reach what listens on this machine: JSON is
// something that browsers ask permission for, and a name in the Host header
// that is not this machine's is how pages get around that.
func servePost(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "send JSON-RPC messages with POST", http.StatusMethodNotAllowed)
	case !strings.HasPrefix(kind, "application/json") && !strings.HasSuffix(kind, "+json"):
		http.Error(w, "send JSON-RPC messages as Content-Type: application/json", http.StatusUnsupportedMediaType)
	case r.Header.Get("Origin") != "" || !ownHost(r):
		http.Error(w, "this address is not for pages in a browser", http.StatusForbidden)
	default:
		if s, ok := r.Context().Value(postStreamKey{}).(*postStream); ok {
			s.post(w, r)
		}
	}
}

// ownHost reports whether the Host header fits the address that a request came
// to: on a loopback address only names of this machine do.
func ownHost(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	if err != nil || !at.Addr().Unmap().IsLoopback() {
		return err == nil
	}
	return onThisMachine("http://" + r.Host)
}

// postStream makes a stream of the POSTs on one HTTP connection, which come
// one at a time: each brings a message and waits for its answer.
type postStream struct {
	conn   io.Closer
	posts  chan *exchange
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	current *exchange // what waits for an answer; guarded by mu
	answer  []byte    // what came of it; guarded by mu

	// Of the goroutine that reads:
	reading *exchange
	begun   bool // some of the body was read
	buf     []byte
}

// exchange is one POST.
type exchange struct {
	body  io.Reader
	reply chan []byte // gets the answer, nil if there is none
}

func newPostStream(c io.Closer) *postStream {
	return &postStream{conn: c, posts: make(chan *exchange), closed: make(chan struct{}), buf: make([]byte, 32<<10)}
}

var errAnswerTooLarge = errors.New("the answer is too large to be passed on over HTTP")

// Read gives the next part of the body at hand, or of the next POST's.
func (s *postStream) Read() (jsonrpc.Part, error) {
	for {
		if s.reading == nil {
			if err := s.next(); err != nil {
				return jsonrpc.Part{}, err
			}
		}
		n, err := io.ReadFull(s.reading.body, s.buf)
		over := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		switch {
		case err != nil && !over:
			return jsonrpc.Part{}, err
		case over && n == 0 && !s.begun:
			s.mu.Lock()
			s.replyLocked([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: the body is empty"}}`))
			s.mu.Unlock()
			s.reading = nil
			continue
		case over:
			s.reading = nil
		}
		s.begun = true
		return jsonrpc.Part{Data: s.buf[:n], End: over}, nil
	}
}

// next waits for a POST.
func (s *postStream) next() error {
	select {
	case x := <-s.posts:
		s.reading, s.begun = x, false
		s.mu.Lock()
		defer s.mu.Unlock()
		s.current, s.answer = x, nil
		return nil
	case <-s.closed:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.current != nil {
			return io.ErrUnexpectedEOF
		}
		return io.EOF
	}
}

// Write takes the answer to the POST that waits.
func (s *postStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answer)+len(p) > maxPostAnswer {
		return 0, errAnswerTooLarge
	}
	s.answer = append(s.answer, p...)
	if n := len(s.answer); n > 0 && s.answer[n-1] == '\n' {
		s.replyLocked(s.answer[:n-1])
	}
	return len(p), nil
}

func (s *postStream) replyLocked(answer []byte) {
	if s.current != nil {
		s.current.reply <- answer // has room for the one answer
		s.current = nil
	}
	s.answer = nil
}

// passed ends the POST of a message that gets no answer.
func (s *postStream) passed(m sketch) {
	if len(m.asks) > 0 || m.kind == kindLarge || m.unsure {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replyLocked(nil)
}

// refuse drops a message that answers nothing, and says why.
func (s *postStream) refuse(m sketch) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(m.answers) > 0 && s.current != nil {
		return ""
	}
	s.answer = nil
	return "dropped: over HTTP only answers go back"
}

// drop forgets what came of an answer whose rest is lost. The POST waits on.
func (s *postStream) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = nil
}

// Close ends what waits. It may be called more than once.
func (s *postStream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// post carries one HTTP request.
func (s *postStream) post(w http.ResponseWriter, r *http.Request) {
	x := &exchange{body: r.Body, reply: make(chan []byte, 1)}
	select {
	case s.posts <- x:
	case <-s.closed:
		s.lostSideB(w)
		return
	}
	select {
	case answer := <-x.reply:
		writeAnswer(w, answer)
	case <-r.Context().Done():
		// Nobody waits any more; the connection cannot be used again.
		_ = s.Close()
	case <-s.closed:
		select {
		case answer := <-x.reply:
			writeAnswer(w, answer)
		default:
			s.lostSideB(w)
		}
	}
}

func writeAnswer(w http.ResponseWriter, answer []byte) {
	if answer == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// lostSideB answers a request that nobody will, and ends its connection: at
// once for who reads a body that is still coming, and for the client, whom
// net/http would give all the time in the world to send it, after a moment to
// read the answer.
func (s *postStream) lostSideB(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	w.Header().Set("Connection", "close")
	http.Error(w, "the proxy has no connection to side B, or none to spare", http.StatusBadGateway)
	time.AfterFunc(postLinger, func() { _ = s.conn.Close() })
}
