//go:build !jsonrpc_poison

package jsonrpc

// poison says that borrowed bytes are overwritten as soon as they are given
// back, so that code that keeps them is found (RPC-18). Build tests of handlers
// with the tag jsonrpc_poison.
const poison = false

// overwrite spoils bytes that were borrowed.
func overwrite([]byte) {}
