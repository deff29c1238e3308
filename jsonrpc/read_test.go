package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A script is a Stream that gives the parts it is told, and collects what is
// written.
type script struct {
	parts chan Part
	over  chan struct{}
	once  sync.Once

	mu  sync.Mutex
	got strings.Builder
}

func newScript() *script { return &script{parts: make(chan Part, 100), over: make(chan struct{})} }

func (s *script) Read() (Part, error) {
	select {
	case p := <-s.parts:
		return p, nil
	case <-s.over:
		return Part{}, io.EOF
	}
}

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(p)
}

func (s *script) Close() error {
	s.once.Do(func() { close(s.over) })
	return nil
}

func (s *script) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

// TestAnswersDoNotWaitLong proves that an answer that waits for those to the
// messages that are there already goes out when they are many, and when of the
// next one only a part has come.
func TestAnswersDoNotWaitLong(t *testing.T) {
	request := func(n int) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":["%s"]}`, strings.Repeat("x", n))
	}
	for name, parts := range map[string][]Part{
		"part": {{Data: request(1), End: true, More: true}, {Data: request(100)[:50]}},
		"many": {{Data: request(firstFlush / 2), End: true, More: true}, {Data: request(firstFlush), End: true, More: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript()
				c := NewConn(s, Config{Handler: inlineAll{echo}})
				defer c.Close()
				for _, p := range parts {
					s.parts <- p
				}
				synctest.Wait()
				if s.text() == "" {
					t.Error("nothing was answered")
				}
			})
		})
	}
}

// A writeSizes is a script that notes how much is written at once.
type writeSizes struct {
	*script
	sizes []int // guarded by mu
}

func (s *writeSizes) TryWrite(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes = append(s.sizes, len(p))
	return len(p), nil
}

// TestAnswersGoOutInPieces proves that of many requests that are there at once
// the first are answered while the others are handled, with few writes; and that
// the next ones that come are treated alike.
func TestAnswersGoOutInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &writeSizes{script: newScript()}
		c := NewConn(s, Config{Handler: inlineAll{echo}})
		defer c.Close()
		request := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":["%s"]}`, strings.Repeat("x", 1000))
		const answer = 1000 + len(`{"jsonrpc":"2.0","id":1,"result":[""]}`+"\n")
		for range 2 {
			for i := range 99 {
				s.parts <- Part{Data: slices.Clone(request), End: true, More: i < 98} // params are overwritten with jsonrpc_poison
			}
			synctest.Wait()
			var answers []int
			for _, n := range s.sizes {
				answers = append(answers, n/answer)
			}
			if want := []int{2, 4, 8, 16, 32, 32, 5}; !slices.Equal(answers, want) {
				t.Errorf("written together: %v answers, want %v", answers, want)
			}
			s.sizes = nil
		}
	})
}

// TestCutInValue proves that a result that is no JSON is none, though the next
// bytes to come would end a message well.
func TestCutInValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		c := NewConn(s, Config{Timeout: time.Second})
		defer c.Close()
		var text strings.Builder
		go func() {
			synctest.Wait() // for the call to be sent
			s.parts <- Part{Data: []byte(`{"jsonrpc":"2.0","id":4096,"result":[1 2`)}
			s.parts <- Part{Data: []byte(`}`), End: true}
		}()
		if err := c.Call(t.Context(), "m", nil, &text); err == nil {
			t.Errorf("%q was taken", text.String())
		}
	})
}

// TestNamesAreBounded proves that what a peer sends as methods is kept up to a
// bound only.
func TestNamesAreBounded(t *testing.T) {
	in := new(receiver)
	for i := range 2 * maxNames {
		for _, method := range []string{fmt.Sprint("m", i), strings.Repeat("x", maxNameLen) + fmt.Sprint(i)} {
			m := new(message)
			m.scan(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"%s"}`, method), 8)
			if raw, name := in.name(m); string(raw) != method || name != method {
				t.Fatalf("%s is %s", method, name)
			}
		}
	}
	if len(in.names) != maxNames {
		t.Errorf("%d names are kept", len(in.names))
	}
	for name := range in.names {
		if len(name) > maxNameLen {
			t.Errorf("a name of %d bytes is kept", len(name))
		}
	}
}

// TestNotifiedWhileClosing proves that a notification is never answered, also
// when nobody handles it any more.
func TestNotifiedWhileClosing(t *testing.T) {
	slow := HandlerFunc(func(context.Context, *Request) (any, error) { time.Sleep(time.Second); return 1, nil })
	for _, text := range []string{`{"jsonrpc":"2.0","method":"n"}`, `[{"jsonrpc":"2.0","method":"n"}]`} {
		withPeer(t, Config{Handler: slow, Grace: 5 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
			synctest.Wait()
			go c.Close()
			synctest.Wait()
			peer.send(text)
			peer.want(`{"jsonrpc":"2.0","id":1,"result":1}`)
		})
	}
}

// TestLongest proves that a message may be as long as Config.MaxMessage and no
// longer, come in one part or in several, and that a request that is longer is no
// response to a call of ours, though it has its id (RPC-24).
func TestLongest(t *testing.T) {
	for _, limit := range []int{200, 100_000} {
		withPeer(t, Config{Handler: HandlerFunc(func(context.Context, *Request) (any, error) { return 7, nil }), MaxMessage: limit}, func(t *testing.T, c *Conn, peer *rawPeer) {
			failed := make(chan error, 1)
			go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
			peer.want(`{"jsonrpc":"2.0","id":4096,"method":"m"}`)
			const head, tail = `{"jsonrpc":"2.0","id":4096,"method":"m","params":["`, `"]}`
			request := head + strings.Repeat("x", limit-len(head)-len(tail)) + tail
			peer.send(request)
			peer.want(`{"jsonrpc":"2.0","id":4096,"result":7}`)
			peer.send(head + "x" + request[len(head):])
			peer.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request: the message is too long","data":{"limit":%d,"unit":"bytes"}}}`, limit))
			synctest.Wait()
			select {
			case err := <-failed:
				t.Errorf("the call ended: %v", err)
			default:
			}
			peer.send(`{"jsonrpc":"2.0","id":4096,"result":0}`)
			if err := <-failed; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLongestInParts proves the same of a message that comes in parts.
func TestLongestInParts(t *testing.T) {
	request := []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
	for limit, want := range map[int]string{len(request): `"result"`, len(request) - 1: `-32600`} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript()
			c := NewConn(s, Config{Handler: HandlerFunc(echo), MaxMessage: limit})
			defer c.Close()
			s.parts <- Part{Data: request[:20]}
			s.parts <- Part{Data: request[20:], End: true}
			synctest.Wait()
			if !strings.Contains(s.text(), want) {
				t.Errorf("%d bytes of %d: %s", len(request), limit, s.text())
			}
		})
	}
}

// TestScanHead proves that nothing is taken for a member that may go on.
func TestScanHead(t *testing.T) {
	for text, want := range map[string]struct {
		id       string
		response bool
	}{
		`{"result":1,"id":12`:       {"", true},
		`{"result":1,"id":12,`:      {"12", true},
		`{"error":{},"id":"a"}`:     {`"a"`, true},
		`{"id":3,"result":[1`:       {"3", true},
		`{"id":3,"method":"m","par`: {"3", false},
		`[{"id":3}]`:                {"", false},
	} {
		if h := scanHead([]byte(text), 8); string(h.id) != want.id || h.response != want.response {
			t.Errorf("%s: id %s, %t", text, h.id, h.response)
		}
	}
}

// TestAbruptEnd proves that what is still being handled is waited for when the peer
// has hung up, and not when the Stream has failed.
func TestAbruptEnd(t *testing.T) {
	for err, waits := range map[error]bool{io.EOF: true, io.ErrUnexpectedEOF: true, errors.New("broken"): false, errReaderGone: false} {
		if isHangUp(fmt.Errorf("read: %w", err)) != waits {
			t.Errorf("%v: %t", err, !waits)
		}
	}
}

// faulty gives a value of which the second piece is no JSON, and then more for
// ever.
type faulty struct{ reads int }

func (f *faulty) Read(p []byte) (int, error) {
	f.reads++
	switch f.reads {
	case 1:
		return copy(p, `["`+strings.Repeat("x", streamPiece-2)), nil
	case 2:
		return copy(p, "\n"+`{"jsonrpc":"2.0","id":7,"method":"smuggled"}`+"\n"), nil
	case 9:
		return 0, io.EOF
	}
	return copy(p, "y"), nil
}

// TestFaultyReader proves that a value is not read on behind its first fault, and
// that nothing behind it is sent: it could be a message to the peer.
func TestFaultyReader(t *testing.T) {
	for _, inline := range []bool{true, false} {
		f := new(faulty)
		h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
			if req.Method() == "m" {
				return f, nil
			}
			return nil, nil
		})
		cfg := Config{Handler: h}
		if inline {
			cfg.Handler = inlineAll{h}
		}
		withPeer(t, cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
			if !inline { // the answer that was begun is cut off, which makes it none
				if got := peer.next(); json.Valid([]byte(got)) {
					t.Errorf("%.50s … %d bytes", got, len(got))
				}
			}
			if got := peer.next(); !strings.Contains(got, `"id":1,"error":{"code":-32603`) {
				t.Errorf("inline %t: %.100s", inline, got)
			}
			peer.quiet()
			if f.reads != 2 {
				t.Errorf("inline %t: %d reads", inline, f.reads)
			}
		})
	}
}

// TestHeldOnce proves that answers that waited for a streamed value are sent once,
// however many values follow.
func TestHeldOnce(t *testing.T) {
	withPeer(t, Config{Handler: inlineAll{echo}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for i := range 3 {
			from, to := io.Pipe()
			go c.Notify(t.Context(), "n", from)
			io.WriteString(to, `["`+strings.Repeat("x", streamPiece))
			synctest.Wait()
			peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
			synctest.Wait()
			io.WriteString(to, `"]`)
			to.Close()
			if got := peer.next(); !strings.Contains(got, `"method":"n"`) {
				t.Errorf("%.50s", got)
			}
			peer.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":null}`, i))
		}
		synctest.Wait()
		peer.quiet()
	})
}

// TestVoid proves that nothing is answered to a message that its Stream has lost in the
// middle, and no call ended, but that a handler that reads its params is told, and that
// what comes behind is a message of its own.
func TestVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read []error
		s := newScript()
		c := NewConn(s, Config{MaxMessage: 1000, Handler: uploads{func(_ context.Context, req *Request) (any, error) {
			_, err := io.ReadAll(req.ParamsReader())
			read = append(read, err)
			return "done", err
		}}, Hooks: Hooks{Notice: func(n Notice) {
			if n.Kind != NoticeHandlerError && n.Kind != NoticeUnknown {
				t.Errorf("%v: %v", n.Kind, n.Err)
			}
		}}})
		defer c.Close()
		failed := make(chan error, 1)
		var result int
		go func() { failed <- c.Call(t.Context(), "m", nil, &result) }()
		synctest.Wait()
		sent := s.text()
		lost := Part{End: true, Void: true}
		for _, parts := range [][]Part{
			{lost}, // of a message of which nothing has come
			{{Data: []byte(`{"jsonrpc":"2.0","id":4096,"result":[`)}, {Data: []byte(`1,`)}, lost},
			{{Data: []byte(`{"jsonrpc":"2.0","id":7,"method":"whole","params":[`)}, lost},
			{{Data: []byte(`{"jsonrpc":"2.0","id":7,"method":"m","params":["` + strings.Repeat("x", 500))}, lost},
			{{Data: []byte(`{"jsonrpc":"2.0","id":7,"method":"whole","params":["` + strings.Repeat("x", 1000))}, lost},
			{{Data: []byte(`no JSON`)}, lost},
		} {
			for _, p := range parts {
				s.parts <- p
			}
			synctest.Wait()
			time.Sleep(2 * cutGrace)
			if got := s.text(); got != sent {
				t.Errorf("%.60s was answered: %s", parts[0].Data, got[len(sent):])
			}
		}
		if len(read) != 1 || !errors.Is(read[0], errTakenBack) {
			t.Errorf("handlers have read %v", read)
		}
		s.parts <- Part{Data: []byte(`{"jsonrpc":"2.0","id":8,"method":"m","params":[]}`), End: true}
		s.parts <- Part{Data: []byte(`{"jsonrpc":"2.0","id":4096,"result":5}`), End: true}
		if err := <-failed; err != nil || result != 5 {
			t.Errorf("%d, %v", result, err)
		}
		synctest.Wait()
		if got := s.text()[len(sent):]; got != `{"jsonrpc":"2.0","id":8,"result":"done"}`+"\n" {
			t.Errorf("answered %q", got)
		}
	})
}
