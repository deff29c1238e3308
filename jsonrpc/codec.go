package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
)

// A Codec turns values of Go into JSON and back: params and results of calls
// and typed handlers. It must be safe for use by several goroutines at once.
// The envelope of messages never passes through it.
type Codec interface {
	// Append appends the JSON text of v to dst, and returns the extended
	// buffer; on an error what it returns is ignored. The text must be one
	// valid JSON value; a Conn checks it unless it knows the Codec.
	Append(dst []byte, v any) ([]byte, error)
	// Decode decodes the JSON text data, which was checked to be valid, into
	// v, a non-nil pointer. It must not keep data. A *DecodeError among its
	// errors lets a typed handler tell the peer which member is wrong.
	Decode(data []byte, v any) error
}

// StrictCodec returns the default Codec: encoding/json, except that
//
//   - members are matched by their exact name. JSON is case-sensitive, and so
//     is JSON-RPC 2.0 section 4; encoding/json alone would take "ID" for a
//     field named "id". A member that differs from a field's name in nothing
//     but case is refused, since it is a mistake;
//   - duplicate members are refused, at any depth. Which of them counts would
//     otherwise depend on who reads;
//   - more elements than an array of Go holds are refused, where encoding/json
//     drops them; fewer leave the rest zero;
//   - numbers that go into an interface become a json.Number, so that integers
//     beyond 2^53 survive;
//   - "<", ">" and "&" are not escaped, and what Marshalers return is checked
//     to be valid UTF-8.
//
// Unknown members are ignored, so that a newer peer may send more; null leaves
// a value as it is, as in encoding/json. Types with an UnmarshalJSON or
// UnmarshalText of their own decide about their members themselves, and so do
// values of Go that are found inside an interface that was filled beforehand.
//
// Types are examined once per Codec, so keep it and share it.
func StrictCodec() Codec { return &strictCodec{} }

// LenientCodec returns a Codec that decodes exactly as encoding/json does:
// names in any case, the last of duplicate members, float64 for numbers in
// interfaces. It is for peers that rely on it.
func LenientCodec() Codec { return &lenientCodec{} }

// An ownCodec is a Codec of this package: what it appends is valid, without line
// breaks and of at most maxDepth levels, and need not be checked again.
type ownCodec interface {
	appendWithin(dst []byte, v any, maxDepth int) ([]byte, error)
}

// appendWithin appends the text of v, of at most maxDepth levels.
func appendWithin(c Codec, dst []byte, v any, maxDepth int) ([]byte, error) {
	if own, ok := c.(ownCodec); ok {
		return own.appendWithin(dst, v, maxDepth)
	}
	text, err := c.Append(dst, v)
	if err == nil {
		err = checkValue(text[len(dst):], maxDepth)
	}
	return text, err
}

// An appender encodes with encoding/json to the end of a buffer. Its encoders
// are kept, since a new one costs more than a small value.
type appender struct{ pool sync.Pool }

type pooledEncoder struct {
	buf []byte
	enc *json.Encoder
}

func (e *pooledEncoder) Write(p []byte) (int, error) {
	e.buf = append(e.buf, p...)
	return len(p), nil
}

// Append implements Codec.
func (a *appender) Append(dst []byte, v any) ([]byte, error) {
	return a.appendWithin(dst, v, maxRecursion)
}

// appendWithin is Append with a limit of nesting, in levels.
func (a *appender) appendWithin(dst []byte, v any, maxDepth int) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case json.RawMessage:
		if v == nil {
			return append(dst, "null"...), nil
		}
		return appendValue(dst, v, maxDepth)
	}
	e, _ := a.pool.Get().(*pooledEncoder)
	if e == nil {
		e = &pooledEncoder{}
		e.enc = json.NewEncoder(e)
		e.enc.SetEscapeHTML(false)
	}
	e.buf = dst
	err := e.enc.Encode(v)
	out := e.buf
	e.buf = nil
	a.pool.Put(e)
	if err != nil {
		return dst, err
	}
	out = bytes.TrimSuffix(out, []byte("\n"))
	// encoding/json checks the grammar of what Marshalers and RawMessages
	// give it, but lets invalid UTF-8 through.
	if err := checkValue(out[len(dst):], maxDepth); err != nil {
		return dst, fmt.Errorf("jsonrpc: encoding of %T: %w", v, err)
	}
	return out, nil
}

type lenientCodec struct{ appender }

// Decode implements Codec.
func (*lenientCodec) Decode(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return decodeFault(err)
	}
	return nil
}

type strictCodec struct {
	appender
	shapes sync.Map // reflect.Type to *shape
}

// Decode implements Codec.
func (c *strictCodec) Decode(data []byte, v any) error {
	if raw, ok := v.(*json.RawMessage); ok && raw != nil {
		if _, err := checkMembers(data, nil); err != nil {
			return err
		}
		*raw = append((*raw)[:0], data...)
		return nil
	}
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("jsonrpc: Decode wants a pointer that is not nil, not a %T", v)
	}
	s := c.shape(target.Type().Elem())
	openNumbers, err := checkMembers(data, s)
	if err != nil {
		return err
	}
	if openNumbers {
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		err = dec.Decode(v)
	} else {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		if fault := findNumber(data, s); fault != nil {
			fault.Err = err
			return fault
		}
		return decodeFault(err)
	}
	return nil
}

// shape returns what is known about a type, examining it the first time.
func (c *strictCodec) shape(t reflect.Type) *shape {
	if s, ok := c.shapes.Load(t); ok {
		return s.(*shape)
	}
	s := newShape(t)
	c.shapes.Store(t, s)
	return s
}

// A DecodeError says why a JSON value does not fit a value of Go.
type DecodeError struct {
	// Member is the path to what does not fit, such as "user.tags[2]"; empty
	// when it is the whole value, or not known.
	Member string
	// Expected says what would fit, to be read after "must be": "a string".
	Expected string
	// Err is the decoder's error, if there is one.
	Err error
}

// Error names the member and what was expected.
func (e *DecodeError) Error() string {
	if e.Expected == "" {
		return fmt.Sprintf("jsonrpc: the value does not fit: %v", e.Err)
	}
	if e.Member == "" {
		return "jsonrpc: the value must be " + e.Expected
	}
	return printable("jsonrpc: the member " + e.Member + " must be " + e.Expected)
}

// Unwrap returns the decoder's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// decodeFault makes an error of encoding/json a *DecodeError.
func decodeFault(err error) error {
	if typ, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &DecodeError{Member: typ.Field, Expected: expected(typ.Type), Err: err}
	}
	if own, ok := errors.AsType[*DecodeError](err); ok {
		return own
	}
	return &DecodeError{Err: err}
}
