// Package rpchttp carries JSON-RPC 2.0 over HTTP: each message, or batch, is the
// body of a POST, and its answer the body of the response. A session adds a way
// back, a stream of server-sent events on which the server calls the client.
//
// # Serving
//
// [Handler] makes an [http.Handler] of a jsonrpc.Handler:
//
//	h := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: &mux}})
//	srv := rpchttp.NewHTTPServer("127.0.0.1:8080", h)
//	err := srv.ListenAndServe()
//
// What is POSTed is answered 200 with the response, or 202 without a body when
// it holds notifications only (204 with ServerConfig.NotificationStatus): even
// errors of JSON-RPC are 200, since HTTP did its part. What HTTP itself refuses
// has the fitting status, and in the body a JSON-RPC error whose id is null:
//
//	400  the body did not arrive whole; a session is needed
//	403  an Origin or Host that may be a foreign page (see ServerConfig)
//	404  a session that does not exist, has ended, or is someone else's
//	405  not POST, with sessions nor GET nor DELETE
//	406  an Accept header that excludes the answer
//	408  the body did not arrive in time
//	410  a Last-Event-ID whose events are not kept any more
//	413  a body above Config.MaxMessage, which is refused without being read
//	415  not application/json (application/json-rpc and charset=utf-8 are
//	     tolerated), or compressed, which would hide its size
//	503  too many sessions, notifications beyond Config.MaxHandlers, or the
//	     Server is closed
//
// The context of a handler has the values of the request's: what the handlers of
// net/http around a Server have found out, such as who calls, is at hand, in
// notifications and batches as well.
//
// The headers X-Correlation-ID, traceparent and tracestate become the Meta of
// the handler's context, and the first is repeated in the answer. How long a
// body may take is a matter of the http.Server; [NewHTTPServer] sets its limits.
// A client that takes nothing of an answer for Config.StallTimeout, or less than
// 64 KiB of what is left, loses its connection.
//
// A client that hangs up on a request ends the context of its handler.
// Notifications are answered when their handlers begin, which then go on
// without the client, until Close ends them after Config.Grace. For methods that
// the Handler declares inline they are answered when they were handled, so that
// a client that waits for one answer before it sends the next message keeps the
// order.
//
// # Calling
//
// [NewStream] is the client's end, for jsonrpc.NewConn or a jsonrpc.Client:
//
//	st, err := rpchttp.NewStream("http://127.0.0.1:8080/", rpchttp.ClientConfig{})
//	conn := jsonrpc.NewConn(st, jsonrpc.Config{})
//
// A POST that brings no JSON-RPC response fails the calls in it with an *[Error],
// which has the status, the beginning of what came, and advice; the Conn lives
// on. A jsonrpc.Client repeats such a call when the server can be tried again:
// one that certainly did nothing (it could not be reached, or answered 429) with
// every call, otherwise with those that are Idempotent, after the pause that
// Retry-After asks for. An HTTP error with a JSON-RPC response in it is that response; if its id
// is null, it can only mean the message of this POST, and is in the Error. An
// answer may also be a stream of events, in which requests and notifications of
// the server come before the response; if it is cut, and its events had ids, the
// client asks for the rest.
//
// # The way back
//
// With ServerConfig.Sessions, a GET that accepts text/event-stream opens a
// session and its way back. The header Rpc-Session-Id brings its id, which the
// client repeats in its POSTs; a handler finds the session with [SessionFrom],
// and in it the Conn on which to call the client:
//
//	GET  →  200, Rpc-Session-Id: S, text/event-stream
//	        id: 1
//	        data: {"jsonrpc":"2.0","id":4096,"method":"name"}
//	POST {"jsonrpc":"2.0","id":4096,"result":"Ada"}, Rpc-Session-Id: S  →  202
//
// Calls wait until a way back that is wanted at once is open. A proxy that passes an
// answer on only when it is whole never lets that come about: have it pass
// text/event-stream on at once (nginx does, when it sees the header
// X-Accel-Buffering that Server sends).
//
// When the stream breaks, the client comes back with the id of the last event
// it has (Last-Event-ID), and gets what it missed, once. Only one way back is
// open at a time: a newer GET ends the older one. DELETE ends the session, and
// so do ServerConfig's limits. When the server ends it, by Server.Close or by
// closing the session's Conn, a way back that is open gets what is left; if the
// client is away just then, the events that it has not got are lost with the
// session, and its next GET is answered 404, or 503. With other names for header and methods this is
// the Streamable HTTP of the Model Context Protocol: SessionConfig.Header
// "Mcp-Session-Id" and OpenOn "initialize" here, WayBackWithSession there.
//
// # Giving up
//
// A call that is given up ends its POST when ClientConfig.Cancel is set to the
// Cancel of the Conn: the Conn writes the notification that tells the peer, by
// which the Stream knows. To a server without sessions that is all there is to
// say, as in the Model Context Protocol from 2026 on, and the notification is
// not sent; in a session it is sent as well, since there servers take a lost
// connection for an accident:
//
//	POST {"jsonrpc":"2.0","id":7,"method":"slow"}, Rpc-Session-Id: S
//	POST {"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":7}}, …: S  →  202
//
// A Server with the same Config.Cancel then ends the context of the request with
// that id, as it is written, in that session; a notification that overtakes its
// request finds nothing to end. Without Cancel, jsonrpc.CancelSilent, a call
// that is given up leaves its POST running until the answer comes or
// ClientConfig.Timeout is over. A call that is given up before its POST began is
// not sent at all, and its error says so.
//
// # What a Stream over HTTP promises
//
// Both ends, [Stream] and what SessionConfig.Accept gets, keep the contract of
// jsonrpc.Stream (RPC-15), with these differences:
//
//   - Messages of the client travel at the same time, and may overtake each
//     other, unless ClientConfig.MaxInFlight is 1; even then answers to the
//     server's calls have a lane of their own, since calls may wait for them.
//     When the lane of calls is full, callers wait, and answers do not.
//   - A message is whole before it is POSTed, up to ClientConfig.MaxSend; large
//     answers are handed over in parts. A large message that is cut off ends
//     where it was cut, which makes it no JSON, and the Read after that tells
//     that it was lost.
//   - Events cannot hold carriage returns. They become spaces, which is the same
//     JSON.
//   - io.EOF is what Read returns when the server ended the session. Without a
//     way back there is nothing that ends: every POST succeeds or fails by
//     itself.
//   - The context of a call cannot reach its POST; the call returns at once.
//     The section on giving up says what becomes of the POST.
//
// Close waits for its goroutines. Credentials in URLs and headers appear in no
// error.
package rpchttp
