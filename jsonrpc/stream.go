package jsonrpc

import "time"

// A Stream carries JSON texts in both directions: the seam between a Conn and
// its transport (RPC-15). Lines and headers over pipes and sockets are in this
// package, HTTP and WebSocket in packages below it; rpctest.TestStream is the
// contract as a test that every implementation passes.
//
// A Conn calls Read from one goroutine and Write from at most one goroutine at
// a time; Read, Write and Close may run side by side. A Stream neither parses
// nor checks what it carries, and it has no limit on the size of a message:
// large ones come and go in parts, and the Conn decides how many it wants.
//
// Four abilities are optional. A Stream with
//
//	TryWrite(p []byte) (n int, err error)
//
// writes as much of p as goes without waiting, possibly nothing; a Conn then
// sends from the goroutine that has something to send, and only leaves to its
// writer what did not fit. A Stream with
//
//	SetReadDeadline(t time.Time) error
//
// lets a blocked Read be interrupted (the error matches
// os.ErrDeadlineExceeded, nothing that was read is lost, and a later deadline
// makes the Stream usable again); a Conn needs it for Config.CallerReads. A Stream
// whose Write may take longer than a peer takes for the next 64 KiB, since it writes
// more than it was given, or waits for something else, has
//
//	WriteWatched(p []byte, watch func(on bool)) (n int, err error)
//
// which is Write, and while it is under way calls watch(true) whenever the peer has
// taken something, from when on Config.StallTimeout counts anew, and watch(false)
// before it waits for what has an end of its own, from when on it does not count. A
// Stream in which messages wait for their turn, so that some pass others, has
//
//	Room() (calls, notifications bool)
//	OnRoom(told func())
//	Drop(id []byte) bool
//
// A Conn calls OnRoom before anything is written. From then on it asks Room before it
// takes a call, a batch of calls, or a notification from who sends it, who waits as long
// as there is none: not in the Stream, where answers would wait behind it. So Write and
// TryWrite take calls and notifications without waiting, those included that the Conn had
// taken before (Config.WriteBuffer). Whenever there is room after there was none, the Stream
// calls told, from any goroutine, but not from within Room, and with no lock that Room takes.
// Drop takes out the call with this id, as it was written, if it still waits for its turn: true
// says that it never goes out. Nobody waits for its answer any more.
type Stream interface {
	// Read returns the next part of the message at hand, or the first part of
	// the next message. The bytes are borrowed until the next Read. Empty
	// messages (blank lines) are not returned.
	//
	// An error ends the Stream, io.EOF when the peer closed it between two
	// messages and io.ErrUnexpectedEOF when it closed it within one, with two
	// exceptions, after which Read goes on: an error that matches
	// os.ErrDeadlineExceeded, and an *UndeliveredError, which says that a
	// message of ours did not reach the peer.
	Read() (Part, error)

	// Write takes the next bytes of a sequence of messages, each ended by one
	// newline and holding no other. A message may be spread over several
	// calls, and a call may hold several messages; the Stream puts its own
	// framing in place of the newline. It returns when the bytes are handed to
	// the transport, or a copy of them is kept for it: the caller uses p again.
	// After an error the Stream is broken: Close is all that is left, and before it
	// perhaps some calls of Read for what had come.
	Write(p []byte) (n int, err error)

	// Close ends both directions and makes blocked calls of Read and Write
	// return. It may be called more than once, from any goroutine.
	Close() error
}

// A Part is a piece of an incoming message: nearly always a whole one, since
// Streams hand over messages that fit their buffer at once.
type Part struct {
	// Data is the next bytes of the message, without framing.
	Data []byte
	// End says that Data completes the message.
	End bool
	// More says that the next message, or the beginning of it, is known to be
	// there already, so that an answer to this one may wait to be sent
	// together with the next answer. False is always correct.
	More bool
	// Void says, beside End, that the Stream has lost the rest of a message of which
	// parts were handed over: they count for nothing. The message comes again, whole, or
	// an *UndeliveredError says what is lost with it.
	Void bool
}

// An UndeliveredError is returned by Stream.Read for a message of ours that
// the transport could not deliver, while the Stream goes on: an HTTP request
// that failed, for example. A Conn fails the calls in it with Err.
type UndeliveredError struct {
	// Message is the undelivered message: one request, notification, response
	// or batch.
	Message []byte
	// Err says why.
	Err error
	// NotSent says that the peer certainly did nothing with the message, so that
	// it can be sent again without happening twice.
	NotSent bool
	// RetryAfter is what the peer asks to wait before the next attempt; 0 when it
	// does not.
	RetryAfter time.Duration
}

// Error says why the message was not delivered.
func (e *UndeliveredError) Error() string {
	return "jsonrpc: message not delivered: " + e.Err.Error()
}

// Unwrap returns the transport's error.
func (e *UndeliveredError) Unwrap() error { return e.Err }
