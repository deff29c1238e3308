package rpchttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/parley-project/parley/jsonrpc"
)

// A slowWriter is a client that takes what is written when it is told to.
type slowWriter struct {
	header http.Header
	take   chan struct{} // one for each write
	got    bytes.Buffer
}

func newSlowWriter() *slowWriter {
	return &slowWriter{header: make(http.Header), take: make(chan struct{})}
}

func (w *slowWriter) Header() http.Header { return w.header }
func (w *slowWriter) WriteHeader(int)     {}
func (w *slowWriter) Flush()              {}

func (w *slowWriter) Write(p []byte) (int, error) {
	<-w.take
	return w.got.Write(p)
}

// TestResumeKeepsEvents: what a client that comes back asks for again is kept until
// it has got it, although it was sent before: what is said meanwhile waits for room.
func TestResumeKeepsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := make(chan jsonrpc.Stream, 1)
		const size = 30 << 10
		s := Handler(ServerConfig{Sessions: &SessionConfig{Backlog: 8 * size, Accept: func(st jsonrpc.Stream) { streams <- st }}})
		ctx, leave := context.WithCancel(t.Context())
		first := httptest.NewRecorder()
		back := func(ctx context.Context, w http.ResponseWriter, header ...string) {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://host/", nil)
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			s.ServeHTTP(w, r)
		}
		go back(ctx, first)
		stream := <-streams
		say := func(n int) {
			if _, err := fmt.Fprintf(stream, "[%d,%q]\n", n, strings.Repeat("x", size-10)); err != nil {
				t.Errorf("event %d: %v", n, err)
			}
		}
		for n := range 7 {
			say(n + 1)
		}
		synctest.Wait()
		leave() // nothing of which was acknowledged
		synctest.Wait()
		id := first.Header().Get(DefaultSessionHeader)
		second := newSlowWriter()
		ctx, leave = context.WithCancel(t.Context())
		go back(ctx, second, DefaultSessionHeader, id, "Last-Event-Id", "0")
		synctest.Wait()
		go func() {
			for n := range 7 {
				say(n + 8)
			}
		}()
		synctest.Wait()
		close(second.take)
		synctest.Wait()
		leave()
		s.Close()
		synctest.Wait()
		for n := range 14 {
			if text := fmt.Sprintf("id: %d\ndata: [%d,", n+1, n+1); strings.Count(second.got.String(), text) != 1 {
				t.Errorf("event %d came %d times", n+1, strings.Count(second.got.String(), text))
			}
		}
	})
}

// TestKickedTakesNothing: who was sending to a client that has come back elsewhere
// takes no more events, which would count as sent.
func TestKickedTakesNothing(t *testing.T) {
	b := newBacklog(100)
	b.add([]byte(`"1"`))
	_, old, kick, _ := b.attach(0, false)
	if dst, cursor := b.appendAfter(nil, 0, old); cursor != 1 || !strings.Contains(string(dst), `"1"`) {
		t.Fatalf("cursor %d after %q", cursor, dst)
	}
	b.add([]byte(`"2"`))
	cursor, now, _, ok := b.attach(1, true)
	select {
	case <-kick:
	default:
		t.Error("the older one is not told")
	}
	if dst, cursor := b.appendAfter([]byte(keepAlive), 1, old); cursor != 1 || string(dst) != keepAlive {
		t.Errorf("the older one gets %q", dst)
	}
	if !ok || b.add(make([]byte, 98)) { // drops what was sent
		t.Error("what was not sent is dropped")
	}
	if dst, cursor := b.appendAfter(nil, cursor, now); cursor != 2 || !strings.Contains(string(dst), `"2"`) {
		t.Errorf("cursor %d after %q", cursor, dst)
	}
}

// TestRoomByResuming: a client that comes back and has more than was last asked for makes
// room for those who wait, as one does that is sent it.
func TestRoomByResuming(t *testing.T) {
	b := newBacklog(3)
	_, more, _, _ := b.attach(0, false)
	for range 3 {
		b.add([]byte("1"))
	}
	b.appendAfter(nil, 0, more)
	if _, _, _, ok := b.attach(0, true); !ok || b.add([]byte("2")) { // all are asked for again
		t.Fatalf("attached: %v, or there is room", ok)
	}
	<-b.room // of what was sent
	if _, _, _, ok := b.attach(3, true); !ok {
		t.Fatal("not attached")
	}
	select {
	case <-b.room:
	default:
		t.Error("nobody is told of the room")
	}
	if !b.add([]byte("2")) {
		t.Error("there is no room")
	}
}

// TestResumeWithoutSession: events of a session that is not named are kept nowhere;
// there is none to open for them.
func TestResumeWithoutSession(t *testing.T) {
	opened := 0
	s := Handler(ServerConfig{Sessions: &SessionConfig{Opened: func(*Session) { opened++ }}})
	defer s.Close()
	w := do(t.Context(), s, http.MethodGet, "", "Last-Event-Id", "7")
	if w.Code != http.StatusGone || opened != 0 {
		t.Errorf("%d, %d sessions opened", w.Code, opened)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	w = do(ctx, s, http.MethodGet, "", "Last-Event-Id", "0") // a browser that got nothing
	if text, _ := io.ReadAll(w.Body); w.Code != http.StatusOK || opened != 1 || string(text) != "id: 0\n\n" {
		t.Errorf("%d %q, %d sessions opened", w.Code, text, opened)
	}
}
