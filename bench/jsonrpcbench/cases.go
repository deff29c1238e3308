package jsonrpcbench

import "slices"

// match is a load with everyone who runs it, and what Parley has to reach.
type match struct {
	name     string
	title    string
	unit     string // of the throughput
	load     load
	entrants []entrant
	bars     []bar
	// main cases have all peers in a quick run too.
	main bool
}

// metric is one figure of a pass.
type metric struct {
	name, unit string // an empty unit is the case's
	value      func(pass) float64
	least      bool // less is better
	timed      bool // needs latencies
}

const (
	throughput  = "throughput"
	messages    = "messages"
	cpuEach     = "CPU"
	bytesEach   = "memory"
	allocsEach  = "allocations"
	latencyHalf = "latency p50"
	latencyTail = "latency p99"
)

func metrics() []metric {
	return []metric{
		{name: throughput, value: pass.rate},
		{name: cpuEach, unit: "ns", value: func(p pass) float64 { return p.each(uint64(p.cpu)) }, least: true},
		{name: bytesEach, unit: "B", value: func(p pass) float64 { return p.each(p.bytes) }, least: true},
		{name: allocsEach, unit: "allocs", value: func(p pass) float64 { return p.each(p.allocs) }, least: true},
		{name: latencyHalf, unit: "µs", value: func(p pass) float64 { return float64(p.p50.Nanoseconds()) / 1e3 }, least: true, timed: true},
		{name: latencyTail, unit: "µs", value: func(p pass) float64 { return float64(p.p99.Nanoseconds()) / 1e3 }, least: true, timed: true},
	}
}

// bar is what Parley has to reach in one metric of a case.
type bar struct {
	metric string
	text   string
	// against says whose figure Parley's is divided by: bestPeer, theFloor or
	// nobody (the figure itself is judged).
	against against
	limit   float64
	// scale multiplies Parley's figure: two messages are in a call.
	scale float64
	unit  string // of the scaled figure
}

type against int

const (
	nobody against = iota
	bestPeer
	theFloor
)

func timesPeer(text string, limit float64) bar {
	return bar{metric: throughput, text: text, against: bestPeer, limit: limit}
}

// cases are all of the comparisons, in the order in which they are run. The
// bars are those of the issue that asked for the library.
func cases() []match {
	return slices.Concat(parallelCases(), sequentialCases(), webCases())
}

// coalescedFloor is the floor for 64 calls in flight.
func coalescedFloor() entrant {
	return entrant{name: "coalesced 300 B lines", role: floor, open: overSocket(coalescedLines(300))}
}

func parallelCases() []match {
	small, many := smallParams(), libraries()
	floor300 := coalescedFloor()
	floor170 := entrant{name: "coalesced 170 B lines", role: floor, open: overSocket(coalescedLines(170))}
	return []match{
		{
			name: "tcp-par64", title: "TCP, 64 in flight", unit: "calls/s", main: true,
			load:     load{network: "tcp", kind: call, params: small, workers: 64},
			entrants: join(parley(), many, floor300),
			bars: []bar{
				timesPeer("≥ 2.8× best peer", 2.8),
				{metric: throughput, text: "≥ 0.6× floor", against: theFloor, limit: 0.6},
				{metric: throughput, text: "> 10,000 messages/s", limit: 10_000, scale: 2, unit: "messages/s"},
				{metric: latencyTail, text: "< 0.5× best peer", against: bestPeer, limit: 0.5},
				{metric: latencyTail, text: "< 1,000 µs", limit: 1000},
				{metric: allocsEach, text: "≤ 4", limit: 4},
			},
		},
		{
			name: "tcp-par64-105B", title: "TCP, 64 in flight, 105 B params", unit: "calls/s",
			load:     load{network: "tcp", kind: call, params: tinyParams(), workers: 64},
			entrants: join(parley(), fast(many), floor170),
			bars:     []bar{{metric: throughput, text: "≥ 0.6× floor", against: theFloor, limit: 0.6}},
		},
		{
			name: "tcp-par64-deadline", title: "TCP, 64 in flight, each with its own deadline", unit: "calls/s",
			load:     load{network: "tcp", kind: own, params: small, workers: 64},
			entrants: join(parley(), many),
		},
		{
			name: "unix-par64", title: "unix socket, 64 in flight", unit: "calls/s",
			load:     load{network: "unix", kind: call, params: small, workers: 64},
			entrants: join(parley(), many, floor300),
			bars:     []bar{timesPeer("≥ 2× best peer", 2)},
		},
		{
			name: "notify", title: "notifications on TCP", unit: "messages/s",
			load:     load{network: "tcp", kind: notify, params: small, workers: 1},
			entrants: join(parley(), many, entrant{name: "coalesced 300 B lines", role: floor, open: overSocket(notifyLines(300))}),
			bars:     []bar{timesPeer("≥ 4× best peer", 4)},
		},
		{
			name: "batch100", title: "batches of 100 on TCP", unit: "batches/s",
			load: load{network: "tcp", kind: batch, params: small, workers: 1},
			entrants: join(parley(), many, entrant{name: "go.lsp.dev batch, views", role: peer, open: overSocket(lspBatches(true))},
				entrant{name: "go.lsp.dev batch, messages", role: peer, open: overSocket(lspBatches(false))},
				entrant{name: "100 lines of 300 B in one write", role: floor, open: overSocket(callerReads(300))}),
			bars: []bar{timesPeer("≥ 5× best peer", 5)},
		},
		{
			name: "typed-par64", title: "TCP, 64 in flight, structs", unit: "calls/s",
			load:     load{network: "tcp", kind: struc, params: small, workers: 64},
			entrants: join(parley(), many),
		},
	}
}

func sequentialCases() []match {
	small, many := smallParams(), libraries()
	reader := entrant{name: "reader goroutine, 300 B", role: floor, open: overSocket(coalescedLines(300))}
	caller := entrant{name: "caller reads, 300 B", role: floor, open: overSocket(callerReads(300))}
	large := largeParams()
	largeFloor := entrant{name: "reader goroutine, 64 KiB", role: floor, open: overSocket(coalescedLines(len(large) + 100))}
	return []match{
		{
			name: "tcp-seq", title: "TCP, one at a time, two-way", unit: "calls/s", main: true,
			load:     load{network: "tcp", kind: call, params: small, workers: 1},
			entrants: join(parley(), twoWay(many), reader),
			bars: []bar{
				timesPeer("≥ 1.15× best peer", 1.15),
				{metric: latencyTail, text: "< 1,000 µs", limit: 1000},
				{metric: allocsEach, text: "≤ 4", limit: 4},
			},
		},
		{
			name: "tcp-seq-caller", title: "TCP, one at a time, the caller reads", unit: "calls/s",
			load:     load{network: "tcp", kind: call, params: small, workers: 1},
			entrants: join(parleyCaller(ours), callerReaders(many), caller),
			bars:     []bar{timesPeer("≥ 1.15× best peer", 1.15)},
		},
		{
			name: "unix-seq", title: "unix socket, one at a time, two-way", unit: "calls/s",
			load:     load{network: "unix", kind: call, params: small, workers: 1},
			entrants: join(parley(), twoWay(many), reader),
		},
		{
			name: "unix-seq-caller", title: "unix socket, one at a time, the caller reads", unit: "calls/s",
			load:     load{network: "unix", kind: call, params: small, workers: 1},
			entrants: join(parleyCaller(ours), callerReaders(many), caller),
		},
		{
			name: "pipe-seq", title: "net.Pipe, one at a time, two-way", unit: "calls/s",
			load:     load{network: "pipe", kind: call, params: small, workers: 1},
			entrants: join(parley(), parleyPipe(), twoWay(many), entrant{name: "go.lsp.dev channel", role: peer, open: lspChannel}, reader),
		},
		{
			name: "typed-seq", title: "TCP, one at a time, structs", unit: "calls/s",
			load:     load{network: "tcp", kind: struc, params: small, workers: 1},
			entrants: join(parley(), many),
		},
		{
			name: "64k-echo", title: "64 KiB echo on TCP, one at a time", unit: "calls/s",
			load:     load{network: "tcp", kind: call, params: large, workers: 1},
			entrants: join(parley(), parleyCaller(variant), many, largeFloor),
			bars:     []bar{timesPeer("≥ 2.8× best peer", 2.8)},
		},
	}
}

func webCases() []match {
	l := load{kind: call, params: smallParams(), workers: 64}
	return []match{
		{
			name: "ws-par64", title: "one WebSocket connection, 64 in flight", unit: "calls/s", load: l,
			entrants: join(parleyWS(), entrant{name: "coder/websocket, bare", role: peer, open: coderWS},
				entrant{name: "gws, bare", role: peer, open: gwsWS}, entrant{name: "go-ethereum", role: peer, open: gethWS, slow: true}),
			bars: []bar{timesPeer("≥ 0.95× best peer", 0.95), timesPeer("≥ 2× best peer, frames written together", 2)},
		},
		{
			name: "http-par64", title: "HTTP, 64 in flight", unit: "calls/s", load: l,
			entrants: join(parleyHTTP(), entrant{name: "net/http, bare", role: peer, open: bareHTTP},
				entrant{name: "jrpc2", role: peer, open: jrpc2HTTP, slow: true}, entrant{name: "go-ethereum", role: peer, open: gethHTTP, slow: true}),
			bars: []bar{timesPeer("≥ 0.95× best peer", 0.95)},
		},
	}
}

// join makes one list of entrants and lists of them. Who cannot run a load is
// left out when it is opened.
func join(parts ...any) []entrant {
	var all []entrant
	for _, p := range parts {
		switch p := p.(type) {
		case entrant:
			all = append(all, p)
		case []entrant:
			all = append(all, p...)
		}
	}
	return all
}

func only(all []entrant, keep func(entrant) bool) []entrant {
	return slices.DeleteFunc(slices.Clone(all), func(e entrant) bool { return !keep(e) })
}

func fast(all []entrant) []entrant {
	return only(all, func(e entrant) bool { return !e.slow })
}

func twoWay(all []entrant) []entrant {
	return only(all, func(e entrant) bool { return e.bidirectional })
}

func callerReaders(all []entrant) []entrant {
	return only(all, func(e entrant) bool { return e.single })
}
