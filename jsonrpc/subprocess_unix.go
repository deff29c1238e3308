//go:build unix

package jsonrpc

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// TryWrite writes to the child's stdin what goes at once; see Stream.
func (s *Subprocess) TryWrite(p []byte) (int, error) {
	t, ok := s.stream.(tryWriter)
	if !ok {
		return 0, nil // a Framing without the ability: nothing goes at once
	}
	n, err := t.TryWrite(p)
	if err != nil {
		err = s.explain(err)
	}
	return n, err
}

// SetReadDeadline limits Read; see Stream. It returns os.ErrNoDeadline when the
// Framing cannot be interrupted.
func (s *Subprocess) SetReadDeadline(t time.Time) error {
	if d, ok := s.stream.(readDeadliner); ok {
		return d.SetReadDeadline(t)
	}
	return os.ErrNoDeadline
}

// ownGroup makes the child the leader of a process group, unless the caller
// chose something else.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	if !cmd.SysProcAttr.Setsid && !cmd.SysProcAttr.Setpgid {
		cmd.SysProcAttr.Setpgid = true
	}
}

// terminateGroup asks the child and its descendants to exit, and says whether
// that is worth waiting for.
func terminateGroup(cmd *exec.Cmd) bool {
	signalGroup(cmd, syscall.SIGTERM)
	return true
}

func killGroup(cmd *exec.Cmd) { signalGroup(cmd, syscall.SIGKILL) }

func signalGroup(cmd *exec.Cmd, sig syscall.Signal) {
	attr := cmd.SysProcAttr
	if attr.Setsid || attr.Setpgid && attr.Pgid == 0 {
		syscall.Kill(-cmd.Process.Pid, sig) //nolint:errcheck // it may be gone already
		return
	}
	cmd.Process.Signal(sig) //nolint:errcheck // the group is not ours; the child may be gone already
}
