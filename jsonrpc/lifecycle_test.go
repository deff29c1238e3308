package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// states collects what Hooks.StateChange is told.
type states struct {
	mu   sync.Mutex
	list []string
}

func (s *states) add(change StateChange) {
	s.mu.Lock()
	s.list = append(s.list, fmt.Sprintf("%v %v %v", change.From, change.To, change.Cause))
	s.mu.Unlock()
}

func (s *states) check(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.list, want) {
		t.Errorf("states %q, want %q", s.list, want)
	}
}

// TestCloseStates proves that Close fails pending calls at once, refuses what
// comes afterwards, and that every state is told in order (RPC-14, RPC-26).
func TestCloseStates(t *testing.T) {
	var seen states
	withPeer(t, Config{Name: "c", Hooks: Hooks{StateChange: seen.add}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		start := time.Now()
		if c.State() != StateConnected || c.Err() != nil {
			t.Error(c.State(), c.Err())
		}
		failed := make(chan error)
		go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		err := <-failed
		if !errors.Is(err, ErrClosed) || Recoverable(err) || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if want := "jsonrpc: m on c, id 4096, after 0s: connection c closing: connection closed"; err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
		if c.State() != StateDisconnected || !errors.Is(c.Err(), ErrClosed) {
			t.Error(c.State(), c.Err())
		}
		if err := errors.Join(c.Close(), c.Shutdown(t.Context())); err != nil {
			t.Error(err)
		}
	})
	seen.check(t, "connected closing jsonrpc: connection closed", "closing disconnected jsonrpc: connection closed")
}

// TestCloseGrace proves that handlers have their grace to answer when the
// connection closes, that their contexts end after it, that their answer says
// why, and that Close waits for them; requests that come meanwhile are refused.
func TestCloseGrace(t *testing.T) {
	var begun time.Time
	var ended time.Duration
	h := HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
		if req.Method() == "quick" {
			time.Sleep(time.Second)
			return "in time", ctx.Err()
		}
		<-ctx.Done()
		ended = time.Since(begun)
		time.Sleep(time.Second / 2)
		return nil, fmt.Errorf("half done: %w", ctx.Err())
	})
	withPeer(t, Config{Handler: h, Grace: 3 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		begun = time.Now()
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"quick"}`, `{"jsonrpc":"2.0","id":2,"method":"slow"}`)
		synctest.Wait()
		go func() {
			synctest.Wait()
			peer.send(`{"jsonrpc":"2.0","id":3,"method":"quick"}`)
			peer.want(`{"jsonrpc":"2.0","id":3,"error":{"code":-32052,"message":"connection closing"}}`,
				`{"jsonrpc":"2.0","id":1,"result":"in time"}`,
				`{"jsonrpc":"2.0","id":2,"error":{"code":-32051,"message":"broken off: the connection is closing"}}`)
		}()
		c.Close()
		if took := time.Since(begun); ended != 3*time.Second || took != 3500*time.Millisecond {
			t.Errorf("context ended after %v, Close took %v", ended, took)
		}
	})
}

// TestHalfClosed proves that a peer that sends its requests and then no more,
// as in a shell pipe, gets its answers.
func TestHalfClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen states
		near, far := bytePipe()
		c := NewConn(NewLineStream(near), Config{Hooks: Hooks{StateChange: seen.add}, Handler: HandlerFunc(func(context.Context, *Request) (any, error) {
			time.Sleep(time.Second)
			return 1, nil
		})})
		far.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n"))
		far.CloseWrite()
		got, err := io.ReadAll(far)
		if string(got) != `{"jsonrpc":"2.0","id":1,"result":1}`+"\n" || err != nil {
			t.Errorf("%s, %v", got, err)
		}
		<-c.Done()
		seen.check(t, "connected closing EOF", "closing disconnected EOF")
		c.Close()
		far.Close()
	})
}

// TestShutdown proves that Shutdown lets calls and handlers end first.
func TestShutdown(t *testing.T) {
	slow := HandlerFunc(func(context.Context, *Request) (any, error) {
		time.Sleep(time.Second)
		return "done", nil
	})
	withPeer(t, Config{Handler: slow}, func(t *testing.T, c *Conn, peer *rawPeer) {
		var wg sync.WaitGroup
		wg.Go(func() {
			var got string
			if err := c.Call(t.Context(), "m", nil, &got); err != nil || got != "x" {
				t.Error(got, err)
			}
		})
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		peer.next()
		synctest.Wait()
		wg.Go(func() {
			time.Sleep(2 * time.Second)
			peer.want(`{"jsonrpc":"2.0","id":1,"result":"done"}`)
			peer.send(`{"jsonrpc":"2.0","id":4096,"result":"x"}`)
		})
		start := time.Now()
		wg.Go(func() {
			time.Sleep(time.Millisecond)
			if err := c.Call(t.Context(), "m", nil, nil); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < 2*time.Second || took > 2100*time.Millisecond {
			t.Error(took)
		}
		wg.Wait()
	})
	withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
		go c.Call(t.Context(), "m", nil, nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := c.Shutdown(ctx); err != nil || time.Since(start) != time.Second {
			t.Error(err, time.Since(start))
		}
	})
}

// TestPanics proves that a panic is answered with a correlation id that leads
// to its stack, which stays here, and that the connection goes on (RPC-21,
// RPC-23).
func TestPanics(t *testing.T) {
	for _, inline := range []bool{false, true} {
		var h Handler = HandlerFunc(func(_ context.Context, req *Request) (any, error) {
			if req.Method() == "boom" {
				panic(Errorf(7, "secret"))
			}
			return req.Params(), nil
		})
		if inline {
			h = inlineAll{h.(HandlerFunc)}
		}
		var seen notices
		withPeer(t, Config{Handler: h, Hooks: Hooks{Notice: seen.add}}, func(t *testing.T, c *Conn, peer *rawPeer) {
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"boom","correlation_id":"abc"}`)
			peer.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"abc"}}}`)
			p, ok := errors.AsType[*PanicError](seen.list[0].Err)
			if !ok || p.CorrelationID != "abc" || p.Method != "boom" || !strings.Contains(string(p.Stack), "TestPanics") {
				t.Errorf("%+v", seen.list)
			}
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"boom"}`)
			if got := peer.next(); !strings.Contains(got, `"correlation_id":"`+seen.list[1].Err.(*PanicError).CorrelationID+`"`) {
				t.Error(got)
			}
			peer.send(`{"jsonrpc":"2.0","method":"boom"}`, `{"jsonrpc":"2.0","id":2,"method":"m","params":[1]}`)
			peer.want(`{"jsonrpc":"2.0","id":2,"result":[1]}`)
			synctest.Wait()
			if c.Stats().Panics != 3 {
				t.Error(c.Stats())
			}
		})
	}
}

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("while it is encoded") }
func (panicking) Read([]byte) (int, error)     { panic("while it is read") }

// TestPanicsOfResults proves that a panic of what a handler returned is one of
// the handler (RPC-21), and that one of a caller's params is the caller's and
// leaves the connection to others.
func TestPanicsOfResults(t *testing.T) {
	h := func(_ context.Context, req *Request) (any, error) {
		switch req.Method() {
		case "marshal":
			return struct{ X json.Marshaler }{panicking{}}, nil
		case "read":
			return io.Reader(panicking{}), nil
		case "stream":
			return io.MultiReader(strings.NewReader(`["`+strings.Repeat("x", 2*streamPiece)), panicking{}), nil
		}
		return 1, nil
	}
	for name, handler := range map[string]Handler{"pool": HandlerFunc(h), "inline": inlineAll{h}} {
		withPeer(t, Config{Handler: handler}, func(t *testing.T, c *Conn, peer *rawPeer) {
			for i, method := range []string{"marshal", "read", "stream"} {
				peer.send(`{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`, `[{"jsonrpc":"2.0","id":1,"method":"`+method+`"}]`)
				for failed := 0; failed < 2; { // behind the beginning of a line that was cut off
					if strings.Contains(peer.next(), `"id":1,"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"`) {
						failed++
					}
				}
				if n := c.Stats().Panics; n != uint64(2*i+2) {
					t.Errorf("%s, %s: %d panics", name, method, n)
				}
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic of params")
					}
				}()
				params := io.MultiReader(strings.NewReader(`["`+strings.Repeat("x", 2*streamPiece)), panicking{})
				c.Call(t.Context(), "m", params, nil)
			}()
			go func() {
				peer.next() // what was cut off
				peer.answer()
			}()
			if err := c.Call(t.Context(), "m", []int{1}, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGoexit proves that a handler that ends its goroutine harms nobody else.
func TestGoexit(t *testing.T) {
	exit := func(_ context.Context, req *Request) (any, error) {
		if req.Method() == "exit" {
			runtime.Goexit()
		}
		return 1, nil
	}
	withPeer(t, Config{Handler: HandlerFunc(exit)}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for range 3 {
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"exit"}`)
			if got := peer.next(); !strings.Contains(got, `"id":1,"error":{"code":-32603`) {
				t.Error(got)
			}
		}
		peer.send(`[{"jsonrpc":"2.0","id":1,"method":"exit"},{"jsonrpc":"2.0","id":2,"method":"m"}]`)
		if got := peer.next(); !strings.Contains(got, `"id":1,"error":{"code":-32603`) || !strings.Contains(got, `"id":2,"result":1`) {
			t.Error(got)
		}
	})
	withPeer(t, Config{Handler: inlineAll{exit}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"exit"}`)
		<-c.Done() // it took the goroutine that reads with it
		if err := c.Close(); err == nil {
			t.Error("no error")
		}
	})
}

// TestHandlerErrors shows what of a handler's error reaches the peer (RPC-21).
func TestHandlerErrors(t *testing.T) {
	var seen notices
	h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		switch req.Method() {
		case "wire":
			return nil, fmt.Errorf("wrapped: %w", Errorf(42, "for %s", "you").WithData([]int{1}))
		case "cancelled":
			return nil, context.Canceled
		case "unencodable":
			return make(chan int), nil
		case "broken":
			return json.RawMessage(`{"a":`), nil
		case "nil":
			return nil, nil
		case "lines":
			return json.RawMessage("{\n\"a\":\r\n1}"), nil
		case "reader":
			return strings.NewReader(`[1,2]`), nil
		case "bad reader":
			return strings.NewReader(`[1,`), nil
		}
		return nil, errors.New("secret")
	})
	withPeer(t, Config{Handler: h, Hooks: Hooks{Notice: seen.add}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		internal := `"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"c"}}`
		for _, tt := range [][2]string{
			{"wire", `"error":{"code":42,"message":"for you","data":[1]}`},
			{"cancelled", `"error":{"code":-32800,"message":"request cancelled"}`},
			{"unencodable", internal},
			{"broken", internal},
			{"bad reader", internal},
			{"other", internal},
			{"nil", `"result":null`},
			{"lines", `"result":{ "a":  1}`},
			{"reader", `"result":[1,2]`},
		} {
			peer.send(`{"jsonrpc":"2.0","id":1,"correlation_id":"c","method":"` + tt[0] + `"}`)
			peer.want(`{"jsonrpc":"2.0","id":1,` + tt[1] + `}`)
		}
		peer.send(`{"jsonrpc":"2.0","method":"other"}`)
		synctest.Wait()
		if got := seen.text(); got != "unencodable result, unencodable result, unencodable result, handler error, handler error" {
			t.Error(got)
		}
	})
}

// TestRequestContext proves that a handler's context ends when the handler has
// returned, and never comes back to life as another request's.
func TestRequestContext(t *testing.T) {
	var kept []context.Context
	h := inlineAll{func(ctx context.Context, req *Request) (any, error) {
		kept = append(kept, ctx)
		if len(kept)%2 == 0 {
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			kept = append(kept, derived)
			if ctx.Err() != nil || ctx.Done() == nil {
				t.Error(ctx.Err())
			}
		}
		for _, old := range kept[:max(len(kept)-2, 0)] {
			if old != ctx && old.Err() == nil {
				t.Error("a context came back to life")
			}
		}
		meta, _ := MetaFrom(ctx)
		if meta != req.Meta() || meta.TraceParent == "" {
			t.Error(meta)
		}
		return nil, ctx.Err()
	}}
	withPeer(t, Config{Handler: h}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for range 50 {
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"m","traceparent":"00-1-2-01"}`)
			peer.want(`{"jsonrpc":"2.0","id":1,"result":null}`)
		}
		for _, ctx := range kept {
			if <-ctx.Done(); !errors.Is(ctx.Err(), context.Canceled) {
				t.Error(ctx.Err())
			}
		}
	})
}

// TestBusy proves the bound on handlers: a request beyond it is refused while
// the others go on, a notification is counted (RPC-23).
func TestBusy(t *testing.T) {
	var seen notices
	release := make(chan struct{})
	h := HandlerFunc(func(context.Context, *Request) (any, error) {
		<-release
		return "done", nil
	})
	synctest.Test(t, func(t *testing.T) {
		release = make(chan struct{})
		near, far := Pipe()
		c := NewConn(near, Config{Handler: h, MaxHandlers: 2, Hooks: Hooks{Notice: seen.add}})
		peer := &rawPeer{t, far}
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":2,"method":"m"}`,
			`{"jsonrpc":"2.0","id":3,"method":"m"}`, `{"jsonrpc":"2.0","method":"m"}`,
			`[{"jsonrpc":"2.0","id":4,"method":"m"},{"jsonrpc":"2.0","method":"m"}]`)
		busy := `"error":{"code":-32050,"message":"server busy","data":{"limit":2,"unit":"requests"}}}`
		peer.want(`{"jsonrpc":"2.0","id":3,`+busy, `[{"jsonrpc":"2.0","id":4,`+busy+`]`)
		if s := c.Stats(); s.Handling != 2 || s.Busy != 4 {
			t.Errorf("%+v", s)
		}
		close(release)
		for range 2 {
			if got := peer.next(); !strings.Contains(got, `"result":"done"`) {
				t.Error(got)
			}
		}
		peer.send(`{"jsonrpc":"2.0","id":5,"method":"m"}`)
		peer.want(`{"jsonrpc":"2.0","id":5,"result":"done"}`)
		c.Close()
		far.Close()
	})
	if got := seen.text(); got != "busy, busy, busy, busy" {
		t.Error(got)
	}
}

// TestCancelStyles proves that a call given up, by its caller or for its time,
// is told to the peer, and that the peer's telling ends the context of the handler concerned.
func TestCancelStyles(t *testing.T) {
	for style, text := range map[CancelStyle]string{
		LSPCancel: `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%s}}`,
		MCPCancel: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`,
	} {
		h := HandlerFunc(func(ctx context.Context, _ *Request) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		withPeer(t, Config{Cancel: style, Handler: h}, func(t *testing.T, c *Conn, peer *rawPeer) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if err := c.Call(ctx, "m", nil, nil); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			peer.want(`{"jsonrpc":"2.0","id":4096,"method":"m"}`, fmt.Sprintf(text, "4096"))
			if err := c.Call(t.Context(), "m", nil, nil); !errors.Is(err, ErrTimeout) { // Config.Timeout
				t.Error(err)
			}
			peer.want(`{"jsonrpc":"2.0","id":8192,"method":"m"}`, fmt.Sprintf(text, "8192"))
			peer.send(`{"jsonrpc":"2.0","id":"a","method":"m"}`, fmt.Sprintf(text, `"b"`))
			peer.send(text[:strings.Index(text, `,"params"`)]+"}", fmt.Sprintf(text, `["a"]`)) // which name none
			peer.send(`[` + fmt.Sprintf(text, `"a"`) + `]`)
			peer.want(`{"jsonrpc":"2.0","id":"a","error":{"code":-32800,"message":"request cancelled"}}`)
			if s := c.Stats(); s.Requests != 1 {
				t.Errorf("a cancellation was handled as a request: %+v", s)
			}
		})
	}
}

// TestCancelTwins proves that of two requests with the same id, which is the peer's
// mistake, the end of the second does not keep the first from being cancelled,
// whether it was answered, refused, or refused in a batch or with streamed params.
func TestCancelTwins(t *testing.T) {
	for name, c := range map[string]struct {
		handlers int
		second   string
		answer   string
	}{
		"answered":         {2, `{"jsonrpc":"2.0","id":7,"method":"quick"}`, `"result":null`},
		"refused":          {1, `{"jsonrpc":"2.0","id":7,"method":"quick"}`, `"code":-32050`},
		"refused in batch": {1, `[{"jsonrpc":"2.0","id":7,"method":"quick"}]`, `"code":-32050`},
		"refused stream":   {1, uploadHead + strings.Repeat("x", uploadSize) + `"]}`, `"code":-32050`},
	} {
		t.Run(name, func(t *testing.T) {
			h := uploads{func(ctx context.Context, req *Request) (any, error) {
				if req.Method() == "slow" {
					<-ctx.Done()
				}
				return nil, ctx.Err()
			}}
			withPeer(t, Config{Cancel: LSPCancel, Handler: h, MaxHandlers: c.handlers, Grace: -1}, func(t *testing.T, _ *Conn, peer *rawPeer) {
				peer.send(`{"jsonrpc":"2.0","id":7,"method":"slow"}`)
				synctest.Wait()
				go peer.send(c.second)
				if got := peer.next(); !strings.Contains(got, c.answer) {
					t.Errorf("the second: %s", got)
				}
				start := time.Now()
				peer.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":7}}`)
				time.AfterFunc(time.Minute, func() { peer.s.Close() })
				if got := peer.next(); !strings.Contains(got, `"code":-32800`) || time.Since(start) != 0 {
					t.Errorf("the first, after %v: %s", time.Since(start), got)
				}
			})
		})
	}
}
