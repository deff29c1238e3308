package jsonrpc

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Hooks are told what happens on a connection, for metrics and logs; each of
// them may be nil. They are called from several goroutines at once, on the
// goroutine where it happened, and should be quick: it may be the one that reads, and
// a call made there would wait for an answer that nobody reads (but see ClientConfig).
// They must not call Close and Shutdown, which wait for goroutines that may be the
// hook's own.
type Hooks struct {
	// CallDone is told of each call of ours that ended, entries of batches
	// included.
	CallDone func(CallInfo)
	// RequestDone is told of each request or notification of the peer that a
	// handler has handled.
	RequestDone func(RequestInfo)
	// Notice is told of what went wrong without being any call's error.
	Notice func(Notice)
	// StateChange is told of each change of state, in order (RPC-26).
	StateChange func(StateChange)
}

// CallInfo describes a call that ended.
type CallInfo struct {
	Conn    string        // name of the connection
	Method  string        // as it was called
	Elapsed time.Duration // from the call to its end
	Err     error         // what the caller got: nil or a *CallError
}

// RequestInfo describes a request that was handled.
type RequestInfo struct {
	Conn string // name of the connection
	// Method is what the peer wrote, which may be anything: for the label of a
	// metric, leave out what Err says is a CodeMethodNotFound.
	Method       string
	Notification bool // nobody waits for the answer
	Meta         Meta // as it came
	Elapsed      time.Duration
	// Err is what the handler returned, before it was made fit for the wire
	// (RPC-21): a *PanicError when it panicked.
	Err error
}

// A Notice reports an event that is no call's error: something of the peer's
// that was refused or dropped, or a handler that panicked.
type Notice struct {
	Conn string // name of the connection
	Kind NoticeKind
	Err  error // what happened; never holds params or results
}

// A NoticeKind says what a Notice is about.
type NoticeKind uint8

// The kinds of notices. What is said to be answered is so unless
// Config.IgnoreInvalid is set.
const (
	NoticeMalformed    NoticeKind = iota + 1 // not JSON; answered CodeParseError
	NoticeInvalid                            // not JSON-RPC; answered CodeInvalidRequest unless it was a response
	NoticeOversize                           // longer than Config.MaxMessage, skipped
	NoticeUnknown                            // a response that no call of ours ever waited for
	NoticeLate                               // a response to a call that was given up
	NoticePeerError                          // an error response without an id: the peer could not read a message of ours, or skipped it
	NoticeBusy                               // beyond Config.MaxHandlers; answered CodeServerBusy, notifications dropped
	NoticePanic                              // a handler panicked; Err is a *PanicError
	NoticeHandlerError                       // a notification's handler returned an error, or a request's one that stays here
	NoticeUndelivered                        // the transport lost a message of ours that no call waits for
	NoticeUnencodable                        // a result could not be sent, answered CodeInternalError; or the data of an error, which is left out
)

// String returns the name of the kind, a short lower-case word or two.
func (k NoticeKind) String() string {
	names := [...]string{
		NoticeMalformed: "malformed", NoticeInvalid: "invalid", NoticeOversize: "oversize",
		NoticeUnknown: "unknown response", NoticeLate: "late response", NoticePeerError: "peer error",
		NoticeBusy: "busy", NoticePanic: "panic", NoticeHandlerError: "handler error",
		NoticeUndelivered: "undelivered", NoticeUnencodable: "unencodable result",
	}
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return "unknown"
}

// A PanicError says that a handler panicked. It reaches hooks only: the peer is
// told CodeInternalError with the correlation id, never the value or the stack
// (RPC-21). A call whose result goes to a Writer that panics ends with one, too,
// without method and correlation id.
type PanicError struct {
	Method        string
	CorrelationID string // also in the data of the error that the peer got
	Value         any    // what was given to panic
	Stack         []byte // of the goroutine that panicked

	writer bool // of a result
}

// Error names the method and the value given to panic, without the stack.
func (e *PanicError) Error() string {
	if e.writer {
		return fmt.Sprintf("jsonrpc: the Writer of the result panicked: %v", e.Value)
	}
	return fmt.Sprintf("jsonrpc: handler of %s panicked: %v", printable(shorten(e.Method, longestName)), e.Value)
}

// Unwrap returns the value given to panic when it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// A HandlerError is an error of a handler that the peer is not told, or only by
// its correlation id.
type HandlerError struct {
	Method        string
	CorrelationID string // also in the data of the error that the peer got
	Err           error
}

// Error names the method and the error.
func (e *HandlerError) Error() string {
	return "jsonrpc: handler of " + printable(shorten(e.Method, longestName)) + ": " + unprefixed(e.Err)
}

// Unwrap returns the handler's error.
func (e *HandlerError) Unwrap() error { return e.Err }

// Stats counts what happened on a connection since it began.
type Stats struct {
	Calls         uint64 // calls begun, entries of batches included
	Notifications uint64 // notifications handed over for sending
	Requests      uint64 // requests and notifications given to a handler
	Malformed     uint64 // messages that were not JSON
	Invalid       uint64 // messages that were not JSON-RPC, invalid responses included
	Oversize      uint64 // messages longer than the limit
	Late          uint64 // responses to calls given up
	Unknown       uint64 // responses to calls never made
	Busy          uint64 // requests refused for want of handlers
	Panics        uint64 // handlers that panicked
	Pending       int    // calls waiting now
	Handling      int    // handlers running now
}

// counters are what Stats is made of.
type counters struct {
	calls, notifications, requests                               atomic.Uint64
	malformed, invalid, oversize, late, unknown, refused, panics atomic.Uint64
}

// reporter counts and reports what goes wrong, for a Conn or a Responder.
type reporter struct {
	conn  string
	hooks Hooks
	counters
}

func (r *reporter) notice(kind NoticeKind, err error) {
	switch kind {
	case NoticeMalformed:
		r.malformed.Add(1)
	case NoticeInvalid:
		r.invalid.Add(1)
	case NoticeOversize:
		r.oversize.Add(1)
	case NoticeLate:
		r.late.Add(1)
	case NoticeUnknown:
		r.unknown.Add(1)
	case NoticeBusy:
		r.refused.Add(1)
	case NoticePanic:
		r.panics.Add(1)
	case NoticePeerError, NoticeHandlerError, NoticeUndelivered, NoticeUnencodable:
	}
	if r.hooks.Notice != nil {
		r.hooks.Notice(Notice{Conn: r.conn, Kind: kind, Err: err})
	}
}

func (r *reporter) stats() Stats {
	return Stats{
		Calls: r.calls.Load(), Notifications: r.notifications.Load(), Requests: r.requests.Load(),
		Malformed: r.malformed.Load(), Invalid: r.invalid.Load(), Oversize: r.oversize.Load(),
		Late: r.late.Load(), Unknown: r.unknown.Load(), Busy: r.refused.Load(), Panics: r.panics.Load(),
	}
}
