package jsonrpc

import (
	"bytes"
	"encoding/json"
	"io"
)

// A Request is a request or a notification that a Handler is to answer. It is
// borrowed: neither it nor the bytes that it gives out may be used after
// Handle returned (RPC-18); copy what has to live longer.
type Request struct {
	conn   *Conn
	codec  Codec
	method string
	id     []byte        // raw text; nil for a notification
	params []byte        // raw text; nil when absent
	stream *paramsStream // that params come by; nil when they are there
	meta   Meta
	ctx    *requestContext // of the handler
	// broken is what the peer is told where the handler failed since its context had
	// ended; nil when that had not, or by nobody's doing.
	broken *Error
	end    *resultEnd // of a result that is being read; nil: it cannot be closed
}

// Method returns the name of the method. The string is not borrowed.
func (r *Request) Method() string { return r.method }

// Params returns the raw params, an array or an object, checked to be valid
// JSON; nil when the request has none, or when they are streamed (see
// ParamsStreamer). The bytes are borrowed.
func (r *Request) Params() json.RawMessage { return r.params }

// ParamsReader returns the params as a stream, which is empty when the request
// has none. Of params that come while they are read (see ParamsStreamer) an
// error says that the request was cut off, is malformed or too long, or that its
// context ended: what was read before is not to be used then. It must not be
// used after Handle returned.
func (r *Request) ParamsReader() io.Reader {
	if r.stream != nil {
		return r.stream
	}
	return bytes.NewReader(r.params)
}

// ID returns the id, byte for byte as the peer wrote it; the zero ID for a
// notification. It is not borrowed.
func (r *Request) ID() ID { return ID{text: string(r.id)} }

// IsNotification says that nobody waits for an answer (JSON-RPC 2.0 section
// 4.1): what the handler returns is dropped.
func (r *Request) IsNotification() bool { return r.id == nil }

// Meta returns the correlation id and trace context that came with the
// request, or with the context that Responder.Respond was given. MetaFrom finds
// the same in the handler's context.
func (r *Request) Meta() Meta { return r.meta }

// Conn returns the connection the request came on, to call the peer back; nil
// when a Responder without a connection handles it.
func (r *Request) Conn() *Conn { return r.conn }

// Codec returns the codec of the connection.
func (r *Request) Codec() Codec { return r.codec }

// Decode decodes the params into v, as the connection's codec does it. Absent
// params leave v as it is. An error is an *Error with CodeInvalidParams, ready
// to be returned by the handler (JSON-RPC 2.0 section 5.1), with the data that
// Typed describes.
func (r *Request) Decode(v any) error {
	params, err := r.all()
	if params == nil || err != nil {
		return err
	}
	if err := r.codec.Decode(params, v); err != nil {
		return invalidParams(err)
	}
	return nil
}

// all returns the params, which it reads to their end when they are streamed.
func (r *Request) all() ([]byte, error) {
	if r.stream == nil {
		return r.params, nil
	}
	return io.ReadAll(r.stream)
}
