package jsonrpc

import "context"

// A Handler answers the requests and notifications that a Conn or a Responder
// receives. It is called from several goroutines at once, except for methods
// that the handler declares inline (see Inliner).
type Handler interface {
	// Handle answers req with a result or an error. What it returns for a
	// notification is dropped, an error reported to the hooks.
	//
	// Of results, a json.RawMessage, or what a *json.RawMessage points to, is sent
	// as it is; an io.Reader is streamed, until it ends, the peer is gone or the
	// connection closed, and then closed if it is an io.Closer; nil is null;
	// everything else goes through the Codec. When a connection ends and its grace
	// is over, Close is called beside a Read that may be waiting, which has to
	// return then, as that of a pipe, a file or an HTTP body does.
	//
	// Of errors, an *Error is sent as it is; context errors become CodeCancelled,
	// or CodeTimeout also when it was this side that ended the connection. Every
	// other error becomes CodeInternalError: its text stays here and reaches the
	// hooks, never the peer. So does what a call to somebody else returned; who
	// passes on calls returns the *Error that errors.As finds in it.
	//
	// ctx ends when the peer cancels the request, when the connection ends and
	// its grace is over, and at the latest when Handle returned. req and all
	// bytes that it gives out are borrowed until Handle returns; a result may
	// alias them.
	Handle(ctx context.Context, req *Request) (any, error)
}

// A HandlerFunc is a Handler.
type HandlerFunc func(ctx context.Context, req *Request) (any, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, req *Request) (any, error) { return f(ctx, req) }

// Middleware wraps a Handler in another one.
type Middleware func(Handler) Handler

// An Inliner is a Handler that promises for some methods that handling them is
// quick and calls nobody back. They run on the goroutine that reads the
// connection: in the order of arrival, and without a copy of their params. A
// handler that breaks the promise holds up the connection.
type Inliner interface {
	Handler
	// Inline says whether the method with this name is handled inline. The
	// bytes are borrowed.
	Inline(method []byte) bool
}
