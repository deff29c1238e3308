package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A breaking stream fails its n-th write, by TryWrite or by Write, and takes
// everything before. Nothing comes to be read.
type breaking struct {
	left  atomic.Int64
	ended chan struct{}
	close sync.Once
}

func newBreaking(n int) *breaking {
	s := &breaking{ended: make(chan struct{})}
	s.left.Store(int64(n))
	return s
}

func (s *breaking) Read() (Part, error) {
	<-s.ended
	return Part{}, errors.New("read: use of a closed connection")
}

func (s *breaking) Write(p []byte) (int, error) {
	if s.left.Add(-1) <= 0 {
		return 0, &pipeError{}
	}
	return len(p), nil
}

func (s *breaking) Close() error {
	s.close.Do(func() { close(s.ended) })
	return nil
}

// breakingTry is a breaking Stream with TryWrite.
type breakingTry struct{ *breaking }

func (s breakingTry) TryWrite(p []byte) (int, error) { return s.Write(p) }

// pipeError looks like what a socket returns.
type pipeError struct{}

func (*pipeError) Error() string { return "write tcp: broken pipe" }
func (*pipeError) Unwrap() error { return syscall.EPIPE }

// TestWriteFails proves that whoever is under way when a write fails, and
// whoever comes later, learns it as the end of the connection with its cause,
// and never as the bare error (RPC-14, RPC-22).
func TestWriteFails(t *testing.T) {
	for _, try := range []bool{true, false} {
		for n := 1; n <= 40; n++ {
			synctest.Test(t, func(t *testing.T) { testWriteFails(t, n, try) })
		}
	}
}

func testWriteFails(t *testing.T, n int, try bool) {
	b := newBreaking(n)
	var s Stream = b
	if try {
		s = breakingTry{b}
	}
	c := NewConn(s, Config{WriteBuffer: 200})
	check := func(err error) bool {
		var ended *ConnError
		switch {
		case err == nil:
			return false
		case !errors.As(err, &ended) || !errors.Is(err, ErrClosed) || !errors.Is(err, syscall.EPIPE) || AdviceFor(err) != AdviceReconnect:
			t.Errorf("write %d fails: %v", n, err)
		}
		return true
	}
	all := []func() error{
		func() error { return c.Call(t.Context(), "m", json.RawMessage(`["0123456789"]`), nil) },
		func() error { return c.Notify(t.Context(), "m", json.RawMessage(`["0123456789"]`)) },
		func() error {
			return c.Call(t.Context(), "m", strings.NewReader(`["`+strings.Repeat("x", 100_000)+`"]`), nil)
		},
		func() error {
			var b Batch
			b.Call("m", nil, nil)
			if err := c.Batch(t.Context(), &b); err != nil {
				return err
			}
			return b.calls[0].Err()
		},
	}
	var wg sync.WaitGroup
	for _, act := range all {
		for range 3 {
			wg.Go(func() {
				for !check(act()) {
				}
			})
		}
	}
	wg.Wait()
	for _, act := range all {
		if !check(act()) {
			t.Error("no error after the end")
		}
	}
	check(c.Err())
	check(c.Close())
}

// lingerTime is what a slowClose takes to close, as a Subprocess does whose program
// has closed its input and runs on.
const lingerTime = 15 * time.Second

type slowClose struct{ breakingTry }

func (s slowClose) Close() error {
	time.Sleep(lingerTime)
	return s.breakingTry.Close()
}

// TestFailBeforeClose proves that the end of a connection is told to all calls as
// soon as no answer can be expected any more, and not when its Stream has closed,
// which may take long; but that Close waits for that (RPC-14).
func TestFailBeforeClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := NewConn(slowClose{breakingTry{newBreaking(2)}}, Config{})
		var calls sync.WaitGroup
		for range 2 { // one that waits for its answer, one whose write fails
			calls.Go(func() {
				err := c.Call(t.Context(), "m", nil, nil)
				if !errors.Is(err, syscall.EPIPE) || time.Since(start) != lastAnswers {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				if c.State() != StateDisconnected || !errors.Is(c.Err(), syscall.EPIPE) {
					t.Error(c.State(), c.Err())
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		if err := c.Close(); !errors.Is(err, syscall.EPIPE) || time.Since(start) != lastAnswers+lingerTime {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
	})
}

// A leaving stream has words to be read when nothing can be written any more.
type leaving struct {
	breakingTry
	words chan string
}

func (s leaving) Read() (Part, error) {
	select {
	case text := <-s.words:
		if text == "" {
			return Part{}, io.EOF
		}
		return Part{Data: []byte(text), End: true}, nil
	case <-s.ended:
		return Part{}, os.ErrClosed
	}
}

// TestLastAnswers proves that an answer that the peer gave before it went is not lost
// because something is written to it just then; that nothing is sent any more
// meanwhile, and that this takes no longer than reading what is there (RPC-14).
func TestLastAnswers(t *testing.T) {
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := leaving{breakingTry{newBreaking(2)}, make(chan string)}
			c := NewConn(s, Config{})
			defer c.Close()
			start := time.Now()
			var calls sync.WaitGroup
			calls.Go(func() {
				if got, err := Call[int](t.Context(), c, "m", nil); got != 7 || err != nil {
					t.Errorf("the call that was answered: %d, %v", got, err)
				}
			})
			synctest.Wait()
			calls.Go(func() {
				err := c.Call(t.Context(), "m", nil, nil)
				wait := lastAnswers
				if ends {
					wait = 0
				}
				if !errors.Is(err, syscall.EPIPE) || !err.(*CallError).Sent || time.Since(start) != wait {
					t.Errorf("the call whose write failed: %v after %v", err, time.Since(start))
				}
			})
			synctest.Wait()
			if err := c.Call(t.Context(), "m", nil, nil); !errors.Is(err, syscall.EPIPE) || err.(*CallError).Sent || c.State() != StateClosing {
				t.Errorf("a call after that: %v while %v", err, c.State())
			}
			s.words <- `{"jsonrpc":"2.0","id":4096,"result":7}`
			if ends {
				s.words <- ""
			}
			calls.Wait()
			if c.State() != StateDisconnected || !errors.Is(c.Err(), syscall.EPIPE) {
				t.Error(c.State(), c.Err())
			}
		})
	}
}

// TestClosingCode proves what a handler's error becomes that was cancelled: who
// cancelled it counts (RPC-22).
func TestClosingCode(t *testing.T) {
	closing, cancelled := "-32051", "-32800" // not -32052: it was begun
	own, hidden := "77", "-32603"
	for _, tt := range []struct {
		name         string
		cause        func(ctx context.Context, req *Request) error
		peer, closed string // the code when the peer cancels it, and when the connection closes
	}{
		{"the context's error", func(ctx context.Context, _ *Request) error { return ctx.Err() }, cancelled, closing},
		{"its cause", func(ctx context.Context, _ *Request) error { return context.Cause(ctx) }, cancelled, closing},
		{"a call back", func(ctx context.Context, req *Request) error { return req.Conn().Call(ctx, "back", nil, nil) }, cancelled, closing},
		{"its own", func(context.Context, *Request) error { return Errorf(77, "mine") }, own, own},
		{"another", func(context.Context, *Request) error { return io.EOF }, hidden, hidden},
	} {
		h := HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
			<-ctx.Done()
			return nil, tt.cause(ctx, req)
		})
		withPeer(t, Config{Handler: h, Cancel: LSPCancel, Grace: time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":2,"method":"m"}`)
			synctest.Wait()
			peer.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
			if got := peer.next(); !strings.Contains(got, `"id":1,"error":{"code":`+tt.peer+",") {
				t.Errorf("%s, cancelled by the peer: %s", tt.name, got)
			}
			go c.Close()
			if got := peer.next(); !strings.Contains(got, `"id":2,"error":{"code":`+tt.closed+",") {
				t.Errorf("%s, closing: %s", tt.name, got)
			}
		})
	}
}

// TestCancelledWhileClosing proves that a request that the peer cancelled stays
// that, when the connection is closed before it is answered.
func TestCancelledWhileClosing(t *testing.T) {
	h := HandlerFunc(func(ctx context.Context, _ *Request) (any, error) {
		<-ctx.Done()
		time.Sleep(1500 * time.Millisecond)
		return nil, ctx.Err()
	})
	withPeer(t, Config{Handler: h, Cancel: LSPCancel, Grace: time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
		synctest.Wait()
		go c.Close()
		if got := peer.next(); !strings.Contains(got, `"code":-32800`) {
			t.Error(got)
		}
	})
}

// TestOtherConnClosed proves that the end of another connection is no end of
// the one that a request came by.
func TestOtherConnClosed(t *testing.T) {
	h := HandlerFunc(func(context.Context, *Request) (any, error) { return nil, &ConnError{Err: ErrClosed} })
	withPeer(t, Config{Handler: h}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		if got := peer.next(); !strings.Contains(got, `"code":-32603`) {
			t.Error(got)
		}
	})
}

// TestIgnoreInvalid proves that a client answers requests and nothing else,
// whatever a talkative server sends, and a server everything (RPC-5, RPC-25).
func TestIgnoreInvalid(t *testing.T) {
	garbage := []string{
		"2026-01-02 server is up", `{"level":"info"}`, `[]`, `[1,{"level":"info"}]`, `{"jsonrpc":"2.0","id":77,"result":1,"error":{}}`,
		`["` + strings.Repeat("x", 2000) + `"]`, `{"jsonrpc":"1.0","id":5,"method":"m"}`,
	}
	for _, tt := range []struct {
		name   string
		cfg    Config
		silent bool
	}{
		{"no handler", Config{}, true},
		{"client with a handler", Config{Handler: inlineAll{methodNotFound}, IgnoreInvalid: true}, true},
		{"server", Config{Handler: inlineAll{methodNotFound}}, false},
	} {
		var seen notices
		tt.cfg.MaxMessage = 1000
		tt.cfg.Hooks.Notice = seen.add
		withPeer(t, tt.cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
			for _, line := range garbage {
				go peer.send(line, `{"jsonrpc":"2.0","id":"next","method":"m"}`)
				unanswered := `{"jsonrpc":"2.0","id":"next","error":{"code":-32601,"message":"method not found: m"}}`
				got := peer.next()
				if (got == unanswered) != tt.silent {
					t.Errorf("%s: %.60s is answered %s", tt.name, line, got)
				}
				if !tt.silent {
					peer.want(unanswered)
				}
			}
			// Of a batch only the requests are answered.
			peer.send(`[1,{"jsonrpc":"2.0","id":9,"method":"m"}]`)
			if got := peer.next(); strings.Contains(got, "-32600") == tt.silent || !strings.Contains(got, `"id":9,"error":{"code":-32601`) {
				t.Errorf("%s: %s", tt.name, got)
			}
			if s := c.Stats(); s.Malformed != 1 || s.Invalid != 7 || s.Oversize != 1 {
				t.Errorf("%s: %+v", tt.name, s)
			}
		})
		if len(seen.kinds()) != 9 {
			t.Errorf("%s: %s", tt.name, seen.text())
		}
	}
}

// TestResponderMeta proves that requests have the metadata that the context of
// Respond carries, what they say themselves first, and that errors are found by
// it (RPC-21).
func TestResponderMeta(t *testing.T) {
	for _, h := range []Handler{HandlerFunc(metaHandler), inlineAll{metaHandler}} {
		r := NewResponder(Config{Handler: h})
		ctx := WithMeta(t.Context(), Meta{CorrelationID: "out", TraceParent: "tp", TraceState: "ts"})
		for _, tt := range [][2]string{
			{`"method":"m"`, `"result":["out","tp","ts",true]`},
			{`"method":"m","correlation_id":"in"`, `"result":["in","tp","ts",true]`},
			{`"method":"m","traceparent":"new"`, `"result":["out","new","",true]`},
			{`"method":"panic"`, `"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"out"}}`},
			{`"method":"fail"`, `"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"out"}}`},
			{`"method":"fail","correlation_id":"in"`, `"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"in"}}`},
		} {
			msg, want := `{"jsonrpc":"2.0","id":1,`+tt[0]+`}`, `{"jsonrpc":"2.0","id":1,`+tt[1]+`}`
			if got, err := r.Respond(ctx, []byte(msg), nil); err != nil || string(got) != want {
				t.Errorf("%s: %s, %v", msg, got, err)
			}
			if got, err := r.Respond(ctx, []byte("["+msg+"]"), nil); err != nil || string(got) != "["+want+"]" {
				t.Errorf("[%s]: %s, %v", msg, got, err)
			}
		}
		r.Close()
	}
}

func metaHandler(ctx context.Context, req *Request) (any, error) {
	switch m := req.Meta(); req.Method() {
	case "panic":
		panic("secret")
	case "fail":
		return nil, io.EOF
	default:
		same, _ := MetaFrom(ctx)
		return []any{m.CorrelationID, m.TraceParent, m.TraceState, same == m}, nil
	}
}

// TestRequestDecode proves that Decode says what is wrong as Typed does
// (JSON-RPC 2.0 section 5.1).
func TestRequestDecode(t *testing.T) {
	type params struct {
		N int `json:"n"`
	}
	typed := Typed(func(_ context.Context, p params) (int, error) { return p.N, nil })
	decode := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		var p params
		err := req.Decode(&p)
		return p.N, err
	})
	for _, text := range []string{`{"n":1}`, `{"n":"x"}`, `{"n":1,"n":2}`, `{"N":1}`, `{"n":1.5}`} {
		message := `{"jsonrpc":"2.0","id":1,"method":"m","params":` + text + `}`
		if got, want := answerText(decode, message), answerText(typed, message); got != want {
			t.Errorf("%s: %s\nTyped: %s", text, got, want)
		}
	}
	want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"invalid params: the member n must be an integer of at most 64 bits",` +
		`"data":{"member":"n","expected":"an integer of at most 64 bits"}}}`
	if got := answerText(decode, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":"x"}}`); got != want {
		t.Error(got)
	}
}

// A counter counts the bytes it is given.
type counter struct {
	io.Reader
	n atomic.Int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

func (c *counter) TryWrite(p []byte) (int, error) { return c.Write(p) }

func (*counter) Close() error { return nil }

// TestHeaderLimit proves that a message for header framing is held up to a
// limit and not beyond it, whichever way it comes (RPC-23, RPC-24).
func TestHeaderLimit(t *testing.T) {
	piece := []byte(strings.Repeat("x", 1000))
	writes := map[string]func(s *headerStream, p []byte) (int, error){
		"Write":    func(s *headerStream, p []byte) (int, error) { return s.Write(p) },
		"TryWrite": func(s *headerStream, p []byte) (int, error) { return headerTryWriter{s}.TryWrite(p) },
	}
	for name, write := range writes {
		out := &counter{Reader: strings.NewReader("")}
		s := &headerStream{rw: out, in: newInbuf(out), left: -1, try: out, limit: 10_000}
		fits := strings.Repeat("y", 10_000)
		for _, text := range []string{fits[:4000], fits[4000:], "\n", fits + "\n" + fits[:1]} {
			if n, err := write(s, []byte(text)); n != len(text) || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if n := out.n.Load(); n != 2*int64(len("Content-Length: 10000\r\n\r\n")+10_000) {
			t.Errorf("%s: %d bytes are out", name, n)
		}
		var err error
		for range 10 {
			if _, err = write(s, piece); err != nil {
				break
			}
		}
		var tooLong *ResourceError
		if !errors.As(err, &tooLong) || tooLong.Limit != 10_000 || tooLong.Unit != "bytes" {
			t.Errorf("%s: %v", name, err)
		}
		if cap(s.body) > 20_000 {
			t.Errorf("%s: %d bytes are held", name, cap(s.body))
		}
		if n, err := write(s, []byte(fits+"z\n")); n != 0 || err == nil {
			t.Errorf("%s: a whole message beyond the limit: %d, %v", name, n, err)
		}
	}
}

// TestHeaderLimitOfConn proves that a call with params beyond the limit fails
// with an error that names it.
func TestHeaderLimitOfConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := bytePipe()
		c := NewConn(NewHeaderStream(near), Config{})
		err := c.Call(t.Context(), "m", io.MultiReader(strings.NewReader(`["`), endlessX{}), nil)
		var tooLong *ResourceError
		if !errors.As(err, &tooLong) || tooLong.Limit != 64<<20 || !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "67108864 bytes") {
			t.Error(err)
		}
		c.Close()
		far.Close()
	})
}

type endlessX struct{}

func (endlessX) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// An expired stream was given a deadline by somebody, which has passed, and cannot
// be given another one.
type expired struct{ *breaking }

func (s expired) Read() (Part, error) {
	s.left.Add(-1)
	return Part{}, fmt.Errorf("read: %w", os.ErrDeadlineExceeded)
}

// TestForeignDeadline proves that a deadline that nobody can take back ends the
// connection, instead of being met again and again.
func TestForeignDeadline(t *testing.T) {
	s := expired{newBreaking(1)}
	c := NewConn(s, Config{})
	select {
	case <-c.Done():
	case <-time.After(2 * time.Minute):
		t.Errorf("still connected after %d reads", -s.left.Load())
		c.end(ErrClosed, true)
		return // Close would wait for ever
	}
	if err := c.Close(); !errors.Is(err, os.ErrDeadlineExceeded) || AdviceFor(err) != AdviceReconnect {
		t.Error(err)
	}
}
