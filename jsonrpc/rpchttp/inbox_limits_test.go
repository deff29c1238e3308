package rpchttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// TestInboxOffer: so many bytes wait to be read, and so many messages; what was read
// makes room, and says so.
func TestInboxOffer(t *testing.T) {
	in := newInbox(3)
	for i, want := range []bool{true, true, false} {
		if got := in.offer([]byte("12345"), 10); got != want {
			t.Errorf("message %d: %t", i, got)
		}
	}
	read := func() {
		t.Helper()
		if part, err := in.read(); err != nil || string(part.Data) != "12345" || !part.End {
			t.Errorf("%q, %v", part.Data, err)
		}
	}
	read()
	if len(in.room) != 1 || in.bytes.Load() != 5 {
		t.Errorf("%d signals, %d bytes", len(in.room), in.bytes.Load())
	}
	for i, want := range []bool{true, true, false} { // three messages are too many
		if got := in.offer([]byte("12345"), 100); got != want {
			t.Errorf("message %d: %t", i, got)
		}
	}
	if in.bytes.Load() != 15 {
		t.Errorf("%d bytes are said to wait", in.bytes.Load())
	}
	for range 3 {
		read()
	}
	if in.bytes.Load() != 0 {
		t.Errorf("%d bytes are said to wait", in.bytes.Load())
	}
}

// TestInboxMore: More is said of messages only, not of errors, and at the end of one.
func TestInboxMore(t *testing.T) {
	in := newInbox(10)
	put := func(text string) { in.put(in.ready, &item{buf: []byte(text), end: true}) }
	put("1")
	in.undelivered([]byte("lost"), &Error{NotSent: true, RetryAfter: time.Second})
	in.undelivered([]byte("lost"), io.EOF)
	put("2")
	put("3")
	var got []string
	for range 5 {
		part, err := in.read()
		text := string(part.Data)
		if lost, ok := errors.AsType[*jsonrpc.UndeliveredError](err); ok {
			text = string(lost.Message)
			if own, ok := errors.AsType[*Error](err); lost.NotSent != ok || (lost.RetryAfter == time.Second) != ok || ok && !own.NotSent {
				t.Errorf("%+v", lost)
			}
		}
		if part.More {
			text += "+"
		}
		got = append(got, text)
	}
	if want := "1+ lost lost 2+ 3"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestInboxEnds: what is there is read before the error of fail, the first one counts,
// and a message whose rest does not come is cut; after close nothing is read.
func TestInboxEnds(t *testing.T) {
	in := newInbox(3)
	in.put(in.ready, &item{buf: []byte("1"), end: true})
	in.put(in.ready, &item{buf: []byte("2"), rest: make(chan *item)})
	in.fail(io.EOF)
	in.fail(os.ErrClosed)
	if !errors.Is(in.failure(), io.EOF) {
		t.Errorf("it failed with %v", in.failure())
	}
	for _, want := range []error{nil, nil, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF} {
		if part, err := in.read(); !errors.Is(err, want) {
			t.Errorf("%q, %v, want %v", part.Data, err, want)
		}
	}
	if in.put(make(chan *item), new(item)) {
		t.Error("something is put where nobody reads")
	}
	closed := newInbox(1)
	closed.close()
	if _, err := closed.read(); !errors.Is(err, net.ErrClosed) || closed.put(make(chan *item), new(item)) {
		t.Errorf("closed: %v", err)
	}
}

// TestInboxMemory: buffers are used again, unless they are large; nothing of a message is
// left for the next one.
func TestInboxMemory(t *testing.T) {
	in := newInbox(1)
	large := &item{buf: make([]byte, keptBuffer+1)}
	in.recycle(large)
	if len(large.buf) == 0 {
		t.Error("a large buffer is kept")
	}
	in.recycle(nil)
	used := &item{buf: make([]byte, keptBuffer), end: true, rest: make(chan *item), err: io.EOF, counted: true}
	in.recycle(used)
	if len(used.buf) != 0 || used.end || used.rest != nil || used.err != nil || used.counted {
		t.Errorf("left: %+v", used)
	}
	if it := in.item(keptBuffer + 5); cap(it.buf) < keptBuffer+5 {
		t.Errorf("room for %d bytes", cap(it.buf))
	}
}

// TestReceiverDrops: a message that is dropped leaves nothing behind; one of which parts
// were handed over ends where it was cut.
func TestReceiverDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInbox(2)
		var told []bool
		r := receiver{in: in, limit: 2 * partSize, inParts: func(on bool) { told = append(told, on) }}
		large := bytes.Repeat([]byte("x"), partSize)
		go func() {
			for _, text := range [][]byte{[]byte("old"), large, []byte("cut")} {
				if err := r.add(text); err != nil {
					t.Error(err)
				}
				if string(text) != "cut" && len(text) < partSize {
					r.drop()
				}
			}
			r.drop()
			for _, text := range []string{"  ", "new"} {
				if err := errors.Join(r.add([]byte(text)), r.end()); err != nil {
					t.Error(err)
				}
			}
			r.drop()
			if err := r.add(append(large, large...)); err != nil {
				t.Errorf("as much as the limit: %v", err)
			}
			if _, limit := errors.AsType[limitError](r.add([]byte("x"))); !limit {
				t.Error("more than the limit was taken")
			}
			r.drop()
			in.fail(io.EOF)
		}()
		var got []int
		for {
			part, err := in.read()
			if err != nil {
				break
			}
			if got = append(got, len(part.Data)); part.End {
				got = append(got, -1)
			}
		}
		synctest.Wait()
		want := []int{partSize, 0, -1, 3, -1, partSize, partSize, 0, -1}
		if len(got) != len(want) || len(told) != 4 || !told[0] || told[1] || !told[2] || told[3] {
			t.Fatalf("%v, told %v", got, told)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%v, want %v", got, want)
			}
		}
	})
}

// TestDeadlineMoves: a deadline interrupts, can be moved at any time, and be taken back.
func TestDeadlineMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInbox(1)
		begin := time.Now()
		passed := func(want time.Duration) {
			t.Helper()
			if _, err := in.read(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != want {
				t.Errorf("%v after %v, want %v", err, time.Since(begin), want)
			}
		}
		in.limit.set(begin.Add(time.Second))
		passed(time.Second)
		passed(time.Second) // it has passed for all that come
		in.limit.set(begin.Add(3 * time.Second))
		in.limit.set(begin.Add(2 * time.Second))
		passed(2 * time.Second)
		in.limit.set(time.Now())
		passed(2 * time.Second)
		in.limit.set(begin)
		in.limit.set(begin) // twice, long ago
		passed(2 * time.Second)
		in.limit.set(time.Now().Add(time.Second))
		in.limit.set(time.Time{})
		time.AfterFunc(time.Hour, in.close)
		if _, err := in.read(); !errors.Is(err, net.ErrClosed) || time.Since(begin) != time.Hour+2*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// TestNotificationWhileClosing: a notification that comes while the Server ends is
// refused, and what it held of its session is let go.
func TestNotificationWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Handler(ServerConfig{Sessions: &SessionConfig{Idle: time.Minute}})
		ses := sessionOf(t, s)
		x := s.exchange()
		x.body, x.ses = append(x.body, "["+aNotice+"]"...), ses
		x.look = peek(x.body)
		s.closed.Store(true) // after ServeHTTP has looked
		w := &statusWriter{header: make(http.Header)}
		s.notify(t.Context(), w, x)
		if w.status != http.StatusServiceUnavailable || x.users.Load() != 1 || ses.users != 0 {
			t.Errorf("%d, %d users of the exchange, %d of the session", w.status, x.users.Load(), ses.users)
		}
		if refused := do(t.Context(), s, http.MethodPost, aCall); refused.Code != http.StatusServiceUnavailable || refused.Header().Get("Retry-After") != "1" {
			t.Errorf("a call: %d, %v", refused.Code, refused.Header())
		}
		s.Close()
	})
}

type statusWriter struct {
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header         { return w.header }
func (w *statusWriter) WriteHeader(status int)      { w.status = status }
func (w *statusWriter) Write(p []byte) (int, error) { return len(p), nil }

// TestCloseWaitsForNotifications: Close returns after the handlers of notifications that
// were accepted.
func TestCloseWaitsForNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended time.Time
		s := Handler(ServerConfig{Config: jsonrpc.Config{Grace: time.Second, Handler: jsonrpc.HandlerFunc(func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
			<-ctx.Done()
			time.Sleep(10 * time.Millisecond)
			ended = time.Now()
			return nil, nil
		})}})
		if w := do(t.Context(), s, http.MethodPost, aNotice); w.Code != http.StatusAccepted {
			t.Errorf("%d", w.Code)
		}
		begin := time.Now()
		s.Close()
		if took := time.Since(begin); ended.IsZero() || took != time.Second+10*time.Millisecond {
			t.Errorf("Close took %v, the handler ended at %v", took, ended)
		}
	})
}

// TestMethodsAllowed: what a resource takes depends on whether there are sessions.
func TestMethodsAllowed(t *testing.T) {
	plain := Handler(ServerConfig{})
	defer plain.Close()
	sessions := Handler(ServerConfig{Sessions: new(SessionConfig)})
	defer sessions.Close()
	for allow, s := range map[string]*Server{"POST": plain, "POST, GET, DELETE": sessions} {
		if w := do(t.Context(), s, http.MethodPut, aCall); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != allow {
			t.Errorf("%d, %v", w.Code, w.Header())
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodHead} {
		if w := do(t.Context(), plain, method, ""); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s without sessions: %d", method, w.Code)
		}
	}
	if w := do(t.Context(), plain, http.MethodPost, aCall); !strings.Contains(w.Body.String(), "-32601") {
		t.Errorf("without a Handler: %d %s", w.Code, w.Body)
	}
}
