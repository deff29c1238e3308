package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A Code is the code of an Error: an integer that says what kind of error it
// is. JSON-RPC 2.0 section 5.1 reserves -32768 to -32000; applications use any
// other number.
type Code int64

// The codes that the specification gives a meaning, and those of the range
// -32000 to -32099, which it leaves to implementations, that this package
// sends. The latter keep clear of the codes of MCP, A2A, vscode-jsonrpc,
// go-ethereum and jsonrpsee, so that no application's error is mistaken for
// one of ours.
const (
	// CodeParseError answers what is no JSON text.
	CodeParseError Code = -32700
	// CodeInvalidRequest answers JSON that is no JSON-RPC 2.0 message, or one
	// beyond a limit.
	CodeInvalidRequest Code = -32600
	// CodeMethodNotFound answers a request for a method that is not there.
	CodeMethodNotFound Code = -32601
	// CodeInvalidParams answers params that the method cannot use.
	CodeInvalidParams Code = -32602
	// CodeInternalError answers when the handler failed or panicked.
	CodeInternalError Code = -32603

	// CodeServerBusy answers a request that was not begun, since too many are
	// being handled.
	CodeServerBusy Code = -32050
	// CodeTimeout answers when the handler ran out of time, or was broken off
	// since the connection was being closed: something may have been done.
	CodeTimeout Code = -32051
	// CodeClosing answers a request that was not begun, since the connection
	// is being closed.
	CodeClosing Code = -32052
	// CodeCancelled answers a request that its caller cancelled. The number is
	// the one of the Language Server Protocol.
	CodeCancelled Code = -32800
)

// String returns the code's name, as the specification words it where it does,
// or "error" and the number.
func (c Code) String() string {
	switch c {
	case CodeParseError:
		return "parse error"
	case CodeInvalidRequest:
		return "invalid request"
	case CodeMethodNotFound:
		return "method not found"
	case CodeInvalidParams:
		return "invalid params"
	case CodeInternalError:
		return "internal error"
	case CodeServerBusy:
		return "server busy"
	case CodeTimeout:
		return "timeout"
	case CodeClosing:
		return "connection closing"
	case CodeCancelled:
		return "request cancelled"
	}
	return "error " + strconv.FormatInt(int64(c), 10)
}

// An Error is the error of a response (JSON-RPC 2.0 section 5.1): what a
// handler returns to be sent as it is, and what a call returns that the peer
// answered with an error (RPC-20).
//
// errors.Is compares the code only, so that
//
//	errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound})
//
// finds the kind of an error; errors.As gets the rest of it. A handler that returns
// an *Error that is nil, as an error, has failed with CodeInternalError.
type Error struct {
	Code Code
	// Message is a short description for people, one sentence. Empty: the name
	// of the code is sent.
	Message string
	// Data is any JSON value that says more; nil when there is none. A handler's
	// that is no valid JSON, or makes the message deeper than Config.MaxDepth, is not
	// sent, which Hooks hear of (NoticeUnencodable).
	Data json.RawMessage
}

// Errorf returns an Error with a formatted message. It reaches the peer, so
// nothing internal belongs in it. A %w in the format formats like %v, but what
// it stands for is not kept: the wire could not carry it.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Errorf(format, args...).Error()}
}

// WithData returns a copy of the error whose Data is v as JSON. It panics when
// v cannot be JSON, which is a mistake of the program.
func (e *Error) WithData(v any) *Error {
	data, err := StrictCodec().Append(nil, v)
	if err != nil {
		panic("jsonrpc: data of an error: " + err.Error())
	}
	return &Error{Code: e.Code, Message: e.Message, Data: data}
}

// Error returns the message, of which it shows 500 bytes, and the code, on one line:
// what cannot be printed of the peer's words is written as in a string of Go. Data is
// left out: it may be long, and secret.
func (e *Error) Error() string {
	if e == nil || e.Message == "" {
		return fmt.Sprintf("%v (%d)", e.code(), int64(e.code()))
	}
	return fmt.Sprintf("%s (%d)", printable(shorten(e.Message, longestText)), int64(e.Code))
}

// Is says whether target is an *Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.code() == e.code()
}

// code returns the code, also of the nil that a handler may return by mistake: who
// prints or compares that must not end the process.
func (e *Error) code() Code {
	if e == nil {
		return CodeInternalError
	}
	return e.Code
}

// correlationID returns the word by which the peer has its own failure in its logs,
// as internalError gives it; "" when err is no such error, or has none.
func correlationID(err error) (id string) {
	e, ok := errors.AsType[*Error](err)
	if !ok || e == nil || e.Code != CodeInternalError || len(e.Data) == 0 || e.Data[0] != '{' {
		return ""
	}
	eachMember(e.Data, func(name, value []byte) {
		if string(name) == "correlation_id" {
			id = shorten(stringValue(value), longestName)
		}
	})
	return id
}

// Errors that errors.Is finds in what this package returns.
var (
	// ErrClosed says that the connection has ended or is being closed; it is
	// in every *ConnError.
	ErrClosed = errors.New("jsonrpc: connection closed")
	// ErrTimeout says that no answer came in time; it is in every
	// *TimeoutError.
	ErrTimeout = errors.New("jsonrpc: timeout")
	// ErrExhausted says that a limit of this side was reached (RPC-23); it is
	// in every *ResourceError.
	ErrExhausted = errors.New("jsonrpc: resource exhausted")
)

// A CallError is what Call, Notify and Batch return: what was tried, and what
// came of it in Err, one of *Error (the peer said so), *ConnError, *TimeoutError,
// *UndeliveredError, a context's error, *ResourceError, *ResultError, or an error
// of the codec about params (RPC-21).
type CallError struct {
	Conn          string        // name of the connection
	Method        string        // of the call
	ID            ID            // zero when the call got none: a notification, or never begun
	CorrelationID string        // from the Meta of the call's context, or from the peer's answer
	Elapsed       time.Duration // from the call to its end
	Sent          bool          // the peer may have got it; false: it certainly did not
	Err           error
}

// Error says what was called where and what came of it, on one line.
func (e *CallError) Error() string {
	text := "jsonrpc: " + e.Method + " on " + e.Conn
	if !e.ID.IsZero() {
		text += ", id " + e.ID.String()
	}
	if e.CorrelationID != "" {
		text += ", correlation id " + e.CorrelationID
	}
	return printable(text + ", after " + e.Elapsed.Round(time.Microsecond).String() + ": " + unprefixed(e.Err))
}

// Unwrap returns what came of the call.
func (e *CallError) Unwrap() error { return e.Err }

// A ConnError says that a connection ended, or is ending (RPC-14).
type ConnError struct {
	// Conn is the name of the connection.
	Conn string
	// State is where the connection was, as the error came about.
	State State
	// Recoverable says that a new connection may well work (RPC-22).
	Recoverable bool
	// Err is why: io.EOF when the peer hung up, ErrClosed when this side closed
	// the connection, the transport's error otherwise.
	Err error
}

// Error names the connection and the reason, on one line.
func (e *ConnError) Error() string {
	return printable("jsonrpc: connection " + e.Conn + " " + e.State.String() + ": " + unprefixed(e.Err))
}

// Unwrap returns the reason.
func (e *ConnError) Unwrap() error { return e.Err }

// Is says that every ConnError is an ErrClosed.
func (e *ConnError) Is(target error) bool { return target == ErrClosed }

// A TimeoutError says that a call was given up since no answer came in time
// (RPC-10). The peer may have acted on the request all the same.
type TimeoutError struct {
	// After is the time that the call was given: until the deadline of its context,
	// WithTimeout or Config.Timeout. CallError.Elapsed is what it took.
	After time.Duration
	// Peer is the newest error without an id that the peer sent while the call
	// waited, nil when there was none. It may be why there was no answer, or be
	// about another message: the peer did not say. errors.As does not find it.
	Peer *Error

	unsent bool // the peer was not asked; see CallError.Sent
}

// Error tells the time that the call was given, and what the peer said meanwhile.
func (e *TimeoutError) Error() string {
	after := e.After.Round(time.Microsecond)
	if after >= 10*time.Millisecond { // a second is one, even if it began a moment before the call
		after = after.Round(time.Millisecond)
	}
	if e.unsent {
		return "jsonrpc: not sent within " + after.String()
	}
	text := "jsonrpc: no answer within " + after.String()
	if e.Peer != nil {
		text += "; meanwhile the peer sent an error without an id, perhaps about this call: " + e.Peer.Error()
	}
	return text
}

// Timeout returns true, as net.Error has it.
func (e *TimeoutError) Timeout() bool { return true }

// Is says that a TimeoutError is an ErrTimeout, and for callers who only know
// contexts a context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool {
	return target == ErrTimeout || target == context.DeadlineExceeded
}

// A ResourceError says that a limit of this side was reached (RPC-19, RPC-23), and
// nothing was sent; if it is the answer to a call that was too long, the call is
// Sent, and done.
type ResourceError struct {
	What  string // what there was too much of, such as "pending calls"
	Limit int    // how much is allowed
	Unit  string // of Limit, such as "calls", "bytes", "levels"
}

// Error tells the limit.
func (e *ResourceError) Error() string {
	return fmt.Sprintf("jsonrpc: %s: more than the limit of %d %s", e.What, e.Limit, e.Unit)
}

// Is says that every ResourceError is an ErrExhausted.
func (e *ResourceError) Is(target error) bool { return target == ErrExhausted }

// A ResultError says that the peer answered, but the result is not what the
// caller can take.
type ResultError struct {
	// Err is the codec's error, or that of the io.Writer the result went to.
	Err error
}

// Error says why the result could not be taken.
func (e *ResultError) Error() string { return "jsonrpc: the peer's result: " + unprefixed(e.Err) }

// Unwrap returns the codec's error.
func (e *ResultError) Unwrap() error { return e.Err }

// What an error repeats of the peer's own words, in bytes.
const (
	longestName = 100 // a method or a member
	longestText = 500 // a whole message
)

// shorten cuts a text of the peer's down to n bytes before it is repeated: an
// error should not be as long as the message that it is about.
func shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}

// printable makes a text with a peer's words in it fit for a line of a log or of a
// terminal, where a line break would begin an entry of the peer's own making: what cannot
// be printed is written as in a string of Go.
func printable(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// unprefixed is err's text without the name of this package, which the text it
// becomes part of has already.
func unprefixed(err error) string {
	if err == nil {
		return "unknown"
	}
	const prefix = "jsonrpc: "
	text := err.Error()
	if len(text) > len(prefix) && text[:len(prefix)] == prefix {
		return text[len(prefix):]
	}
	return text
}

// wireError makes the error of a handler fit for the wire, and says whether
// something of it stays here, for the hooks (RPC-21). An *Error goes as it is;
// but one that a call to someone else returned says something about that call,
// and not about this one.
func wireError(err error, correlationID string) (e *Error, hidden bool) {
	if _, ok := errors.AsType[*CallError](err); !ok {
		if e, ok := errors.AsType[*Error](err); ok && e != nil {
			return e, false
		}
		switch {
		case errors.Is(err, context.Canceled):
			return &Error{Code: CodeCancelled, Message: CodeCancelled.String()}, false
		case errors.Is(err, context.DeadlineExceeded):
			return &Error{Code: CodeTimeout, Message: CodeTimeout.String()}, false
		}
	}
	return internalError(correlationID), true
}

// internalError is all that the peer learns about a failure or a panic here:
// that there was one, and by which word it is found in the logs.
//
//	{"code":-32603,"message":"internal error","data":{"correlation_id":"…"}}
func internalError(correlationID string) *Error {
	e := &Error{Code: CodeInternalError, Message: CodeInternalError.String()}
	if correlationID != "" {
		e.Data = append(e.Data, `{"correlation_id":`...)
		e.Data = appendString(e.Data, correlationID)
		e.Data = append(e.Data, '}')
	}
	return e
}
