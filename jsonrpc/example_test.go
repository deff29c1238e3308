package jsonrpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-project/parley/jsonrpc"
)

// A server with one method, and a client that calls it, joined in memory. Over
// a network only the Stream differs.
func Example() {
	var mux jsonrpc.Mux
	mux.Register("subtract", jsonrpc.Typed(func(_ context.Context, p struct {
		Minuend    int `json:"minuend"`
		Subtrahend int `json:"subtrahend"`
	},
	) (int, error) {
		return p.Minuend - p.Subtrahend, nil
	}))
	client, server := jsonrpc.Pair(jsonrpc.Config{}, jsonrpc.Config{Handler: &mux})
	defer server.Close()
	defer client.Close()

	n, err := jsonrpc.Call[int](context.Background(), client, "subtract", []int{42, 23})
	fmt.Println(n, err)
	n, err = jsonrpc.Call[int](context.Background(), client, "subtract", map[string]int{"minuend": 23, "subtrahend": 42})
	fmt.Println(n, err)
	// Output:
	// 19 <nil>
	// -19 <nil>
}

// A handler calls its caller back, over the same connection.
func Example_bothDirections() {
	var mux jsonrpc.Mux
	mux.Register("greet", jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
		name, err := jsonrpc.Call[string](ctx, req.Conn(), "name", nil)
		return "hello, " + name, err
	}))
	var own jsonrpc.Mux
	own.Register("name", jsonrpc.Typed(func(context.Context, any) (string, error) { return "Ada", nil }))

	client, server := jsonrpc.Pair(jsonrpc.Config{Handler: &own}, jsonrpc.Config{Handler: &mux})
	defer server.Close()
	defer client.Close()
	greeting, err := jsonrpc.Call[string](context.Background(), client, "greet", nil)
	fmt.Println(greeting, err)
	// Output: hello, Ada <nil>
}

// Several calls in one message.
func ExampleBatch() {
	var mux jsonrpc.Mux
	mux.Register("sum", jsonrpc.Typed(func(_ context.Context, numbers []int) (int, error) {
		total := 0
		for _, n := range numbers {
			total += n
		}
		return total, nil
	}))
	client, server := jsonrpc.Pair(jsonrpc.Config{}, jsonrpc.Config{Handler: &mux})
	defer server.Close()
	defer client.Close()

	var batch jsonrpc.Batch
	var small, large int
	batch.Call("sum", []int{1, 2}, &small)
	batch.Call("sum", []int{100, 200}, &large)
	unknown := batch.Call("product", []int{2, 3}, nil)
	err := client.Batch(context.Background(), &batch)
	fmt.Println(err, small, large, errors.Is(unknown.Err(), &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}))
	// Output: <nil> 3 300 true
}

// What a caller can learn from an error, and do about it.
func ExampleAdviceFor() {
	var mux jsonrpc.Mux
	mux.Register("stock", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
		return nil, jsonrpc.Errorf(7, "sold out").WithData(map[string]int{"left": 0})
	}))
	client, server := jsonrpc.Pair(jsonrpc.Config{}, jsonrpc.Config{Handler: &mux})
	defer server.Close()
	ctx := context.Background()

	err := client.Call(ctx, "stock", nil, nil)
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		fmt.Println(int(e.Code), e.Message, string(e.Data), jsonrpc.AdviceFor(err))
	}
	err = client.Call(ctx, "stocks", nil, nil)
	fmt.Println(jsonrpc.AdviceFor(err), jsonrpc.Recoverable(err))
	client.Close()
	err = client.Call(ctx, "stock", nil, nil)
	fmt.Println(errors.Is(err, jsonrpc.ErrClosed))
	// Output:
	// 7 sold out {"left":0} none
	// give up false
	// true
}

// Middleware sees every request, unknown methods included.
func ExampleMux_Use() {
	var mux jsonrpc.Mux
	mux.Use(func(next jsonrpc.Handler) jsonrpc.Handler {
		return jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
			result, err := next.Handle(ctx, req)
			fmt.Println(req.Method(), err)
			return result, err
		})
	})
	mux.Register("hello", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) { return "hi", nil }))
	client, server := jsonrpc.Pair(jsonrpc.Config{}, jsonrpc.Config{Handler: &mux})
	defer server.Close()
	defer client.Close()
	client.Call(context.Background(), "hello", nil, nil)
	client.Call(context.Background(), "bye", nil, nil)
	// Output:
	// hello <nil>
	// bye method not found: bye (-32601)
}

// upperCodec is StrictCodec, except that strings go out in capitals.
type upperCodec struct{ jsonrpc.Codec }

func (c upperCodec) Append(dst []byte, v any) ([]byte, error) {
	if s, ok := v.(string); ok {
		v = strings.ToUpper(s)
	}
	return c.Codec.Append(dst, v)
}

// A Codec of one's own, around another one.
func ExampleCodec() {
	var mux jsonrpc.Mux
	mux.Register("hello", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) { return "hi", nil }))
	client, server := jsonrpc.Pair(jsonrpc.Config{}, jsonrpc.Config{
		Handler: &mux,
		Codec:   upperCodec{jsonrpc.StrictCodec()},
	})
	defer server.Close()
	defer client.Close()
	text, err := jsonrpc.Call[json.RawMessage](context.Background(), client, "hello", nil)
	fmt.Println(string(text), err)
	// Output: "HI" <nil>
}

// A Responder answers messages that came by any way, without a connection.
func ExampleResponder() {
	r := jsonrpc.NewResponder(jsonrpc.Config{})
	defer r.Close()
	answer, err := r.Respond(context.Background(), []byte(`{"jsonrpc":"2.0","method":"foobar","id":"1"}`), nil)
	fmt.Println(string(answer), err)
	// Output: {"jsonrpc":"2.0","id":"1","error":{"code":-32601,"message":"method not found: foobar"}} <nil>
}
