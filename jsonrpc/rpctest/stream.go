// Package rpctest tests what others build on package jsonrpc: TestStream holds
// an implementation of jsonrpc.Stream to its contract, RunConformance a server to
// JSON-RPC 2.0, and RunTranscripts plays written exchanges against a server.
//
// They are for test files; nothing here belongs in a program. The functions that they
// are given are called one at a time, and nothing that they start is left when they
// return, if closing a Stream or a connection ends what it blocks.
package rpctest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// patience is how long what has to happen is waited for: on a machine that is busy
// with other things it may take a while, and only a fault takes all of it.
const patience = 2 * time.Minute

// A Difference is a way in which a Stream differs from a plain connection
// without breaking the contract.
type Difference int

// The differences that TestStream knows.
const (
	// Unordered: messages may overtake each other on the way, as HTTP requests
	// do that are sent at the same time.
	Unordered Difference = iota + 1
)

// TestStream tests two joined Streams against the contract of jsonrpc.Stream
// (RPC-13, RPC-15): what one writes the other reads, in both directions, in any
// portions; large messages come in parts; Close ends what blocks; abilities
// that are there work. newPair is called for each of the subtests, may use
// t.Cleanup, and leaves closing the Streams to the test. Run it with the race
// detector.
//
// Among other things it sends 2 MiB messages, 1 MiB each way while nobody reads
// yet, and up to 32 MiB to find out that Write does wait.
func TestStream(t *testing.T, newPair func(t *testing.T) (a, b jsonrpc.Stream), differences ...Difference) {
	t.Helper()
	for _, c := range streamChecks() {
		t.Run(c.name, func(t *testing.T) {
			p := &pair{TB: t, patience: patience, pause: 50 * time.Millisecond}
			for _, d := range differences {
				p.unordered = p.unordered || d == Unordered
			}
			a, b := newPair(t)
			p.run(c, a, b)
			if c.bothWays && !t.Failed() {
				a, b = newPair(t)
				p.run(c, b, a)
			}
		})
	}
}

// A streamCheck is one rule of the contract.
type streamCheck struct {
	name     string
	bothWays bool // test it also with the ends exchanged
	run      func(p *pair)
}

// A pair is two joined Streams under test, with helpers that fail the test
// instead of hanging it.
type pair struct {
	testing.TB
	a, b      jsonrpc.Stream
	patience  time.Duration // what has to happen has happened by then
	pause     time.Duration // what must not happen would have happened by then
	unordered bool
	tasks     sync.WaitGroup
	writing   map[jsonrpc.Stream]<-chan struct{} // the last one to write to each
}

// run runs one check, closes both ends, and waits for what the check started.
func (p *pair) run(c streamCheck, a, b jsonrpc.Stream) {
	p.Helper()
	p.a, p.b, p.writing = a, b, make(map[jsonrpc.Stream]<-chan struct{})
	defer func() {
		p.within("close both ends", func() {
			// At once, since closing may wait for the other end to agree.
			var ends sync.WaitGroup
			for _, s := range []jsonrpc.Stream{a, b} {
				ends.Go(func() {
					defer p.caught("Close")
					_ = s.Close()
				})
			}
			ends.Wait()
		})
		p.within("return from Read and Write after Close", p.tasks.Wait)
	}()
	c.run(p)
}

// within fails the check if f takes too long. f goes on then, in vain.
func (p *pair) within(what string, f func()) {
	p.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	p.await(what, done)
}

// close closes a Stream. What Close returns is up to the transport.
func (p *pair) close(s jsonrpc.Stream) {
	p.Helper()
	p.within("close", func() { _ = s.Close() })
}

// deadline sets the deadline of b.
func (p *pair) deadline(d readDeadliner, t time.Time) {
	p.Helper()
	if err := d.SetReadDeadline(t); err != nil {
		p.Fatalf("SetReadDeadline: %v", err)
	}
}

func (p *pair) await(what string, done <-chan struct{}) {
	p.Helper()
	select {
	case <-done:
	case <-time.After(p.patience):
		p.Errorf("did not %s within %v", what, p.patience)
	}
}

// ended says whether done is closed after a pause, which it should not be.
func (p *pair) ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(p.pause):
		return false
	}
}

// start runs f beside the check and returns what tells its end.
func (p *pair) start(f func()) <-chan struct{} {
	done := make(chan struct{})
	p.tasks.Go(func() {
		defer close(done)
		f()
	})
	return done
}

// write runs f beside the check, after those that write to the same Stream.
func (p *pair) write(to jsonrpc.Stream, f func()) <-chan struct{} {
	before := p.writing[to]
	done := p.start(func() {
		if before != nil {
			<-before
		}
		f()
	})
	p.writing[to] = done
	return done
}

// send writes texts, one call of Write for each, beside the check: a Stream may
// wait for its reader.
func (p *pair) send(to jsonrpc.Stream, texts ...string) <-chan struct{} {
	return p.write(to, func() {
		for _, text := range texts {
			b := []byte(text)
			if n, err := to.Write(b); err != nil || n != len(text) {
				p.Errorf("Write of %d bytes: %d, %v", len(text), n, err)
				return
			}
			overwrite(b)
		}
	})
}

// overwrite does with bytes that were written what a Conn does, which uses its
// buffers again.
func overwrite(b []byte) {
	for i := range b {
		b[i] = '#'
	}
}

// A message is one that was read, with the More of its last part.
type message struct {
	text string
	more bool
}

// read reads one message from s.
func (p *pair) read(s jsonrpc.Stream) (message, error) {
	var m message
	var err error
	done := p.start(func() { m, err = readMessage(s) })
	select {
	case <-done:
		return m, err
	case <-time.After(p.patience):
		p.Fatalf("no message within %v", p.patience)
		return message{}, nil
	}
}

// readMessage puts the parts of a message together. The error of a message that
// was begun tells how much of it had come.
func readMessage(s jsonrpc.Stream) (message, error) {
	var text []byte
	for {
		part, err := s.Read()
		if err != nil {
			if len(text) > 0 {
				err = &begunError{len(text), err}
			}
			return message{}, err
		}
		if len(part.Data) == 0 && !part.End {
			return message{}, errors.New("an empty part that is not the last of a message")
		}
		text = append(text, part.Data...)
		if part.End {
			return message{string(text), part.More}, nil
		}
	}
}

// A begunError ended a message after some of its bytes.
type begunError struct {
	bytes int
	err   error
}

func (e *begunError) Error() string { return fmt.Sprintf("after %d bytes: %v", e.bytes, e.err) }
func (e *begunError) Unwrap() error { return e.err }

// expect reads messages and compares them with texts.
func (p *pair) expect(s jsonrpc.Stream, texts ...string) []message {
	p.Helper()
	missing := make(map[string]int)
	for _, text := range texts {
		missing[text]++
	}
	got := make([]message, 0, len(texts))
	for i, want := range texts {
		m, err := p.read(s)
		if err != nil {
			p.Fatalf("Read of message %d of %d: %v", i+1, len(texts), err)
		}
		if missing[m.text]--; missing[m.text] < 0 || !p.unordered && m.text != want {
			p.Fatalf("message %d of %d is %s, want %s", i+1, len(texts), short(m.text), short(want))
		}
		got = append(got, m)
	}
	return got
}

// expectEOF reads until the peer's end, which has to stay.
func (p *pair) expectEOF(s jsonrpc.Stream) {
	p.Helper()
	for range 2 {
		if m, err := p.read(s); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			p.Fatalf("after the peer closed, Read: %s, %v, want io.EOF", short(m.text), err)
		}
	}
}

// lines makes one text of messages, each with its newline.
func lines(texts []string) string {
	var b bytes.Buffer
	for _, text := range texts {
		b.WriteString(text)
		b.WriteByte('\n')
	}
	return b.String()
}

// numbered returns n different messages, most of them short.
func numbered(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf(`{"jsonrpc":"2.0","method":"m","params":[%d,%q]}`, i, bytes.Repeat([]byte{'x'}, i*i%701))
	}
	return texts
}

// large returns a message of n bytes, n ≥ 100, in which any 64 bytes tell where
// they belong.
func large(n int) string {
	const head, tail = `{"jsonrpc":"2.0","method":"large","params":["`, `"]}`
	b := make([]byte, 0, n+64)
	b = append(b, head...)
	for len(b) < n-len(tail) {
		b = strconv.AppendInt(append(b, "................................................"...), int64(len(b)), 10)
	}
	return string(append(b[:n-len(tail)], tail...))
}

// short shortens text for an error message.
func short(text string) string {
	if len(text) <= 100 {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q… (%d bytes)", text[:60], len(text))
}
