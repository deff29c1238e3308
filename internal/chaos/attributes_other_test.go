//go:build !linux

package chaos_test

import "syscall"

// attributes makes a child that no signal to the tests' group reaches.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
