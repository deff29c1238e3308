package rpchttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// sessionOf opens a session, whose client leaves at once.
func sessionOf(t *testing.T, s *Server) *Session {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	id := do(ctx, s, http.MethodGet, "").Header()[s.sessions.cfg.Header]
	if len(id) != 1 {
		t.Fatal("no session")
	}
	return s.sessions.byID[id[0]]
}

// TestSessionUsers: a session idles from the end of the last request on, and not while
// one is under way.
func TestSessionUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Handler(ServerConfig{Sessions: &SessionConfig{Idle: time.Minute, Header: "x-session"}})
		defer s.Close()
		ses := sessionOf(t, s)
		alive := func(want bool) {
			t.Helper()
			synctest.Wait()
			select {
			case <-ses.stream.over:
				if want {
					t.Error("the session ended")
				}
			default:
				if !want {
					t.Error("the session goes on")
				}
			}
		}
		first, second := ses.use(), ses.use()
		time.Sleep(time.Hour)
		first()
		time.Sleep(time.Hour)
		ses.expire() // whose timer was set before
		alive(true)
		second()
		for range 3 {
			time.Sleep(time.Minute - time.Second)
			alive(true)
			if w := do(t.Context(), s, http.MethodPost, aNotice, "X-Session", ses.id); w.Code != http.StatusAccepted {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		time.Sleep(time.Minute - time.Second)
		alive(true)
		time.Sleep(2 * time.Second)
		alive(false)
		if len(s.sessions.byID) != 0 || ses.conn.State() != jsonrpc.StateDisconnected {
			t.Errorf("%d sessions are left; the connection is %v", len(s.sessions.byID), ses.conn.State())
		}
		if ses.use()(); ses.timer.Stop() {
			t.Error("the timer of a session that has ended was set")
		}
	})
}

// TestSessionsEnd: Close waits for what runs in sessions, and no session begins
// afterwards.
func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Handler(ServerConfig{Sessions: &SessionConfig{Accept: func(st jsonrpc.Stream) {
			if _, err := st.Read(); !errors.Is(err, io.EOF) {
				t.Errorf("Read: %v", err)
			}
			time.Sleep(10 * time.Second)
			st.Close()
			if _, err := st.Read(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Read after Close: %v", err)
			}
		}}})
		sessionOf(t, s)
		begin := time.Now()
		s.sessions.close()
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if w := do(t.Context(), s, http.MethodGet, ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("afterwards: %d", w.Code)
		}
		s.Close()
	})
	limited := Handler(ServerConfig{Sessions: &SessionConfig{Max: 1}})
	defer limited.Close()
	sessionOf(t, limited)
	for range 2 { // nothing is held by who is refused
		if w := do(t.Context(), limited, http.MethodGet, ""); w.Code != http.StatusServiceUnavailable {
			t.Errorf("one too many: %d", w.Code)
		}
	}
}

// TestSessionStream: what the server writes goes the way back line by line, as far as
// there is room.
func TestSessionStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := make(chan jsonrpc.Stream, 1)
		s := Handler(ServerConfig{Sessions: &SessionConfig{Backlog: 10, Accept: func(st jsonrpc.Stream) { streams <- st }}})
		defer s.Close()
		ses := sessionOf(t, s)
		st := (<-streams).(*sessionStream)
		for _, c := range []struct {
			text string
			took int
		}{{"[", 1}, {"1", 1}, {"]\n", 2}, {" \t\r\n\n", 5}, {"[2]\r\n[34]\n[", 5}, {"[34]\n", 0}, {"[", 1}, {"34]\n", 0}} {
			if n, err := st.TryWrite([]byte(c.text)); err != nil || n != c.took {
				t.Errorf("%q: %d taken, %v, want %d", c.text, n, err, c.took)
			}
		}
		if err := st.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read: %v", err)
		}
		wrote := make(chan error, 1)
		go func() {
			n, err := st.Write([]byte("34]\n[5]\n"))
			if err == nil && n != 8 {
				err = fmt.Errorf("%d bytes", n)
			}
			wrote <- err
		}()
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://host/", nil)
		r.Header.Set(DefaultSessionHeader, ses.id)
		var got bytes.Buffer
		w.Body = &got
		go s.ServeHTTP(w, r)
		if err := <-wrote; err != nil {
			t.Errorf("Write: %v", err)
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		if want := "id: 0\n\nid: 1\ndata: [1]\n\nid: 2\ndata: [2] \n\nid: 3\ndata: [34]\n\nid: 4\ndata: [5]\n\n"; got.String() != want {
			t.Errorf("the client got %q", got.String())
		}
		st.partial = make([]byte, maxSend)
		if n, err := st.Write([]byte("x")); n != 0 || err == nil {
			t.Errorf("a message that is too long: %d, %v", n, err)
		}
		st.partial = nil
		for range 3 {
			_, _ = st.TryWrite([]byte(strings.Repeat("1", 10) + "\n"))
		}
		go func() {
			_, err := st.Write([]byte("[6]\n"))
			wrote <- err
		}()
		synctest.Wait()
		st.Close()
		if err := <-wrote; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write, which waits: %v", err)
		}
		if n, err := st.TryWrite([]byte("[7]\n")); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("TryWrite: %d, %v", n, err)
		}
	})
}

// TestWayBackGetsTheRest: when the server ends a session, a way back that is open gets
// what was said before.
func TestWayBackGetsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := make(chan jsonrpc.Stream, 1)
		s := Handler(ServerConfig{Sessions: &SessionConfig{Accept: func(st jsonrpc.Stream) { streams <- st }}})
		defer s.Close()
		w := newSlowWriter()
		ended := make(chan struct{})
		go func() {
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://host/", nil))
			close(ended)
		}()
		st := <-streams
		synctest.Wait() // the first event is on its way
		if _, err := st.Write([]byte("[1]\n")); err != nil {
			t.Fatal(err)
		}
		st.Close()
		close(w.take)
		<-ended
		if got := w.got.String(); !strings.HasSuffix(got, "data: [1]\n\n") {
			t.Errorf("the client got %q", got)
		}
	})
}

// TestBacklogLimits: so many bytes, and so many events, are kept, or one message that
// is larger; those that were sent make room.
func TestBacklogLimits(t *testing.T) {
	b := newBacklog(100)
	add := func(size int, want bool) {
		t.Helper()
		if got := b.add(make([]byte, size)); got != want {
			t.Errorf("%d bytes beside %d: %t", size, b.bytes, got)
		}
	}
	add(60, true)
	add(41, false)
	add(40, true)
	add(0, true)
	add(1, false)
	cursor, more, _, ok := b.attach(0, false)
	if !ok || cursor != 0 {
		t.Errorf("attached behind %d, %t", cursor, ok)
	}
	dst, cursor := b.appendAfter(nil, cursor, more)
	if cursor != 3 || len(b.room) != 1 {
		t.Errorf("%d events, %d bytes sent", cursor, len(dst))
	}
	add(60, true) // in the place of the first
	add(101, false)
	if _, cursor = b.appendAfter(nil, cursor, more); cursor != 4 {
		t.Errorf("behind %d", cursor)
	}
	add(101, true)
	if len(b.events) != 1 || b.first != 5 {
		t.Errorf("%d events are kept, the first is %d", len(b.events), b.first)
	}
	if cursor, _, _, ok = b.attach(0, false); !ok || cursor != 4 {
		t.Errorf("attached behind %d, %t", cursor, ok)
	}
	for after, want := range map[uint64]bool{3: false, 4: true, 5: true, 6: false, 1 << 62: false} {
		if _, _, _, ok := b.attach(after, true); ok != want {
			t.Errorf("behind %d: %t", after, ok)
		}
	}
	b = newBacklog(1 << 20)
	for range maxEvents {
		add(1, true)
	}
	add(1, false)
	b = newBacklog(1 << 20)
	for range 10 {
		add(eventBatch/4, true)
	}
	_, more, _, _ = b.attach(0, false)
	if dst, cursor := b.appendAfter(nil, 0, more); cursor != 4 || len(dst) > 2*eventBatch {
		t.Errorf("%d events, %d bytes at once", cursor, len(dst))
	}
}
