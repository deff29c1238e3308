package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func answerText(h Handler, text string) string {
	return string(Answer(h, Config{MaxMessage: 1 << 20, MaxDepth: 128, MaxBatch: 100}, []byte(text)))
}

func named(name string) Handler {
	return HandlerFunc(func(context.Context, *Request) (any, error) { return name, nil })
}

// TestMux finds handlers by their method, and names the method that is not
// there (RPC-6).
func TestMux(t *testing.T) {
	var mux Mux
	want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: a"}}`
	if got := answerText(&mux, `{"jsonrpc":"2.0","id":1,"method":"a"}`); got != want || mux.Methods() != nil || mux.Inline([]byte("a")) {
		t.Errorf("zero Mux: %s", got)
	}
	mux.Register("a", named("A"))
	mux.RegisterInline("b", named("B"))
	mux.Register("", named("empty"))
	for method, want := range map[string]string{
		"a": `"result":"A"`, "b": `"result":"B"`, "": `"result":"empty"`, `\u0061`: `"result":"A"`,
		"A": `"method not found: A"`, "rpc.discover": `"method not found: rpc.discover"`,
		strings.Repeat("é", 1000): `"method not found: ` + strings.Repeat("é", 50) + `…"`,
	} {
		if got := answerText(&mux, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`); !strings.Contains(got, want) {
			t.Errorf("%.20s: %s", method, got)
		}
	}
	if diff := cmp.Diff([]string{"", "a", "b"}, mux.Methods()); diff != "" {
		t.Error(diff)
	}
	if mux.Inline([]byte("a")) || !mux.Inline([]byte("b")) || mux.Inline([]byte("c")) {
		t.Error("Inline is not as registered")
	}
}

// TestMuxPanics refuses mistakes of the program at registration.
func TestMuxPanics(t *testing.T) {
	var mux Mux
	mux.Register("a", named("A"))
	for name, f := range map[string]func(){
		"twice":    func() { mux.Register("a", named("B")) },
		"inline":   func() { mux.RegisterInline("a", named("B")) },
		"reserved": func() { mux.Register("rpc.x", named("B")) },
		"nil":      func() { mux.Register("n", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	if diff := cmp.Diff([]string{"a"}, mux.Methods()); diff != "" {
		t.Error(diff)
	}
	mux.Register("b", named("B")) // the lock is free again
}

// TestMuxMiddleware wraps every handler, whenever it was registered, and the
// answer to unknown methods, the first one outermost.
func TestMuxMiddleware(t *testing.T) {
	var mux Mux
	var trace []string
	mark := func(name string) Middleware {
		return func(next Handler) Handler {
			return HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
				trace = append(trace, name+":"+req.Method())
				return next.Handle(ctx, req)
			})
		}
	}
	mux.Register("before", named("B"))
	mux.Use(mark("1"), mark("2"))
	mux.Register("after", named("A"))
	mux.Use(mark("3"))
	for _, method := range []string{"before", "after", "none"} {
		trace = nil
		answerText(&mux, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`)
		if diff := cmp.Diff([]string{"1:" + method, "2:" + method, "3:" + method}, trace); diff != "" {
			t.Errorf("%s:\n%s", method, diff)
		}
	}
}

// TestMuxMiddlewareOnce proves that middleware is called once per method, so that
// what it keeps for one is not lost when others are registered.
func TestMuxMiddlewareOnce(t *testing.T) {
	var mux Mux
	wrapped := 0
	mux.Use(func(next Handler) Handler {
		wrapped++
		calls := 0
		return HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
			if calls++; calls > 1 {
				return nil, Errorf(1, "once only")
			}
			return next.Handle(ctx, req)
		})
	})
	for i, want := range []string{`"result":"x"`, `"once only"`, `"once only"`} {
		mux.Register(fmt.Sprintf("m%d", i), named("x"))
		if got := answerText(&mux, `{"jsonrpc":"2.0","id":1,"method":"m0"}`); !strings.Contains(got, want) {
			t.Errorf("with %d methods: %s", i+1, got)
		}
	}
	if wrapped != 4 { // the answer to unknown methods is one of them
		t.Errorf("called %d times for 3 methods", wrapped)
	}
}

// TestMuxConcurrent registers while requests are handled.
func TestMuxConcurrent(t *testing.T) {
	var mux Mux
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				mux.Register(fmt.Sprintf("m%d.%d", w, i), named("x"))
			}
		})
		wg.Go(func() {
			for range 200 {
				answerText(&mux, `{"jsonrpc":"2.0","id":1,"method":"m0.0"}`)
				mux.Inline([]byte("m1.1"))
			}
		})
	}
	wg.Wait()
	if n := len(mux.Methods()); n != 200 {
		t.Errorf("%d methods", n)
	}
}

// TestTyped decodes params by name and by position, and says which member is
// wrong (RPC-20).
func TestTyped(t *testing.T) {
	type point struct {
		X int     `json:"x"`
		Y *int    `json:"y"`
		L []point `json:"l"`
	}
	show := func(v any) string { text, _ := json.Marshal(v); return string(text) }
	var mux Mux
	mux.Register("point", Typed(func(_ context.Context, p point) (string, error) { return show(p), nil }))
	mux.Register("pointer", Typed(func(_ context.Context, p *point) (string, error) { return show(p), nil }))
	mux.Register("list", Typed(func(_ context.Context, p []int) (string, error) { return show(p), nil }))
	mux.Register("any", Typed(func(_ context.Context, p any) (string, error) { return show(p), nil }))
	mux.Register("raw", Typed(func(_ context.Context, p json.RawMessage) (string, error) { return string(p), nil }))
	mux.Register("time", Typed(func(_ context.Context, _ []time.Time) (any, error) { return nil, nil }))
	mux.Register("none", Typed(func(_ context.Context, _ struct{}) (any, error) { return nil, nil }))
	mux.Register("fail", Typed(func(context.Context, any) (any, error) { return 5, errors.New("secret") }))
	invalid := func(message, data string) string {
		return `"error":{"code":-32602,"message":"invalid params: ` + message + `","data":` + data + `}`
	}
	for call, want := range map[string]string{
		`time|["` + strings.Repeat("x", 5000) + `"]`: `…"}}`,
		`point|{"x":1,"y":2}`:                        `{\"x\":1,\"y\":2,\"l\":null}`,
		`point|[1,2]`:                                `{\"x\":1,\"y\":2,\"l\":null}`,
		`point|[ 1 , null ]`:                         `{\"x\":1,\"y\":null,\"l\":null}`,
		`point|[1,2,[{"x":3}]]`:                      `{\"x\":1,\"y\":2,\"l\":[{\"x\":3,`,
		`point|[]`:                                   `{\"x\":0,`,
		`point|`:                                     `{\"x\":0,`,
		`pointer|[1]`:                                `{\"x\":1,`,
		`pointer|`:                                   `"result":"null"`,
		`list|[1,2]`:                                 `"result":"[1,2]"`,
		`any|[1,9007199254740993]`:                   `"result":"[1,9007199254740993]"`,
		`raw|{"a" : 1}`:                              `"result":"{\"a\" : 1}"`,
		`none|{"more":1}`:                            `"result":null`,
		`fail|[]`:                                    `"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"c-1"}}`,
		`point|{"x":"1"}`:                            invalid("the member x must be an integer of at most 64 bits", `{"member":"x","expected":"an integer of at most 64 bits"}`),
		`point|["1"]`:                                invalid("the member x must be an integer of at most 64 bits", `{"member":"x","expected":"an integer of at most 64 bits"}`),
		`point|{"X":1}`:                              invalid("the member X must be spelled x", `{"member":"X","expected":"spelled x"}`),
		`point|{"x":1,"x":1}`:                        invalid("the member x must be there only once", `{"member":"x","expected":"there only once"}`),
		`point|{"l":[{},{"y":false}]}`:               invalid("the member l[1].y must be an integer of at most 64 bits", `{"member":"l[1].y","expected":"an integer of at most 64 bits"}`),
		`point|[1,2,[],4]`:                           invalid("the member [3] must be absent, there are 3 params at most", `{"member":"[3]","expected":"absent, there are 3 params at most"}`),
		`none|[1]`:                                   invalid("the member [0] must be absent, there are 0 params at most", `{"member":"[0]","expected":"absent, there are 0 params at most"}`),
		`list|{"a":1}`:                               invalid("the value must be an array", `{"expected":"an array"}`),
		`point|{"` + strings.Repeat("m", 200) + `":1,"` + strings.Repeat("m", 200) + `":1}`: strings.Repeat("m", 100) + `…","expected":"there only once"}`,
		`list|[1,"x"]`: invalid("the member [1] must be an integer of at most 64 bits", `{"member":"[1]","expected":"an integer of at most 64 bits"}`),
	} {
		method, params, _ := strings.Cut(call, "|")
		if params != "" {
			params = `,"params":` + params
		}
		if got := answerText(&mux, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"`+params+`}`); !strings.Contains(got, want) {
			t.Errorf("%s:\n got %s\nwant %s", call, got, want)
		}
	}
}

type callerFunc func(params, result any) error

func (f callerFunc) Call(_ context.Context, _ string, params, result any, _ ...CallOption) error {
	return f(params, result)
}

// TestCall returns typed results, and nothing beside an error.
func TestCall(t *testing.T) {
	n, err := Call[int](t.Context(), callerFunc(func(params, result any) error {
		*result.(*int) = params.(int) + 1
		return nil
	}), "m", 4)
	if n != 5 || err != nil {
		t.Error(n, err)
	}
	failed := errors.New("failed")
	n, err = Call[int](t.Context(), callerFunc(func(_, result any) error {
		reflect.ValueOf(result).Elem().SetInt(7)
		return failed
	}), "m", nil)
	if n != 0 || !errors.Is(err, failed) {
		t.Error(n, err)
	}
}
