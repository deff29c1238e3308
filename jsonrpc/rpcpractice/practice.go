// Package rpcpractice has the methods of a server to practise with: those of
// the examples in the JSON-RPC 2.0 specification, and one that fails on
// request. The conformance cases in rpctest are about them.
package rpcpractice

import (
	"context"
	"encoding/json"

	"github.com/parley-project/parley/jsonrpc"
)

// NewMux returns a Mux with the practice methods, to which others may be added:
//
//	echo            returns its params, byte for byte; null without any
//	subtract        [minuend, subtrahend] or {"minuend", "subtrahend"}: the difference
//	sum             [number, …]: the sum
//	get_data        returns ["hello",5], whatever the params
//	notify_hello    returns null, whatever the params
//	fail_with_code  {"code", "message", "data"} or by position: fails with this error
//
// All of them are quick and run inline (see jsonrpc.Inliner).
func NewMux() *jsonrpc.Mux {
	mux := &jsonrpc.Mux{}
	mux.RegisterInline("echo", jsonrpc.HandlerFunc(echo))
	mux.RegisterInline("subtract", jsonrpc.Typed(subtract))
	mux.RegisterInline("sum", jsonrpc.Typed(sum))
	mux.RegisterInline("get_data", jsonrpc.HandlerFunc(getData))
	mux.RegisterInline("notify_hello", jsonrpc.HandlerFunc(notifyHello))
	mux.RegisterInline("fail_with_code", jsonrpc.Typed(failWithCode))
	return mux
}

func echo(_ context.Context, req *jsonrpc.Request) (any, error) {
	if req.Params() == nil {
		return nil, nil
	}
	return req.Params(), nil
}

type difference struct {
	Minuend    *float64 `json:"minuend"`
	Subtrahend *float64 `json:"subtrahend"`
}

func subtract(_ context.Context, d difference) (float64, error) {
	if d.Minuend == nil || d.Subtrahend == nil {
		return 0, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: minuend and subtrahend are needed")
	}
	return *d.Minuend - *d.Subtrahend, nil
}

func sum(_ context.Context, numbers []float64) (float64, error) {
	total := 0.0
	for _, n := range numbers {
		total += n
	}
	return total, nil
}

func getData(context.Context, *jsonrpc.Request) (any, error) {
	return json.RawMessage(`["hello",5]`), nil
}

func notifyHello(context.Context, *jsonrpc.Request) (any, error) { return nil, nil }

type failure struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func failWithCode(_ context.Context, f failure) (any, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.Code(f.Code), Message: f.Message, Data: f.Data}
}
