package rpcws

import (
	"bytes"

	"github.com/parley-project/parley/jsonrpc"
)

// tryLimit is how much is framed for one attempt to write, in bytes.
const tryLimit = 128 << 10

// A tryWriter writes to a socket as much as goes without waiting.
type tryWriter interface {
	tryWrite(p []byte) (n int, err error)
}

// A tryStream is a stream over a socket that can be written to without waiting:
// with 64 calls in flight that makes a Conn almost twice as fast, since who has
// something to send sends it, together with what others have.
type tryStream struct{ *stream }

// withAbilities returns the stream with the methods that work on its socket.
func (s *stream) withAbilities() jsonrpc.Stream {
	if s.wire.try == nil {
		return s
	}
	return tryStream{s}
}

// TryWrite implements the ability that is described at jsonrpc.Stream.
//
// A frame that went partly cannot be taken back, so its rest is kept, and what
// did not go is said to be the last newline. It comes again with the Write that
// has to follow, where it is a blank line, and which waits for the rest.
func (s tryStream) TryWrite(p []byte) (int, error) {
	end := bytes.LastIndexByte(p[:min(len(p), tryLimit)], '\n') + 1
	if end == 0 || len(s.partial) > 0 || s.parts != nil {
		return 0, nil // the middle of a message is Write's
	}
	if ok, err := s.wire.tryCork(); !ok {
		return 0, s.writeError(err)
	}
	s.trying = true
	n, err := s.frame(p[:end])
	s.trying = false
	sent, e := s.wire.tryUncork()
	if err == nil {
		err = e
	}
	if err == nil && !sent {
		return end - 1, nil
	}
	return n, s.writeError(err)
}

// tryCork corks the wire if nothing waits to be written.
func (w *wire) tryCork() (ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.flushing || len(w.out) > 0 {
		return false, w.err
	}
	w.corked = true
	return true, nil
}

// tryUncork writes what goes at once of what was collected, and says whether
// that was all. The rest waits for the next uncork, or for the goroutine that
// writes a control frame.
func (w *wire) tryUncork() (sent bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corked = false
	n, err := w.try.tryWrite(w.out)
	if err != nil {
		w.err = err
		return false, err
	}
	w.taken.Add(uint64(n))
	w.out = w.out[:copy(w.out, w.out[n:])]
	return len(w.out) == 0, nil
}
