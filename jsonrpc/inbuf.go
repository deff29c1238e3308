package jsonrpc

import (
	"errors"
	"io"
	"os"
)

// Sizes of a Stream's read buffer, in bytes. One read of 64 KiB takes hundreds
// of usual messages out of the kernel at once; a message that needs more gets
// up to 256 KiB, and beyond that it is handed over in parts.
const (
	readBufferSize    = 64 << 10
	maxReadBufferSize = 256 << 10
	// shrinkAfter is how many fillings in a row have to fit readBufferSize
	// before a grown buffer is given up: a peer that sends large messages
	// again and again keeps it, a peer that sent one does not.
	shrinkAfter = 16
	// maxEmptyReads is how many reads of nothing are taken for a bug of the
	// reader.
	maxEmptyReads = 100
)

// An inbuf is the read buffer under the line and the header framing. What was
// read and not handed out yet is buf[r:w]. It belongs to the goroutine that
// calls Stream.Read.
type inbuf struct {
	src   io.Reader
	buf   []byte
	r, w  int
	err   error // what ended src, after the bytes before it
	quiet int   // fillings since one needed a grown buffer
}

func newInbuf(src io.Reader) inbuf {
	return inbuf{src: src, buf: make([]byte, readBufferSize)}
}

// full says that buf[r:w] takes up the largest buffer there is.
func (b *inbuf) full() bool { return b.w-b.r >= maxReadBufferSize }

// fill waits for more bytes behind buf[r:w], which may move to the front and
// into a larger buffer. The caller makes sure that it is not full. Interrupted
// reads (os.ErrDeadlineExceeded) may be tried again, other errors are final.
func (b *inbuf) fill() error {
	if b.err != nil {
		return b.err
	}
	b.makeRoom()
	for range maxEmptyReads {
		n, err := b.src.Read(b.buf[b.w:])
		b.w += n
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			b.err = err
		}
		if n > 0 {
			// An error that came with bytes comes again, by itself or from
			// b.err, when they are used up.
			return nil
		}
		if err != nil {
			return err
		}
	}
	b.err = io.ErrNoProgress
	return b.err
}

// makeRoom moves what is left to the front (at most once per message, since it
// begins there afterwards), grows a buffer that is full, and gives back a grown
// one that has not been needed for a while.
func (b *inbuf) makeRoom() {
	if b.w > readBufferSize {
		b.quiet = 0
	} else {
		b.quiet++
	}
	left := b.w - b.r
	switch {
	case left == len(b.buf):
		b.moveTo(make([]byte, min(2*len(b.buf), maxReadBufferSize)))
	case len(b.buf) > readBufferSize && b.quiet > shrinkAfter && left < readBufferSize/2:
		b.moveTo(make([]byte, readBufferSize))
	case b.r > 0:
		b.moveTo(b.buf)
	}
}

func (b *inbuf) moveTo(dst []byte) {
	b.w = copy(dst, b.buf[b.r:b.w])
	b.r = 0
	b.buf = dst
}

// allBlank says that text is nothing but JSON's insignificant whitespace.
func allBlank(text []byte) bool {
	for _, c := range text {
		if !isSpace(c) {
			return false
		}
	}
	return true
}
