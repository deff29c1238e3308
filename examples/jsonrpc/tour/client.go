package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
)

func client(ctx context.Context, out io.Writer, url string) error {
	stream, err := rpcdial.Dial(ctx, url, rpcdial.Config{})
	if err != nil {
		return err
	}
	conn := jsonrpc.NewConn(stream, jsonrpc.Config{Timeout: 5 * time.Second})
	defer conn.Close()

	q, err := jsonrpc.Call[Quotient](ctx, conn, "divide", Division{Dividend: 7, Divisor: 2})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, q.Quotient, "remainder", q.Remainder)

	if err := failing(ctx, out, conn); err != nil {
		return err
	}
	if err := batch(ctx, out, conn); err != nil {
		return err
	}
	return reconnect(ctx, out, url)
}

func failing(ctx context.Context, out io.Writer, conn *jsonrpc.Conn) error {
	err := conn.Call(ctx, "divide", []int{7, 0}, nil)
	var wire *jsonrpc.Error
	if errors.As(err, &wire) {
		fmt.Fprintf(out, "code %d, %s, data %s, advice: %v\n", wire.Code, wire.Message, wire.Data, jsonrpc.AdviceFor(err))
	}
	err = conn.Call(ctx, "multiply", []int{6, 7}, nil)
	if errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}) {
		fmt.Fprintln(out, "no multiply here, advice:", jsonrpc.AdviceFor(err))
	}
	err = conn.Call(ctx, "divide", map[string]any{"dividend": "seven"}, nil)
	if errors.As(err, &wire) {
		fmt.Fprintln(out, wire.Message)
	}
	return nil
}

func batch(ctx context.Context, out io.Writer, conn *jsonrpc.Conn) error {
	var b jsonrpc.Batch
	var quotients [3]Quotient
	calls := []*jsonrpc.BatchCall{
		b.Call("divide", []int{9, 3}, &quotients[0]),
		b.Call("divide", []int{9, 0}, &quotients[1]),
		b.Call("divide", []int{9, 4}, &quotients[2]),
	}
	if err := conn.Batch(ctx, &b); err != nil {
		return err // it was not sent
	}
	for i, call := range calls {
		fmt.Fprintln(out, i, quotients[i], call.Err() == nil)
	}
	return nil
}
