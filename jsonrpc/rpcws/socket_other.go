//go:build !unix

package rpcws

import "net"

// tryWriterOf returns nil: only on Unix systems can one descriptor be written
// to both with and without waiting.
func tryWriterOf(net.Conn) tryWriter { return nil }
