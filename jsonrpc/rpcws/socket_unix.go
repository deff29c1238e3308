//go:build unix

package rpcws

import (
	"net"
	"os"
	"syscall"
)

// tryWriterOf returns what writes to conn without waiting, or nil. Only the
// standard library's own types count: another type's Write may do more than
// write to the descriptor.
func tryWriterOf(conn net.Conn) tryWriter {
	var s syscall.Conn
	switch conn := conn.(type) {
	case *net.TCPConn:
		s = conn
	case *net.UnixConn:
		s = conn
	default:
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	w := &socket{raw: raw}
	w.attempt = w.once
	return w
}

// A socket makes single attempts to write, one at a time. What an attempt takes
// and returns is in its fields, since a closure for each would be an allocation.
type socket struct {
	raw     syscall.RawConn
	attempt func(fd uintptr) bool
	p       []byte
	n       int
	errno   error
}

func (s *socket) tryWrite(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.p, s.n, s.errno = p, 0, nil
	err := s.raw.Write(s.attempt)
	s.p = nil
	if err == nil && s.errno != nil {
		err = os.NewSyscallError("write", s.errno)
	}
	return s.n, err
}

// once writes and returns true, whatever came of it: false would wait for room.
func (s *socket) once(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), s.p)
		switch err {
		case syscall.EINTR:
			continue
		case nil:
			s.n = n
		case syscall.EAGAIN:
		default:
			s.errno = err
		}
		return true
	}
}
