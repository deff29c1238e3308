package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// noTry hides TryWrite, as a Stream over a library's connection has none.
type noTry struct{ Stream }

// TestPeerNeverReads proves that callers honour their deadlines while the peer
// takes nothing, also those that wait for room to write (RPC-10, RPC-16).
func TestPeerNeverReads(t *testing.T) {
	large := json.RawMessage(`["` + strings.Repeat("x", 900_000) + `"]`)
	for _, try := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			near, far := Pipe()
			if !try {
				near = noTry{near}
			}
			c := NewConn(near, Config{StallTimeout: -1})
			var wg sync.WaitGroup
			start := time.Now()
			for i := range 64 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					var err error
					switch i % 4 {
					case 0:
						err = c.Call(t.Context(), "m", large, nil, WithTimeout(time.Second))
					case 1:
						err = c.Call(ctx, "m", bytes.NewReader(large), nil)
					default:
						err = c.Call(ctx, "m", large, nil)
					}
					if !errors.Is(err, ErrTimeout) || time.Since(start) != time.Second {
						t.Errorf("%v after %v", err, time.Since(start))
					}
					if call, ok := errors.AsType[*CallError](err); !ok || call.Sent == strings.HasSuffix(err.Error(), "not sent within 1s") {
						t.Errorf("%v, sent: %v", err, ok && call.Sent)
					}
				})
			}
			wg.Wait()
			if s := c.Stats(); s.Pending != 0 {
				t.Errorf("%+v", s)
			}
			late, cancel := context.WithDeadline(t.Context(), start.Add(31*time.Second+time.Minute))
			defer cancel()
			if err := c.Notify(t.Context(), "m", nil); !errors.Is(err, ErrTimeout) || !strings.HasSuffix(err.Error(), "not sent within 30s") || time.Since(start) != 31*time.Second {
				t.Errorf("Notify: %v after %v", err, time.Since(start))
			}
			if err := c.Notify(late, "m", nil); !errors.Is(err, ErrTimeout) || time.Since(start) != 31*time.Second+time.Minute {
				t.Errorf("Notify with a deadline: %v after %v", err, time.Since(start))
			}
			c.Close()
			far.Close()
		})
	}
}

// TestStall proves that a connection ends whose peer takes no byte, and not one
// whose peer is slow (RPC-19).
func TestStall(t *testing.T) {
	large := json.RawMessage(`["` + strings.Repeat("x", 300_000) + `"]`)
	synctest.Test(t, func(t *testing.T) {
		near, far := bytePipe()
		c := NewConn(NewLineStream(near), Config{StallTimeout: 10 * time.Second, Timeout: -1})
		start := time.Now()
		go func() {
			time.Sleep(5 * time.Second)
			io.ReadFull(far, make([]byte, 100_000))
		}()
		err := c.Call(t.Context(), "m", large, nil)
		if took := time.Since(start); !errors.Is(err, ErrClosed) || !errors.Is(err, errStalled) || !Recoverable(err) || took != 15*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if c.State() != StateDisconnected {
			t.Error(c.State())
		}
		c.Close()
		far.Close()
	})
}

// TestStallOfWholeMessages: a peer that takes the next 64 KiB in time is not given up,
// however long all of a message takes, with framings that write it in one go as well; one
// that stops within a message is.
func TestStallOfWholeMessages(t *testing.T) {
	large := json.RawMessage(`["` + strings.Repeat("x", 1<<20) + `"]`)
	for name, framing := range map[string]Framing{"lines": NewLineStream, "headers": NewHeaderStream} {
		for _, stops := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				near, far := bytePipe()
				c := NewConn(framing(near), Config{StallTimeout: 10 * time.Second, Timeout: -1})
				start, taken := time.Now(), make(chan int, 1)
				go func() {
					n := 0
					for buf := make([]byte, 32<<10); !stops || n < 1<<19; n += len(buf) {
						time.Sleep(4 * time.Second)
						if _, err := io.ReadFull(far, buf); err != nil {
							break
						}
					}
					taken <- n
				}()
				err := c.Notify(t.Context(), "m", large)
				if err == nil {
					time.Sleep(200 * time.Second)
				}
				if ended := c.State() == StateDisconnected; ended != stops || stops && !errors.Is(c.Err(), errStalled) {
					t.Errorf("%s, stops %v: %v, %v after %v", name, stops, err, c.Err(), time.Since(start))
				}
				c.Close()
				far.Close()
				if n := <-taken; n < 1<<19 || !stops && n < 1<<20 {
					t.Errorf("%s, stops %v: %d bytes taken", name, stops, n)
				}
			})
		}
	}
}

// TestBothFlood proves that two ends that flood each other with large calls do
// not wait for each other for ever, though both answer from the goroutine that
// reads.
func TestBothFlood(t *testing.T) {
	for _, h := range []Handler{inlineAll{echo}, HandlerFunc(echo)} {
		synctest.Test(t, func(t *testing.T) {
			a, b := Pair(Config{Handler: h}, Config{Handler: h})
			large := json.RawMessage(`["` + strings.Repeat("x", 100_000) + `"]`)
			var wg sync.WaitGroup
			for range 20 {
				for _, c := range []*Conn{a, b} {
					wg.Go(func() {
						var got json.RawMessage
						for range 3 {
							if err := c.Call(t.Context(), "echo", large, &got); err != nil || !bytes.Equal(got, large) {
								t.Errorf("%v, %d bytes", err, len(got))
							}
						}
					})
				}
			}
			start := time.Now()
			wg.Wait()
			if took := time.Since(start); took != 0 {
				t.Error(took)
			}
			a.Close()
			b.Close()
		})
	}
}

// TestNotifyOrder proves that notifications arrive in the order in which they
// were sent, also before calls that are made later.
func TestNotifyOrder(t *testing.T) {
	var got []int
	h := inlineAll{func(_ context.Context, req *Request) (any, error) {
		var n []int
		err := req.Decode(&n)
		got = append(got, n...)
		return nil, err
	}}
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair(Config{}, Config{Handler: h})
		for i := range 20_000 {
			if err := a.Notify(t.Context(), "n", []int{i}); err != nil {
				t.Fatal(err)
			}
			if i%1000 == 0 {
				if err := a.Call(t.Context(), "n", []int{i}, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		a.Close() // what was sent before gets out
		<-b.Done()
		b.Close()
	})
	if len(got) != 20_020 {
		t.Fatal(len(got))
	}
	for i := 1; i < len(got); i++ {
		if got[i] < got[i-1] {
			t.Fatalf("%d after %d", got[i], got[i-1])
		}
	}
}

// TestStreamed proves that params and results longer than any buffer are
// streamed from a Reader and into a Writer (RPC-24).
func TestStreamed(t *testing.T) {
	value := `["` + strings.Repeat(`long \n "`+`,`+`"`, 200_000) + `"]`
	spread := strings.ReplaceAll(value, ",", ",\n")
	h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		if req.Method() == "raw" {
			return req.Params(), nil
		}
		return req.ParamsReader(), nil
	})
	for name, pair := range map[string]func() (Stream, Stream){
		"try":   Pipe,
		"block": func() (Stream, Stream) { a, b := Pipe(); return noTry{a}, noTry{b} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, y := pair()
				limits := Config{MaxMessage: 8 << 20}
				a := NewConn(x, limits)
				limits.Handler = h
				b := NewConn(y, limits)
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						var got strings.Builder
						method := []string{"raw", "reader"}[i%2]
						if err := a.Call(t.Context(), method, iotest.HalfReader(strings.NewReader(spread)), &got); err != nil {
							t.Error(err)
						}
						if got.String() != strings.ReplaceAll(spread, "\n", " ") {
							t.Errorf("%d bytes instead of %d", got.Len(), len(spread))
						}
					})
					wg.Go(func() { callMany(t, a, i) })
				}
				wg.Wait()
				a.Close()
				b.Close()
			})
		})
	}
}

// TestStreamFails proves that a Reader that fails midway, or gives what is no
// JSON, fails its own message only.
func TestStreamFails(t *testing.T) {
	long := `["` + strings.Repeat("x", 100_000) + `"`
	broken := errors.New("the file is gone")
	withPeer(t, Config{Handler: HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		return io.MultiReader(strings.NewReader(long), iotest.ErrReader(broken)), nil
	})}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for _, r := range []io.Reader{
			iotest.ErrReader(broken),
			io.MultiReader(strings.NewReader(long), iotest.ErrReader(broken)),
			strings.NewReader(long),
			strings.NewReader(long + "}"),
			strings.NewReader(long + `] "more"`),
			strings.NewReader(`"` + long),
			strings.NewReader(``),
		} {
			failed := make(chan error, 1)
			go func() { failed <- c.Call(t.Context(), "m", r, nil) }()
			synctest.Wait()
			go peer.send(`{"jsonrpc":"2.0","id":"x","method":"m"}`)
			for {
				got := peer.next()
				if strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"x","error":{"code":-32603`) {
					break
				}
				if json.Valid([]byte(got)) {
					t.Errorf("a message that was broken off is valid: %.100s", got)
				}
			}
			if err := <-failed; err == nil || errors.Is(err, ErrTimeout) {
				t.Error(err)
			}
		}
		go peer.answer()
		if err := c.Call(t.Context(), "m", []int{1}, nil); err != nil {
			t.Error(err)
		}
	})
}

// slowReader gives its text in pieces, one a second.
type slowReader struct{ text string }

func (r *slowReader) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	n := copy(p[:min(len(p), 40_000)], r.text)
	r.text = r.text[n:]
	if r.text == "" {
		return n, io.EOF
	}
	return n, nil
}

// TestStreamHoldsOthers proves that others wait for a streamed message with
// their contexts, and that the connection goes on reading and answering inline
// meanwhile.
func TestStreamHoldsOthers(t *testing.T) {
	withPeer(t, Config{Handler: inlineAll{echo}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() {
			err := c.Call(t.Context(), "long", &slowReader{`["` + strings.Repeat("x", 200_000) + `"]`}, nil)
			if err != nil {
				t.Error(err)
			}
		})
		time.Sleep(1500 * time.Millisecond)
		wg.Go(func() {
			err := c.Call(t.Context(), "short", nil, nil, WithTimeout(time.Second))
			if !errors.Is(err, ErrTimeout) || time.Since(start) != 2500*time.Millisecond {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`, `{"jsonrpc":"2.0","id":2,"method":"m","params":[2]}`)
		if got := peer.next(); !json.Valid([]byte(got)) || len(got) < 200_000 {
			t.Errorf("%.100s", got)
		}
		peer.want(`{"jsonrpc":"2.0","id":1,"result":[1]}`, `{"jsonrpc":"2.0","id":2,"result":[2]}`)
		peer.send(`{"jsonrpc":"2.0","id":4096,"result":1}`)
		wg.Wait()
	})
}

// TestSinkOfLateCaller proves that a result is not written to its Writer after
// the call has returned, while it still arrives (RPC-24).
func TestSinkOfLateCaller(t *testing.T) {
	withPeer(t, Config{MaxMessage: 8 << 20}, func(t *testing.T, c *Conn, peer *rawPeer) {
		var got strings.Builder
		failed := make(chan error, 1)
		go func() { failed <- c.Call(t.Context(), "m", nil, &got, WithTimeout(time.Second)) }()
		peer.next()
		half := strings.Repeat("x", 1<<20)
		go peer.s.Write([]byte(`{"jsonrpc":"2.0","id":4096,"result":"` + half))
		if err := <-failed; !errors.Is(err, ErrTimeout) {
			t.Error(err)
		}
		n := got.Len()
		if n == 0 {
			t.Error("nothing was streamed")
		}
		peer.send(half + `"}`)
		synctest.Wait()
		if got.Len() != n || c.Stats().Late != 1 {
			t.Errorf("%d bytes, then %d; %+v", n, got.Len(), c.Stats())
		}
		for _, tail := range []string{`"}`, `",}`, `","result":1}`, `","jsonrpc":"2.0"}`, "\x01\"}"} { // the head has the version already
			go func() { failed <- c.Call(t.Context(), "m", nil, &got) }()
			var id struct{ ID uint64 }
			json.Unmarshal([]byte(peer.next()), &id)
			go peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":"%s%s`, id.ID, half, tail))
			err := <-failed
			if _, bad := errors.AsType[*ResultError](err); bad != (tail != `"}`) {
				t.Errorf("%q: %v", tail, err)
			}
		}
		go func() { failed <- c.Call(t.Context(), "m", nil, iotest.TruncateWriter(nil, 0)) }()
		go func() { failed <- c.Call(t.Context(), "m", nil, badWriter{}) }()
		<-failed
		<-failed
	})
}

// TestSinkOfFailedCall is the same for calls that end by Config.Timeout and
// with their connection.
func TestSinkOfFailedCall(t *testing.T) {
	ends := map[string]func(c *Conn, peer *rawPeer){
		"timeout": func(*Conn, *rawPeer) { time.Sleep(2 * time.Second) },
		"closing": func(c *Conn, _ *rawPeer) { go c.Close() },
	}
	for name, end := range ends {
		cfg := Config{Timeout: time.Second, Handler: HandlerFunc(func(ctx context.Context, _ *Request) (any, error) {
			<-ctx.Done() // which makes a Conn that is being closed read on
			return nil, ctx.Err()
		})}
		withPeer(t, cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
			var got strings.Builder
			failed := make(chan error, 1)
			go func() { failed <- c.Call(t.Context(), "m", nil, &got) }()
			peer.next()
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"wait"}`)
			half := strings.Repeat("x", 300<<10)
			peer.s.Write([]byte(`{"jsonrpc":"2.0","id":4096,"result":"` + half))
			synctest.Wait()
			end(c, peer)
			if err := <-failed; err == nil {
				t.Error(name, "no error")
			}
			n := got.Len()
			peer.send(half + `"}`)
			synctest.Wait()
			if n == 0 || got.Len() != n {
				t.Errorf("%s: %d bytes, then %d", name, n, got.Len())
			}
		})
	}
}

type badWriter struct{}

func (badWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestOversize proves that a message beyond the limit is skipped and answered,
// with the connection going on, and that a call whose answer it is ends
// (RPC-24).
func TestOversize(t *testing.T) {
	limit := `"error":{"code":-32600,"message":"invalid request: the message is too long","data":{"limit":100000,"unit":"bytes"}}`
	withPeer(t, Config{MaxMessage: 100_000, Handler: HandlerFunc(echo)}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for _, size := range []int{100_001, 300_000, 3_000_000} {
			go peer.send(`{"jsonrpc":"2.0","id":1,"method":"m","params":["`+strings.Repeat("x", size)+`"]}`,
				`{"jsonrpc":"2.0","id":2,"method":"m"}`)
			peer.want(`{"jsonrpc":"2.0","id":null,`+limit+`}`, `{"jsonrpc":"2.0","id":2,"result":null}`)
			if n := cap(c.in.assembly.buf); n > 1<<17 {
				t.Errorf("%d bytes are kept", n)
			}

			long := strings.Repeat("x", size)
			for _, form := range []string{
				`{"jsonrpc":"2.0","id":%d,"result":"%s"}`, `{"jsonrpc":"2.0","result":{"id":9,"x":["%[2]s"]},"id":%[1]d}`,
				`{"error":{"code":1,"message":"%[2]s"},"id":%[1]d,"jsonrpc":"2.0"}`,
			} {
				failed := make(chan error, 1)
				go func() {
					var got json.RawMessage
					failed <- c.Call(t.Context(), "m", nil, &got)
				}()
				var id struct{ ID uint64 }
				json.Unmarshal([]byte(peer.next()), &id)
				go peer.send(fmt.Sprintf(form, id.ID, long))
				if err := <-failed; !errors.Is(err, ErrExhausted) {
					t.Errorf("%s: %.300v", form, err)
				}
			}
		}
		if s := c.Stats(); s.Oversize != 12 {
			t.Errorf("%+v", s)
		}
	})
}

// TestInvalidResponses proves that bad messages from a server do not end its
// client: they are counted, and a call that one was for fails (RPC-25).
func TestInvalidResponses(t *testing.T) {
	var seen notices
	withPeer(t, Config{Hooks: Hooks{Notice: seen.add}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		failed := make(chan error, 1)
		go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
		peer.next()
		peer.send("garbage", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`, `{"jsonrpc":"1.0","id":4096,"result":1}`)
		err := <-failed
		if _, ok := errors.AsType[*ResultError](err); !ok {
			t.Error(err)
		}
		for _, bad := range []string{"\"\xff\"", `"\ud800"`, `1}x`, `[1,]`} {
			go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
			var id struct{ ID uint64 }
			json.Unmarshal([]byte(peer.next()), &id)
			peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id.ID, bad))
			if _, ok := errors.AsType[*ResultError](<-failed); !ok {
				t.Errorf("%q: %v", bad, err)
			}
		}
		go peer.answer() // the next message, since the garbage is not answered
		if err := c.Call(t.Context(), "m", []int{1}, nil); err != nil {
			t.Error(err)
		}
		go func() {
			peer.next() // the error comes behind a result that was cut off while it was streamed
			peer.send(`{"jsonrpc":"2.0","id":28672,"result":["x`, `{"jsonrpc":"2.0","id":28672,"error":{"code":-32603,"message":"internal error"}}`)
		}()
		if err := c.Call(t.Context(), "m", nil, nil); !errors.Is(err, &Error{Code: CodeInternalError}) {
			t.Error(err)
		}
	})
	if got := seen.text(); got != "malformed, peer error, invalid, malformed, malformed, malformed, malformed, malformed" {
		t.Error(got)
	}
}

// undelivering is a Stream that says of one message that it was not delivered.
type undelivering struct {
	Stream
	lost chan []byte
}

func (s *undelivering) Read() (Part, error) {
	if text, ok := <-s.lost; ok {
		return Part{}, &UndeliveredError{Message: text, Err: io.ErrUnexpectedEOF}
	}
	return s.Stream.Read()
}

// TestUndelivered proves that a message that was lost fails the calls in it,
// and no others (RPC-21, RPC-22).
func TestUndelivered(t *testing.T) {
	var seen notices
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe()
		s := &undelivering{near, make(chan []byte)}
		c := NewConn(s, Config{Hooks: Hooks{Notice: seen.add}})
		peer := &rawPeer{t, far}
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i := range errs {
			synctest.Wait()
			wg.Go(func() { errs[i] = c.Call(t.Context(), "m", nil, nil) })
		}
		messages := []string{peer.next(), peer.next(), peer.next(), peer.next()}
		s.lost <- []byte(messages[1])
		s.lost <- []byte("[" + messages[2] + "," + messages[3] + `,{"jsonrpc":"2.0","method":"m"}]`)
		close(s.lost)
		peer.send(`{"jsonrpc":"2.0","id":4096,"result":1}`)
		wg.Wait()
		for i, err := range errs {
			_, lost := errors.AsType[*UndeliveredError](err)
			if lost != (i > 0) || i > 0 && AdviceFor(err) != AdviceRetry || i == 0 && err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		c.Close()
		far.Close()
	})
	if seen.text() != "undelivered" {
		t.Error(seen.text())
	}
}

// TestPoolStartsAll proves that requests that come in one read and wait are all
// begun at once, none behind another (RPC-8), and that the goroutines and the
// memory are given back.
func TestPoolStartsAll(t *testing.T) {
	h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		time.Sleep(time.Second)
		return nil, nil
	})
	withPeer(t, Config{Handler: h}, func(t *testing.T, c *Conn, peer *rawPeer) {
		start := time.Now()
		peer.send(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"m"}`+"\n", 100))
		for range 100 {
			peer.want(`{"jsonrpc":"2.0","id":1,"result":null}`)
		}
		if took := time.Since(start); took != time.Second {
			t.Error(took)
		}
		time.Sleep(3 * idleTime)
		c.srv.pool.mu.Lock()
		if n := c.srv.pool.workers; n != 0 {
			t.Errorf("%d idle goroutines", n)
		}
		c.srv.pool.mu.Unlock()

		go peer.send(`{"jsonrpc":"2.0","id":1,"method":"m","params":["` + strings.Repeat("x", 600_000) + `"]}`)
		peer.want(`{"jsonrpc":"2.0","id":1,"result":null}`)
		c.Close() // which waits for the goroutine that reads
		if n := cap(c.in.assembly.buf); n > keepAssembly {
			t.Errorf("%d bytes are kept", n)
		}
	})
}

// TestCloseWhileStreaming proves that the end of a connection waits for a
// message whose reader is slow with its context, and not by asking again and
// again: then the time in the bubble would not pass.
func TestCloseWhileStreaming(t *testing.T) {
	withPeer(t, Config{Grace: -1}, func(t *testing.T, c *Conn, peer *rawPeer) {
		go readAll(peer.s)
		slow := readerFunc(func() { time.Sleep(time.Minute) })
		failed := make(chan error, 1)
		go func() {
			failed <- c.Call(t.Context(), "m", io.MultiReader(strings.NewReader(`["`+strings.Repeat("x", 2*streamPiece)), slow), nil)
		}()
		time.Sleep(time.Second)
		start := time.Now()
		c.Close()
		if d := time.Since(start); d != flushGrace {
			t.Error(d)
		}
		if err := <-failed; err == nil {
			t.Error("no error")
		}
	})
}

type readerFunc func()

func (f readerFunc) Read([]byte) (int, error) {
	f()
	return 0, io.ErrNoProgress
}

// TestReaderWithoutEnd proves that a call ends in time whose params give a
// little now and then, before their first piece is full and after (RPC-10).
func TestReaderWithoutEnd(t *testing.T) {
	for name, begin := range map[string]string{"first piece": `[`, "later piece": `["` + strings.Repeat("x", 2*streamPiece) + `"`} {
		withPeer(t, Config{Timeout: 10 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
			go readAll(peer.s)
			params := func() io.Reader {
				return io.MultiReader(strings.NewReader(begin), blankReader{})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var b Batch
			b.Call("m", params(), nil)
			for i, call := range []func() error{
				func() error { return c.Call(ctx, "m", params(), nil) },
				func() error { return c.Call(t.Context(), "m", params(), nil) },
				func() error { return c.Call(t.Context(), "m", params(), nil, WithTimeout(time.Second)) },
				func() error { return c.Notify(t.Context(), "m", params()) },
				func() error { return c.Batch(t.Context(), &b) },
			} {
				start, want := time.Now(), []time.Duration{5, 10, 1, 10, 10}[i]*time.Second
				err := call()
				after := time.Since(start) // a Read that is under way is waited for
				if late, ok := errors.AsType[*TimeoutError](err); !ok || late.After != want || after < want || after > want+time.Second {
					t.Errorf("%s, %d: %v after %v", name, i, err, after)
				}
			}
			if late, ok := errors.AsType[*TimeoutError](c.Notify(ctx, "m", nil)); !ok || late.After != 0 {
				t.Error("a notification whose context was over:", late)
			}
		})
	}
}

// blankReader gives a blank each second.
type blankReader struct{}

func (blankReader) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	p[0] = ' '
	return 1, nil
}

// TestReaderCut proves that what a reader gave before it was cut is not taken
// for all of it.
func TestReaderCut(t *testing.T) {
	cut := io.MultiReader(strings.NewReader("12"), iotest.ErrReader(io.ErrUnexpectedEOF))
	withPeer(t, Config{Handler: HandlerFunc(func(context.Context, *Request) (any, error) { return cut, nil })}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		if got := peer.next(); !strings.Contains(got, `"error":{"code":-32603`) {
			t.Error(got)
		}
		cut := io.MultiReader(strings.NewReader("[12]"), iotest.ErrReader(io.ErrUnexpectedEOF))
		if err := c.Call(t.Context(), "m", cut, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	})
}
