package rpctest_test

import (
	"flag"
	"io"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcpractice"
	"github.com/parley-project/parley/jsonrpc/rpctest"
)

// RunTranscripts finds it by its name.
var _ = flag.Bool("update", false, "write what comes into the transcripts")

// TestTranscripts plays the framing cases against a Conn (RPC-12, RPC-13,
// RPC-24).
func TestTranscripts(t *testing.T) {
	tests := map[string]struct {
		framing jsonrpc.Framing
		config  jsonrpc.Config
	}{
		"lines":   {jsonrpc.NewLineStream, jsonrpc.Config{}},
		"limits":  {jsonrpc.NewLineStream, jsonrpc.Config{MaxMessage: 100}},
		"headers": {jsonrpc.NewHeaderStream, jsonrpc.Config{}},
	}
	for dir, tt := range tests {
		t.Run(dir, func(t *testing.T) {
			rpctest.RunTranscripts(t, "testdata/transcripts/"+dir, func(t *testing.T) io.ReadWriteCloser {
				client, server := sockets(t, "tcp", "127.0.0.1:0")
				tt.config.Handler = rpcpractice.NewMux()
				conn := jsonrpc.NewConn(tt.framing(server), tt.config)
				t.Cleanup(func() { conn.Close() })
				return client
			})
		})
	}
}
