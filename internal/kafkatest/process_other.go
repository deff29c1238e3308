//go:build unix && !linux

package kafkatest

import "syscall"

// attributes makes a child that has a session of its own, so that no signal to
// the test's group reaches it. Its end is the watchdog's work alone.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
