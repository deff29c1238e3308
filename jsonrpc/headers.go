package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Limits of the header framing, in bytes.
const (
	// maxHeaderBlock bounds the lines before a body. The ones in use are 20 to
	// 100 bytes long.
	maxHeaderBlock = 8 << 10
	// maxContentLength bounds what is taken for a length at all: no one waits
	// for the end of such a message, but a stream out of step has such
	// lengths.
	maxContentLength = 1 << 40
	// maxHeaderMessage bounds a message that goes out, all of which has to be
	// held until its length is known.
	maxHeaderMessage = 64 << 20
)

// A FramingError says that a Stream cannot tell any more where messages begin,
// which ends it. The peer sends something else than the framing that was
// agreed on.
type FramingError struct {
	// Problem is what is wrong, for people.
	Problem string
	// Seen is the beginning of what was there instead, 64 bytes at most.
	Seen string
}

// Error says what is wrong and what was seen.
func (e *FramingError) Error() string {
	if e.Seen == "" {
		return "jsonrpc: lost framing: " + e.Problem
	}
	return fmt.Sprintf("jsonrpc: lost framing: %s: %q", e.Problem, e.Seen)
}

// Recoverable returns false: whoever speaks another framing will do so again
// (RPC-22).
func (e *FramingError) Recoverable() bool { return false }

func framingError(problem string, seen []byte) *FramingError {
	return &FramingError{Problem: problem, Seen: string(seen[:min(len(seen), 64)])}
}

// NewHeaderStream returns a Stream whose messages follow header lines that give
// their length, as the Language Server Protocol frames them:
//
//	Content-Length: 44\r\n
//	\r\n
//	{"jsonrpc":"2.0","id":1,"method":"shutdown"}
//
// It owns rw; Close closes it, which has to make blocked calls of rw's Read and
// Write return.
//
// Reading ignores other headers, lines that end without a carriage return,
// blank lines before the headers and messages of nothing but whitespace. A
// header block above 8 KiB, or without exactly one Content-Length of at most
// 1 TiB, ends the Stream with a *FramingError, since nothing tells where the
// next message begins. Bodies up to 256 KiB are handed over whole, longer ones
// in parts as they arrive, the first of which has 256 KiB; they may hold newlines.
// Part.More is true when all of the next message is there.
//
// Writing keeps a message in memory until its newline comes, because its length
// goes first. A message above 64 MiB therefore fails with a *ResourceError,
// which ends the Stream; what is larger goes over lines. The Stream has TryWrite
// and SetReadDeadline under the same conditions as that of NewLineStream.
func NewHeaderStream(rw io.ReadWriteCloser) Stream {
	s := &headerStream{rw: rw, in: newInbuf(rw), left: -1, try: tryWriterOf(rw), limit: maxHeaderMessage}
	if s.try == nil {
		return withAbilities(s, nil, readDeadlinerOf(rw))
	}
	return withAbilities(s, headerTryWriter{s}, readDeadlinerOf(rw))
}

type headerStream struct {
	rw io.ReadWriteCloser

	// The reader's side.
	in      inbuf
	left    int64 // bytes of the body from in.r on; -1: its header comes first
	inParts bool  // a part of the body was handed out
	lost    error // the framing was

	// The writer's side.
	try   tryWriter // writes to rw without waiting; may be nil
	limit int       // of body, in bytes
	body  []byte    // the message whose newline has not come
	out   []byte    // framed, and not written yet
	owed  bool      // the newline of out's last message is still to come, see tryWrite
}

func (s *headerStream) Close() error { return s.rw.Close() }

func (s *headerStream) closeGently() error { return closeGently(s.rw) }

func (s *headerStream) Read() (Part, error) {
	for {
		if part, ok := s.take(); ok {
			return part, nil
		}
		if s.lost != nil {
			return Part{}, s.lost
		}
		if err := s.in.fill(); err != nil {
			if errors.Is(err, io.EOF) && (s.left >= 0 || s.in.w > s.in.r) {
				s.in.err = io.ErrUnexpectedEOF
				err = s.in.err
			}
			return Part{}, err
		}
	}
}

// take returns what can be handed over of the message at hand. Where it is false
// and the framing is not lost, more bytes have to come.
func (s *headerStream) take() (Part, bool) {
	in := &s.in
	for s.lost == nil {
		if s.lost = s.header(); s.left < 0 {
			break
		}
		there := int64(in.w - in.r)
		switch {
		case there >= s.left:
			there = s.left
		case there == 0, !s.inParts && there < maxReadBufferSize:
			// The first part tells whose the message is, and is a long one:
			// what is streamed must not depend on how bytes arrive.
			return Part{}, false
		}
		data := in.buf[in.r : in.r+int(there)]
		in.r += int(there)
		if s.left -= there; s.left > 0 {
			s.inParts = true
			return Part{Data: data}, true
		}
		s.left = -1
		if s.inParts || !allBlank(data) {
			s.inParts = false
			return Part{Data: data, End: true, More: s.more()}, true
		}
		// Nothing to hand over, but perhaps the next message is there too.
	}
	return Part{}, false
}

// more says whether all of the next message is in the buffer. An error in its
// header is left to the next Read.
func (s *headerStream) more() bool {
	if s.header() != nil || s.left < 0 || int64(s.in.w-s.in.r) < s.left {
		return false
	}
	return !allBlank(s.in.buf[s.in.r : s.in.r+int(s.left)])
}

// header reads the header block at in.r, if one is due and all of it is there,
// and sets left.
func (s *headerStream) header() error {
	in := &s.in
	if s.left >= 0 {
		return nil
	}
	for in.r < in.w && (in.buf[in.r] == '\r' || in.buf[in.r] == '\n') {
		in.r++
	}
	block := in.buf[in.r:in.w]
	if len(block) > 0 && (block[0] == '{' || block[0] == '[') {
		return framingError("JSON where Content-Length is due; the peer seems to send messages on lines, without headers", nil)
	}
	length := int64(-1)
	for at := 0; ; {
		end := bytes.IndexByte(block[at:], '\n')
		if at+max(end, 0) > maxHeaderBlock || end < 0 && len(block) > maxHeaderBlock {
			return framingError(fmt.Sprintf("headers of more than %d bytes", maxHeaderBlock), block)
		}
		if end < 0 {
			return nil
		}
		line := bytes.TrimSuffix(block[at:at+end], []byte{'\r'})
		at += end + 1
		if len(line) == 0 {
			if length < 0 {
				return framingError("headers without Content-Length", block[:at])
			}
			in.r += at
			s.left = length
			return nil
		}
		var err error
		if length, err = headerLine(line, length); err != nil {
			return err
		}
	}
}

// headerLine returns the length that is known after line, -1 for none.
func headerLine(line []byte, length int64) (int64, error) {
	name, value, ok := bytes.Cut(line, []byte{':'})
	if !ok {
		return 0, framingError("a line without a colon among the headers", line)
	}
	if !bytes.EqualFold(bytes.TrimSpace(name), []byte("Content-Length")) {
		return length, nil
	}
	if length >= 0 {
		return 0, framingError("a second Content-Length", line)
	}
	value = bytes.Trim(value, " \t")
	n, err := strconv.ParseUint(string(value), 10, 63)
	if err != nil || n > maxContentLength {
		return 0, framingError(fmt.Sprintf("Content-Length is no number from 0 to %d", int64(maxContentLength)), line)
	}
	return int64(n), nil
}

func (s *headerStream) Write(p []byte) (int, error) { return s.WriteWatched(p, func(bool) {}) }

// WriteWatched writes all of a message when its end comes, which may be a thousand
// times what the peer has to take within a StallTimeout.
func (s *headerStream) WriteWatched(p []byte, watch func(on bool)) (int, error) {
	if err := s.frame(s.skipOwed(p)); err != nil {
		return 0, err
	}
	for out := s.out; len(out) > 0; {
		n := min(len(out), writePiece)
		if _, err := s.rw.Write(out[:n]); err != nil {
			s.out = reuse(s.out)
			return 0, err
		}
		out = out[n:]
		watch(true)
	}
	s.out = reuse(s.out)
	return len(p), nil
}

// frame moves the messages that p completes to out, and keeps the rest.
func (s *headerStream) frame(p []byte) error {
	for len(p) > 0 {
		text, rest, ended := bytes.Cut(p, []byte{'\n'})
		if len(s.body)+len(text) > s.limit {
			s.body = nil
			return &ResourceError{What: "a message for header framing, which is held until its length is known", Limit: s.limit, Unit: unitBytes}
		}
		if !ended {
			s.body = append(s.body, text...)
			return nil
		}
		p = rest
		if len(s.body) > 0 {
			s.body = append(s.body, text...)
			text = s.body
		}
		if !allBlank(text) {
			s.out = append(s.out, "Content-Length: "...)
			s.out = strconv.AppendInt(s.out, int64(len(text)), 10)
			s.out = append(s.out, "\r\n\r\n"...)
			s.out = append(s.out, text...)
		}
		s.body = reuse(s.body)
	}
	return nil
}

// reuse empties a buffer, and gives up one that is larger than usual.
func reuse(buf []byte) []byte {
	if cap(buf) > maxReadBufferSize {
		return nil
	}
	return buf[:0]
}

// A headerTryWriter is the ability TryWrite of a headerStream.
type headerTryWriter struct{ s *headerStream }

// TryWrite frames p and writes what goes at once. Frames cannot be cut back
// into bytes of p when rw takes a part of them, so the newline of the last
// message is then reported as not written: its owner comes back with it, by
// Write or TryWrite, and what is left goes out before anything else.
func (t headerTryWriter) TryWrite(p []byte) (int, error) {
	s := t.s
	if done, err := s.flush(); !done {
		return 0, err
	}
	n := len(p)
	p = s.skipOwed(p)
	skipped := n - len(p)
	complete := bytes.LastIndexByte(p, '\n') + 1
	if err := s.frame(p[:complete]); err != nil {
		return skipped, err
	}
	done, err := s.flush()
	switch {
	case err != nil:
		return skipped, err
	case !done:
		s.owed = true
		return skipped + complete - 1, nil
	}
	if err := s.frame(p[complete:]); err != nil {
		return skipped + complete, err
	}
	return n, nil
}

// flush writes what goes of out, and says whether that was all.
func (s *headerStream) flush() (bool, error) {
	if len(s.out) == 0 {
		return true, nil
	}
	n, err := s.try.TryWrite(s.out)
	s.out = s.out[:copy(s.out, s.out[n:])]
	if len(s.out) > 0 || err != nil {
		return false, err
	}
	s.out = reuse(s.out)
	return true, nil
}

// skipOwed drops from p the newline of a message that was framed before.
func (s *headerStream) skipOwed(p []byte) []byte {
	if s.owed && len(p) > 0 {
		s.owed = false
		return p[1:]
	}
	return p
}
