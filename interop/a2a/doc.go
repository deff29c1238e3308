// Package a2a has no code, only tests: Parley, as its users see it by its REST
// API, against agents that were made with the official SDKs of the Agent2Agent
// protocol.
//
//	github.com/a2aproject/a2a-go/v2 v2.4.0  A2A 1.0 and 0.3; JSON-RPC, HTTP+JSON, gRPC
//	github.com/a2aproject/a2a-go v0.3.15    A2A 0.3; JSON-RPC
//	a2a-sdk 1.3.0 (Python)                  A2A 1.0 and 0.3; JSON-RPC, HTTP+JSON, gRPC; tasks in SQLite
//	a2a-sdk 0.3.26 (Python)                 A2A 0.3; JSON-RPC; tasks in SQLite
//	@a2a-js/sdk 1.3.0                       A2A 1.0 and 0.3; JSON-RPC, HTTP+JSON, gRPC
//	@a2a-js/sdk 0.3.14                      A2A 0.3; JSON-RPC
//	io.github.a2asdk 0.3.3.Final (Java)     A2A 0.3; JSON-RPC
//
// All run the same script (python/script.py, node/script.mjs, internal/script,
// java): the text of the message says what to do. "hold KEY" works until POST
// /release?key=KEY, "drip N KEY" gives N chunks and waits likewise; nothing that
// is tested depends on how fast anything is. Each agent writes every execution
// with the id of its message into a file that outlives it, and which GET /log
// shows: the tests judge by it whether anything was executed twice.
//
// The tests need Go, Python 3.10 with pip, Node.js 20 with npm, and a JDK 17 with
// Maven, and once the package registries of these. What they install is kept in
// the folder that PARLEY_TEST_CACHE names, else in the user's cache folder.
//
// # What the tests say about the SDKs
//
// The table of defects_test.go has everything that the SDKs were seen to do that
// is no part of the protocol, or is left open by it: what a run sees of it, and
// the tests that hold on to both, so that a change shows. Most of these tests ask
// an agent past Parley and have a run beside it; what Parley never asks is proved
// by all that it says to an agent in one long conversation (heard_test.go).
//
// Answers are lost, streams cut and agents restarted by proxies: of connections
// (proxy_test.go), of calls over gRPC (grpcproxy_test.go), of requests over HTTP.
package a2a
