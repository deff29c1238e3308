package bridge_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// h2Agents are agents that speak HTTP/2 over TLS, one after the other at the
// same address, and an exchange that trusts them.
type h2Agents struct {
	t    *testing.T
	ca   *authority
	cert tls.Certificate
	// dials counts connections; dial opens them.
	dials atomic.Int64
	dial  atomic.Pointer[func(ctx context.Context) (net.Conn, error)]
	x     *bridge.Exchange
	agent parley.Agent
}

func newH2Agents(t *testing.T, cfg bridge.ExchangeConfig) *h2Agents {
	t.Helper()
	a := &h2Agents{t: t, ca: newAuthority(t, "agents"), agent: parley.Agent{Name: "a", URL: "https://127.0.0.1/", Timeout: time.Minute}}
	a.cert = a.ca.server()
	cfg.TLS = &tls.Config{RootCAs: a.ca.pool(), MinVersion: tls.VersionTLS12}
	cfg.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		a.dials.Add(1)
		return (*a.dial.Load())(ctx)
	}
	a.x = newExchange(t, cfg)
	return a
}

func (a *h2Agents) settings() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{a.cert}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
}

// serve starts the next agent, a server of net/http; s needs a handler only.
func (a *h2Agents) serve(s *http.Server) {
	a.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	s.TLSConfig, s.ErrorLog = a.settings(), log.New(io.Discard, "", 0)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.ServeTLS(l, "", "") }()
	a.t.Cleanup(func() { _ = s.Close(); <-served })
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
	a.dial.Store(&dial)
}

// calls makes n calls at a time, whose bodies are numbers from first on, and
// gives their errors once all have ended.
func (a *h2Agents) calls(first, n int) (wait func() []error) {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			reply, err := a.x.Post(a.t.Context(), testTask(), a.agent, fmt.Append(nil, first+i))
			if err == nil && string(reply.Body) != fmt.Sprint(first+i) {
				err = fmt.Errorf("call %d got the answer %q", first+i, reply.Body)
			}
			errs[i] = err
		})
	}
	return func() []error { wg.Wait(); return errs }
}

func (a *h2Agents) noErrors(errs []error) {
	a.t.Helper()
	for i, err := range errs {
		if err != nil {
			a.t.Errorf("call %d: %v", i, err)
		}
	}
}

// meeting lets n callers go on when all of them are there.
func meeting(n int) (meet func()) {
	var mu sync.Mutex
	here, all := 0, make(chan struct{})
	return func() {
		mu.Lock()
		now := all
		if here++; here == n {
			here, all = 0, make(chan struct{})
			close(now)
		}
		mu.Unlock()
		<-now
	}
}

// TestHTTP2OneConnection: calls at the same time share a connection, none of
// which gets another's answer.
func TestHTTP2OneConnection(t *testing.T) {
	a := newH2Agents(t, bridge.ExchangeConfig{})
	meet := meeting(100)
	a.serve(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if string(b) != "0" {
			meet()
		}
		_, _ = w.Write(b)
	})})
	a.noErrors(a.calls(0, 1)())
	a.noErrors(a.calls(1, 100)())
	if n := a.dials.Load(); n != 1 {
		t.Errorf("%d connections for 100 calls at once, want 1", n)
	}
}

// TestHTTP2MaxStreams: a connection never carries more calls at once than the
// agent takes on one, and every call is answered, or was refused before it began.
//
// One call of a connection may end in PROTOCOL_ERROR, which says nothing of what
// became of it: net/http gives a stream its place, then writes it, and between the
// two it may learn and acknowledge how many the agent takes. No more than one, since
// it does so for one stream at a time.
func TestHTTP2MaxStreams(t *testing.T) {
	type streams struct{ now, most atomic.Int64 }
	a := newH2Agents(t, bridge.ExchangeConfig{})
	const most, calls = 5, 40
	key := new(int)
	var mu sync.Mutex
	var conns []*streams
	a.serve(&http.Server{
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: most},
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			mu.Lock()
			defer mu.Unlock()
			s := &streams{}
			conns = append(conns, s)
			return context.WithValue(ctx, key, s)
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s := r.Context().Value(key).(*streams)
			n := s.now.Add(1)
			defer s.now.Add(-1)
			for m := s.most.Load(); n > m && !s.most.CompareAndSwap(m, n); m = s.most.Load() {
			}
			b, _ := io.ReadAll(r.Body)
			time.Sleep(time.Millisecond) // so that calls meet, as a rule
			_, _ = w.Write(b)
		}),
	})
	overtaken := 0
	for round := range 3 {
		for _, err := range a.calls(round*calls, calls)() {
			e, ok := errors.AsType[*bridge.ExchangeError](err)
			switch {
			case err == nil, ok && e.Disposition == bridge.NotSent && e.Err.Retryable:
			case ok && e.Disposition == bridge.Lost && strings.Contains(err.Error(), "; PROTOCOL_ERROR; received from peer"):
				overtaken++
			default:
				t.Error(err)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if overtaken > len(conns) {
		t.Errorf("%d calls of %d connections ended in PROTOCOL_ERROR", overtaken, len(conns))
	}
	for i, s := range conns {
		if n := s.most.Load(); n > most {
			t.Errorf("connection %d carried %d calls at once, the agent takes %d", i, n, most)
		}
	}
}

// TestHTTP2Restart: an agent that is restarted gracefully (GOAWAY) finishes
// what it has, and what comes after it goes to the next one. Nothing is lost, and
// nothing is done twice.
func TestHTTP2Restart(t *testing.T) {
	a := newH2Agents(t, bridge.ExchangeConfig{})
	var mu sync.Mutex
	done := map[string]int{}
	finish := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		done[string(b)]++
		mu.Unlock()
		_, _ = w.Write(b)
	}
	const calls, few = 30, 3
	release := make(chan struct{})
	inHand := make(chan struct{}, calls)
	old := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case inHand <- struct{}{}:
		default: // a later call
		}
		<-release
		finish(w, r)
	})}
	a.serve(old)
	first := a.calls(0, calls)
	for range calls {
		<-inHand
	}
	stopped := make(chan error, 1)
	a.serve(&http.Server{Handler: http.HandlerFunc(finish)})
	go func() { stopped <- old.Shutdown(context.Background()) }()
	var later []func() []error
	for n := 1; ; n++ { // until the new one is called: by then the old one has said that it goes
		later = append(later, a.calls(n*calls, few))
		mu.Lock()
		moved := len(done) > 0
		mu.Unlock()
		if moved || n == 200 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(release)
	a.noErrors(first())
	for _, wait := range later {
		a.noErrors(wait())
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := calls + few*len(later); len(done) != want {
		t.Errorf("%d of %d calls were done", len(done), want)
	}
	for call, n := range done {
		if n != 1 {
			t.Errorf("call %s was done %d times", call, n)
		}
	}
}

// The frames of HTTP/2 that a script says or reads (RFC 9113 §6).
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway = 0, 1, 3, 4, 7

	codeNone, codeProtocol, codeInternal, codeRefused, codeCancel = 0, 1, 2, 7, 8
)

// h2Script is the agent's end of a connection. What it says is written by a
// goroutine of its own, since net.Pipe holds nothing.
type h2Script struct {
	net.Conn
	out chan []byte
}

func (s h2Script) say(kind, flags byte, stream uint32, payload ...byte) {
	head := []byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[5:], stream)
	s.out <- append(head, payload...)
}

func (s h2Script) reset(stream uint32, code byte) { s.say(frameReset, 0, stream, 0, 0, 0, code) }

func (s h2Script) goAway(last uint32, code byte) {
	s.say(frameGoAway, 0, 0, append(binary.BigEndian.AppendUint32(nil, last), 0, 0, 0, code)...)
}

func (s h2Script) answer(stream uint32) {
	s.say(frameHeaders, 4, stream, 0x88) // END_HEADERS; ":status: 200" of the static table
	s.say(frameData, 1, stream, '{', '}')
}

// request reads until a request has ended, and gives its stream; 0 is the end of
// the connection.
func (s h2Script) request() uint32 {
	for {
		var head [9]byte
		if _, err := io.ReadFull(s, head[:]); err != nil {
			return 0
		}
		size := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, s, size); err != nil {
			return 0
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch {
		case kind == frameSettings && flags == 0:
			s.say(frameSettings, 1, 0)
		case (kind == frameHeaders || kind == frameData) && flags&1 != 0:
			return stream
		}
	}
}

// h2Scripted serves connections by a script, which gets the number of each
// request over all connections, and says whether to go on with this one.
func (a *h2Agents) script(script func(n int64, s h2Script, stream uint32) bool) (requests *atomic.Int64) {
	requests = &atomic.Int64{}
	dial := func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			s := h2Script{tls.Server(theirs, a.settings()), make(chan []byte, 100)}
			var said sync.WaitGroup
			said.Go(func() {
				for b := range s.out {
					_, _ = s.Write(b)
				}
			})
			defer func() {
				close(s.out)
				said.Go(func() { _, _ = io.Copy(io.Discard, s) })
				_ = s.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				said.Wait()
				_ = s.Close()
			}()
			preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
			if _, err := io.ReadFull(s, preface); err != nil {
				return
			}
			s.say(frameSettings, 0, 0)
			for stream := s.request(); stream != 0; stream = s.request() {
				if !script(requests.Add(1), s, stream) {
					return
				}
			}
		}()
		return ours, nil
	}
	a.dial.Store(&dial)
	return requests
}

// TestHTTP2Refusals: what the agent's server says that it has not begun with is
// sent again, a few times; what it may have done is never.
func TestHTTP2Refusals(t *testing.T) {
	then := func(refuse func(h2Script, uint32) bool) func(int64, h2Script, uint32) bool {
		return func(n int64, s h2Script, stream uint32) bool {
			if n == 1 {
				return refuse(s, stream)
			}
			s.answer(stream)
			return true
		}
	}
	always := func(refuse func(h2Script, uint32) bool) func(int64, h2Script, uint32) bool {
		return func(_ int64, s h2Script, stream uint32) bool { return refuse(s, stream) }
	}
	reset := func(code byte) func(h2Script, uint32) bool {
		return func(s h2Script, stream uint32) bool { s.reset(stream, code); return true }
	}
	// The connection ends with the client's: what was said before has arrived.
	leave := func(s h2Script) bool { _, _ = io.Copy(io.Discard, s); return false }
	cases := []struct {
		name     string
		script   func(int64, h2Script, uint32) bool
		requests int64
		class    bridge.Disposition // 0 is an answer
	}{
		{"refused once", then(reset(codeRefused)), 2, 0},
		{"refused always", always(reset(codeRefused)), 4, bridge.NotSent},
		{"gone before it", then(func(s h2Script, _ uint32) bool { s.goAway(0, codeNone); return leave(s) }), 2, 0},
		{"gone before it, always", always(func(s h2Script, _ uint32) bool { s.goAway(0, codeNone); return leave(s) }), 4, bridge.NotSent},
		{"gone with it", then(func(s h2Script, stream uint32) bool { s.goAway(stream, codeNone); return false }), 1, bridge.Lost},
		{"gone after it", then(func(s h2Script, stream uint32) bool { s.goAway(stream, codeNone); s.answer(stream); return leave(s) }), 1, 0},
		{"protocol error", then(reset(codeProtocol)), 1, bridge.Lost},
		{"internal error", then(reset(codeInternal)), 1, bridge.Lost},
		{"cancelled", then(reset(codeCancel)), 1, bridge.Lost},
		{"closed", then(func(h2Script, uint32) bool { return false }), 1, bridge.Lost},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := newH2Agents(t, bridge.ExchangeConfig{})
			requests := a.script(c.script)
			_, err := a.x.Post(t.Context(), testTask(), a.agent, []byte("{}"))
			if n := requests.Load(); n != c.requests {
				t.Errorf("the agent got %d requests, want %d", n, c.requests)
			}
			if c.class == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if e := wantExchangeError(t, err, c.class, parley.CodeAgentUnavailable); !e.Err.Retryable {
				t.Errorf("not retryable: %v", e)
			}
		})
	}
}

// swallowing is a connection whose other end is gone without a word: what is
// written is lost, and nothing comes.
type swallowing struct {
	net.Conn
	cut *atomic.Bool
}

func (c swallowing) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestHTTP2DeadConnection: a connection whose agent is gone without a word is
// found out by a ping, long before the calls on it are out of time, and the
// next call gets another one.
func TestHTTP2DeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newH2Agents(t, bridge.ExchangeConfig{})
		a.script(func(_ int64, s h2Script, stream uint32) bool { s.answer(stream); return true })
		inner, cut := *a.dial.Load(), &atomic.Bool{}
		dial := func(ctx context.Context) (net.Conn, error) {
			c, err := inner(ctx)
			if a.dials.Load() == 1 {
				c = swallowing{c, cut}
			}
			return c, err
		}
		a.dial.Store(&dial)
		a.agent.Timeout = 5 * time.Minute
		if _, err := a.x.Post(t.Context(), testTask(), a.agent, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		cut.Store(true)
		begun := time.Now()
		_, err := a.x.Post(t.Context(), testTask(), a.agent, []byte("{}"))
		wantExchangeError(t, err, bridge.Lost, parley.CodeAgentUnavailable)
		if took := time.Since(begun); took > 25*time.Second {
			t.Errorf("the dead connection was found out after %s", took)
		}
		if _, err := a.x.Post(t.Context(), testTask(), a.agent, []byte("{}")); err != nil || a.dials.Load() != 2 {
			t.Errorf("%d connections, %v", a.dials.Load(), err)
		}
		a.x.Close()
		synctest.Wait()
	})
}

// TestFirstByteHTTP2: the time for the first byte holds for each stream: one that
// is silent is given up alone, and one that has begun has its whole time.
func TestFirstByteHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newH2Agents(t, bridge.ExchangeConfig{Limits: bridge.ExchangeLimits{FirstByte: 2 * time.Second}})
		a.script(func(n int64, s h2Script, stream uint32) bool {
			switch n {
			case 1, 4: // silent
			case 2:
				s.say(frameHeaders, 4, stream, 0x88)
				go func() {
					for range 10 {
						time.Sleep(time.Second)
						s.say(frameData, 0, stream, '1')
					}
					s.say(frameData, 1, stream)
				}()
			default:
				s.answer(stream)
			}
			return true
		})
		post := func(ctx context.Context) (string, error) {
			reply, err := a.x.Post(ctx, testTask(), a.agent, []byte("{}"))
			return string(reply.Body), err
		}
		var silent sync.WaitGroup
		silent.Go(func() {
			begun := time.Now()
			_, err := post(t.Context())
			e := wantExchangeError(t, err, bridge.Lost, parley.CodeTimeout)
			if took := time.Since(begun); took != 2*time.Second || !e.Err.Retryable || !strings.Contains(string(e.Err.Details), `"limit":"first_byte","value":2000`) {
				t.Errorf("after %s: %v %s", took, e.Err, e.Err.Details)
			}
		})
		synctest.Wait()
		if body, err := post(t.Context()); err != nil || len(body) != 10 {
			t.Errorf("%q, %v", body, err)
		}
		silent.Wait()
		if body, err := post(t.Context()); err != nil || body != "{}" || a.dials.Load() != 1 {
			t.Errorf("%q, %v, over %d connections: the silent call has cost the others theirs", body, err, a.dials.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := post(ctx)
		if e := wantExchangeError(t, err, bridge.Lost, parley.CodeTimeout); !strings.Contains(string(e.Err.Details), "attempt_timeout") {
			t.Errorf("%s", e.Err.Details)
		}
		a.x.Close()
		synctest.Wait()
	})
}
