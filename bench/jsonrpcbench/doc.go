// Package jsonrpcbench measures the JSON-RPC library beside the other Go
// libraries and beside raw floors: the least that the same bytes cost without
// JSON. All of them run in one process and take turns in every round, so that
// the machine's mood meets all alike.
//
// A case is a load (transport, payload, calls in flight); its entrants are
// Parley, Parley's variants, the peers and the floors. Both ends of each
// connection are in the process and both count. In a pass an entrant runs the
// load for a fixed time: calls per second, processor time, bytes and
// allocations per call come from a pass without any clock in the loop, the
// latencies from a second one in which each call is timed. Before each pass
// one answer is compared byte by byte; in the loop its length is.
//
// Parley runs with its default Config: 30 s timeout, all bounds. The peers
// have neither and call with a context that never ends.
package jsonrpcbench
