package rpchttp

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// A SessionConfig opens the way back: sessions in which the server sends
// requests and notifications too.
type SessionConfig struct {
	// Header carries the id of the session. Default "Rpc-Session-Id"; clients
	// of the Model Context Protocol want "Mcp-Session-Id".
	Header string
	// OpenOn lists the methods that open a session when a POST without one
	// calls them; the answer brings its id. The Model Context Protocol has
	// "initialize". A GET without a session opens one always.
	OpenOn []string
	// Max bounds the sessions at the same time; a request for one more is
	// answered 503. Default 1024.
	Max int
	// Idle ends a session that no request has used for so long, an open GET
	// counting as use. Default 5 min.
	Idle time.Duration
	// KeepAlive is the time between two comments on a silent way back. Default
	// 15 s; negative: there are none.
	KeepAlive time.Duration
	// WriteTimeout ends a GET whose client takes no byte for so long. Default
	// 30 s; negative: never.
	WriteTimeout time.Duration
	// Backlog bounds the messages kept in a session for each direction, in
	// bytes: those that wait for the client to come, and after them those that
	// it may ask for again; and those that were POSTed and not yet read. Writing
	// waits when it is full, and so does the POST. Default 256 KiB.
	Backlog int
	// Owner names whoever sends a request, by its credentials: a session is of
	// use to its owner only, others are told that there is none. Default:
	// everybody who knows the id is its owner.
	Owner func(r *http.Request) string
	// Opened is told of each new session before any message of it is handled.
	Opened func(*Session)
	// Accept takes the Stream of each new session in place of the Server: all
	// messages that are POSTed come out of its Read, answered 202, and all that
	// is written to it, answers too, goes the way back. It runs on a goroutine
	// of its own, and owns the Stream. Default: the Server answers requests in
	// the POST, and responses go to the session's Conn.
	Accept func(jsonrpc.Stream)
}

const maxSend = 64 << 20 // bytes of one message on the way back

func (cfg SessionConfig) withDefaults() SessionConfig {
	setDefault(&cfg.Header, DefaultSessionHeader)
	setDefault(&cfg.Max, 1024)
	setDefault(&cfg.Idle, 5*time.Minute)
	setDefault(&cfg.KeepAlive, 15*time.Second)
	setDefault(&cfg.WriteTimeout, 30*time.Second)
	setDefault(&cfg.Backlog, 256<<10)
	for _, d := range []*time.Duration{&cfg.KeepAlive, &cfg.WriteTimeout} {
		if *d < 0 {
			*d = math.MaxInt64
		}
	}
	cfg.Header = http.CanonicalHeaderKey(cfg.Header)
	return cfg
}

// A Session is a client with a way back.
type Session struct {
	id     string
	owner  string
	conn   *jsonrpc.Conn // nil with SessionConfig.Accept
	stream *sessionStream
	idle   time.Duration

	running running // requests

	mu    sync.Mutex
	users int // requests under way
	timer *time.Timer
}

// ID returns the id of the session. Whoever knows it can speak for the client:
// it does not belong into logs.
func (s *Session) ID() string { return s.id }

// Conn returns the connection on which to call the client and to notify it;
// nil with SessionConfig.Accept. It ends with the session.
func (s *Session) Conn() *jsonrpc.Conn { return s.conn }

type sessionKey struct{}

// SessionFrom returns the session that a request belongs to, from the context
// of its handler.
func SessionFrom(ctx context.Context) (*Session, bool) {
	s, ok := ctx.Value(sessionKey{}).(*Session)
	return s, ok
}

// use says that a request of the session is under way, until the function that
// it returns is called: the session does not idle.
func (s *Session) use() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	s.timer.Stop()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users > 0 {
			return
		}
		select {
		case <-s.stream.over: // nothing is to hold it any longer
		default:
			s.timer.Reset(s.idle)
		}
	}
}

// expire ends the session unless a request came in the last moment.
func (s *Session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		s.stream.hangUp()
	}
}

// A sessionStream is the server's end of a session: a jsonrpc.Stream with
// TryWrite and SetReadDeadline. Read returns what was POSTed, Write leaves
// messages for the way back.
type sessionStream struct {
	in      *inbox
	out     *backlog
	partial []byte // used by Write only

	over     chan struct{} // closed when the session ended
	overOnce sync.Once
	remove   func() // takes the session out of the table
	once     sync.Once
}

func (s *sessionStream) Read() (jsonrpc.Part, error) { return s.in.read() }

func (s *sessionStream) SetReadDeadline(t time.Time) error {
	s.in.limit.set(t)
	return nil
}

func (s *sessionStream) Write(p []byte) (int, error) { return s.write(p, true) }

func (s *sessionStream) TryWrite(p []byte) (int, error) { return s.write(p, false) }

func (s *sessionStream) write(p []byte, wait bool) (int, error) {
	n := 0
	for n < len(p) {
		select {
		case <-s.over:
			return n, net.ErrClosed
		default:
		}
		text := p[n:]
		end := bytes.IndexByte(text, '\n')
		if end >= 0 {
			text = text[:end]
		}
		if len(s.partial)+len(text) > maxSend {
			return n, fmt.Errorf("rpchttp: a message is longer than %d bytes; send less at once", maxSend)
		}
		if end < 0 {
			s.partial = append(s.partial, text...)
			return len(p), nil
		}
		msg := append(slices.Clip(s.partial), text...)
		if skipSpace(msg, 0) < len(msg) && !s.send(oneLine(msg), wait) {
			if wait {
				return n, net.ErrClosed
			}
			return n, nil
		}
		s.partial = nil
		n += end + 1
	}
	return n, nil
}

// oneLine makes spaces of carriage returns, which would end the data line of an
// event. Outside of strings they are blanks in JSON, and inside they are not
// allowed.
func oneLine(msg []byte) []byte {
	for i := bytes.IndexByte(msg, '\r'); i >= 0 && i < len(msg); i++ {
		if msg[i] == '\r' {
			msg[i] = ' '
		}
	}
	return msg
}

// send leaves msg for the way back, when there is room.
func (s *sessionStream) send(msg []byte, wait bool) bool {
	for !s.out.add(msg) {
		if !wait {
			return false
		}
		select {
		case <-s.out.room:
		case <-s.over:
			return false
		}
	}
	return true
}

// hangUp ends the session because the client did: Read returns io.EOF after
// what is there.
func (s *sessionStream) hangUp() {
	s.end()
	s.in.fail(io.EOF)
}

func (s *sessionStream) end() {
	s.overOnce.Do(func() {
		close(s.over) // before the timer is stopped, which is not set any more then
		s.remove()
	})
}

// Close ends the session. A GET that is open sends what is left.
func (s *sessionStream) Close() error {
	s.end()
	s.once.Do(s.in.close)
	return nil
}

// sessions is the table of the sessions of a Server.
type sessions struct {
	cfg SessionConfig

	mu     sync.Mutex
	byID   map[string]*Session
	closed bool
	wg     sync.WaitGroup // one goroutine for each session
}

var (
	errSessions = errors.New("rpchttp: too many sessions")
	errShut     = errors.New("rpchttp: the server is closed")
)

// open makes a session for the sender of r.
func (t *sessions) open(r *http.Request, conn jsonrpc.Config) (*Session, error) {
	s := &Session{id: rand.Text(), owner: t.owner(r), idle: t.cfg.Idle}
	stream := &sessionStream{in: newInbox(maxEvents), out: newBacklog(t.cfg.Backlog), over: make(chan struct{})}
	s.stream = stream
	stream.remove = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.byID, s.id)
		s.timer.Stop()
	}
	t.mu.Lock()
	switch {
	case t.closed:
		t.mu.Unlock()
		return nil, errShut
	case len(t.byID) >= t.cfg.Max:
		t.mu.Unlock()
		return nil, errSessions
	}
	s.timer = time.AfterFunc(s.idle, s.expire)
	if t.cfg.Accept == nil {
		s.conn = jsonrpc.NewConn(stream, conn)
		t.wg.Go(func() {
			<-s.conn.Done()
			_ = s.conn.Close() // it has ended, whatever Close says
		})
	} else {
		t.wg.Go(func() { t.cfg.Accept(stream) })
	}
	t.byID[s.id] = s
	t.mu.Unlock()
	if t.cfg.Opened != nil {
		t.cfg.Opened(s)
	}
	return s, nil
}

func (t *sessions) owner(r *http.Request) string {
	if t.cfg.Owner == nil {
		return ""
	}
	return t.cfg.Owner(r)
}

// find returns the session with this id, if the sender of r owns it.
func (t *sessions) find(r *http.Request, id string) *Session {
	t.mu.Lock()
	s := t.byID[id]
	t.mu.Unlock()
	if s == nil || subtle.ConstantTimeCompare([]byte(s.owner), []byte(t.owner(r))) != 1 {
		return nil
	}
	return s
}

// close ends all sessions and waits for what runs in them.
func (t *sessions) close() {
	t.mu.Lock()
	t.closed = true
	all := make([]*Session, 0, len(t.byID))
	for _, s := range t.byID {
		all = append(all, s)
	}
	t.mu.Unlock()
	for _, s := range all {
		s.stream.hangUp()
	}
	t.wg.Wait()
}
