package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/internal/logging"
	"github.com/parley-project/parley/jsonrpc"
)

// newTestTracer writes a trace for people, without colours, with the time of
// the test.
func newTestTracer(w io.Writer) *tracer {
	return &tracer{
		format: "table", zone: time.UTC, now: time.Now, limit: 200, w: w,
		paint: func(_ ink, s string) string { return s }, redactor: logging.NewRedactor(),
	}
}

// carried is a proxied connection: what is written to a comes out of b.
type carried struct {
	a, b   net.Conn
	trace  bytes.Buffer
	cancel context.CancelFunc
	err    error
	over   chan struct{}
}

// newCarried begins one. The framings are those of the two sides.
func newCarried(t *testing.T, framingA, framingB jsonrpc.Framing) *carried {
	a, sideA := net.Pipe()
	b, sideB := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	c := &carried{a: a, b: b, cancel: cancel, over: make(chan struct{})}
	tr := newTestTracer(&c.trace)
	go func() {
		defer close(c.over)
		c.err = carry(ctx, tr, 1, framingA(sideA), framingB(sideB))
	}()
	return c
}

func (c *carried) end() {
	c.cancel()
	<-c.over
	_ = c.a.Close()
	_ = c.b.Close()
}

// TestProxyTrace plays a dialogue of every kind of message and compares the
// trace with what is written here.
func TestProxyTrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCarried(t, jsonrpc.NewLineStream, jsonrpc.NewLineStream)
		defer c.end()
		fromA, fromB := bufio.NewReader(c.a), bufio.NewReader(c.b)
		for _, step := range []string{
			`> {"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}`,
			`5ms`,
			`< {"jsonrpc":"2.0","result":19,"id":1}`,
			`> {"jsonrpc":"2.0","method":"login","params":{"user":"ada","password":"hunter2"},"id":"x"}`,
			`1500ms`,
			`< {"jsonrpc":"2.0","error":{"code":-32000,"message":"no"},"id":"x"}`,
			`> {"jsonrpc":"2.0","method":"update","params":[1,2]}`,
			`< {"jsonrpc":"2.0","method":"ask","id":1}`,
			`120us`,
			`> {"jsonrpc": "2.0", "id": 1, "result": null}`,
			`> [{"jsonrpc":"2.0","method":"a","id":7},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","method":"c","id":8}]`,
			`1ms`,
			`< [{"jsonrpc":"2.0","result":1,"id":8},{"jsonrpc":"2.0","result":1,"id":7}]`,
			`> {"jsonrpc":"2.0","method":"broken,"id":2}`,
			`< {"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"},"id":null}`,
			`> {"jsonrpc":"1.0","method":"old","id":3}`,
			`> {"jsonrpc":"2.0","method":"long","params":["` + strings.Repeat("é", 200) + `"]}`,
			"< \x1b[2Jhello",
		} {
			switch {
			case strings.HasPrefix(step, "> "):
				passes(t, c.a, fromB, step[2:])
			case strings.HasPrefix(step, "< "):
				passes(t, c.b, fromA, step[2:])
			default:
				d, err := time.ParseDuration(step)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(d)
			}
		}
		c.end()
		if diff := cmp.Diff(wantTrace, c.trace.String()); diff != "" {
			t.Error(diff)
		}
	})
}

// passes writes a line to one side and expects it at the other.
func passes(t *testing.T, w io.Writer, r *bufio.Reader, line string) {
	t.Helper()
	if _, err := io.WriteString(w, line+"\n"); err != nil {
		t.Fatal(err)
	}
	got, err := r.ReadString('\n')
	if err != nil || got != line+"\n" {
		t.Fatalf("%q became %q, %v", line, got, err)
	}
}

const wantTrace = `00:00:00.000  A → B  request       61 B     subtract  id 1  {"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}
00:00:00.005  A ← B  response      36 B     subtract  id 1  5.0ms  {"jsonrpc":"2.0","result":19,"id":1}
00:00:00.005  A → B  request       88 B     login  id "x"  {"jsonrpc":"2.0","method":"login","params":{"user":"ada","password":"[redacted]"},"id":"x"}
00:00:01.505  A ← B  error         65 B     login  id "x"  1.5s  -32000  {"jsonrpc":"2.0","error":{"code":-32000,"message":"no"},"id":"x"}
00:00:01.505  A → B  notification  50 B     update  {"jsonrpc":"2.0","method":"update","params":[1,2]}
00:00:01.505  A ← B  request       39 B     ask  id 1  {"jsonrpc":"2.0","method":"ask","id":1}
00:00:01.505  A → B  response      43 B     ask  id 1  120µs  {"jsonrpc":"2.0","id":1,"result":null}
00:00:01.505  A → B  batch         108 B    3 entries  [{"jsonrpc":"2.0","method":"a","id":7},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","method":"c","id":8}]
00:00:01.506  A ← B  batch         73 B     2 entries  1.0ms  [{"jsonrpc":"2.0","result":1,"id":8},{"jsonrpc":"2.0","result":1,"id":7}]
00:00:01.506  A → B  malformed     41 B     line 1, column 36: invalid character 'i' after object key:value pair  {"jsonrpc":"2.0","method":"broken,"id":2}
00:00:01.506  A ← B  error         75 B     id null  0µs  -32700  {"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"},"id":null}
00:00:01.506  A → B  invalid       39 B     old  id 3  "jsonrpc" is not "2.0"  {"jsonrpc":"1.0","method":"old","id":3}
00:00:01.506  A → B  notification  447 B    long  {"jsonrpc":"2.0","method":"long","params":["éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé…
00:00:01.506  A ← B  malformed     9 B      line 1, column 1: invalid character '\x1b' looking for beginning of value  \x1b[2Jhello
`

// TestProxyKeepsBytes sends what is easily changed on the way.
func TestProxyKeepsBytes(t *testing.T) {
	t.Parallel()
	messages := []string{
		`{ "jsonrpc" : "2.0" , "method":"a","id":9007199254740993 }`,
		`{"id":1.50e1,"result":-0,"jsonrpc":"2.0","result":"\u00e9\/é"}`,
		`{"a":"` + "\xff\xfe" + `"}`,
		`not JSON at all`,
		"tabs\tand \x00 bytes",
		`[`,
		`{"x":"` + strings.Repeat("long ", 200_000) + `"}`,
		`"last"`,
	}
	header := func(text string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text) }
	line := func(text string) string { return text + "\n" }
	for _, c := range []struct {
		name                string
		a, b                jsonrpc.Framing
		frame, framed       func(string) string
		messages, messages2 []string
	}{
		{"lines to lines", jsonrpc.NewLineStream, jsonrpc.NewLineStream, line, line, messages, messages},
		{"lines to headers", jsonrpc.NewLineStream, jsonrpc.NewHeaderStream, line, header, messages, messages},
		{"headers to lines", jsonrpc.NewHeaderStream, jsonrpc.NewLineStream, header, line, messages, messages},
		{
			"headers with line feeds to lines", jsonrpc.NewHeaderStream, jsonrpc.NewLineStream, header, line,
			[]string{"{\n  \"a\":\n1}", "\"a\nb\"", `"last"`},
			[]string{"{\r  \"a\":\r1}", "\"a\rb\"", `"last"`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newCarried(t, c.a, c.b)
			var wg sync.WaitGroup
			defer wg.Wait()
			defer p.end()
			wg.Go(func() {
				for _, m := range c.messages {
					_, _ = io.WriteString(p.a, c.frame(m))
				}
			})
			for _, m := range c.messages2 {
				want := c.framed(m)
				got := make([]byte, len(want))
				if _, err := io.ReadFull(p.b, got); err != nil || string(got) != want {
					t.Fatalf("want %.80q, got %.80q, %v", want, got, err)
				}
			}
		})
	}
}

// TestProxyKeepsNothing has a side B that does not read: side A can write only
// so much as fits the buffers of the streams.
func TestProxyKeepsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCarried(t, jsonrpc.NewLineStream, jsonrpc.NewLineStream)
		defer c.end()
		line := []byte(`{"jsonrpc":"2.0","method":"a","params":["` + strings.Repeat("x", 1000) + `"]}` + "\n")
		const lines = 4000
		written := 0
		go func() {
			for range lines {
				n, err := c.a.Write(line)
				written += n
				if err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if most := 256 << 10; written > most {
			t.Errorf("%d bytes went in while nobody read, want at most %d", written, most)
		}
		n, err := io.Copy(io.Discard, io.LimitReader(c.b, int64(lines*len(line))))
		if err != nil || n != int64(lines*len(line)) {
			t.Errorf("%d bytes came out, %v", n, err)
		}
	})
}

// TestProxyLargeMessage passes on a message that is larger than what is kept.
func TestProxyLargeMessage(t *testing.T) {
	t.Parallel()
	c := newCarried(t, jsonrpc.NewLineStream, jsonrpc.NewLineStream)
	defer c.end()
	text := `{"jsonrpc":"2.0","id":5,"method":"put","params":["` + strings.Repeat("0123456789", 400_000) + `"]}` + "\n"
	go func() { _, _ = io.WriteString(c.a, text) }()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c.b, got); err != nil || string(got) != text {
		t.Fatalf("it came out changed: %v", err)
	}
	c.end()
	if want := `request       3906 KiB  put  id 5  large: not looked at to its end  {"jsonrpc"`; !strings.Contains(c.trace.String(), want) {
		t.Errorf("the trace lacks %q: %s", want, c.trace.String())
	}
}

// TestProxyAnswersAfterTheEnd has a side A that asks and ends: the answer comes
// all the same, and then both sides are closed.
func TestProxyAnswersAfterTheEnd(t *testing.T) {
	t.Parallel()
	for _, request := range []string{`{"jsonrpc":"2.0","method":"slow","id":1}`, `[{"jsonrpc":"2.0","method":"slow","id":1}]`} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newHalfPipe(request+"\n"), newHalfPipe("")
			done := make(chan error)
			go func() {
				done <- carry(t.Context(), newTestTracer(io.Discard), 1, jsonrpc.NewLineStream(a), jsonrpc.NewLineStream(b))
			}()
			time.Sleep(time.Second)
			answer := `{"jsonrpc":"2.0","result":1,"id":1}` + "\n"
			b.in <- answer
			if err := <-done; err != nil {
				t.Error(err)
			}
			if a.out.String() != answer {
				t.Errorf("side A got %q", a.out.String())
			}
		})
	}
}

// TestProxyGivesUpWaiting bounds that wait.
func TestProxyGivesUpWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		a, b := newHalfPipe(`{"jsonrpc":"2.0","method":"never","id":1}`+"\n"), newHalfPipe("")
		err := carry(t.Context(), newTestTracer(io.Discard), 1, jsonrpc.NewLineStream(a), jsonrpc.NewLineStream(b))
		if want := "side B: no answer to never id 1 within 10s of the last that side A had to say"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if took := time.Since(began); took != drainTime {
			t.Errorf("gave up after %s, want %s", took, drainTime)
		}
	})
}

// TestProxyRefusedForItsSize ends when a large request was refused, which is answered
// without its id.
func TestProxyRefusedForItsSize(t *testing.T) {
	t.Parallel()
	const refusal = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the message is too long"}}` + "\n"
	big := `"` + strings.Repeat("x", 2*traceKeep) + `"`
	for name, request := range map[string]string{
		"id first": `{"jsonrpc":"2.0","id":7,"method":"put","params":[` + big + `]}`,
		"id last":  `{"jsonrpc":"2.0","method":"put","params":[` + big + `],"id":7}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			a, b := newHalfPipe(request+"\n"), newHalfPipe("")
			done := make(chan error)
			go func() {
				done <- carry(t.Context(), newTestTracer(io.Discard), 1, jsonrpc.NewLineStream(a), jsonrpc.NewLineStream(b))
			}()
			synctest.Wait() // until it has all gone there
			b.in <- refusal
			if err := <-done; err != nil || time.Since(began) != 0 {
				t.Errorf("%s: after %s: %v", name, time.Since(began), err)
			}
			if a.out.String() != refusal {
				t.Errorf("%s: side A got %q", name, a.out.String())
			}
		})
	}
}

// halfPipe ends after what is written into it at the start, unless it is
// empty: then it waits for more in the channel.
type halfPipe struct {
	first  *strings.Reader
	in     chan string
	mu     sync.Mutex
	out    bytes.Buffer
	closed chan struct{}
	once   sync.Once
}

func newHalfPipe(first string) *halfPipe {
	return &halfPipe{first: strings.NewReader(first), in: make(chan string), closed: make(chan struct{})}
}

func (h *halfPipe) Read(p []byte) (int, error) {
	if h.first.Size() > 0 {
		return h.first.Read(p)
	}
	select {
	case s := <-h.in:
		return copy(p, s), nil
	case <-h.closed:
		return 0, io.ErrClosedPipe
	}
}

func (h *halfPipe) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.out.Write(p)
}

func (h *halfPipe) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// TestProxySideHangsUp tells a side that ends in the middle of things from one
// that ends when all is said.
func TestProxySideHangsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCarried(t, jsonrpc.NewLineStream, jsonrpc.NewLineStream)
		passes(t, c.a, bufio.NewReader(c.b), `{"jsonrpc":"2.0","method":"a","id":1}`)
		_ = c.b.Close()
		<-c.over
		if e, ok := errors.AsType[*sideError](c.err); !ok || e.side != sideB {
			t.Errorf("got %v, want side B's end", c.err)
		}
		c = newCarried(t, jsonrpc.NewLineStream, jsonrpc.NewLineStream)
		passes(t, c.a, bufio.NewReader(c.b), `{"jsonrpc":"2.0","method":"a"}`)
		_ = c.b.Close()
		<-c.over
		if c.err != nil {
			t.Errorf("got %v, want nothing", c.err)
		}
	})
}

// lossyStream reports each message as undelivered.
type lossyStream struct {
	lost   chan []byte
	closed chan struct{}
	once   sync.Once
}

func (s *lossyStream) Read() (jsonrpc.Part, error) {
	select {
	case m := <-s.lost:
		err := errors.New("status 503 for token=hunter2")
		if bytes.Contains(m, []byte("refused")) {
			err = fmt.Errorf("status 413: %w", jsonrpc.Errorf(-32600, "too long").WithData(map[string]int{"limit": 5}))
		}
		return jsonrpc.Part{}, &jsonrpc.UndeliveredError{Message: m, Err: err}
	case <-s.closed:
		return jsonrpc.Part{}, io.EOF
	}
}

func (s *lossyStream) Write(p []byte) (int, error) {
	s.lost <- bytes.TrimSuffix(bytes.Clone(p), []byte("\n"))
	return len(p), nil
}

func (s *lossyStream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// TestProxyAnswersForLostRequests has a side B to which nothing gets through.
func TestProxyAnswersForLostRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var trace bytes.Buffer
		a, sideA := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- carry(ctx, newTestTracer(&trace), 1, jsonrpc.NewLineStream(sideA), &lossyStream{lost: make(chan []byte, 1), closed: make(chan struct{})})
		}()
		r := bufio.NewReader(a)
		for _, c := range []struct{ send, want string }{
			{`{"jsonrpc":"2.0","method":"a","id":7}`, `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"the proxy could not deliver the request to side B"}}`},
			{`{"jsonrpc":"2.0","method":"refused","id":8}`, `{"jsonrpc":"2.0","id":8,"error":{"code":-32600,"message":"too long","data":{"limit":5}}}`},
			{`[{"jsonrpc":"2.0","method":"a","id":"x"},{"jsonrpc":"2.0","method":"b"}]`, `[{"jsonrpc":"2.0","id":"x","error":{"code":-32603,"message":"the proxy could not deliver the request to side B"}}]`},
		} {
			if _, err := io.WriteString(a, c.send+"\n"); err != nil {
				t.Fatal(err)
			}
			got, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want+"\n", got); diff != "" {
				t.Error(diff)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the end of the context gives %v", err)
		}
		if got := trace.String(); !strings.Contains(got, "A → B  lost") || strings.Contains(got, "hunter2") {
			t.Errorf("trace: %s", got)
		}
		_ = a.Close()
	})
}

// TestInFlightIsBounded forgets the oldest requests first.
func TestInFlightIsBounded(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	at := time.Now()
	for i := range maxInFlight + 10 {
		f.add([]asked{{id: fmt.Sprint(i)}}, at.Add(time.Duration(i)), false)
	}
	if len(f.sent) != maxInFlight {
		t.Errorf("%d requests are remembered", len(f.sent))
	}
	if _, ok := f.find("9"); ok {
		t.Error("an old request is remembered")
	}
	if _, ok := f.find("10"); !ok {
		t.Error("a newer request was forgotten")
	}
	f.add([]asked{{id: strings.Repeat("9", maxTracedID+1)}}, at, false)
	if len(f.sent) != maxInFlight || !f.unsure {
		t.Error("a huge id is remembered")
	}
}

// TestInFlightCountsRepeatedIDs waits for as many answers as there were
// requests.
func TestInFlightCountsRepeatedIDs(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	f.add([]asked{{id: "1"}, {id: "1"}}, time.Now(), false)
	drained := f.drained()
	f.answered([]string{"1"})
	select {
	case <-drained:
		t.Error("one answer is enough for two requests")
	default:
	}
	f.answered([]string{"1", "1", "2"})
	<-drained
}

// TestExcerptIsJSON checks that shortening is all that happens to harmless
// messages.
func TestExcerptIsJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"a":[1,2,{"b":null}],"c":"\"\\"}`, `"x"`, `[[],{}]`, `-1.5e3`} {
		got, cut := excerpt(logging.NewRedactor(), []byte(text), 1000, json.Valid([]byte(text)))
		if got != text || cut {
			t.Errorf("%s became %s, cut %t", text, got, cut)
		}
	}
}

// scripted is a stream that reads what it is told, parts and errors, and keeps what is
// written.
type scripted struct {
	steps  chan any
	closed chan struct{}
	close  func()

	mu      sync.Mutex
	written strings.Builder // guarded by mu
}

func newScripted() *scripted {
	s := &scripted{steps: make(chan any), closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	return s
}

func (s *scripted) Read() (jsonrpc.Part, error) {
	select {
	case step := <-s.steps:
		if err, ok := step.(error); ok {
			return jsonrpc.Part{}, err
		}
		return step.(jsonrpc.Part), nil
	case <-s.closed:
		return jsonrpc.Part{}, net.ErrClosed
	}
}

func (s *scripted) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.Write(p)
}

func (s *scripted) Close() error { s.close(); return nil }

func (s *scripted) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.SplitAfter(s.written.String(), "\n")
}

// TestProxyCut proves that an answer of which side B lost the rest counts as none, also
// when enough of it came to see which call it was for: the whole one that comes behind
// it, or the error in its place, still reaches side A.
func TestProxyCut(t *testing.T) {
	t.Parallel()
	const call = `{"jsonrpc":"2.0","id":1,"method":"m"}`
	answer := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", traceKeep+traceKeep/5) + `"}`
	whole := jsonrpc.Part{Data: []byte(answer), End: true}
	lost := &jsonrpc.UndeliveredError{Message: []byte(call), Err: errors.New("the connection broke")}
	const fault = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the proxy could not deliver the request to side B"}}`
	for name, behind := range map[string]struct {
		step any
		want string
	}{"the whole": {whole, answer}, "an error": {lost, fault}} {
		for _, overHTTP := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, over HTTP %v", name, overHTTP), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					posts, lines, b := newPostStream(nil), newScripted(), newScripted()
					var a jsonrpc.Stream = lines
					if overHTTP {
						a = posts
					}
					var trace bytes.Buffer
					ended := make(chan error, 1)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() { ended <- carry(ctx, newTestTracer(&trace), 1, a, b) }()
					x := &exchange{body: strings.NewReader(call), reply: make(chan []byte, 1)}
					if overHTTP {
						posts.posts <- x
					} else {
						lines.steps <- jsonrpc.Part{Data: []byte(call), End: true}
						lines.steps <- io.EOF
					}
					b.steps <- jsonrpc.Part{Data: []byte(answer[:len(answer)-10])}
					b.steps <- jsonrpc.Part{End: true, Void: true}
					b.steps <- behind.step
					synctest.Wait()
					if overHTTP {
						if got := string(<-x.reply); got != behind.want {
							t.Errorf("the POST has got %d bytes: %.80s", len(got), got)
						}
						cancel()
					} else if got := lines.lines(); len(got) < 2 || got[1] != behind.want+"\n" {
						t.Errorf("%d lines came, the last one %.80q", len(got), got[len(got)-1])
					}
					if err := <-ended; err != nil {
						t.Error(err)
					}
					if !strings.Contains(trace.String(), "cut: its rest was lost") {
						t.Errorf("the trace: %.2000s", trace.String())
					}
				})
			})
		}
	}
}
