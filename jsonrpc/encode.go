package jsonrpc

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// How messages are built. Every message is appended to a buffer in one go,
// straight into what the Stream will be given; there is no message value that
// would be filled first and marshalled then, which costs forty times as much.
// The fixed parts are constants, the variable parts come as JSON texts that
// were checked before, so the result needs no check. All messages
//
//   - have no line break inside and none at the end: the writer adds the one
//     that frames them;
//   - have their members in the order of the examples of the specification,
//     with one purpose: "jsonrpc" tells a reader at once what it reads, the id
//     comes before params, result and error, so that someone who reads a large
//     message in parts knows whose it is before the bulk comes (RPC-24);
//   - leave out absent members instead of sending null, since JSON-RPC 2.0
//     gives both "id": null and an absent id a meaning of their own.

// An outgoing is a request or notification to be written.
type outgoing struct {
	id     []byte // JSON text; nil makes a notification
	method string
	params []byte // JSON text of an array or object, checked; nil when absent
	meta   *Meta  // nil: none
}

// appendRequest appends a request, or without an id a notification (JSON-RPC
// 2.0 section 4):
//
//	{"jsonrpc":"2.0","id":1,"method":"sum","params":[1,2]}
func appendRequest(dst []byte, o *outgoing) []byte {
	dst = appendRequestHead(dst, o)
	if o.params != nil {
		dst = append(dst, paramsKey...)
		dst = append(dst, o.params...)
	}
	return append(dst, '}')
}

// envelopeSize is what a message has beside its method, params and result, in
// bytes, about.
const envelopeSize = 64

// size is about how long the message will be, in bytes.
func (o *outgoing) size() int { return len(o.method) + len(o.params) + envelopeSize }

// paramsKey and a value follow a request's head when there are params.
const paramsKey = `,"params":`

// appendRequestHead appends a request as far as its params, for params that
// are appended in place or streamed: then come paramsKey and the value, if
// any, and a brace. The metadata is part of the head for the same reason as
// the id.
func appendRequestHead(dst []byte, o *outgoing) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if o.id != nil {
		dst = append(dst, `"id":`...)
		dst = append(dst, o.id...)
		dst = append(dst, ',')
	}
	dst = append(dst, `"method":`...)
	dst = appendString(dst, o.method)
	if o.meta != nil {
		dst = appendMeta(dst, o.meta)
	}
	return dst
}

// appendMeta appends the metadata as members behind others. The names are
// those of the trace context recommendation, without a prefix: "rpc." is
// reserved for methods only, and peers ignore members they do not know.
func appendMeta(dst []byte, meta *Meta) []byte {
	for _, m := range [...]struct{ key, value string }{
		{`,"correlation_id":`, meta.CorrelationID},
		{`,"traceparent":`, meta.TraceParent},
		{`,"tracestate":`, meta.TraceState},
	} {
		if m.value != "" {
			dst = append(dst, m.key...)
			dst = appendString(dst, m.value)
		}
	}
	return dst
}

// appendResult appends a response with a result (JSON-RPC 2.0 section 5). A
// result is required where a call succeeded, so nothing becomes null. The id is
// the raw text of the request's, echoed byte for byte.
//
//	{"jsonrpc":"2.0","id":1,"result":3}
func appendResult(dst, id, result []byte) []byte {
	dst = appendResultHead(dst, id)
	if len(result) == 0 {
		dst = append(dst, "null"...)
	}
	dst = append(dst, result...)
	return append(dst, '}')
}

// appendResultHead appends a response as far as the value of its result, for
// results that are appended in place or streamed; then come the value and a
// brace.
func appendResultHead(dst, id []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = appendID(dst, id)
	return append(dst, `,"result":`...)
}

// appendErrorResponse appends a response with an error (JSON-RPC 2.0 section
// 5.1). Code and message are required, data is left out when there is none. A
// nil id becomes null, as the specification wants for requests whose id could
// not be detected. Data that is no valid JSON is left out too: one broken
// error must not cost the connection its framing.
//
//	{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found"}}
func appendErrorResponse(dst, id []byte, e *Error) []byte {
	if e == nil {
		e = &Error{Code: CodeInternalError}
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = appendID(dst, id)
	dst = append(dst, `,"error":`...)
	dst = appendError(dst, e)
	return append(dst, '}')
}

// appendError appends an error object. An empty message is filled in, since
// the specification wants a short description.
func appendError(dst []byte, e *Error) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Code), 10)
	dst = append(dst, `,"message":`...)
	message := e.Message
	if message == "" {
		message = e.Code.String()
	}
	dst = appendString(dst, message)
	if e.Data != nil {
		n := len(dst)
		dst = append(dst, `,"data":`...)
		var err error
		if dst, err = appendValue(dst, e.Data, maxRecursion); err != nil {
			dst = dst[:n]
		}
	}
	return append(dst, '}')
}

// appendID appends the raw text of an id, or null.
func appendID(dst, id []byte) []byte {
	if id == nil {
		return append(dst, "null"...)
	}
	return append(dst, id...)
}

// appendLimit appends the data of an error about a limit of this side:
//
//	{"limit":128,"unit":"levels"}
func appendLimit(dst []byte, limit int, unit string) []byte {
	dst = append(dst, `{"limit":`...)
	dst = strconv.AppendInt(dst, int64(limit), 10)
	dst = append(dst, `,"unit":`...)
	dst = appendString(dst, unit)
	return append(dst, '}')
}

// appendString appends s as a JSON string. Only what must be escaped is
// escaped: quotes, backslashes and control characters; a "<" stays readable.
// Bytes that are not UTF-8 become U+FFFD, so that what goes out is always
// valid.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscape(dst, c)
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	default:
		return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
}

// errScalarParams is what a caller gets who passes a number or the like.
var errScalarParams = errors.New("jsonrpc: params must become a JSON array or object; wrap the value in a slice or struct")

// checkParams looks at the JSON text of the params of a request that is going
// out: JSON-RPC 2.0 section 4.2 allows an array or an object. It says whether
// they are to be left out, which is what null means.
func checkParams(raw []byte) (absent bool, err error) {
	i := skipSpace(raw, 0)
	if i == len(raw) {
		return true, nil
	}
	switch raw[i] {
	case '{', '[':
		return false, nil
	case 'n':
		return true, nil
	default:
		return false, errScalarParams
	}
}
