package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// resultOf returns a Handler whose result is the Reader that give returns.
func resultOf(give func() io.Reader) Handler {
	return HandlerFunc(func(context.Context, *Request) (any, error) { return give(), nil })
}

// TestResultWithoutEnd proves that a result that gives a little now and then, for
// ever, does not outlive its connection, nor one that the peer has closed its half of,
// nor who waits for a Responder's answer.
func TestResultWithoutEnd(t *testing.T) {
	for name, begin := range map[string]string{"first piece": `[`, "later piece": `["` + strings.Repeat("x", 2*streamPiece) + `"`} {
		t.Run(name, func(t *testing.T) {
			endless := resultOf(func() io.Reader { return io.MultiReader(strings.NewReader(begin), tickingReader{}) })
			cfg := Config{Handler: endless, Grace: time.Second, Hooks: Hooks{Notice: func(n Notice) { t.Error(n) }}}
			withPeer(t, cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
				heard := make(chan []string)
				go func() {
					all, _ := readAll(peer.s) // until the end of the connection
					heard <- all
				}()
				peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
				time.Sleep(time.Minute)
				start := time.Now()
				c.Close()
				if d := time.Since(start); d > 2*time.Second {
					t.Errorf("Close took %v", d)
				}
				all := <-heard // the last one stands behind the line that is cut off, if there is one
				if !strings.Contains(strings.Join(all, "\n"), `{"code":-32051,"message":"broken off`) {
					t.Errorf("the peer got %.200q", all)
				}
			})
			checkHalfClosed(t, cfg)
			synctest.Test(t, func(t *testing.T) {
				r := NewResponder(cfg)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				_, _ = r.RespondTo(ctx, []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`), nil, io.Discard)
				if d := time.Since(start); d > 62*time.Second {
					t.Errorf("it ended after %v", d)
				}
				r.Close()
			})
		})
	}
}

// tickingReader gives a blank now and then.
type tickingReader struct{}

func (tickingReader) Read(p []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	return copy(p, " "), nil
}

// TestResultClosed proves that a result that can be closed is, however the request
// ends: else whoever writes to the other end of a pipe would wait for ever, which the
// bubble of the test notices.
func TestResultClosed(t *testing.T) {
	texts := map[string]string{
		"short": `[1]`, "long": `["` + strings.Repeat("x", 10*streamPiece) + `"]`,
		"no JSON": `]` + strings.Repeat("x", 10*streamPiece), "no JSON, long": `["` + strings.Repeat("x", 10*streamPiece) + `"}` + strings.Repeat(" ", 10*streamPiece),
	}
	requests := map[string]string{
		"request":      `{"jsonrpc":"2.0","id":1,"method":"m"}`,
		"inline":       `{"jsonrpc":"2.0","id":1,"method":"inline"}`,
		"batch":        `[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"inline"},{"jsonrpc":"2.0","id":3,"method":"m"}]`,
		"notification": `{"jsonrpc":"2.0","method":"m"}`,
	}
	for size, text := range texts {
		piped := resultOf(func() io.Reader {
			r, w := io.Pipe()
			go func() {
				_, err := io.WriteString(w, text)
				_ = w.CloseWithError(err) // with nil it ends
			}()
			return r
		})
		mux := new(Mux)
		mux.Register("m", piped)
		mux.RegisterInline("inline", piped)
		for name, request := range requests {
			t.Run(size+" "+name, func(t *testing.T) {
				withPeer(t, Config{Handler: mux}, func(t *testing.T, c *Conn, peer *rawPeer) {
					go readAll(peer.s)
					peer.send(request)
					synctest.Wait()
				})
				withPeer(t, Config{Handler: mux, WriteBuffer: 1}, func(t *testing.T, c *Conn, peer *rawPeer) {
					peer.send(request)
					synctest.Wait()
					peer.s.Close() // without reading
				})
				synctest.Test(t, func(t *testing.T) {
					r := NewResponder(Config{Handler: mux})
					_, _ = r.Respond(t.Context(), []byte(request), nil)
					_, _ = r.RespondTo(t.Context(), []byte(request), nil, badWriter{})
					r.Close()
				})
			})
		}
	}
}

// TestResultReaderMiscounts proves that a Reader that says it has read more than it
// was asked for, or panics as it is closed, costs its own request and no other.
func TestResultReaderMiscounts(t *testing.T) {
	long := strings.NewReader(`["` + strings.Repeat("x", streamPiece))
	for name, r := range map[string]io.Reader{
		"first piece": miscounting{}, "later piece": io.MultiReader(long, miscounting{}), "closing": panickyCloser{strings.NewReader("1")},
	} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, Config{Handler: resultOf(func() io.Reader { return r })}, func(t *testing.T, c *Conn, peer *rawPeer) {
				go readAll(peer.s)
				peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
				synctest.Wait()
				if n := c.Stats().Panics; n != 1 || c.State() != StateConnected {
					t.Errorf("%d panics, %v", n, c.State())
				}
			})
		})
	}
}

type miscounting struct{}

func (miscounting) Read(p []byte) (int, error) { return len(p) + 1, nil }

type panickyCloser struct{ io.Reader }

func (panickyCloser) Close() error { panic(errors.New("close")) }

// TestReaderHangsUp proves that an error with io.EOF in it, such as that of a
// connection that a value is read from, is a fault and not the end of the value, which
// may look whole: half of a number is one.
func TestReaderHangsUp(t *testing.T) {
	hungUp := iotest.ErrReader(&ConnError{Conn: "other", Err: io.EOF})
	for name, begin := range map[string]string{"first piece": "12", "later piece": strings.Repeat("1", 2*streamPiece)} {
		t.Run(name, func(t *testing.T) {
			cut := func() io.Reader { return io.MultiReader(strings.NewReader(begin), hungUp) }
			const request, failed = `{"jsonrpc":"2.0","id":1,"method":"m"}`, `"id":1,"error":{"code":-32603`
			r := NewResponder(Config{Handler: resultOf(cut)})
			defer r.Close()
			if got, err := r.Respond(t.Context(), []byte(request), nil); !strings.Contains(string(got), failed) {
				t.Errorf("Respond: %.100s, %v", got, err)
			}
			var all bytes.Buffer
			got, err := r.RespondTo(t.Context(), []byte(request), nil, &all)
			if err == nil && !strings.Contains(string(got), failed) {
				t.Errorf("RespondTo: %.100s, %.100s", got, all.String())
			}
			for _, h := range []Handler{resultOf(cut), inlineAll{resultOf(cut).Handle}} {
				var told notices
				withPeer(t, Config{Handler: h, Hooks: Hooks{Notice: told.add}}, func(t *testing.T, c *Conn, peer *rawPeer) {
					go peer.send(request)
					got := peer.next()
					if !json.Valid([]byte(got)) { // broken off: the error is behind it
						got = peer.next()
					}
					if !strings.Contains(got, failed) || told.text() == "" {
						t.Errorf("%.100s, the hooks %.100s", got, told.text())
					}
				})
			}
		})
	}
	params := strings.Repeat(" ", 2*streamPiece) + `[1]`
	withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
		go readAll(peer.s)
		err := c.Call(t.Context(), "m", io.MultiReader(strings.NewReader(params), hungUp), nil)
		if _, hung := errors.AsType[*ConnError](err); !hung {
			t.Errorf("the call: %v", err)
		}
	})
}

// A stuckReader gives begin, and then nothing until it is closed, or an hour is over.
type stuckReader struct {
	begin  io.Reader
	end    error // what Read says once it is closed
	closed chan struct{}
}

func (r *stuckReader) Read(p []byte) (int, error) {
	if n, _ := r.begin.Read(p); n > 0 {
		return n, nil
	}
	select {
	case <-r.closed:
		return 0, r.end
	case <-time.After(time.Hour):
		return 0, errors.New("nobody has closed the result")
	}
}

func (r *stuckReader) Close() error {
	close(r.closed) // twice is a panic
	return nil
}

// TestResultStuck proves that a result whose Read waits for what never comes is closed
// with its connection, and with whoever waits for a Responder's answer: a handler has
// returned then, and cannot do it. What Read says of that is not taken for the result's
// end, though it looks whole.
func TestResultStuck(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":1,"method":"m"}`
	for name, begin := range map[string]string{"first piece": "12", "later piece": strings.Repeat("1", 2*streamPiece)} {
		for _, end := range []error{io.EOF, io.ErrClosedPipe} {
			stuck := resultOf(func() io.Reader { return &stuckReader{strings.NewReader(begin), end, make(chan struct{})} })
			cfg := Config{Handler: stuck, Grace: time.Second, Hooks: Hooks{Notice: func(n Notice) { t.Error(n) }}}
			for _, form := range []string{request, "[" + request + "]"} {
				t.Run(name+" closed", func(t *testing.T) { checkStuck(t, cfg, form, brokenOffAnswer) })
			}
			inline := cfg
			inline.Handler = inlineAll{stuck.Handle}
			t.Run(name+" inline", func(t *testing.T) { checkStuck(t, inline, request, "") })
			t.Run(name+" half closed", func(t *testing.T) { checkHalfClosed(t, cfg) })
			t.Run(name+" Responder", func(t *testing.T) { checkStuckResponder(t, cfg, request) })
		}
	}
}

// brokenOffAnswer is in what the peer is told of a request that did not end in time.
const brokenOffAnswer = `"id":1,"error":{"code":-32051,"message":"broken off: the connection is closing"`

// checkHalfClosed sends a request and then no more, and wants the peer to be told that
// it was broken off.
func checkHalfClosed(t *testing.T, cfg Config) {
	synctest.Test(t, func(t *testing.T) {
		near, far := bytePipe()
		c := NewConn(NewLineStream(near), cfg)
		far.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n"))
		far.CloseWrite()
		if got, err := io.ReadAll(far); !strings.Contains(string(got), brokenOffAnswer) || err != nil {
			t.Errorf("%.100s, %v", got, err)
		}
		c.Close()
		far.Close()
	})
}

// checkStuck sends a request, closes the connection, and wants that to take no longer
// than it may.
func checkStuck(t *testing.T, cfg Config, request, want string) {
	withPeer(t, cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
		heard := make(chan []string)
		go func() {
			all, _ := readAll(peer.s)
			heard <- all
		}()
		peer.send(request)
		synctest.Wait()
		start := time.Now()
		c.Close()
		if d := time.Since(start); d > cfg.Grace+answerGrace+flushGrace {
			t.Errorf("it took %v", d)
		}
		if all := strings.Join(<-heard, "\n"); !strings.Contains(all, want) {
			t.Errorf("the peer got %.200q", all)
		}
	})
}

func checkStuckResponder(t *testing.T, cfg Config, request string) {
	synctest.Test(t, func(t *testing.T) {
		r := NewResponder(cfg)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, _ = r.RespondTo(ctx, []byte(request), nil, io.Discard)
		if d := time.Since(start); d != time.Minute {
			t.Errorf("it ended after %v", d)
		}
		go func() { _, _ = r.Respond(t.Context(), []byte(request), nil) }()
		synctest.Wait()
		start = time.Now()
		r.Close()
		if d := time.Since(start); d != cfg.Grace {
			t.Errorf("Close took %v", d)
		}
	})
}
