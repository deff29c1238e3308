// Package api serves the REST interface: workflows, runs, their events and
// agents, on the paths of interface.md and, with the shapes and status codes
// of formats.md, for clients of the existing platform.
//
// # Layers
//
// A request passes correlation id, host check, header limit, cross-origin
// check and authentication (middleware.go), then the standard mux. Handlers
// are plain functions that return an error; one function (problem.go) turns
// every error into an HTTP answer. Huma's adapter registers the routes and its
// registry makes the schemas of the OpenAPI document from the same Go types
// that are encoded; decoding and validation are done here (decode.go), because
// they must be strict, must name every wrong member at once and must never
// echo a value.
//
// # Two clients, one answer
//
// Runs, steps, workflows, agents and errors carry the members of both
// interfaces in one object. Errors are application/problem+json with the
// members of RFC 9457 and, beside them, those of the existing platform; its
// clients parse the body without looking at the type. On its paths its status
// codes hold: a run in the wrong state is 400 there, with code "conflict".
// What it never had (an idempotency key used for something else) is 409.
//
// # Concurrency
//
// The handler may be used concurrently. Each event stream has one goroutine
// that reads; the handler waits for it before it returns. Streams end with
// their request's context: a server that wants to stop gives its connections
// a base context and cancels it.
package api
