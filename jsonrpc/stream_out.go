package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Values that come from an io.Reader are written while they are read, so that
// they need no more memory than a piece (RPC-24). A message that was begun has
// to be ended before the next one can begin: meanwhile callers wait, with their
// contexts, and answers of the goroutine that reads are held back.

// streamPiece is how much of a streamed value is read at once, in bytes.
const streamPiece = 32 << 10

// newStreamChecker checks a value that is streamed. It is one level down in its
// message.
func newStreamChecker(cfg *Config) *valueChecker {
	return &valueChecker{maxDepth: cfg.MaxDepth - 1, spaceOut: true}
}

// isEnd says that a Reader has come to its end, which is io.EOF itself. One that has
// io.EOF in it tells of a fault: what it reads from may have hung up half-way.
func isEnd(err error) bool { return err == io.EOF } //nolint:errorlint // see above

// beginStream reads the first piece of a value, and says whether there is more.
// All of a short value is checked afterwards.
func beginStream(r io.Reader, into *buffer, check *valueChecker) (more bool, err error) {
	if cap(into.b) < streamPiece {
		into.b = make([]byte, 0, streamPiece)
	}
	into.b = into.b[:0]
	for err == nil && len(into.b) < streamPiece {
		var n int
		n, err = r.Read(into.b[len(into.b):streamPiece])
		into.b = into.b[:len(into.b)+n]
	}
	// io.ReadFull would not tell a text that is shorter from one that was cut.
	ended := isEnd(err)
	if err != nil && !ended {
		return false, fmt.Errorf("jsonrpc: reading a value to be sent: %w", err)
	}
	if err := check.Write(into.b); err != nil {
		return false, err
	}
	if ended {
		return false, check.Close()
	}
	return true, nil
}

// streamLocked ends a message whose head is in w.buf already with a value that
// begins with first, was checked by check so far, and goes on with r; sent counts
// it. w.mu is held on entry, and not on return.
//
// If r fails, or what it gives is no JSON, the line is ended where it is: for
// the peer it is malformed, since the message's closing brace is missing, and
// the connection goes on.
func (w *writer) streamLocked(ctx context.Context, first []byte, r io.Reader, check *valueChecker, sent *extent) error {
	w.owned = true
	failed := errInterrupted
	defer func() { // deferred for readers that panic, which must not keep the connection
		w.mu.Lock()
		if failed == nil {
			w.buf = append(w.buf, '}')
			sent.add(1)
		}
		w.buf = append(append(w.buf, '\n'), w.held...)
		w.held = w.held[:0]
		w.owned = false
		w.tellRoom()
		w.flush(false)
	}()
	w.buf = append(w.buf, first...)
	sent.add(len(first))
	w.flush(false)
	failed = w.streamPieces(ctx, r, check, sent)
	return failed
}

// errInterrupted stands for the panic of a reader.
var errInterrupted = errors.New("jsonrpc: reading a value to be sent was interrupted")

// streamPieces writes the rest of a value that this goroutine has begun.
func (w *writer) streamPieces(ctx context.Context, r io.Reader, check *valueChecker, sent *extent) error {
	piece := make([]byte, streamPiece)
	for {
		n, err := r.Read(piece)
		if fault := check.Write(piece[:n]); fault != nil {
			return fault
		}
		if gone := w.lockOwner(ctx); gone != nil {
			return gone
		}
		w.buf = append(w.buf, piece[:n]...)
		sent.add(n)
		w.flush(false)
		if isEnd(err) {
			return check.Close()
		}
		if err != nil {
			return fmt.Errorf("jsonrpc: reading a value to be sent: %w", err)
		}
	}
}

// lockOwner takes w.mu when there is room for the next piece of the message
// that this goroutine has begun.
func (w *writer) lockOwner(ctx context.Context) error {
	w.mu.Lock()
	for w.err == nil {
		if w.waiting()-len(w.held) < w.limit { // what is held waits for the owner
			return nil
		}
		if err := w.waitChange(ctx); err != nil {
			w.mu.Unlock()
			return err
		}
	}
	w.mu.Unlock()
	return w.err
}

// readRest reads the rest of a value into memory, for where it cannot be
// streamed.
func readRest(text []byte, r io.Reader, check *valueChecker) ([]byte, error) {
	for {
		n := len(text)
		text = slices.Grow(text, streamPiece)
		k, err := r.Read(text[n:cap(text)])
		text = text[:n+k]
		if fault := check.Write(text[n:]); fault != nil {
			return text, fault
		}
		if isEnd(err) {
			return text, check.Close()
		}
		if err != nil {
			return text, fmt.Errorf("jsonrpc: reading a value to be sent: %w", err)
		}
	}
}

// readAll reads the rest of a streamed result into memory.
func (s *server) readAll(req *Request, r response) response {
	text, err := readRest(r.scratch.b, r.stream, r.check)
	r.scratch.b = text
	if err != nil {
		s.bufs.put(r.scratch)
		return s.respond(req, nil, err)
	}
	return response{raw: text, scratch: r.scratch}
}
