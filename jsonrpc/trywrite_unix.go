//go:build unix

package jsonrpc

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// descriptorWriter returns a tryWriter for sockets and files whose descriptors
// do not block, or nil.
func descriptorWriter(rw any) tryWriter {
	var conn syscall.Conn
	switch rw := rw.(type) {
	case *net.TCPConn:
		conn = rw
	case *net.UnixConn:
		conn = rw
	case *os.File:
		conn = rw
	default:
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil || !nonblocking(raw) {
		return nil
	}
	w := &fdWriter{raw: raw}
	w.attempt = w.write
	return w
}

// nonblocking says that a write to the descriptor returns when there is no
// room, instead of waiting.
func nonblocking(raw syscall.RawConn) bool {
	var flags uintptr
	var errno syscall.Errno
	err := raw.Control(func(fd uintptr) {
		flags, _, errno = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
	})
	return err == nil && errno == 0 && flags&syscall.O_NONBLOCK != 0
}

// An fdWriter makes single attempts to write to a descriptor. Its fields carry
// the arguments and results of one, because a closure made for each would be an
// allocation; like Stream.Write it is for one goroutine at a time.
type fdWriter struct {
	raw     syscall.RawConn
	attempt func(fd uintptr) bool
	p       []byte
	n       int
	err     error
}

// TryWrite writes as much of p as the descriptor takes at once.
func (w *fdWriter) TryWrite(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.p, w.n, w.err = p, 0, nil
	err := w.raw.Write(w.attempt)
	w.p = nil
	if err == nil && w.err != nil {
		err = os.NewSyscallError("write", w.err)
	}
	return w.n, err
}

// write is called by raw.Write with the descriptor held. Returning true says
// that the attempt is over, also when the descriptor had no room.
func (w *fdWriter) write(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), w.p)
		switch {
		case err == nil:
			w.n = n
			return true
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return true
		default:
			w.err = err
			return true
		}
	}
}
