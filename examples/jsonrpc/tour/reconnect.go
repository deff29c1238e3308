package main

import (
	"context"
	"fmt"
	"io"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
)

// reconnect calls over a Client, which connects again when its connection ends.
func reconnect(ctx context.Context, out io.Writer, url string) error {
	dial := func(ctx context.Context) (jsonrpc.Stream, error) { return rpcdial.Dial(ctx, url, rpcdial.Config{}) }
	client := jsonrpc.NewClient(dial, jsonrpc.ClientConfig{})
	defer client.Close()

	q, err := jsonrpc.Call[Quotient](ctx, client, "divide", []int{7, 2}, jsonrpc.Idempotent())
	if err != nil {
		return err
	}
	fmt.Fprintln(out, q.Quotient, "remainder", q.Remainder, "while", client.State())
	return nil
}
