package jsonrpc

import (
	"bytes"
	"io"
	"os"
	"sync"
)

// A stderrReader takes what a child writes to its stderr: it keeps the end of
// it, and gives lines to whoever wants them.
type stderrReader struct {
	src       *os.File
	tee       io.Writer // may be nil
	line      func(line []byte)
	lineLimit int
	tailLimit int
	eof       chan struct{} // closed when src has ended

	mu   sync.Mutex
	last []byte // guarded by mu; up to twice tailLimit, so that moving is rare
}

func newStderrReader(src *os.File, tee io.Writer, cfg SubprocessConfig) *stderrReader {
	return &stderrReader{
		src:       src,
		tee:       tee,
		line:      cfg.StderrLine,
		lineLimit: cfg.StderrLineLimit,
		tailLimit: cfg.StderrTail,
		eof:       make(chan struct{}),
	}
}

func (r *stderrReader) run() {
	defer close(r.eof)
	buf := make([]byte, 8<<10)
	var begun []byte // of a line
	for {
		n, err := r.src.Read(buf)
		r.keep(buf[:n])
		if r.tee != nil {
			r.tee.Write(buf[:n]) //nolint:errcheck // a writer that fails is no reason to stall the child
		}
		if r.line != nil {
			begun = r.lines(begun, buf[:n])
		}
		if err != nil {
			if len(begun) > 0 {
				r.line(begun)
			}
			return
		}
	}
}

// lines hands over the lines and pieces that text completes, and returns what
// is left of it behind begun, in whose memory.
func (r *stderrReader) lines(begun, text []byte) []byte {
	for len(text) > 0 {
		piece, rest, ended := bytes.Cut(text, []byte{'\n'})
		if room := r.lineLimit - len(begun); len(piece) > room {
			piece, rest, ended = text[:room], text[room:], true
			begun = append(begun, piece...)
		} else if begun = append(begun, piece...); ended {
			begun = bytes.TrimSuffix(begun, []byte{'\r'})
		}
		if ended {
			r.line(begun)
			begun = begun[:0]
		}
		text = rest
	}
	return begun
}

func (r *stderrReader) keep(text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = append(r.last, text...)
	if len(r.last)-r.tailLimit > r.tailLimit {
		r.last = r.last[:copy(r.last, r.last[len(r.last)-r.tailLimit:])]
	}
}

func (r *stderrReader) tail() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.last[max(0, len(r.last)-r.tailLimit):])
}
