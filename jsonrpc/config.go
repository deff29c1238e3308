package jsonrpc

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// A Config says how a Conn, a Responder or a Client behaves. The zero value is
// ready to use: every limit has a default, none is off.
type Config struct {
	// Name names the connection in errors and hooks. Default: "rpc-" and a
	// random number; the name need not be unique.
	Name string
	// Handler answers the peer's requests. Nil: each of them is answered
	// CodeMethodNotFound, and IgnoreInvalid counts as set.
	Handler Handler
	// IgnoreInvalid leaves unanswered what is no message, or too long for one:
	// it is counted and told to Hooks.Notice only. A server answers it, as
	// JSON-RPC 2.0 section 5 wants. A client has nobody to tell it to: what
	// cannot be read from a server is a line of its log among the messages, and
	// some servers fail over the answer. Clients with a Handler for the requests
	// of their server, as those of MCP and LSP, set it. A Responder answers
	// always.
	IgnoreInvalid bool
	// Timeout bounds a call or a notification whose context has no deadline of
	// its own, and which has no WithTimeout. It is coarse: a call ends at most a
	// quarter of a second, or of Timeout when that is shorter, after it. Default
	// 30 s; negative: none (RPC-10).
	Timeout time.Duration
	// IDs is the form of the ids of our own calls (RPC-11).
	IDs IDFormat
	// MaxPending bounds the calls waiting for an answer at the same time; a
	// call beyond fails at once with a *ResourceError (RPC-19). Default 4096, at
	// most 65536.
	MaxPending int
	// MaxHandlers bounds the requests being handled at the same time; a request
	// beyond is answered CodeServerBusy, a notification dropped and reported to
	// Hooks.Notice (RPC-23). Default 1024.
	MaxHandlers int
	// MaxMessage bounds one incoming message, in bytes; a longer one is skipped
	// and answered CodeInvalidRequest (RPC-24), but see IgnoreInvalid. Default
	// 1 MiB.
	MaxMessage int
	// MaxDepth bounds the nesting of arrays and objects, in levels, in both
	// directions. Default 128, at most 10,000.
	MaxDepth int
	// MaxBatch bounds a batch, in entries, in both directions. Default 1000.
	MaxBatch int
	// WriteBuffer bounds the bytes waiting to be written. Who has a message to
	// send while that many wait, waits for room with its context; those who wait
	// are told of room in the order of coming. A single message may be longer.
	// Default 128 KiB.
	WriteBuffer int
	// StallTimeout ends the connection when the peer has not taken the next
	// 64 KiB for so long, or all that waits where that is less. Default 30 s;
	// negative: never.
	StallTimeout time.Duration
	// Grace is what running handlers are given when the connection ends, before
	// their contexts do. Default 5 s; negative: none.
	Grace time.Duration
	// Codec encodes params and results, and decodes them. Default: StrictCodec.
	Codec Codec
	// TrustRaw sends params and results that are a json.RawMessage without
	// checking them, which saves a quarter of the work of large calls: for proxies,
	// and for text that a marshaller made. Line breaks become spaces all the
	// same, so that no text can end its message early. If a text is not valid
	// JSON after all, the whole message is not: the peer answers CodeParseError
	// without an id (a NoticePeerError) or nothing, and the call ends with its
	// timeout; an invalid result ends the peer's call, or lets it wait for its own
	// timeout. MaxDepth is not kept in this direction.
	TrustRaw bool
	// CallerReads makes the goroutine that waits for an answer read the Stream
	// itself, which saves two changes of goroutine per call where calls are made
	// one at a time; several at once still work. It is for pure clients, on
	// Streams with SetReadDeadline: NewConn panics when Handler is set too or
	// the Stream lacks the method; a Client does without on such a Stream. While
	// no call waits, nothing is read, so that a peer that hangs up is noticed by
	// the next call only. (Without it a connection does the same by itself while
	// calls are made one at a time, and reads on its own otherwise.)
	CallerReads bool
	// Cancel is how a cancelled call tells the peer, and which notification of
	// the peer cancels a running handler.
	Cancel CancelStyle
	// SendMeta puts the Meta of a call's context into its request, as the members
	// "correlation_id", "traceparent" and "tracestate", which JSON-RPC 2.0 does
	// not know and peers may refuse. Incoming ones are always read.
	SendMeta bool
	// Hooks are told what happens, for metrics and logs.
	Hooks Hooks
}

// An IDFormat is the form of the ids of our own calls (RPC-11).
type IDFormat uint8

const (
	// IntegerIDs are integers below 2^53, so that peers that keep numbers in
	// floating point echo them unaltered.
	IntegerIDs IDFormat = iota
	// UUIDs are strings in the form of RFC 9562 version 8: unique among
	// connections and processes.
	UUIDs
)

// A CancelStyle is how the cancellation of a call travels to the peer, for
// which JSON-RPC 2.0 has no rule. It works in both directions: calls given up
// are told to the peer, and the peer's notifications end the context of the
// handler concerned.
type CancelStyle uint8

const (
	// CancelSilent: not at all. The peer's answer comes late and is counted.
	CancelSilent CancelStyle = iota
	// LSPCancel: "$/cancelRequest" {"id": ID}, as language servers do it.
	LSPCancel
	// MCPCancel: "notifications/cancelled" {"requestId": ID}, as the Model
	// Context Protocol does it.
	MCPCancel
)

// method returns the method of the notification and the member of its params
// that names the request.
func (s CancelStyle) method() (method, member string) {
	switch s {
	case LSPCancel:
		return "$/cancelRequest", "id"
	case MCPCancel:
		return "notifications/cancelled", "requestId"
	case CancelSilent:
	}
	return "", ""
}

// A CallOption changes one call.
type CallOption func(*callOptions)

type callOptions struct {
	timeout    time.Duration
	idempotent bool
}

// WithTimeout bounds a call in place of Config.Timeout, exactly: it ends with
// an error that matches ErrTimeout when d is over. A deadline of the context
// holds beside it. With d ≤ 0 only the context bounds the call.
func WithTimeout(d time.Duration) CallOption {
	return func(o *callOptions) {
		o.timeout = d
		if d <= 0 {
			o.timeout = -1
		}
	}
}

// Idempotent declares that the call may be made twice without harm, so that a
// Client may repeat it when it does not know whether the peer got it.
func Idempotent() CallOption { return func(o *callOptions) { o.idempotent = true } }

// maxPendingLimit keeps slot numbers within 16 bits of the 53 that an id has.
const maxPendingLimit = 1 << 16

// withDefaults returns cfg with every limit set.
func (cfg Config) withDefaults() Config {
	if cfg.Name == "" {
		cfg.Name = "rpc-" + strconv.FormatUint(uint64(rand.Uint32()), 36)
	}
	setDefault(&cfg.Timeout, 30*time.Second)
	setDefault(&cfg.MaxPending, 4096)
	setDefault(&cfg.MaxHandlers, 1024)
	setDefault(&cfg.MaxMessage, 1<<20)
	setDefault(&cfg.MaxDepth, 128)
	setDefault(&cfg.MaxBatch, 1000)
	setDefault(&cfg.WriteBuffer, 128<<10)
	setDefault(&cfg.StallTimeout, 30*time.Second)
	setDefault(&cfg.Grace, 5*time.Second)
	cfg.MaxPending = min(max(cfg.MaxPending, 1), maxPendingLimit)
	cfg.MaxHandlers = max(cfg.MaxHandlers, 1)
	cfg.MaxDepth = min(cfg.MaxDepth, maxRecursion)
	if cfg.Codec == nil {
		cfg.Codec = StrictCodec()
	}
	return cfg
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
