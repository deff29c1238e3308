package jsonrpc

import (
	"bytes"
	"errors"
	"io"
)

// A Framing makes a Stream out of a connection: NewLineStream, NewHeaderStream,
// or one of your own. The Stream owns rw and closes it.
type Framing func(rw io.ReadWriteCloser) Stream

// NewLineStream returns a Stream of messages that end with a newline each, as
// JSON-RPC is usually spoken over pipes and sockets (RPC-12, RPC-13). It owns
// rw; Close closes it, which has to make blocked calls of rw's Read and Write
// return.
//
// Reading is tolerant: a carriage return before the newline, blank lines and
// blanks before a message are dropped. A last message without its newline is
// handed over if it ends as JSON-RPC messages do, with } or ], because writers
// that forget the last newline are common and a message that was cut there is
// no valid JSON, so that it cannot be taken for a whole one; anything else that
// the peer left unfinished is io.ErrUnexpectedEOF. Messages up to 256 KiB are
// handed over whole, longer ones in parts as they arrive. Part.More is true
// when all of the next message is there.
//
// Writing passes the bytes on as they are. The Stream has TryWrite if rw has a
// method TryWrite of the same form, or is a *net.TCPConn, a *net.UnixConn or a
// pollable *os.File on a Unix system; it has SetReadDeadline if rw has it and
// supports it.
func NewLineStream(rw io.ReadWriteCloser) Stream {
	s := &lineStream{rw: rw, in: newInbuf(rw), next: -1}
	return withAbilities(s, tryWriterOf(rw), readDeadlinerOf(rw))
}

type lineStream struct {
	rw io.ReadWriteCloser
	in inbuf
	// next is the index in in.buf of the newline that ends the message at
	// in.r; -1: it is not there yet, and the first scanned bytes hold none.
	next, scanned int
	// inParts says that parts of the message were handed out already; last is
	// the last byte of them that is not blank.
	inParts bool
	last    byte
}

func (s *lineStream) Write(p []byte) (int, error) { return s.rw.Write(p) }

func (s *lineStream) WriteWatched(p []byte, _ func(on bool)) (int, error) { return s.Write(p) }

func (s *lineStream) Close() error { return s.rw.Close() }

func (s *lineStream) closeGently() error { return closeGently(s.rw) }

func (s *lineStream) Read() (Part, error) {
	for s.next < 0 {
		if n := s.partLen(); n > 0 {
			return s.part(n), nil
		}
		if err := s.in.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return s.rest()
			}
			return Part{}, err
		}
		s.look()
	}
	text := s.in.buf[s.in.r:s.next]
	if n := len(text); n > 0 && text[n-1] == '\r' {
		text = text[:n-1]
	}
	s.in.r, s.scanned, s.inParts = s.next+1, 0, false
	// Looking for the end of the next message now, not at the next call, is
	// what tells whether there is More. No byte is looked at twice.
	s.look()
	return Part{Data: text, End: true, More: s.next >= 0}, nil
}

// look finds the end of the message at in.r.
func (s *lineStream) look() {
	in := &s.in
	if !s.inParts {
		for in.r < in.w && isSpace(in.buf[in.r]) {
			in.r++
		}
	}
	from := in.r + s.scanned
	if i := bytes.IndexByte(in.buf[from:in.w], '\n'); i >= 0 {
		s.next = from + i
		return
	}
	s.next, s.scanned = -1, in.w-in.r
}

// partLen returns how much of a message without an end in sight is to be
// handed over: nothing as long as it may become a whole one.
func (s *lineStream) partLen() int {
	in := &s.in
	if in.w == in.r || !s.inParts && !in.full() {
		return 0
	}
	n := in.w - in.r
	if in.buf[in.w-1] == '\r' {
		n-- // perhaps half of the line's end
	}
	return n
}

func (s *lineStream) part(n int) Part {
	data := s.in.buf[s.in.r : s.in.r+n]
	s.in.r += n
	s.scanned, s.inParts = 0, true
	if end := bytes.TrimRight(data, " \t\r\n"); len(end) > 0 {
		s.last = end[len(end)-1]
	}
	return Part{Data: data}
}

// rest deals with what the peer left without a newline when it closed.
func (s *lineStream) rest() (Part, error) {
	in := &s.in
	text := bytes.TrimRight(in.buf[in.r:in.w], " \t\r\n")
	if len(text) == 0 && !s.inParts {
		return Part{}, io.EOF
	}
	last := s.last
	if len(text) > 0 {
		last = text[len(text)-1]
	}
	in.r, s.scanned, s.inParts = in.w, 0, false
	if last == '}' || last == ']' {
		return Part{Data: text, End: true}, nil
	}
	in.err = io.ErrUnexpectedEOF
	return Part{}, in.err
}
