package rpchttp_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

func Example() {
	var mux jsonrpc.Mux
	mux.Register("greet", jsonrpc.Typed(func(_ context.Context, names []string) (string, error) {
		return "Hello, " + names[0], nil
	}))
	h := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: &mux}})
	defer h.Close()
	srv := httptest.NewServer(h)
	defer srv.Close()

	st, err := rpchttp.NewStream(srv.URL, rpchttp.ClientConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	conn := jsonrpc.NewConn(st, jsonrpc.Config{})
	defer conn.Close()
	fmt.Println(jsonrpc.Call[string](context.Background(), conn, "greet", []string{"Ada"}))
	// Output: Hello, Ada <nil>
}

// A handler calls the client back in its session.
func ExampleSessionFrom() {
	var mux jsonrpc.Mux
	mux.Register("greet", jsonrpc.HandlerFunc(func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
		ses, ok := rpchttp.SessionFrom(ctx)
		if !ok {
			return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "this method needs a session: open one with GET")
		}
		name, err := jsonrpc.Call[string](ctx, ses.Conn(), "name", nil)
		return "Hello, " + name, err
	}))
	h := rpchttp.Handler(rpchttp.ServerConfig{
		Config:   jsonrpc.Config{Handler: &mux},
		Sessions: &rpchttp.SessionConfig{},
	})
	defer h.Close()
	srv := httptest.NewServer(h)
	defer srv.Close()

	st, err := rpchttp.NewStream(srv.URL, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce})
	if err != nil {
		fmt.Println(err)
		return
	}
	conn := jsonrpc.NewConn(st, jsonrpc.Config{
		Handler: jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) { return "Ada", nil }),
	})
	defer conn.Close()
	fmt.Println(jsonrpc.Call[string](context.Background(), conn, "greet", nil))
	// Output: Hello, Ada <nil>
}
