//go:build !unix

package jsonrpc

import "os/exec"

// ownGroup does nothing: process groups are a Unix matter.
func ownGroup(*exec.Cmd) {}

// terminateGroup says that there is no way to ask.
func terminateGroup(*exec.Cmd) bool { return false }

func killGroup(cmd *exec.Cmd) {
	cmd.Process.Kill() //nolint:errcheck // it may be gone already
}
