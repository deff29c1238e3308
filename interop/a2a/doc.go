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
// The tests of quirks_test.go, push_test.go and scenarios_test.go hold on to what
// the SDKs do that is no part of the protocol, so that a change shows:
//
//   - None of them deduplicates by messageId.
//   - After a crash of its executor a task goes on for ever with Python 0.3 and
//     JavaScript 0.3 if the sender did not wait; with Go there is no task at all,
//     with Python 0.3 not even an error on a stream, and with Java now and then no
//     answer.
//   - A Python agent with a database that is killed leaves its tasks at work for
//     ever, and cancels them when told to.
//   - Python 1.0 gives all numbers back as doubles.
//   - JavaScript takes no more than 100 KiB and refuses with a page of HTML.
//   - JavaScript 0.3 as CommonJS answers all errors as internal ones.
//   - Go lists no tasks without an authenticator.
//   - Servers of 1.0 post 1.0 notifications to hooks of 0.3; Go names the header of
//     the token in a way of its own; Java posts nothing.
//   - Java streams events out of order when the machine is busy.
//   - Python and JavaScript 1.0 take both dialects on one URL, Go on two.
package a2a
