package rpcws

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/parley-project/parley/jsonrpc"
)

const (
	smallMessage = 16 << 10  // bytes of the buffer that incoming messages begin with
	largeMessage = 256 << 10 // bytes of a message that are handed over at once; the buffer's limit
	calmAfter    = 16        // small messages in a row after which a large buffer is given back
	wholeMessage = 1 << 20   // bytes of an outgoing message that are sent in one frame
	fragment     = 64 << 10  // bytes of a fragment of an outgoing message
)

// A stream is a jsonrpc.Stream over one WebSocket connection.
type stream struct {
	ws           *websocket.Conn
	wire         *wire
	closeTimeout time.Duration
	leaving      atomic.Bool           // close with 1001 instead of 1000
	illegal      atomic.Bool           // close with 1002: the peer broke the protocol
	lost         atomic.Pointer[error] // why we gave the connection up
	closeOnce    sync.Once
	done         chan struct{} // closed by Close
	background   sync.WaitGroup

	// Used by Read.
	message io.Reader // the message at hand, nil between two
	within  bool      // a part of it was handed over
	ended   error     // what Read returned at the end
	buf     []byte
	small   int // small messages in a row

	// Used by Write.
	partial []byte         // the beginning of a message whose end is to come
	parts   io.WriteCloser // the message that is being sent in fragments, or nil
	trying  bool           // do not wait for room
}

func newStream(ws *websocket.Conn, w *wire, o options) *stream {
	// Limits are the Conn's, which can answer (RPC-24): here every message is
	// read to its end, in parts.
	ws.SetReadLimit(-1)
	s := &stream{ws: ws, wire: w, closeTimeout: o.closeTimeout, done: make(chan struct{}), buf: make([]byte, smallMessage)}
	if o.pingInterval > 0 {
		s.background.Go(func() { s.keepalive(o.pingInterval, o.pingTimeout) })
	}
	return s
}

// Read implements jsonrpc.Stream.
func (s *stream) Read() (jsonrpc.Part, error) {
	if s.ended != nil {
		return jsonrpc.Part{}, s.ended
	}
	part, err := s.read()
	if err != nil {
		s.ended = s.readError(err)
		return jsonrpc.Part{}, s.ended
	}
	return part, nil
}

func (s *stream) read() (jsonrpc.Part, error) {
	for {
		if s.message == nil {
			_, r, err := s.ws.Reader(context.Background())
			if err != nil {
				return jsonrpc.Part{}, err
			}
			s.message = r
			s.fit()
		}
		part, err := s.readPart()
		if err != nil {
			return jsonrpc.Part{}, err
		}
		empty := part.End && len(part.Data) == 0 && !s.within
		if s.within = !part.End; part.End {
			s.message = nil
			part.More = s.wire.more.Load()
		}
		if !empty {
			return part, nil
		}
	}
}

// readPart fills the buffer, and makes it larger while the message is.
func (s *stream) readPart() (jsonrpc.Part, error) {
	for n := 0; ; {
		if n == len(s.buf) {
			if n == largeMessage {
				return jsonrpc.Part{Data: s.buf}, nil
			}
			s.buf = append(s.buf, make([]byte, n)...)
		}
		m, err := s.message.Read(s.buf[n:])
		if n += m; n > smallMessage {
			s.small = 0
		}
		if errors.Is(err, io.EOF) {
			return jsonrpc.Part{Data: s.buf[:n], End: true}, nil
		}
		if err != nil {
			return jsonrpc.Part{}, err
		}
	}
}

// fit gives a large buffer back when messages became small again.
func (s *stream) fit() {
	if len(s.buf) == smallMessage {
		return
	}
	if s.small++; s.small > calmAfter {
		s.buf, s.small = make([]byte, smallMessage), 0
	}
}

// readError names why reading ended.
func (s *stream) readError(err error) error {
	if why := s.lost.Load(); why != nil {
		return *why
	}
	select {
	case <-s.done:
		return ioError("read", net.ErrClosed)
	default:
	}
	if websocket.CloseStatus(err) < 0 && !s.wire.failed.Load() {
		s.illegal.Store(true) // what the socket gave is refused by the library, which does not always tell the peer
	}
	return readError(err, s.message != nil)
}

// Write implements jsonrpc.Stream.
func (s *stream) Write(p []byte) (n int, err error) {
	s.wire.cork()
	n, err = s.frame(p)
	if e := s.wire.uncork(); err == nil {
		err = e
	}
	return n, s.writeError(err)
}

// WriteWatched implements the ability that is described at jsonrpc.Stream: before what
// it is given stands what TryWrite has begun, or the beginning of a message, and control
// frames.
func (s *stream) WriteWatched(p []byte, watch func(on bool)) (n int, err error) {
	s.wire.observe(watch)
	defer s.wire.observe(nil)
	return s.Write(p)
}

// writeError names why writing ended.
func (s *stream) writeError(err error) error {
	if err == nil {
		return nil
	}
	if why := s.lost.Load(); why != nil {
		return *why
	}
	return ioError("write", err)
}

// frame writes the messages of p to the wire, and keeps or sends in fragments
// what lacks its newline.
func (s *stream) frame(p []byte) (n int, err error) {
	for len(p) > 0 {
		line, rest, end := bytes.Cut(p, []byte{'\n'})
		if s.parts == nil && len(s.partial) == 0 {
			line = trimStart(line)
		}
		switch {
		case s.parts == nil && len(s.partial)+len(line) > room(end):
			if s.parts, err = s.ws.Writer(context.Background(), websocket.MessageText); err != nil {
				return n, err
			}
			if err = s.fragments(s.partial); err == nil {
				err = s.fragments(line)
			}
			s.partial = nil
		case s.parts != nil:
			err = s.fragments(line)
		case !end:
			s.partial = append(s.partial, line...)
		case len(s.partial) > 0:
			s.partial = append(s.partial, line...)
			err = s.ws.Write(context.Background(), websocket.MessageText, s.partial)
			s.partial = s.partial[:0]
		case len(line) > 0:
			err = s.ws.Write(context.Background(), websocket.MessageText, line)
		}
		if err == nil && end && s.parts != nil {
			err = s.parts.Close()
			s.parts = nil
		}
		if err == nil && !s.trying {
			err = s.wire.relieve()
		}
		if err != nil {
			return n, err
		}
		n += len(p) - len(rest)
		p = rest
	}
	return n, nil
}

// trimStart drops the blanks before a message: what has nothing else is none.
func trimStart(line []byte) []byte {
	for len(line) > 0 && (line[0] == ' ' || line[0] == '\t' || line[0] == '\r') {
		line = line[1:]
	}
	return line
}

// room is how much of a message goes into one frame: more when all of it is
// there and need not be kept.
func room(whole bool) int {
	if whole {
		return wholeMessage
	}
	return fragment
}

// fragments sends a piece of a message. Control frames may go between.
func (s *stream) fragments(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), fragment)
		if _, err := s.parts.Write(p[:n]); err != nil {
			return err
		}
		if err := s.wire.relieve(); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// Close implements jsonrpc.Stream: it sends a close frame and waits for the
// peer's, both together at most CloseTimeout, and for our goroutine.
func (s *stream) Close() error {
	s.closeOnce.Do(func() {
		close(s.done)
		code := websocket.StatusNormalClosure
		switch {
		case s.illegal.Load():
			code = websocket.StatusProtocolError
		case s.leaving.Load():
			code = websocket.StatusGoingAway
		}
		timer := time.AfterFunc(s.closeTimeout, s.wire.abort)
		// The peer may have gone, or not answer: it is closed all the same.
		_ = s.ws.Close(code, "")
		timer.Stop()
		s.background.Wait()
		s.wire.background.Wait()
	})
	return nil
}

// giveUp ends the connection at once; Read and Write return why.
func (s *stream) giveUp(why error) {
	s.lost.CompareAndSwap(nil, &why)
	s.wire.abort()
}
