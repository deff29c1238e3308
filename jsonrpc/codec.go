package jsonrpc

import (
	"encoding/json"
)

// A Codec turns values of Go into JSON and back: params and results of calls
// and typed handlers. It must be safe for use by several goroutines at once.
// The envelope of messages never passes through it.
type Codec interface {
	// Append appends the JSON text of v to dst, and returns the extended
	// buffer; on an error what it returns is ignored. The text must be one
	// valid JSON value; the Conn checks it unless the Codec is StrictCodec.
	Append(dst []byte, v any) ([]byte, error)
	// Decode decodes the JSON text data, which was checked to be valid, into
	// v, a non-nil pointer. It must not keep data.
	Decode(data []byte, v any) error
}

// StrictCodec returns the default Codec.
func StrictCodec() Codec { return strictCodec{} }

type strictCodec struct{}

func (strictCodec) Append(dst []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(dst, text...), err
}

func (strictCodec) Decode(data []byte, v any) error { return json.Unmarshal(data, v) }

// trusted says that what the Codec appends is valid and without line breaks,
// and need not be checked again.
func trusted(c Codec) bool {
	_, ok := c.(strictCodec)
	return ok
}

// A DecodeError says why a JSON value does not fit a value of Go.
type DecodeError struct {
	// Member is the path to what does not fit, such as "user.tags[2]"; empty
	// when it is the whole value.
	Member string
	// Expected says what would fit, such as "a string".
	Expected string
	// Err is the decoder's error, if there is one.
	Err error
}

// Error names the member and what was expected.
func (e *DecodeError) Error() string { return e.Member + ": " + e.Expected }

// Unwrap returns the decoder's error.
func (e *DecodeError) Unwrap() error { return e.Err }
