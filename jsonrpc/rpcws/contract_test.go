package rpcws_test

import (
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpctest"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// TestContract holds both ends to the contract of jsonrpc.Stream, over a real
// loopback server (RPC-13, RPC-15).
func TestContract(t *testing.T) {
	t.Parallel()
	// Most checks close ends whose peers no longer read, so do not answer.
	const patience = 50 * time.Millisecond
	rpctest.TestStream(t, func(t *testing.T) (a, b jsonrpc.Stream) {
		return pair(t, rpcws.DialConfig{CloseTimeout: patience}, rpcws.AcceptConfig{CloseTimeout: patience})
	})
}
