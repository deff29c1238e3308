package rpchttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// A WayBack says whether the client opens a stream of server-sent events on
// which the server sends requests and notifications of its own.
type WayBack uint8

const (
	// WayBackNone: the server only answers.
	WayBackNone WayBack = iota
	// WayBackAtOnce opens the stream, and with it a session, before the first
	// message is sent: what Server expects.
	WayBackAtOnce
	// WayBackWithSession opens the stream when the answer to a message brings a
	// session id, and goes on without it when the server has none to offer, as
	// the Model Context Protocol has it.
	WayBackWithSession
)

// A ClientConfig says how a Stream behaves. The zero value is ready to use.
type ClientConfig struct {
	// Client sends the requests. Default: one with connections of its own, which
	// Close closes, without compression, and with the proxy of the environment.
	// Without CheckRedirect, redirects are followed only when they keep method,
	// scheme, host and port.
	Client *http.Client
	// Headers adds to the header of each request: credentials, usually. It is
	// called from several goroutines at once; ctx ends with the request. An
	// error means that the message is not delivered, or the way back not opened;
	// whether it may be tried again is what jsonrpc.Recoverable says of the error:
	// a network that fails may pass, an error without more to it does not.
	Headers func(ctx context.Context, header http.Header) error
	// MaxInFlight bounds the POSTs of calls at the same time; more calls wait.
	// Notifications and answers to the server's calls have as many for
	// themselves, since running calls may wait for them. With 1, calls and
	// notifications arrive in the order of writing. Default 64, at most 65536.
	MaxInFlight int
	// MaxQueue bounds the messages waiting for their turn, in bytes: calls,
	// notifications and answers each. When there are more, who calls waits, by
	// the side of the Conn, and others pass; without a Conn Write waits, with all
	// that comes behind. Default 4 MiB.
	MaxQueue int
	// MaxMessage bounds one message of the server, in bytes; a POST whose answer
	// is longer counts as undelivered. Keep it at Config.MaxMessage of the Conn.
	// Default 1 MiB; negative: none.
	MaxMessage int
	// MaxSend bounds one message of ours, in bytes: it is kept whole until it
	// is delivered. Write fails on a longer one. Default 64 MiB.
	MaxSend int
	// Timeout bounds a POST from its start to the end of its answer, and the
	// time between two events of one answered as a stream of events. Keep it
	// above the longest call. Default 2 min; negative: none.
	Timeout time.Duration
	// Cancel is how whoever writes to the Stream says that a call was given up:
	// the same as Config.Cancel of the Conn. The notification ends the POST of
	// the call that it names, which frees its place and tells servers that
	// watch their connections; the POST of a batch ends when all its calls were
	// given up. Read says nothing about it. The notification itself is sent in
	// a session, where the server can tell which request it means, and dropped
	// without one. Default: a call that is given up leaves its POST running
	// until Timeout, if it was begun.
	Cancel jsonrpc.CancelStyle
	// CloseTimeout bounds what Close waits for notifications and responses that
	// are on their way, and for the server to end the session. Default 1 s.
	CloseTimeout time.Duration
	// SessionHeader is the header that carries the id of a session, which the
	// client takes from answers and repeats. Default "Rpc-Session-Id"; servers
	// of the Model Context Protocol want "Mcp-Session-Id".
	SessionHeader string
	// WayBack opens the way back. Default: none.
	WayBack WayBack
	// WayBackIdle ends a way back that has been silent for so long, comments
	// included, and opens it anew. Default: never, since servers are not bound
	// to send comments; Server does so every 15 s.
	WayBackIdle time.Duration
	// MaxReconnects bounds the attempts in a row to open the way back again,
	// after which the Stream ends with the last error; and those to have the rest
	// of an answer that was cut. Default 10, which takes about half a minute, and
	// longer if the server asks for it; negative: none.
	MaxReconnects int
}

// DefaultSessionHeader carries session ids unless it is configured otherwise.
const DefaultSessionHeader = "Rpc-Session-Id"

const (
	maxQueued   = 1365    // messages of a kind waiting for their turn
	maxInFlight = 1 << 16 // POSTs of calls at the same time; there is memory for as many answers
)

func (cfg ClientConfig) withDefaults() ClientConfig {
	setDefault(&cfg.MaxInFlight, 64)
	setDefault(&cfg.MaxQueue, 4<<20)
	setDefault(&cfg.MaxMessage, 1<<20)
	setDefault(&cfg.MaxSend, 64<<20)
	setDefault(&cfg.MaxReconnects, 10)
	setDefault(&cfg.Timeout, 2*time.Minute)
	setDefault(&cfg.CloseTimeout, time.Second)
	setDefault(&cfg.SessionHeader, DefaultSessionHeader)
	cfg.MaxInFlight = min(max(cfg.MaxInFlight, 1), maxInFlight)
	cfg.SessionHeader = http.CanonicalHeaderKey(cfg.SessionHeader)
	return cfg
}

func setDefault[T int | string | time.Duration](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// A Stream is the client's end: a jsonrpc.Stream with TryWrite, WriteWatched, Room,
// Drop and SetReadDeadline. See the package documentation for what it promises.
type Stream struct {
	cfg    ClientConfig
	url    *url.URL
	client http.Client
	direct bool            // requests go to its Transport directly
	own    *http.Transport // closed with the Stream; nil when the caller brought a client
	header http.Header     // of POSTs when nothing varies; not changed
	in     *inbox
	cancel cancelling

	// written by Write only
	partial []byte // of the message at hand
	lanes   [3]lane
	told    func()        // that there is room again, when a Conn asks Room; else nil
	room    chan struct{} // the same for Write, as a signal

	// These begin a worker, and the way back; they hold the contexts.
	start     func(*job)
	startBack func(greeted <-chan struct{})
	backOnce  sync.Once
	kill      context.CancelCauseFunc // ends every request
	killBack  context.CancelFunc      // ends the way back
	wg        sync.WaitGroup

	session     atomic.Pointer[string]
	established chan struct{} // the way back is open; nil when POSTs need not wait for it

	mu      sync.Mutex
	slots   []*slot         // one for each worker
	calls   map[string]*job // by raw id, those that may be given up; nil: none
	closing chan struct{}
	isOver  bool          // closing is closed
	done    chan struct{} // Close has ended
	unread  error         // what Close returns; readable when done is closed
}

// A slot shows Close what a worker is doing.
type slot struct {
	job *job // nil between two jobs
}

// NewStream returns a Stream that POSTs each message to rawURL, which has to be
// an http or https URL. Nothing is sent before the first Write, except that
// WayBackAtOnce starts to open the way back; whether the server can be reached
// shows in Read.
func NewStream(rawURL string, cfg ClientConfig) (*Stream, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse repeats the URL, which may hold a password.
		return nil, urlError("rpchttp: this is no URL; write it as http://host:port/path")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, urlError(fmt.Sprintf("rpchttp: %q is no http or https URL with a host; write it as http://host:port/path", bareURL(u)))
	}
	header := http.Header{"Content-Type": {jsonType}, "Accept": {jsonType + ", " + eventType}}
	if u.User != nil {
		password, _ := u.User.Password()
		auth := base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + password))
		header.Set("Authorization", "Basic "+auth)
	}
	u.User, u.Fragment = nil, ""
	cfg = cfg.withDefaults()
	s := &Stream{
		cfg: cfg, url: u,
		in:      newInbox(cfg.MaxInFlight),
		room:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
		header:  header,
		cancel:  cancellingOf(cfg.Cancel),
	}
	if s.cancel.on() {
		s.calls = make(map[string]*job)
	}
	s.useClient()
	base, kill := context.WithCancelCause(context.Background())
	back, killBack := context.WithCancel(base)
	s.kill, s.killBack = kill, killBack
	s.start = func(j *job) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.isOver { // else Close may be done waiting
			s.wg.Go(func() { s.work(base, j) })
		}
	}
	for i := range s.lanes {
		s.lanes[i].open(&s.cfg)
	}
	s.startBack = func(greeted <-chan struct{}) { s.wg.Go(func() { s.wayBack(back, greeted) }) }
	if cfg.WayBack == WayBackAtOnce {
		s.established = make(chan struct{})
		s.backOnce.Do(func() { s.startBack(nil) })
	}
	return s, nil
}

// useClient takes the caller's client or makes one.
func (s *Stream) useClient() {
	if s.cfg.Client != nil {
		s.client = *s.cfg.Client
	} else {
		s.own = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			ForceAttemptHTTP2:     true,
			MaxIdleConnsPerHost:   len(s.lanes) * s.cfg.MaxInFlight,
			IdleConnTimeout:       90 * time.Second,
			TLSHandshakeTimeout:   10 * time.Second,
			ExpectContinueTimeout: time.Second,
			DisableCompression:    true,
		}
		s.client.Transport = s.own
	}
	s.direct = s.client.Jar == nil && s.client.Timeout == 0 && s.client.CheckRedirect == nil
	if s.client.CheckRedirect == nil {
		s.client.CheckRedirect = sameOrigin
	}
}

// sameOrigin follows redirects as send does.
func sameOrigin(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects || req.Method != first.Method || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// SessionID returns the id of the session that the server has opened; "" when
// there is none yet.
func (s *Stream) SessionID() string {
	if id := s.session.Load(); id != nil {
		return *id
	}
	return ""
}

// Read returns messages of the server, and an *jsonrpc.UndeliveredError with an
// *Error in it for each message of ours that failed. It ends with io.EOF when
// the server ended the session, and with an *Error when the way back, or the
// session, was lost.
func (s *Stream) Read() (jsonrpc.Part, error) { return s.in.read() }

// SetReadDeadline interrupts a blocked Read at t; the zero time means never.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.in.limit.set(t)
	return nil
}

// Write queues the messages in p, each of which a POST of its own carries. It
// waits while more than ClientConfig.MaxQueue bytes wait for their turn, unless OnRoom
// was called.
func (s *Stream) Write(p []byte) (int, error) { return s.write(p, func(bool) {}) }

// WriteWatched is Write for a Conn, whose StallTimeout is not about messages that wait
// for their turn: the POSTs before them have ClientConfig.Timeout.
func (s *Stream) WriteWatched(p []byte, watch func(on bool)) (int, error) { return s.write(p, watch) }

// TryWrite is Write without waiting: it returns what it took, possibly nothing.
func (s *Stream) TryWrite(p []byte) (int, error) { return s.write(p, nil) }

// write waits for room if there is a watch, which it ends meanwhile.
func (s *Stream) write(p []byte, watch func(on bool)) (int, error) {
	n := 0
	for n < len(p) {
		if err := s.failure(); err != nil {
			return n, err
		}
		text := p[n:]
		end := bytes.IndexByte(text, '\n')
		if end >= 0 {
			text = text[:end]
		}
		if len(s.partial)+len(text) > s.cfg.MaxSend {
			return n, fmt.Errorf("rpchttp: a message is longer than %d bytes; send less at once, or raise ClientConfig.MaxSend", s.cfg.MaxSend)
		}
		if end < 0 {
			s.partial = append(s.partial, text...)
			return len(p), nil
		}
		if err := s.queue(append(s.partial, text...), watch); err != nil {
			if errors.Is(err, errFull) {
				err = nil
			}
			return n, err
		}
		s.partial = nil
		n += end + 1
	}
	return n, nil
}

var errFull = errors.New("rpchttp: queue full")

// queue has a message sent when its turn comes, if it has to be.
func (s *Stream) queue(msg []byte, watch func(on bool)) error {
	if skipSpace(msg, 0) == len(msg) {
		return nil
	}
	j, kind := &job{msg: msg}, kindOf(msg)
	if !s.heed(j, kind) {
		return nil
	}
	j.lane = s.laneOf(kind)
	if s.told == nil || kind == isAnswer { // else the Conn has asked Room
		if err := s.waitRoom(j.lane, watch); err != nil {
			return err
		}
	}
	s.expect(j, kind)
	if !j.lane.push(j) {
		s.start(j)
	}
	return nil
}

// waitRoom returns nil when one more message can be queued. Write being called
// by one goroutine at a time, the room stays until it is used.
func (s *Stream) waitRoom(l *lane, watch func(on bool)) error {
	for waited := false; ; waited = true {
		if err := s.failure(); err != nil {
			return err
		}
		if l.hasRoom() {
			if waited {
				watch(true)
			}
			return nil
		}
		if watch == nil {
			return errFull
		}
		watch(false)
		select {
		case <-s.room:
		case <-s.closing:
		case <-s.in.dead:
		}
	}
}

// failure returns why nothing can be written any more; nil: it can.
func (s *Stream) failure() error {
	select {
	case <-s.closing:
		return net.ErrClosed
	case <-s.in.dead:
		return s.in.failure()
	default:
		return nil
	}
}

// Room says whether another call, and another notification, has room among those that wait
// for their turn.
func (s *Stream) Room() (calls, notifications bool) {
	return s.laneOf(isCall).hasRoom(), s.laneOf(isNotification).hasRoom()
}

// OnRoom has told called, before the first Write, by whom room is made. From then on Write
// waits for answers only: whoever writes has asked Room before he does.
func (s *Stream) OnRoom(told func()) { s.told = told }

// roomMade tells who waits for room.
func (s *Stream) roomMade() {
	signal(s.room)
	if s.told != nil {
		s.told()
	}
}

// Close ends the Stream: Read and Write return at once, calls on their way are
// cut short, notifications and responses have ClientConfig.CloseTimeout to
// arrive; then the session is ended. No goroutine is left when it returns,
// except those of connections that a ClientConfig.Client keeps.
//
// It returns the *Error of a notification or a response that did not arrive, if
// there is one that no Read has told of; the same each time.
func (s *Stream) Close() error {
	s.mu.Lock()
	if s.isOver {
		s.mu.Unlock()
		<-s.done
		return s.unread
	}
	s.isOver = true
	close(s.closing)
	for _, sl := range s.slots {
		if sl.job != nil && peek(sl.job.msg).calls > 0 {
			sl.job.cancel(errClosing)
		}
	}
	s.mu.Unlock()
	for i := range s.lanes {
		s.lanes[i].close()
	}
	defer close(s.done)
	s.in.close()
	s.killBack()
	linger := time.AfterFunc(s.cfg.CloseTimeout, func() { s.kill(errClosing) })
	s.wg.Wait()
	linger.Stop()
	s.endSession()
	s.kill(errClosing)
	if s.own != nil {
		s.own.CloseIdleConnections()
	}
	s.unread = s.in.unread()
	return s.unread
}
