//go:build !unix

package jsonrpc

import "os"

// pollableCopy returns nil: inherited files cannot be made interruptible.
func pollableCopy(*os.File) *os.File { return nil }

func setBlocking(*os.File) {}
