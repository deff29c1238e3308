package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
)

// A Caller makes calls: a Conn or a Client.
type Caller interface {
	// Call calls a method of the peer, as Conn.Call describes it.
	Call(ctx context.Context, method string, params, result any, opts ...CallOption) error
}

// Call calls a method and returns its result as an R. On an error, which is a
// *CallError, the R is the zero value.
func Call[R any](ctx context.Context, c Caller, method string, params any, opts ...CallOption) (R, error) {
	var result R
	if err := c.Call(ctx, method, params, &result, opts...); err != nil {
		var zero R
		return zero, err
	}
	return result, nil
}

// Typed makes a Handler of a function whose params and result are values of
// Go, decoded and encoded by the Codec of the connection. It is as safe for
// concurrent use as f is.
//
// Params by name (an object, JSON-RPC 2.0 section 4.2) are decoded into P.
// Params by position (an array) are too when P is a slice, an array or an
// interface; when P is a struct they fill its members in the order of their
// declaration, fewer leaving the last ones zero, more being refused; so do those
// of an array, with the StrictCodec. Absent params leave P zero.
//
// Params that do not fit are answered CodeInvalidParams with data that names
// the member and what was expected, where the Codec tells it:
//
//	{"code":-32602,"message":"invalid params: the member minuend must be an integer of at most 64 bits",
//	 "data":{"member":"minuend","expected":"an integer of at most 64 bits"}}
func Typed[P, R any](f func(ctx context.Context, params P) (R, error)) Handler {
	names := positions(reflect.TypeFor[P]())
	return HandlerFunc(func(ctx context.Context, req *Request) (any, error) {
		var params P
		if err := decodeParams(req, names, &params); err != nil {
			return nil, err
		}
		result, err := f(ctx, params)
		if err != nil {
			return nil, err
		}
		return result, nil
	})
}

// positions returns the names of P's members by their position, if P is a
// struct that is decoded member by member.
func positions(p reflect.Type) []string {
	s := newShape(p)
	if s.byName == nil {
		return nil
	}
	names := make([]string, 0, len(s.fields))
	for _, f := range s.fields {
		names = append(names, f.name)
	}
	return names
}

// decodeParams decodes the request's params into v, by position too if there
// are names for the positions.
func decodeParams(req *Request, names []string, v any) error {
	raw, err := req.all()
	switch {
	case len(raw) == 0 || err != nil:
		return err
	case names == nil || raw[0] != '[':
		if err := req.Codec().Decode(raw, v); err != nil {
			return invalidParams(err)
		}
		return nil
	}
	named, n := nameParams(raw, names)
	if n > len(names) {
		return invalidParams(&DecodeError{
			Member: "[" + strconv.Itoa(len(names)) + "]", Expected: "absent, there are " + strconv.Itoa(len(names)) + " params at most",
		})
	}
	if err := req.Codec().Decode(named, v); err != nil {
		return invalidParams(err)
	}
	return nil
}

// nameParams makes an array an object with the given names, and returns how
// many elements there were. The array is valid.
func nameParams(array []byte, names []string) (object []byte, n int) {
	object = append(object, '{')
	for i := skipSpace(array, 1); array[i] != ']'; n++ {
		end := skipValue(array, i, maxRecursion)
		if n < len(names) {
			if n > 0 {
				object = append(object, ',')
			}
			object = appendString(object, names[n])
			object = append(object, ':')
			object = append(object, array[i:end]...)
		}
		if i = skipSpace(array, end); array[i] == ',' {
			i = skipSpace(array, i+1)
		}
	}
	return append(object, '}'), n
}

// invalidParams makes a Codec's error the answer to a request whose params do
// not fit.
func invalidParams(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Code: CodeInvalidParams, Message: "invalid params: " + shorten(unprefixed(err), longestText)}
	if d, ok := errors.AsType[*DecodeError](err); ok && d.Expected != "" {
		var data json.RawMessage
		data = append(data, '{')
		if d.Member != "" {
			data = append(data, `"member":`...)
			data = appendString(data, d.Member)
			data = append(data, ',')
		}
		data = append(data, `"expected":`...)
		data = appendString(data, d.Expected)
		e.Data = append(data, '}')
	}
	return e
}
