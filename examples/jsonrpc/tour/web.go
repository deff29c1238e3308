package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// web serves the same methods over HTTP and WebSocket, and calls both.
func web(ctx context.Context, out io.Writer) error {
	config := jsonrpc.Config{Handler: methods()}
	posts := rpchttp.Handler(rpchttp.ServerConfig{Config: config})
	defer posts.Close()
	sockets := rpcws.Handler(rpcws.AcceptConfig{}, func(ctx context.Context, s jsonrpc.Stream) {
		conn := jsonrpc.NewConn(s, config)
		defer conn.Close()
		select {
		case <-conn.Done():
		case <-ctx.Done():
		}
	})
	defer sockets.Close()

	mux := http.NewServeMux()
	mux.Handle("/rpc", posts)
	mux.Handle("/ws", sockets)
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()

	overHTTP, err := rpchttp.NewStream("http://"+ln.Addr().String()+"/rpc", rpchttp.ClientConfig{})
	if err != nil {
		return err
	}
	overWS, err := rpcws.Dial(ctx, "ws://"+ln.Addr().String()+"/ws", rpcws.DialConfig{})
	if err != nil {
		return err
	}
	for i, stream := range []jsonrpc.Stream{overHTTP, overWS} {
		conn := jsonrpc.NewConn(stream, jsonrpc.Config{})
		q, err := jsonrpc.Call[Quotient](ctx, conn, "divide", []int{7, 2})
		if err != nil {
			return err
		}
		fmt.Fprintln(out, []string{"HTTP:", "WebSocket:"}[i], q.Quotient, "remainder", q.Remainder)
		if err := conn.Close(); err != nil {
			return err
		}
	}
	return nil
}
