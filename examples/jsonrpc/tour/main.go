// Command tour shows the JSON-RPC 2.0 library in five minutes. Each part is a
// file of its own, and the page docs/jsonrpc.md tells about it:
//
//	go run ./examples/jsonrpc/tour server tcp://127.0.0.1:7000
//	go run ./examples/jsonrpc/tour client tcp://127.0.0.1:7000
//	go run ./examples/jsonrpc/tour both
//	go run ./examples/jsonrpc/tour web
//	go run ./examples/jsonrpc/tour process COMMAND ARGS
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("name a part of the tour: server, client, both, web or process")
	}
	part, rest := args[0], args[1:]
	switch {
	case part == "server" && len(rest) == 1:
		return serve(ctx, out, rest[0])
	case part == "client" && len(rest) == 1:
		return client(ctx, out, rest[0])
	case part == "both" && len(rest) == 0:
		return both(ctx, out)
	case part == "web" && len(rest) == 0:
		return web(ctx, out)
	case part == "process" && len(rest) > 0:
		return process(ctx, out, rest)
	}
	return fmt.Errorf("no such part of the tour: %q", args)
}
