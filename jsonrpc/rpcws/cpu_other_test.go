//go:build !unix

package rpcws_test

// cpuTime returns 0: it is not measured here.
func cpuTime() int64 { return 0 }
