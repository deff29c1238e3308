package kafkatest

import "syscall"

// attributes makes a child that has a session of its own, so that no signal to
// the test's group reaches it, and that the kernel kills when the thread that
// started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
