package jsonrpc

import (
	"io"
	"os"
	"sync"
)

// Stdio returns a line Stream over the standard input and output of this
// process (RPC-12), as servers that are started by their clients speak. Call it
// once; from then on nothing else may read os.Stdin or print to os.Stdout.
// Close closes both, so that the peer sees the end. A peer that went away makes
// Write fail instead of ending the process by SIGPIPE.
//
// Pipes and sockets are used without blocking on Unix systems, which gives the
// Stream TryWrite and SetReadDeadline and lasts until Close. On others, and on
// terminals, it has neither, and a goroutine that waits for input when Close is
// called stays until there is some.
func Stdio() Stream { return NewLineStream(StdioConn()) }

// StdioConn returns what Stdio makes its Stream of, for other framings:
//
//	jsonrpc.NewHeaderStream(jsonrpc.StdioConn())
func StdioConn() io.ReadWriteCloser { return newStdioConn(os.Stdin, os.Stdout) }

// A stdioConn is a connection over two files that this process inherited.
type stdioConn struct {
	in     io.Reader
	out    *os.File
	inFile *os.File // in, when its reads can be interrupted
	close  func() error
	once   sync.Once
	err    error // of close
}

func newStdioConn(in, out *os.File) *stdioConn {
	c := new(stdioConn)
	ownIn, ownOut := pollableCopy(in), pollableCopy(out)
	pump := (*pump)(nil)
	if ownIn != nil {
		c.in, c.inFile = ownIn, ownIn
	} else {
		pump = newPump(in)
		c.in = pump
	}
	c.out = out
	if ownOut != nil {
		c.out = ownOut
	}
	c.close = func() error {
		// The copies first: they end what waits, and restore is no trap for it
		// then.
		for _, own := range []*os.File{ownIn, ownOut} {
			if own != nil {
				own.Close()
			}
		}
		if pump != nil {
			pump.stop()
		}
		if ownIn != nil {
			setBlocking(in)
		}
		if ownOut != nil {
			setBlocking(out)
		}
		// A pump that waits for input holds in, whose Close is then finished
		// by the end of that read.
		in.Close()
		return out.Close()
	}
	return c
}

func (c *stdioConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *stdioConn) Write(p []byte) (int, error) { return c.out.Write(p) }

func (c *stdioConn) Close() error {
	c.once.Do(func() { c.err = c.close() })
	return c.err
}

// A pump reads a file whose reads cannot be interrupted on a goroutine of its
// own, so that at least the reader of the pump can be.
type pump struct {
	src     io.Reader
	start   sync.Once
	stopped chan struct{}
	chunks  chan pumpChunk
	used    chan struct{} // the chunk was copied, its memory is free again
	rest    pumpChunk
}

type pumpChunk struct {
	data []byte
	err  error
}

func newPump(src io.Reader) *pump {
	return &pump{src: src, stopped: make(chan struct{}), chunks: make(chan pumpChunk), used: make(chan struct{})}
}

func (p *pump) stop() { close(p.stopped) }

// Read is for one goroutine at a time.
func (p *pump) Read(dst []byte) (int, error) {
	p.start.Do(func() { go p.run() }) // ends as Stdio says
	if len(p.rest.data) == 0 && p.rest.err == nil {
		select {
		case <-p.stopped:
			return 0, os.ErrClosed
		case p.rest = <-p.chunks:
		}
	}
	n := copy(dst, p.rest.data)
	if p.rest.data = p.rest.data[n:]; len(p.rest.data) > 0 {
		return n, nil
	}
	if p.rest.err == nil {
		select {
		case p.used <- struct{}{}:
		case <-p.stopped:
		}
	}
	return n, p.rest.err
}

func (p *pump) run() {
	buf := make([]byte, readBufferSize)
	for {
		n, err := p.src.Read(buf)
		select {
		case p.chunks <- pumpChunk{buf[:n], err}:
		case <-p.stopped:
			return
		}
		if err != nil {
			return
		}
		select {
		case <-p.used:
		case <-p.stopped:
			return
		}
	}
}
