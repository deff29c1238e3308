package jsonrpc

import (
	"bytes"
	"strconv"
)

// decodeError reads the error object of a response that scan has checked. It
// is tolerant where nobody is harmed, since an error that cannot be shown
// helps nobody: a code that is no integer becomes CodeInternalError, a missing
// message the name of the code, and both say so in the message; unknown
// members are dropped; of duplicate members the last counts. The Error does
// not alias raw.
func decodeError(raw []byte) *Error {
	e := &Error{}
	var code, message []byte
	eachMember(raw, func(name, value []byte) {
		switch string(name) {
		case "code":
			code = value
		case "message":
			message = value
		case "data":
			e.Data = bytes.Clone(value)
		}
	})
	n, err := strconv.ParseInt(string(code), 10, 64)
	e.Code = Code(n)
	e.Message = stringValue(message)
	if err != nil {
		e.Code = CodeInternalError
		text := "the peer's error has no usable code"
		if e.Message != "" {
			text += ": " + e.Message
		}
		e.Message = text
	}
	if e.Message == "" {
		e.Message = e.Code.String()
	}
	return e
}

// eachMember calls f with the members of an object that is known to be valid;
// names come without quotes and escapes.
func eachMember(b []byte, f func(name, value []byte)) {
	var buf [16]byte
	for i := skipSpace(b, skipSpace(b, 0)+1); b[i] == '"'; {
		start := i + 1
		i = skipString(b, start)
		name := b[start : i-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = unescape(buf[:0], name)
		}
		start = skipSpace(b, skipSpace(b, i)+1)
		i = skipValue(b, start, maxRecursion)
		f(name, b[start:i:i])
		if i = skipSpace(b, i); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
}
