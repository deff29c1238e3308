package jsonrpc

import "context"

// A Caller makes calls: a Conn or a Client.
type Caller interface {
	// Call calls a method of the peer, as Conn.Call describes it.
	Call(ctx context.Context, method string, params, result any, opts ...CallOption) error
}

// Call calls a method and returns its result as an R.
func Call[R any](ctx context.Context, c Caller, method string, params any, opts ...CallOption) (R, error) {
	var result R
	err := c.Call(ctx, method, params, &result, opts...)
	return result, err
}

// Typed makes a Handler of a function whose params and result are values of
// Go.
func Typed[P, R any](f func(ctx context.Context, params P) (R, error)) Handler {
	return HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
		var params P
		if err := req.Decode(&params); err != nil {
			return nil, err
		}
		return f(ctx, params)
	})
}
