package main

import (
	"context"
	"fmt"
	"io"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
)

// Division is what divide takes: {"dividend": 7, "divisor": 2}, or [7, 2].
type Division struct {
	Dividend int `json:"dividend"`
	Divisor  int `json:"divisor"`
}

// Quotient is what divide returns.
type Quotient struct {
	Quotient  int `json:"quotient"`
	Remainder int `json:"remainder"`
}

func divide(_ context.Context, d Division) (Quotient, error) {
	if d.Divisor == 0 {
		return Quotient{}, jsonrpc.Errorf(422, "cannot divide by zero").WithData(d)
	}
	return Quotient{d.Dividend / d.Divisor, d.Dividend % d.Divisor}, nil
}

func methods() *jsonrpc.Mux {
	mux := new(jsonrpc.Mux)
	mux.Register("divide", jsonrpc.Typed(divide))
	return mux
}

func serve(ctx context.Context, out io.Writer, url string) error {
	where := rpcdial.Config{Listening: func(url string) { fmt.Fprintln(out, "listening on", url) }}
	return rpcdial.Serve(ctx, url, where, jsonrpc.Config{Handler: methods()})
}
