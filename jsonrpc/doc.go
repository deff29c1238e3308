// Package jsonrpc speaks JSON-RPC 2.0 (https://www.jsonrpc.org/specification)
// over any transport: as a client, as a server, and as both on one connection.
// As a server it answers every input as the specification says, and goes on. It
// keeps every queue within a limit, and imports the standard library only.
//
// # A server
//
// A server is a Handler. A [Mux] is one that finds the handler of a method by
// its name, and [Typed] makes one of a function:
//
//	var mux jsonrpc.Mux
//	mux.Register("subtract", jsonrpc.Typed(func(ctx context.Context, p struct {
//		Minuend    int `json:"minuend"`
//		Subtrahend int `json:"subtrahend"`
//	}) (int, error) {
//		return p.Minuend - p.Subtrahend, nil
//	}))
//
// takes {"minuend":42,"subtrahend":23} and [42,23], and answers params of a
// wrong type with the name of the member and what was expected. A handler that
// wants the raw params implements [Handler]. Handlers run on goroutines of
// their own, at most Config.MaxHandlers at a time; what is quick and calls
// nobody back may be registered with [Mux.RegisterInline], and then runs in
// order where the connection is read, without a copy of its params.
// Params are borrowed until the handler returns: copy what has to live longer.
//
// A [Conn] serves one connection, a [Stream]:
//
//	conn := jsonrpc.NewConn(jsonrpc.Stdio(), jsonrpc.Config{Handler: &mux})
//	<-conn.Done()
//
// [Serve] accepts connections from a listener; package rpcdial chooses the
// transport by a URL, packages rpchttp and rpcws have HTTP and WebSocket. A
// [Responder] answers single messages that came by any other way.
//
// # A client
//
//	sum, err := jsonrpc.Call[int](ctx, conn, "sum", []int{1, 2, 4})
//
// [Conn.Call] is the same with a pointer for the result, [Conn.Notify] sends a
// notification, which is never answered. Any number of goroutines may call at
// the same time; small messages of theirs are written together. Every call
// ends: with its context, or after Config.Timeout, 30 seconds unless set
// otherwise, or when the connection ends.
//
// A [Batch] sends several calls as one array:
//
//	var b jsonrpc.Batch
//	var n int
//	one := b.Call("sum", []int{1, 2}, &n)
//	b.Notify("notify_hello", []int{7})
//	err := conn.Batch(ctx, &b) // then one.Err() tells of each
//
// A [Client] is for connections that come and go: it dials again after errors
// that are worth it, gives up after those that are not, such as a certificate
// that does not fit or a program that is not there, and repeats only what was
// certainly not done before, or is [Idempotent].
//
// # Both directions
//
// A Conn with a Handler takes calls while it makes some. A handler reaches its
// caller by [Request.Conn]; it must not be inline for that, since the answer
// comes on the goroutine that an inline handler holds up. The ids of the two
// directions have nothing to do with each other.
//
// # Limits
//
// Nothing grows without bound. Config has a default for each limit: pending
// calls, running handlers, the size and the nesting of a message, the entries
// of a batch, the bytes waiting to be written, the time a peer may take no
// byte. What goes beyond a limit of this side fails with a [*ResourceError]
// and is not sent; what the peer sends beyond one is answered with an error
// whose data names the limit, and the connection goes on. Results and params
// larger than memory should hold are passed as io.Reader and io.Writer; a handler
// registered with [Mux.RegisterStreaming] reads such params while they come.
//
// # Errors and what to do about them
//
// A handler returns an [*Error] to choose what the peer is told. Any other
// error, and a panic, becomes "internal error" with a correlation id; its text
// and its stack stay here, for Hooks.
//
// A call returns a [*CallError] that says what was called where, with what id
// and for how long, around the reason: errors.As finds an [*Error] from the
// peer, a [*ConnError], a [*TimeoutError], a [*ResourceError], an
// [*UndeliveredError] of a transport whose connection goes on. [AdviceFor] says
// whether to retry, to reconnect or to give up, and holds the table.
//
// # Codecs
//
// The envelope of messages is read and written by this package itself. Params
// and results go through a [Codec]: [StrictCodec] unless set otherwise. Another
// one is ten lines, such as one for encoding/json/v2 where that is at hand:
//
//	type codec struct{}
//
//	func (codec) Append(dst []byte, v any) ([]byte, error) {
//		text, err := json.Marshal(v)
//		return append(dst, text...), err
//	}
//
//	func (codec) Decode(data []byte, v any) error { return json.Unmarshal(data, v) }
//
// # Where the specification is silent
//
// What was decided, and why. The conformance cases in package rpctest have an
// example of each.
//
//   - The grammar decides first. A text that is no JSON is a parse error
//     (-32700, id null), whatever else is wrong with it, and wherever in a batch:
//     nothing of a malformed batch is run.
//   - JSON is RFC 8259 in UTF-8. Invalid UTF-8 is a parse error, and so are lone
//     surrogates ("\ud83d"), which stand for no character, and a byte order
//     mark: what cannot be passed on faithfully is not taken.
//   - The id of an invalid request (-32600) is echoed when there is exactly one of
//     a valid type, so that its caller learns of it; otherwise it is null.
//   - Ids are echoed byte for byte: integers of any size, strings with their
//     escapes, fractions and exponents, which section 4 discourages and which
//     harm nobody.
//   - An id of null makes a request, which is answered with null: section 4 calls
//     a notification what has no id member.
//   - A member of the envelope that is there twice is an invalid request, even
//     if both are equal: readers differ in which of them counts. Other members
//     are not known here and ignored, once or twice. Within params and results
//     duplicates are the Codec's affair: StrictCodec refuses them, a handler that
//     takes raw params gets them as they came.
//   - Names of members are compared exactly, after undoing escapes: "ID" is an
//     unknown member, "\u0069d" is the id.
//   - "jsonrpc" must be the string "2.0". A message without it is invalid, since
//     it may mean something else in version 1.0.
//   - Params of null count as absent, as many peers mean it (RPC-1). Other scalars
//     are an invalid request (-32600), not invalid params: section 4.2 makes it a
//     matter of the message, and no method could take them.
//   - An invalid message without an id is answered, with id null, since it is no
//     notification before it is a valid one. A notification is never answered,
//     neither when its method is unknown nor when it fails.
//   - A method that is the empty string is a name like any other, unknown unless
//     registered. Names that begin with "rpc." cannot be registered in a Mux
//     (section 4.1 reserves them) and are answered as unknown (-32601).
//   - A message with a method and a result or an error is an invalid request.
//   - What looks like a response, without a method, but is none, ends the call
//     that its id belongs to, if there is one; so does an object without a method,
//     params, result and error, which is no request either. If there is none, the
//     former is answered with id null, and not with the id it has: that one was
//     ours, and could be mistaken for one of the peer's own. Valid responses are
//     never answered; those to calls that nobody waits for any more are counted.
//   - A response that is cut off at its end ends its call a second later: a peer
//     whose result fails while it is streamed sends the call's error behind it.
//   - A result and "error": null beside it, as in version 1.0, is such an invalid
//     response: section 5 wants one of the two not to exist.
//   - An error in a response whose code is no integer, or whose message is no
//     string, is still shown as an error; code -32603 stands in.
//   - A client, a Conn without a Handler or with Config.IgnoreInvalid, answers
//     nothing that is invalid or no JSON, and only counts and reports it: section
//     5 has a server answer what it could not read of a client, and a server that
//     gets an answer to a line of its own log can do no more than fail. Requests
//     to it are answered as unknown (-32601).
//   - Too deeply nested (Config.MaxDepth, counted in levels from each message,
//     which is the first) is -32600 with the id: it is JSON, but no request that
//     this side takes. In a batch it spoils its own entry only. Limits above
//     10,000 levels count as 10,000.
//   - Too large (Config.MaxMessage) is -32600 with id null, as the message is
//     skipped unread; a response ends its call, wherever its id stands, and
//     a batch of them their calls. Too many entries in a batch (Config.MaxBatch) is
//     one -32600 for all of it. Data names the limit: {"limit":1048576,"unit":"bytes"}.
//   - An error with id null tells that some message of ours was refused, and not
//     which: it goes to Hooks as a NoticePeerError. One by itself, not in an array,
//     whose data names a limit in that form, in bytes or entries, ends those calls
//     whose message is beyond it: a peer that takes no such message is not at work
//     on one. Any other call that gets no answer has the newest of those errors in
//     its TimeoutError.
//   - A batch may hold requests and responses; an array in it is an invalid entry.
//     The answers come in one array, in any order; if there are none, nothing
//     comes.
//   - Blank lines between messages are ignored, where lines are the framing.
//   - Errors of the range that section 5.1 leaves to implementations: server busy
//     -32050, timeout -32051, closing -32052; and -32800 for cancelled requests, as
//     language servers have it. Others use -32000 to -32011, -32042 and -32096 to
//     -32099 for purposes of their own, so those are left alone.
//   - Extra members of requests: "correlation_id", "traceparent" and "tracestate"
//     are read when they are strings, and sent with Config.SendMeta.
package jsonrpc
