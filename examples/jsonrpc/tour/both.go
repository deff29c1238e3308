package main

import (
	"context"
	"fmt"
	"io"

	"github.com/parley-project/parley/jsonrpc"
)

// both joins two peers in memory. The worker calls its client back while it
// works.
func both(ctx context.Context, out io.Writer) error {
	work := new(jsonrpc.Mux)
	work.Register("paint", jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
		colour, err := jsonrpc.Call[string](ctx, req.Conn(), "ask", []string{"which colour?"})
		if err != nil {
			return nil, err
		}
		if err := req.Conn().Notify(ctx, "progress", []int{50}); err != nil {
			return nil, err
		}
		return "a " + colour + " wall", nil
	}))
	answers := new(jsonrpc.Mux)
	answers.Register("ask", jsonrpc.Typed(func(_ context.Context, questions []string) (string, error) {
		fmt.Fprintln(out, "asked:", questions[0])
		return "green", nil
	}))
	answers.RegisterInline("progress", jsonrpc.Typed(func(_ context.Context, percent []int) (any, error) {
		fmt.Fprintln(out, "progress:", percent[0], "%")
		return nil, nil
	}))

	worker, conn := jsonrpc.Pair(jsonrpc.Config{Handler: work}, jsonrpc.Config{Handler: answers})
	defer worker.Close()
	defer conn.Close()

	wall, err := jsonrpc.Call[string](ctx, conn, "paint", nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, wall)
	return nil
}
