package rpchttp_test

import (
	"context"
	"fmt"
	"net/http"
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

// What stands before a Server, in the manner of net/http, finds out who calls, and
// tells it to the handlers by the context.
func ExampleServer() {
	type caller struct{}
	whoever := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, password, _ := r.BasicAuth()
			if password != "secret" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), caller{}, name)))
		})
	}
	noted := make(chan any, 1)
	var mux jsonrpc.Mux
	mux.Register("whoami", jsonrpc.HandlerFunc(func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
		return ctx.Value(caller{}), nil
	}))
	mux.Register("note", jsonrpc.HandlerFunc(func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
		noted <- ctx.Value(caller{})
		return nil, nil
	}))
	h := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: &mux}})
	defer h.Close()
	srv := httptest.NewServer(whoever(h))
	defer srv.Close()

	st, err := rpchttp.NewStream("http://ada:secret@"+srv.Listener.Addr().String(), rpchttp.ClientConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	conn := jsonrpc.NewConn(st, jsonrpc.Config{})
	defer conn.Close()
	fmt.Println(jsonrpc.Call[string](context.Background(), conn, "whoami", nil))
	var b jsonrpc.Batch
	var name string
	b.Call("whoami", nil, &name)
	b.Notify("note", nil)
	err = conn.Batch(context.Background(), &b)
	fmt.Println(name, <-noted, err)
	err = conn.Notify(context.Background(), "note", nil)
	fmt.Println(<-noted, err)
	// Output:
	// ada <nil>
	// ada ada <nil>
	// ada <nil>
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
