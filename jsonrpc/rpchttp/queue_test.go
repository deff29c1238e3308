package rpchttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// A gate lets POSTs through one by one, and notes them.
type gate struct {
	open chan struct{}

	mu      sync.Mutex
	arrived []string
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) answer(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	g.mu.Lock()
	g.arrived = append(g.arrived, r.Method+" "+string(body))
	g.mu.Unlock()
	select {
	case <-g.open:
		return respond(http.StatusAccepted, "", ""), nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// seen returns the requests that have arrived since it was called before.
func (g *gate) seen() []string {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	got := g.arrived
	g.arrived = nil
	return got
}

// note is a notification of n bytes.
func note(n int) string {
	const head, tail = `{"jsonrpc":"2.0","method":"`, `"}`
	return head + strings.Repeat("m", n-len(head)-len(tail)) + tail
}

// TestQueueLimit: no more than MaxQueue bytes wait for their turn; who writes waits, or
// is told that nothing was taken.
func TestQueueLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := streamOver(t, ClientConfig{MaxInFlight: 1, MaxQueue: 100}, g.answer)
		try := func(want int) {
			t.Helper()
			if n, err := s.TryWrite([]byte(note(50) + "\n")); err != nil || n != want {
				t.Errorf("TryWrite: %d, %v, want %d", n, err, want)
			}
		}
		try(51) // is on its way
		synctest.Wait()
		try(51)
		try(51)
		try(0)
		if n, err := s.TryWrite([]byte("\n" + note(60))); err != nil || n != 61 {
			t.Errorf("TryWrite of the beginning of a message: %d, %v", n, err)
		}
		if n, err := s.TryWrite([]byte("\n")); err != nil || n != 0 {
			t.Errorf("TryWrite of the end of it: %d, %v", n, err)
		}
		wrote := make(chan error)
		go func() {
			_, err := io.WriteString(s, "\n")
			wrote <- err
		}()
		synctest.Wait()
		select {
		case err := <-wrote:
			t.Errorf("Write did not wait: %v", err)
		default:
		}
		g.open <- struct{}{}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		try(0)
		g.open <- struct{}{}
		synctest.Wait()
		try(51)
		try(0)
		close(g.open)
		got := g.seen()
		if len(got) != 5 {
			t.Errorf("%d messages arrived", len(got))
		}
		if !slices.Contains(got, "POST "+note(60)) {
			t.Errorf("%q arrived", got)
		}
	})
}

// TestQueueLength: short messages have a limit, too.
func TestQueueLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := streamOver(t, ClientConfig{MaxInFlight: 1}, g.answer)
		many := []byte(strings.Repeat("1\n", 2*maxQueued))
		n, err := s.TryWrite(many)
		synctest.Wait()
		// One of them has not been in the queue.
		if want := 2 * (maxQueued + 1); err != nil || n != want {
			t.Errorf("%d bytes taken, %v", n, err)
		}
		close(g.open)
		if n, err := s.Write(many); err != nil || n != len(many) {
			t.Errorf("Write: %d, %v", n, err)
		}
	})
}

// TestWaitingWriteEnds: Write returns when the Stream ends, and says why.
func TestWaitingWriteEnds(t *testing.T) {
	lost := errors.New("lost")
	for want, end := range map[error]func(*Stream){
		net.ErrClosed: func(s *Stream) { s.Close() },
		lost:          func(s *Stream) { s.in.fail(lost) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := streamOver(t, ClientConfig{MaxInFlight: 1, MaxQueue: 1}, newGate().answer)
			say(t, s, aCall, aCall)
			synctest.Wait()
			wrote := make(chan error, 1)
			go func() {
				_, err := io.WriteString(s, aCall+"\n")
				wrote <- err
			}()
			synctest.Wait()
			end(s)
			synctest.Wait()
			if err := <-wrote; !errors.Is(err, want) {
				t.Errorf("Write: %v, want %v", err, want)
			}
			if n, err := s.TryWrite([]byte(aCall + "\n")); n != 0 || !errors.Is(err, want) {
				t.Errorf("TryWrite: %d, %v, want %v", n, err, want)
			}
		})
	}
}

// TestMaxSend: a message of exactly so many bytes is sent, in whatever pieces it comes.
func TestMaxSend(t *testing.T) {
	const limit = 100
	for _, pieces := range [][]string{{note(limit) + "\n"}, {note(limit)[:60], note(limit)[60:], "\n"}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			s := streamOver(t, ClientConfig{MaxSend: limit}, g.answer)
			for _, piece := range pieces {
				if n, err := io.WriteString(s, piece); err != nil || n != len(piece) {
					t.Fatalf("%d, %v", n, err)
				}
			}
			if got := g.seen(); len(got) != 1 || got[0] != "POST "+note(limit) {
				t.Errorf("%q arrived", got)
			}
			close(g.open)
			for _, piece := range pieces[:len(pieces)-1] {
				if _, err := io.WriteString(s, piece); err != nil {
					t.Fatal(err)
				}
			}
			more := "x" + pieces[len(pieces)-1]
			if n, err := io.WriteString(s, more); err == nil || n != 0 {
				t.Errorf("%d bytes of a message that is too long were taken: %v", n, err)
			}
		})
	}
}

// TestLanes: notifications and answers do not wait for calls, except that
// notifications keep their place where one thing is sent at a time.
func TestLanes(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":7,"result":1}`
	for _, c := range []struct {
		inFlight int
		messages []string
		want     int // are sent while nothing is answered
	}{
		{1, []string{aCall, aCall, aNotice, answer}, 2},
		{1, []string{aNotice, aCall, answer, answer}, 2},
		{2, []string{aCall, aCall, aCall, aNotice, aNotice, aNotice, answer, answer, answer}, 6},
		{-1, []string{aCall, aCall}, 1},
		{3, []string{aCall, aCall}, 2},
		{0, strings.Split(strings.Repeat(aCall+"\n", 70)[:70*len(aCall)+69], "\n"), 64},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			s := streamOver(t, ClientConfig{MaxInFlight: c.inFlight}, g.answer)
			say(t, s, c.messages...)
			if got := g.seen(); len(got) != c.want {
				t.Errorf("%d at a time: %d are on their way: %q", c.inFlight, len(got), got)
			}
			close(g.open)
			for range c.messages {
				synctest.Wait() // one call is answered 202, which is an error, and must be read
				if s.in.faults.Load() > 0 {
					_, _ = s.Read()
				}
			}
			if got := g.seen(); len(got) != len(c.messages)-c.want {
				t.Errorf("%d at a time: then %d came", c.inFlight, len(got))
			}
		})
	}
}

// TestWorkersReused: messages one after the other need one worker.
func TestWorkersReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		close(g.open)
		s := streamOver(t, ClientConfig{}, g.answer)
		for range 5 {
			say(t, s, aNotice, " \t\r", "")
			if got := g.seen(); len(got) != 1 {
				t.Errorf("%q arrived", got)
			}
		}
		if len(s.slots) != 1 {
			t.Errorf("%d workers", len(s.slots))
		}
	})
}

// TestCloseWaits: Close gives notifications CloseTimeout, then the DELETE as long; a
// second Close waits with the first.
func TestCloseWaits(t *testing.T) {
	const patience = 3 * time.Second
	for _, c := range []struct {
		session bool
		say     string
		want    time.Duration
		sent    string
	}{
		{false, aCall, 0, "POST " + aCall},
		{false, aNotice, patience, "POST " + aNotice},
		{true, aCall, patience, "POST " + aCall + " DELETE "},
		{true, aNotice, 2 * patience, "POST " + aNotice + " DELETE "},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			s := streamOver(t, ClientConfig{CloseTimeout: patience, SessionHeader: "x-session"}, func(r *http.Request) (*http.Response, error) {
				if got := r.Header["X-Session"]; (len(got) == 1 && got[0] == "abc") != c.session {
					t.Errorf("%s in session %q", r.Method, got)
				}
				return g.answer(r)
			})
			if c.session {
				s.learn("abc")
			}
			say(t, s, c.say)
			sent := strings.Join(g.seen(), " ")
			begin := time.Now()
			var closing sync.WaitGroup
			for range 2 {
				closing.Go(func() {
					s.Close()
					if took := time.Since(begin); took != c.want {
						t.Errorf("session %t, %s: Close took %v, want %v", c.session, c.say, took, c.want)
					}
				})
			}
			closing.Wait()
			if sent = strings.TrimSpace(sent + " " + strings.Join(g.seen(), " ")); sent != strings.TrimSpace(c.sent) {
				t.Errorf("session %t: %q was sent, want %q", c.session, sent, c.sent)
			}
		})
	}
}

// TestCloseAfterFailure: a session that is lost is not ended once more.
func TestCloseAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := streamOver(t, ClientConfig{}, g.answer)
		s.learn("abc")
		s.in.fail(io.EOF)
		s.Close()
		if got := g.seen(); len(got) != 0 {
			t.Errorf("%q was sent", got)
		}
	})
}

// TestSessionChanges: the id of the latest answer is the one that is sent.
func TestSessionChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		s := streamOver(t, ClientConfig{}, func(r *http.Request) (*http.Response, error) {
			got = append(got, r.Header.Get(DefaultSessionHeader))
			res := respond(http.StatusAccepted, "", "")
			if n := len(got); n < 3 {
				res.Header.Set(DefaultSessionHeader, []string{"one", "two"}[n-1])
			}
			return res, nil
		})
		if s.SessionID() != "" {
			t.Errorf("session %q before the first answer", s.SessionID())
		}
		for range 4 {
			say(t, s, aNotice)
			synctest.Wait()
		}
		if want := "|one|two|two"; strings.Join(got, "|") != want || s.SessionID() != "two" {
			t.Errorf("%q, then %q", got, s.SessionID())
		}
	})
}

// TestOwnTransport: the client of our own neither compresses nor forgets connections,
// uses the proxy of the environment, and leaves the caller's client alone.
func TestOwnTransport(t *testing.T) {
	s, err := NewStream("http://host/#part", ClientConfig{MaxInFlight: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if tr := s.own; tr == nil || !tr.DisableCompression || tr.Proxy == nil || !tr.ForceAttemptHTTP2 || tr.MaxIdleConnsPerHost != 15 {
		t.Errorf("%+v", s.own)
	}
	if s.url.Fragment != "" || s.url.User != nil {
		t.Errorf("requests go to %v", s.url)
	}
	client := &http.Client{Timeout: time.Second}
	theirs, err := NewStream("http://host/", ClientConfig{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if client.CheckRedirect != nil || theirs.own != nil {
		t.Error("the caller's client was changed")
	}
}

// TestQueueIsNoStall: calls that wait for their turn, behind others that take long, are no
// sign of a server that takes nothing. Each has the time that it was given.
func TestQueueIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := transport(func(r *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(r.Body)
			select {
			case <-time.After(20 * time.Second):
				return respond(http.StatusOK, jsonType, `{"jsonrpc":"2.0","id":`+string(idOf(body))+`,"result":1}`), nil
			case <-r.Context().Done():
				return nil, context.Cause(r.Context())
			}
		})
		s, err := NewStream("http://h/", ClientConfig{Client: &http.Client{Transport: answer}, MaxInFlight: 2, MaxQueue: 1})
		if err != nil {
			t.Fatal(err)
		}
		conn := jsonrpc.NewConn(s, jsonrpc.Config{StallTimeout: 10 * time.Second, WriteBuffer: 1, Timeout: 90 * time.Second})
		defer conn.Close()
		start := time.Now()
		var calls sync.WaitGroup
		var failed [10]error
		for i := range failed {
			calls.Go(func() { failed[i] = conn.Call(t.Context(), "m", nil, nil) })
		}
		calls.Wait()
		late := 0
		for _, err := range failed {
			switch {
			case errors.Is(err, jsonrpc.ErrTimeout):
				late++
			case err != nil:
				t.Error(err)
			}
		}
		if took := time.Since(start); late != 2 || took > 91*time.Second || conn.State() != jsonrpc.StateConnected {
			t.Errorf("%d calls have timed out after %v, and the connection is %v", late, took, conn.State())
		}
	})
}

// call is a call of n bytes, the id included.
func call(id, n int) string {
	head := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"`, id)
	return head + strings.Repeat("m", n-len(head)-len(`"}`)) + `"}`
}

// TestRoom: calls, notifications and answers have room each; who asks for it is told when
// there is some again, and from then on waits for nothing but answers.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := streamOver(t, ClientConfig{MaxInFlight: 2, MaxQueue: 100}, g.answer)
		told := 0
		s.OnRoom(func() { told++ })
		room := func(calls, notifications bool) {
			t.Helper()
			synctest.Wait()
			if c, n := s.Room(); c != calls || n != notifications {
				t.Errorf("room for calls: %t, for notifications: %t", c, n)
			}
		}
		say(t, s, call(1, 60), call(2, 60), call(3, 60))
		room(true, true)
		say(t, s, call(4, 60))
		room(false, true)
		say(t, s, call(5, 60), note(60), note(60), note(60), note(60))
		room(false, false)
		const answer = `{"jsonrpc":"2.0","id":7,"result":"0123456789012345"}`
		say(t, s, note(60), answer, answer, answer, answer)
		if n, err := s.TryWrite([]byte(answer + "\n")); n != 0 || err != nil {
			t.Errorf("an answer too many: %d, %v", n, err)
		}
		if told > 0 {
			t.Error("told of room that there is not")
		}
		g.seen()
		close(g.open)
		synctest.Wait()
		room(true, true)
		got := strings.Join(g.seen(), "\n")
		if told != 3 || strings.Count(got, note(60)) != 3 || strings.Count(got, answer) != 2 {
			t.Errorf("told %d times, and %s arrived", told, got)
		}
	})
}

// TestRoomInOrder: where order counts, notifications wait with the calls.
func TestRoomInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := streamOver(t, ClientConfig{MaxInFlight: 1, MaxQueue: 100}, newGate().answer)
		say(t, s, aCall, call(1, 60), call(2, 60))
		synctest.Wait()
		if calls, notifications := s.Room(); calls || notifications {
			t.Errorf("room for calls: %t, for notifications: %t", calls, notifications)
		}
	})
}

// TestGivenUpWhileQueued: a call that is given up before its turn makes room, is never sent,
// and nobody hears of it.
func TestGivenUpWhileQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := streamOver(t, ClientConfig{MaxInFlight: 1, MaxQueue: 100, Cancel: jsonrpc.LSPCancel}, g.answer)
		told := 0
		s.OnRoom(func() { told++ })
		say(t, s, aNotice, call(1, 60), call(2, 60), call(3, 60))
		synctest.Wait()
		cancelled := func(id int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%d}}`, id)
		}
		say(t, s, cancelled(2))
		if calls, _ := s.Room(); calls || told > 0 {
			t.Errorf("room: %t, told %d times", calls, told)
		}
		say(t, s, cancelled(3), cancelled(3))
		if calls, _ := s.Room(); !calls || told != 1 {
			t.Errorf("room: %t, told %d times", calls, told)
		}
		close(g.open)
		if got := g.seen(); len(got) != 2 || got[1] != "POST "+call(1, 60) {
			t.Errorf("%q arrived", got)
		}
		if n := s.in.faults.Load(); n != 1 { // of the call that was answered 202
			t.Errorf("%d messages were lost", n)
		}
		if n := len(s.lanes[callLane].jobs); n != 0 || s.lanes[callLane].active != 0 || s.lanes[callLane].bytes != 0 {
			t.Errorf("%d wait: %+v", n, &s.lanes[callLane])
		}
	})
}

// TestBatchGivenUpWhileQueued: a batch leaves its queue when the last of its calls is given up, not before,
// whether the server would be told of it or not.
func TestBatchGivenUpWhileQueued(t *testing.T) {
	for style, giveUp := range map[jsonrpc.CancelStyle]func(s *Stream, id string){
		jsonrpc.LSPCancel: func(s *Stream, id string) { s.giveUp([]byte(id)) },
		jsonrpc.CancelSilent: func(s *Stream, id string) {
			if s.Drop([]byte(id)) {
				t.Errorf("a call of a batch, %s, was dropped by itself", id)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			s := streamOver(t, ClientConfig{MaxInFlight: 1, MaxQueue: 200, Cancel: style}, g.answer)
			told := 0
			s.OnRoom(func() { told++ })
			say(t, s, "["+note(60)+"]", "["+call(1, 60)+","+note(60)+","+call(2, 60)+"]", "["+call(3, 60)+","+call(4, 60)+"]")
			synctest.Wait()
			for _, id := range []string{"1", "1", "3", "2"} {
				if told > 0 {
					t.Error("a batch was dropped too early")
				}
				giveUp(s, id)
			}
			if calls, _ := s.Room(); !calls || told != 1 {
				t.Errorf("room: %t, told %d times", calls, told)
			}
			close(g.open)
			if got := g.seen(); len(got) != 2 || !strings.HasPrefix(got[1], "POST ["+call(3, 60)) {
				t.Errorf("%q arrived", got)
			}
			if n := s.in.faults.Load(); n != 1 { // that which was answered 202
				t.Errorf("%d messages were lost", n)
			}
		})
	}
}

// TestDrop: Drop takes out what waits, and nothing else, with what is known of it.
func TestDrop(t *testing.T) {
	for _, cancel := range []jsonrpc.CancelStyle{jsonrpc.CancelSilent, jsonrpc.LSPCancel} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			s := streamOver(t, ClientConfig{MaxInFlight: 1, MaxQueue: 150, Cancel: cancel}, g.answer)
			told := 0
			s.OnRoom(func() { told++ })
			say(t, s, call(1, 60), call(2, 60), "["+call(3, 60)+","+call(5, 60)+"]")
			synctest.Wait()
			for id, want := range map[string]bool{"1": false, "2": true, "3": false, "4": false} {
				if got := s.Drop([]byte(id)); got != want {
					t.Errorf("Drop(%s): %t", id, got)
				}
			}
			if s.Drop([]byte("2")) || told != 1 || len(s.calls) > 3 {
				t.Errorf("told %d times, %d calls are known", told, len(s.calls))
			}
			close(g.open)
			_, _ = s.Read() // the call that was answered 202
			if got := g.seen(); len(got) != 2 {
				t.Errorf("%q arrived", got)
			}
		})
	}
}

// TestLostAnswersWhileReaderWaits: the answers of the reader that cannot be delivered do not
// wait for it to read on, who waits for them to be taken.
func TestLostAnswersWhileReaderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asked = 200
		var events strings.Builder
		for i := range asked {
			fmt.Fprintf(&events, "data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"m\"}\n\n", i)
		}
		posted := make(chan struct{})
		var answers atomic.Int32
		s := streamOver(t, ClientConfig{MaxInFlight: 2, MaxQueue: 1000, WayBack: WayBackAtOnce}, func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return open(r, eventType, events.String()), nil
			}
			<-posted
			answers.Add(1)
			return respond(http.StatusBadGateway, "", ""), nil
		})
		lost, mux := 0, new(jsonrpc.Mux)
		mux.RegisterInline("m", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) { return nil, nil }))
		conn := jsonrpc.NewConn(s, jsonrpc.Config{
			MaxMessage: 1000, WriteBuffer: 1, Handler: mux,
			Hooks: jsonrpc.Hooks{Notice: func(n jsonrpc.Notice) {
				if n.Kind == jsonrpc.NoticeUndelivered {
					lost++
				}
			}},
		})
		synctest.Wait() // the reader waits until answers are taken
		close(posted)
		time.Sleep(time.Second)
		conn.Close()
		if n := answers.Load(); n < asked || lost < asked {
			t.Errorf("%d of %d answers were posted, %d of them known as lost", n, asked, lost)
		}
	})
}
