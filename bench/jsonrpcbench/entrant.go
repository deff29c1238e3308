package jsonrpcbench

import (
	"context"
	"fmt"
	"net"
)

// role is what an entrant is in the comparison.
type role int

const (
	ours    role = iota // Parley as it is judged
	variant             // Parley in another mode, for information
	peer                // another library
	floor               // no JSON at all
)

// entrant is someone who can run loads.
type entrant struct {
	name string
	role role
	// open connects both ends.
	open func(ctx context.Context, l load) (*remote, error)
	// single means that calls wait for one another: no use with 64 in flight.
	single bool
	// bidirectional means that the server may call the client on the same
	// connection.
	bidirectional bool
	// slow means at least three times slower than the fastest peer wherever it
	// was measured; a quick run has it in the main cases only.
	slow bool
}

// overSocket makes an open function of one that is given the two ends.
func overSocket(connect func(ctx context.Context, client, server net.Conn) (*remote, error)) func(context.Context, load) (*remote, error) {
	return func(ctx context.Context, l load) (*remote, error) {
		client, server, err := socketPair(ctx, l.network)
		if err != nil {
			return nil, err
		}
		r, err := connect(ctx, client, server)
		if err != nil {
			_ = client.Close()
			_ = server.Close()
			return nil, fmt.Errorf("connect: %w", err)
		}
		return r, nil
	}
}

// libraries are the peers that speak over a stream.
func libraries() []entrant {
	return []entrant{
		{name: "go.lsp.dev", role: peer, open: overSocket(lspConn(false)), bidirectional: true},
		{name: "go.lsp.dev async", role: peer, open: overSocket(lspConn(true)), bidirectional: true},
		{name: "go.lsp.dev pipeline", role: peer, open: overSocket(lspPipeline)},
		{name: "go.lsp.dev single", role: peer, open: overSocket(lspSingle), single: true},
		{name: "jrpc2", role: peer, open: overSocket(jrpc2Conn), slow: true},
		{name: "go-ethereum", role: peer, open: overSocket(gethConn), slow: true, bidirectional: true},
		{name: "x/exp", role: peer, open: overSocket(xexpConn), slow: true, bidirectional: true},
		{name: "sourcegraph", role: peer, open: overSocket(sourcegraphConn(false)), slow: true, bidirectional: true},
		{name: "sourcegraph async", role: peer, open: overSocket(sourcegraphConn(true)), slow: true, bidirectional: true},
		{name: "go-sdk", role: peer, open: overSocket(gosdkConn), slow: true, bidirectional: true},
		{name: "net/rpc", role: peer, open: overSocket(netrpcConn)},
	}
}
