package jsonrpc

import (
	"os"
	"time"
)

// The optional abilities of a Stream, as the comment on Stream describes them.
type (
	tryWriter     interface{ TryWrite(p []byte) (int, error) }
	readDeadliner interface{ SetReadDeadline(t time.Time) error }
	watchedWriter interface {
		WriteWatched(p []byte, watch func(on bool)) (int, error)
	}
	turnTaker interface {
		Room() (calls, notifications bool)
		OnRoom(told func())
		Drop(id []byte) bool
	}
)

// A gentleCloser is one of the Streams of this package over a connection.
type gentleCloser interface {
	Stream
	watchedWriter
	closeGently() error
}

// One type for each set of abilities, so that a Stream has the methods that
// work and no others.
type (
	tryStream struct {
		gentleCloser
		tryWriter
	}
	deadlineStream struct {
		gentleCloser
		readDeadliner
	}
	tryDeadlineStream struct {
		gentleCloser
		tryWriter
		readDeadliner
	}
)

func withAbilities(s gentleCloser, t tryWriter, d readDeadliner) Stream {
	switch {
	case t != nil && d != nil:
		return &tryDeadlineStream{s, t, d}
	case t != nil:
		return &tryStream{s, t}
	case d != nil:
		return &deadlineStream{s, d}
	default:
		return s
	}
}

// tryWriterOf returns what can write to rw without waiting, or nil. Only rw's
// own method and the exact types of the standard library count: a type that
// embeds a *net.TCPConn and overrides Write inherits SyscallConn, but writing
// past its Write would corrupt what it carries.
func tryWriterOf(rw any) tryWriter {
	switch rw := rw.(type) {
	case tryWriter:
		return rw
	case *stdioConn:
		return descriptorWriter(rw.out)
	case *childConn:
		return descriptorWriter(rw.in)
	default:
		return descriptorWriter(rw)
	}
}

// readDeadlinerOf returns rw if its reads can be interrupted, or nil. Files
// have the method always, and only some of them the ability.
func readDeadlinerOf(rw any) readDeadliner {
	if c, ok := rw.(*stdioConn); ok {
		rw = c.inFile
	}
	d, ok := rw.(readDeadliner)
	if !ok {
		return nil
	}
	if f, ok := rw.(*os.File); ok && f.SetReadDeadline(time.Time{}) != nil {
		return nil
	}
	return d
}
