//go:build unix

package jsonrpc

import (
	"os"
	"syscall"
)

// pollableCopy returns a file for what f is open on that the runtime can wait
// for, or nil if that is neither a pipe nor a socket: terminals are shared with
// other programs, which do not expect them to be non-blocking.
//
// It is a copy of the descriptor so that f, which os.Stdout may be, keeps its
// own: were it closed below f, later prints would go into whatever gets the
// number next.
func pollableCopy(f *os.File) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	own := -1
	if raw.Control(func(fd uintptr) { own, err = dupCloseOnExec(int(fd)) }) != nil || err != nil {
		return nil
	}
	if syscall.SetNonblock(own, true) != nil {
		_ = syscall.Close(own)
		return nil
	}
	return os.NewFile(uintptr(own), f.Name())
}

func dupCloseOnExec(fd int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	own, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(own)
	}
	return own, err
}

// setBlocking undoes what pollableCopy changed for everyone who shares f's
// pipe or socket, such as the next command of a shell's group.
func setBlocking(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { syscall.SetNonblock(int(fd), false) }) //nolint:errcheck // f may be closed already
	}
}
