package jsonrpcbench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

// A floor line is 8 hexadecimal digits of a slot, the params, spaces up to the
// length that a message has, and a newline. Nobody looks at the params.
const (
	slotDigits = 8
	floorRead  = 256 << 10 // bytes of a read buffer: the longest line fits
	floorBound = 128 << 10 // bytes that may wait to be written
)

// echoLines sends every line back; what was read together goes back in one
// write. It ends with the connection.
func echoLines(c net.Conn) {
	out := make([]byte, 0, floorRead)
	_ = eachLine(c, func(line []byte) { out = append(out, line...) }, func() error {
		_, err := c.Write(out)
		out = out[:0]
		return err
	})
}

// eachLine gives each line, its newline included, and calls drained when no
// complete line is left in the buffer.
func eachLine(r io.Reader, line func([]byte), drained func() error) error {
	buf, have := make([]byte, floorRead), 0
	for {
		n, err := r.Read(buf[have:])
		if err != nil {
			return err
		}
		have += n
		start := 0
		for {
			end := bytes.IndexByte(buf[start:have], '\n')
			if end < 0 {
				break
			}
			line(buf[start : start+end+1])
			start += end + 1
		}
		if start == 0 {
			continue
		}
		have = copy(buf, buf[start:have])
		if err := drained(); err != nil {
			return err
		}
	}
}

func appendLine(dst []byte, slot int, params []byte, length int) []byte {
	const zeros = "00000000"
	begin := len(dst)
	dst = append(dst, zeros...)
	for i := begin + slotDigits - 1; slot > 0; i, slot = i-1, slot>>4 {
		dst[i] = "0123456789abcdef"[slot&15]
	}
	dst = append(dst, params...)
	for len(dst)-begin < length-1 {
		dst = append(dst, "                                "[:min(32, length-1-(len(dst)-begin))]...)
	}
	return append(dst, '\n')
}

// coalesced is the floor for many calls in flight: callers append to one
// buffer, and who finds nobody writing writes for all.
type coalesced struct {
	conn    net.Conn
	length  int
	reading sync.WaitGroup

	mu      sync.Mutex // of the fields below
	buf     []byte
	writing bool
	slots   []*floorSlot
	free    []int
	err     error

	spare []byte // of the one who writes
}

type floorSlot struct {
	into  *[]byte
	size  int
	ready chan struct{}
}

// coalescedLines is a floor whose lines have the given length in bytes.
func coalescedLines(length int) func(context.Context, net.Conn, net.Conn) (*remote, error) {
	return func(_ context.Context, client, server net.Conn) (*remote, error) {
		f := &coalesced{conn: client, length: length}
		f.reading.Go(func() { echoLines(server) })
		f.reading.Go(f.read)
		return &remote{call: f.call, close: func() error {
			err := errors.Join(client.Close(), server.Close())
			f.reading.Wait()
			return err
		}}, nil
	}
}

func (f *coalesced) call(_ context.Context, params []byte, into *[]byte) error {
	f.mu.Lock()
	if f.err != nil {
		f.mu.Unlock()
		return f.err
	}
	if len(f.free) == 0 {
		f.free = append(f.free, len(f.slots))
		f.slots = append(f.slots, &floorSlot{ready: make(chan struct{}, 1)})
	}
	n := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	s := f.slots[n]
	s.into, s.size = into, len(params)
	f.buf = appendLine(f.buf, n, params, f.length)
	write := !f.writing
	f.writing = true
	alone := len(f.slots)-len(f.free) == 1
	f.mu.Unlock()
	if write {
		if !alone {
			runtime.Gosched() // let the others append first
		}
		if err := f.flush(); err != nil {
			return err
		}
	}
	<-s.ready
	f.mu.Lock()
	f.free = append(f.free, n)
	err := f.err
	f.mu.Unlock()
	return err
}

func (f *coalesced) flush() error {
	for {
		f.mu.Lock()
		out := f.buf
		if len(out) == 0 {
			f.writing = false
			f.mu.Unlock()
			return nil
		}
		f.buf = f.spare[:0]
		f.mu.Unlock()
		if _, err := f.conn.Write(out); err != nil {
			return err
		}
		f.spare = out
	}
}

func (f *coalesced) read() {
	err := eachLine(f.conn, func(line []byte) {
		n, err := strconv.ParseUint(string(line[:slotDigits]), 16, 32)
		f.mu.Lock()
		if err != nil || n >= uint64(len(f.slots)) {
			f.mu.Unlock()
			return
		}
		s := f.slots[n]
		f.mu.Unlock()
		*s.into = append((*s.into)[:0], line[slotDigits:slotDigits+s.size]...)
		s.ready <- struct{}{}
	}, func() error { return nil })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	for _, s := range f.slots {
		select {
		case s.ready <- struct{}{}:
		default:
		}
	}
}

// callerReads is the floor for one call at a time, and for one batch at a time,
// which is a line for each entry in one write: the caller reads the answer from
// the socket itself.
func callerReads(length int) func(context.Context, net.Conn, net.Conn) (*remote, error) {
	return func(_ context.Context, client, server net.Conn) (*remote, error) {
		var serving sync.WaitGroup
		serving.Go(func() { echoLines(server) })
		f := &lineReader{conn: client, length: length, out: make([]byte, 0, floorRead), in: make([]byte, floorRead)}
		return &remote{
			call: func(_ context.Context, params []byte, into *[]byte) error {
				return f.echo(params, 1, func(int) *[]byte { return into })
			},
			batch: func(_ context.Context, params []byte, into [][]byte) error {
				return f.echo(params, len(into), func(i int) *[]byte { return &into[i] })
			},
			close: func() error {
				err := errors.Join(client.Close(), server.Close())
				serving.Wait()
				return err
			},
		}, nil
	}
}

// lineReader is the client of callerReads.
type lineReader struct {
	conn    net.Conn
	length  int
	out, in []byte
}

// echo sends n lines and reads as many; into is where the params of each go.
func (f *lineReader) echo(params []byte, n int, into func(int) *[]byte) error {
	f.out = f.out[:0]
	for range n {
		f.out = appendLine(f.out, 0, params, f.length)
	}
	if _, err := f.conn.Write(f.out); err != nil {
		return err
	}
	if _, err := io.ReadAtLeast(f.conn, f.in, len(f.out)); err != nil {
		return err
	}
	for i := range n {
		text := f.in[i*f.length+slotDigits:]
		*into(i) = append((*into(i))[:0], text[:len(params)]...)
	}
	return nil
}

// notifier is the floor for notifications: a writer goroutine swaps two
// bounded buffers.
type notifier struct {
	conn   net.Conn
	length int
	work   sync.WaitGroup

	mu     sync.Mutex // of the fields below
	change *sync.Cond
	buf    []byte
	err    error
}

func notifyLines(length int) func(context.Context, net.Conn, net.Conn) (*remote, error) {
	return func(_ context.Context, client, server net.Conn) (*remote, error) {
		f := &notifier{conn: client, length: length}
		f.change = sync.NewCond(&f.mu)
		var handled atomic.Int64
		f.work.Go(func() {
			_ = eachLine(server, func([]byte) { handled.Add(1) }, func() error { return nil })
		})
		f.work.Go(f.write)
		return &remote{notify: f.notify, received: handled.Load, close: f.close}, nil
	}
}

func (f *notifier) notify(_ context.Context, params []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.buf) > floorBound && f.err == nil {
		f.change.Wait()
	}
	if len(f.buf) == 0 {
		f.change.Broadcast()
	}
	f.buf = appendLine(f.buf, 0, params, f.length)
	return f.err
}

func (f *notifier) write() {
	var spare []byte
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		for len(f.buf) == 0 && f.err == nil {
			f.change.Wait()
		}
		if f.err != nil {
			return
		}
		out := f.buf
		f.buf = spare[:0]
		f.change.Broadcast()
		f.mu.Unlock()
		_, err := f.conn.Write(out)
		spare = out
		f.mu.Lock()
		if err != nil && f.err == nil {
			f.err = err
			f.change.Broadcast()
		}
	}
}

func (f *notifier) close() error {
	err := f.conn.Close()
	f.mu.Lock()
	f.err = net.ErrClosed
	f.change.Broadcast()
	f.mu.Unlock()
	f.work.Wait()
	return err
}
