package chaos_test

import "syscall"

// attributes makes a child that no signal to the tests' group reaches, and that
// does not outlive them even if it was stopped.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
