// Package rpcws carries JSON-RPC 2.0 over WebSocket (RFC 6455): a
// jsonrpc.Stream at both ends of a connection (RPC-13, RPC-15).
//
//	stream, err := rpcws.Dial(ctx, "wss://example.com/rpc", rpcws.DialConfig{})
//	conn := jsonrpc.NewConn(stream, jsonrpc.Config{Handler: mux})
//
// A server is an http.Handler that owns its connections:
//
//	server := rpcws.Handler(rpcws.AcceptConfig{}, func(ctx context.Context, s jsonrpc.Stream) {
//		conn := jsonrpc.NewConn(s, jsonrpc.Config{Handler: mux})
//		select {
//		case <-conn.Done():
//		case <-ctx.Done():
//		}
//		conn.Close()
//	})
//
// Handshake, masking, control frames and the closing handshake are those of
// github.com/coder/websocket. This package adds what a JSON-RPC connection
// wants and a general library cannot know.
//
// # Frames
//
// One message is one WebSocket message. It is sent as a text frame, since JSON
// is text; a binary message is read like a text message, because some clients
// send nothing else, and is answered with text. Whether the bytes are UTF-8 is
// for the Conn to say, which answers -32700 where a WebSocket library would
// have to end the connection (RPC-25). An empty message is skipped.
//
// Messages handed over in one call of Write leave in one write to the socket,
// as separate frames; answers to messages that arrived together are collected
// by the Conn (Part.More) and leave together, too. A message of more than
// 1 MiB, and one that comes in several calls of Write and has more than 64 KiB,
// is sent in fragments. Incoming messages of more than 256 KiB are handed over
// in parts, whether they came in fragments or not. There is no limit on their
// size here: the Conn has one, answers, and goes on (RPC-24).
//
// # Compression
//
// permessage-deflate is off unless both ends ask for it. It costs up to a
// hundred times of what it takes to send a short message uncompressed, and a
// secret in a compressed message can be guessed from its length by whoever
// puts text beside it.
//
// # Closing
//
// A peer that closes with 1000, 1001 or without a code ends Read with io.EOF;
// any other code ends it with a *CloseError, which knows whether a new connection
// may last longer, and a connection that ends without a close frame with
// io.ErrUnexpectedEOF (RPC-14). A peer that neither sends, nor takes a long message,
// nor answers a ping in time ends it with ErrNoPong. Close waits for the peer's
// close frame for at most CloseTimeout. It says 1000, 1001 when a Server goes
// away, and 1002 when the peer has sent an illegal frame, which ends Read; never
// 1007 or 1009, since invalid UTF-8 and size are for the Conn, which goes on.
//
// # Concurrency
//
// All functions, and all methods of a Server, may be called from any number of
// goroutines at once. The Streams keep to what jsonrpc.Stream says.
package rpcws
