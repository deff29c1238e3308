// Package interop has no code, only tests: package jsonrpc against programs
// that were made with other people's JSON-RPC libraries, in both roles, over
// standard input and output, sockets and HTTP. The programs are in cmd and
// node; the module is one of its own so that their dependencies stay here.
//
//	github.com/creachadair/jrpc2           lines and headers, stdio, tcp, unix, http
//	go.lsp.dev/jsonrpc2                    lines and headers, stdio, tcp, unix
//	vscode-jsonrpc                         headers, stdio, tcp, unix
//	github.com/modelcontextprotocol/go-sdk both kinds of the protocol, stdio, http
//	@modelcontextprotocol/sdk              up to 2025-11-25, stdio, http
//	@modelcontextprotocol/server, client   both kinds of the protocol, stdio, http
//
// Two kinds, since the Model Context Protocol has sessions, a handshake and
// requests of the server's up to 2025-11-25, and none of them from 2026-07-28 on.
//
// The tests need Node.js 20 with npm, and once the npm registry: the packages
// of node/package-lock.json are kept in the folder that PARLEY_TEST_CACHE names,
// else in the user's cache folder.
//
// # What the tests say about the peers
//
// Where a peer does less than JSON-RPC 2.0 has, the tests hold on to what it
// does, so that a change shows:
//
//   - jrpc2 leaves out the message of an error when it is empty, and its HTTP
//     client knows no status for a notification but 204 (ours is 202 by default).
//   - jrpc2 refuses requests with members that JSON-RPC 2.0 does not name.
//   - vscode-jsonrpc keeps silent about batches, leaves out params that are an
//     empty array, and has only the integers that a double holds.
//   - The servers of the Go SDK exit when they are told that they wrote what is
//     no message; those of the TypeScript SDKs go on.
//   - The TypeScript server of 2026 serves older clients over HTTP without
//     sessions: it cannot ask them anything, and cannot be told that a call was
//     given up.
package interop
