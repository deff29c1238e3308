package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// longResult is a result that is read in several pieces.
var longResult = `"` + strings.Repeat("x", 3*streamPiece) + `"`

// withResponder runs f in a bubble with a Responder that allows two handlers and
// a kilobyte, and a function that gives it a message.
func withResponder(t *testing.T, f func(t *testing.T, r *Responder, respond func(ctx context.Context, msg string) string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
			switch req.Method() {
			case "wait":
				<-ctx.Done()
				return nil, context.Cause(ctx)
			case "read":
				return req.ParamsReader(), nil
			case "long":
				return strings.NewReader(longResult), nil
			}
			if req.Conn() != nil {
				t.Error("a Responder has no Conn")
			}
			return echo(ctx, req)
		})
		r := NewResponder(Config{Handler: h, MaxHandlers: 2, MaxMessage: 1000})
		respond := func(ctx context.Context, msg string) string {
			got, err := r.Respond(ctx, []byte(msg), []byte("> "))
			if err != nil {
				t.Error(err)
			}
			return string(got)
		}
		f(t, r, respond)
		r.Close()
	})
}

// TestResponder shows what a Responder answers.
func TestResponder(t *testing.T) {
	withResponder(t, func(t *testing.T, r *Responder, respond func(context.Context, string) string) {
		for _, tt := range [][2]string{
			{`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`, `{"jsonrpc":"2.0","id":1,"result":[1]}`},
			{`{"jsonrpc":"2.0","id":1,"method":"read","params":[1]}`, `{"jsonrpc":"2.0","id":1,"result":[1]}`},
			{`{"jsonrpc":"2.0","id":1,"method":"long"}`, `{"jsonrpc":"2.0","id":1,"result":` + longResult + `}`},
			{`[{"jsonrpc":"2.0","id":1,"method":"long"}]`, `[{"jsonrpc":"2.0","id":1,"result":` + longResult + `}]`},
			{`{"jsonrpc":"2.0","method":"m"}`, ``},
			{`{"jsonrpc":"2.0","id":1,"result":1}`, ``},
			{`[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","method":"m"}]`, ``},
			{`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`, `[{"jsonrpc":"2.0","id":1,"result":null},{"jsonrpc":"2.0","id":2,"result":null}]`},
			{`{"a":"` + strings.Repeat("x", 1000) + `"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request: the message is too long","data":{"limit":1000,"unit":"bytes"}}}`},
		} {
			if got := respond(t.Context(), tt[0]); got != "> "+tt[1] {
				t.Errorf("%s\nis answered %s\nwant          %s", tt[0], got, tt[1])
			}
		}
		synctest.Wait() // a goroutine of the pool may still have to say that it is done
		if s := r.Stats(); s.Oversize != 1 || s.Unknown != 2 || s.Handling != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestResponderBounds proves that the contexts of its handlers end with the
// caller's and with Close, and that there is a bound on their number.
func TestResponderBounds(t *testing.T) {
	withResponder(t, func(t *testing.T, r *Responder, respond func(context.Context, string) string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if got := respond(ctx, `[{"jsonrpc":"2.0","id":1,"method":"wait"}]`); !strings.Contains(got, "-32051") || time.Since(start) != time.Second {
			t.Error(got, time.Since(start))
		}
		synctest.Wait() // until its handler has ended too
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if got := respond(context.Background(), `{"jsonrpc":"2.0","id":1,"method":"wait"}`); !strings.Contains(got, "-32051") {
					t.Error(got)
				}
			})
		}
		synctest.Wait()
		if got := respond(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"m"}`); !strings.Contains(got, "-32050") {
			t.Error(got)
		}
		if got := respond(t.Context(), `{"jsonrpc":"2.0","method":"m"}`); got != "> " {
			t.Errorf("a notification is answered %s", got)
		}
		if got := respond(t.Context(), `[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","method":"m"}]`); !strings.Contains(got, "-32050") {
			t.Error(got)
		}
		start = time.Now()
		r.Close()
		if took := time.Since(start); took != 5*time.Second {
			t.Error(took)
		}
		wg.Wait()
		if _, err := r.Respond(t.Context(), []byte(`{}`), nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if s := r.Stats(); s.Busy != 4 || s.Handling != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestResponderNotices proves that a Responder tells what it refuses and drops, and
// counts it, in batches too.
func TestResponderNotices(t *testing.T) {
	failing := HandlerFunc(func(context.Context, *Request) (any, error) { return nil, errors.New("secret") })
	for msg, want := range map[string]string{
		`{`:                              "malformed",
		`{"jsonrpc":"2.0","id":1}`:       "invalid",
		`[{"jsonrpc":"2.0","id":1},2]`:   "invalid, invalid",
		`[]`:                             "invalid",
		`{"jsonrpc":"2.0","method":"m"}`: "handler error",
		`[{"jsonrpc":"2.0","method":"m"},{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}]`: "unknown response, handler error",
		`{"jsonrpc":"2.0","id":1,"result":1}`:                                                        "unknown response",
	} {
		var seen notices
		r := NewResponder(Config{Name: "r", Handler: failing, Hooks: Hooks{Notice: seen.add}})
		if _, err := r.Respond(t.Context(), []byte(msg), nil); err != nil {
			t.Error(err)
		}
		r.Close()
		s := r.Stats()
		if got := seen.text(); got != want || s.Malformed != uint64(strings.Count(want, "malformed")) || s.Invalid != uint64(strings.Count(want, "invalid")) {
			t.Errorf("%s: %s, %+v, want %s", msg, got, s, want)
		}
	}
}

// TestResponderWaits proves that Close waits until everybody has an answer, and
// that Stats knows how many handlers run until then.
func TestResponderWaits(t *testing.T) {
	slow := HandlerFunc(func(ctx context.Context, _ *Request) (any, error) {
		<-ctx.Done()
		time.Sleep(time.Second)
		return 1, nil
	})
	for _, msg := range []string{`{"jsonrpc":"2.0","id":1,"method":"m"}`, `[{"jsonrpc":"2.0","id":1,"method":"m"}]`} {
		synctest.Test(t, func(t *testing.T) {
			r := NewResponder(Config{Handler: slow})
			answered := make(chan string, 1)
			go func() {
				got, _ := r.Respond(context.Background(), []byte(msg), nil)
				answered <- string(got)
			}()
			synctest.Wait()
			if s := r.Stats(); s.Handling != 1 || s.Requests != 1 {
				t.Errorf("%+v", s)
			}
			start := time.Now()
			r.Close()
			if took := time.Since(start); took != 6*time.Second { // the grace and the handler's rest
				t.Errorf("%s: Close took %v", msg, took)
			}
			if got := <-answered; !strings.Contains(got, `"result":1`) {
				t.Error(got)
			}
			if s := r.Stats(); s.Handling != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestResponderInline proves that what a handler promises to do at once is done on
// the caller's goroutine, in batches too: in order, and with all places taken.
func TestResponderInline(t *testing.T) {
	var mux Mux
	var order []string
	mux.RegisterInline("note", HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		order = append(order, string(req.Params())) // without a lock
		return nil, nil
	}))
	release := make(chan struct{})
	mux.Register("wait", HandlerFunc(func(context.Context, *Request) (any, error) {
		<-release
		return nil, nil
	}))
	synctest.Test(t, func(t *testing.T) {
		release = make(chan struct{})
		r := NewResponder(Config{Handler: &mux, MaxHandlers: 1})
		go r.Respond(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"wait"}`), nil)
		synctest.Wait()
		var msg strings.Builder
		for i := range 10 {
			msg.WriteString(`,{"jsonrpc":"2.0","id":1,"method":"note","params":[` + string(rune('0'+i)) + `]}`)
		}
		got, err := r.Respond(t.Context(), []byte("["+msg.String()[1:]+"]"), nil)
		if strings.Count(string(got), `"result":null`) != 10 || err != nil {
			t.Errorf("%s, %v", got, err)
		}
		if got := strings.Join(order, ""); got != "[0][1][2][3][4][5][6][7][8][9]" {
			t.Error(got)
		}
		close(release)
		r.Close()
	})
}

// TestResponderForgets proves that nothing of a request is kept once it was
// answered, however it was handled.
func TestResponderForgets(t *testing.T) {
	var contexts []weak.Pointer[requestContext]
	var mux Mux
	h := HandlerFunc(func(ctx context.Context, _ *Request) (any, error) {
		contexts = append(contexts, weak.Make(ctx.(*requestContext)))
		return 1, nil
	})
	mux.Register("m", h)
	mux.RegisterInline("inline", h)
	r := NewResponder(Config{Handler: &mux})
	defer r.Close()
	for _, msg := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","method":"inline"}`,
		`[{"jsonrpc":"2.0","id":1,"method":"m"}]`, `[{"jsonrpc":"2.0","id":1,"method":"inline"}]`,
	} {
		if _, err := r.Respond(t.Context(), []byte(msg), nil); err != nil {
			t.Error(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; runtime.GC() {
		kept := 0
		for _, p := range contexts {
			if p.Value() != nil {
				kept++
			}
		}
		if kept == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the contexts of %d of %d requests are kept", kept, len(contexts))
		}
	}
}

// TestHooks shows what hooks are told of calls and requests (RPC-21).
func TestHooks(t *testing.T) {
	var mu sync.Mutex
	var calls []CallInfo
	var requests []RequestInfo
	synctest.Test(t, func(t *testing.T) {
		near, far := Pair(
			Config{Name: "near", SendMeta: true, Hooks: Hooks{CallDone: func(i CallInfo) { mu.Lock(); calls = append(calls, i); mu.Unlock() }}},
			Config{Name: "far", Handler: HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
				time.Sleep(time.Second)
				return json.RawMessage(`1`), errIf(req.Method() == "bad")
			}), Hooks: Hooks{RequestDone: func(i RequestInfo) { mu.Lock(); requests = append(requests, i); mu.Unlock() }}},
		)
		ctx := WithMeta(t.Context(), Meta{CorrelationID: "abc", TraceParent: "p", TraceState: "s"})
		if err := near.Call(ctx, "good", nil, nil); err != nil {
			t.Error(err)
		}
		err := near.Call(ctx, "bad", nil, nil)
		if call, ok := errors.AsType[*CallError](err); !ok || call.CorrelationID != "abc" || call.Elapsed != time.Second || call.Conn != "near" {
			t.Errorf("%#v", err)
		}
		near.Notify(ctx, "note", nil)
		synctest.Wait() // a connection that is being closed takes no notification
		near.Close()
		far.Close()
	})
	if len(calls) != 2 || calls[0].Err != nil || calls[0].Elapsed != time.Second || calls[1].Err == nil || calls[1].Method != "bad" {
		t.Errorf("%+v", calls)
	}
	if len(requests) != 3 || requests[0].Meta != (Meta{"abc", "p", "s"}) || requests[1].Err == nil || !requests[2].Notification || requests[2].Elapsed != time.Second {
		t.Errorf("%+v", requests)
	}
}

func errIf(is bool) error {
	if is {
		return errors.New("secret")
	}
	return nil
}

// TestResponderGoexit proves that a handler that ends its goroutine harms
// neither the batch it is called for nor the process.
func TestResponderGoexit(t *testing.T) {
	handler := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		if req.Method() == "exit" {
			runtime.Goexit()
		}
		return 1, nil
	})
	synctest.Test(t, func(t *testing.T) {
		r := NewResponder(Config{MaxHandlers: 2, Handler: handler})
		for _, msg := range []string{
			`[{"jsonrpc":"2.0","id":1,"method":"exit"}]`,
			`[{"jsonrpc":"2.0","method":"exit"}]`,
			`[{"jsonrpc":"2.0","id":1,"method":"exit"},{"jsonrpc":"2.0","id":2,"method":"exit"},{"jsonrpc":"2.0","id":3,"method":"m"}]`,
		} {
			got, err := r.Respond(t.Context(), []byte(msg), nil)
			want := strings.Count(msg, `"id"`)
			if err != nil || strings.Count(string(got), `"id"`) != want || strings.Count(string(got), "-32603") != strings.Count(msg, "exit")*min(want, 1) {
				t.Errorf("%s: %s, %v", msg, got, err)
			}
			synctest.Wait()
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		// With no other goroutine to be had, what waited behind it is answered, too.
		alone := NewResponder(Config{MaxHandlers: 1, Handler: handler})
		got, err := alone.Respond(t.Context(), []byte(`[{"jsonrpc":"2.0","id":1,"method":"exit"},{"jsonrpc":"2.0","id":2,"method":"m"}]`), nil)
		if err != nil || strings.Count(string(got), `"id"`) != 2 {
			t.Errorf("%s, %v", got, err)
		}
		synctest.Wait()
		if err := alone.Close(); err != nil {
			t.Error(err)
		}
	})
}
