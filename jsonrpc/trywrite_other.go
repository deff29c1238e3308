//go:build !unix

package jsonrpc

// descriptorWriter returns nil: only Unix systems have writes that do not wait
// on the same descriptor as writes that do.
func descriptorWriter(any) tryWriter { return nil }
