package rpctest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// A recorder takes the failures of a check instead of the test.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) FailNow() { runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

// try runs a check on two Streams, in a bubble, and returns what failed.
func try(t *testing.T, name string, a, b jsonrpc.Stream) []string {
	t.Helper()
	i := slices.IndexFunc(streamChecks(), func(c streamCheck) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("no check is called %q", name)
	}
	r := &recorder{TB: t}
	p := &pair{TB: r, patience: patience, pause: 20 * time.Millisecond}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(streamChecks()[i], a, b)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures
}

// A mutant is a Stream with one fault: the methods that are set are used
// instead of the good ones. It has every ability.
type mutant struct {
	jsonrpc.Stream
	peer     *mutant
	over     <-chan struct{} // is closed when the check has ended, for who waits in vain
	read     func() (jsonrpc.Part, error)
	write    func(p []byte) (int, error)
	tryWrite func(p []byte) (int, error)
	watched  func(p []byte) (int, error)
	deadline func(t time.Time) error
	close    func() error
	turns    turns
}

func (m *mutant) Read() (jsonrpc.Part, error) {
	if m.read != nil {
		return m.read()
	}
	return m.Stream.Read()
}

func (m *mutant) Write(p []byte) (int, error) {
	switch {
	case m.write != nil:
		return m.write(p)
	case m.turns.on():
		return m.turns.write(p)
	}
	return m.Stream.Write(p)
}

func (m *mutant) TryWrite(p []byte) (int, error) {
	if m.tryWrite != nil {
		return m.tryWrite(p)
	}
	return m.Stream.(tryWriter).TryWrite(p)
}

func (m *mutant) WriteWatched(p []byte, _ func(on bool)) (int, error) {
	if m.watched != nil {
		return m.watched(p)
	}
	return m.Stream.Write(p)
}

func (m *mutant) SetReadDeadline(t time.Time) error {
	if m.deadline != nil {
		return m.deadline(t)
	}
	return m.Stream.(readDeadliner).SetReadDeadline(t)
}

func (m *mutant) Close() error {
	m.turns.close()
	if m.close != nil {
		return m.close()
	}
	return m.Stream.Close()
}

// mutants are faults that Streams have had, each with the check that has to
// find it. The mutant is the reading end b; with writes it is a.
func mutants() []struct {
	fault, check string
	writes       bool
	mutate       func(m *mutant, good jsonrpc.Stream)
} {
	return []struct {
		fault, check string
		writes       bool
		mutate       func(m *mutant, good jsonrpc.Stream)
	}{
		{"two messages change places", "order", false, mutateOrder},
		{"a message is lost", "order", false, mutateLoss(7)},
		{"a message comes twice", "several messages in one Write", false, mutateTwice},
		{"the second message of a Write is lost", "several messages in one Write", true, mutateFirstOnly},
		{"Write keeps the bytes themselves", "order", true, mutateKeep},
		{"Write reports too little", "order", true, func(m *mutant, good jsonrpc.Stream) {
			m.write = func(p []byte) (int, error) { n, err := good.Write(p); return n - 1, err }
		}},
		{"TryWrite keeps the bytes themselves", "TryWrite writes what it says", true, mutateKeep},
		{"a deadline comes early", "SetReadDeadline interrupts Read", false, mutateDeadlineEarly},
		{"each Write is a message", "one message over several Writes", true, mutateWriteIsMessage},
		{"carriage returns are dropped", "bytes are kept", false, mutateBytes("\r", "")},
		{"backslashes are interpreted", "bytes are kept", false, mutateBytes(`\\`, `\`)},
		{"every part is an end", "large messages in parts", false, mutateParts(func(p jsonrpc.Part) jsonrpc.Part { p.End = true; return p })},
		{"large messages lose a byte between parts", "large messages in parts", false, mutateSeams},
		{"large messages are cut", "large messages in parts", true, mutateLimit},
		{"empty messages are returned", "empty messages are not returned", true, mutateEmpty},
		{"Data is overwritten while it is borrowed", "Data is borrowed until the next Read", false, mutateReadAhead},
		{"More is always true", "More is no empty promise", false, mutateParts(func(p jsonrpc.Part) jsonrpc.Part { p.More = true; return p })},
		{"More counts an empty message", "empty messages are not returned", false, mutateMoreBlank},
		{"the last message is lost at EOF", "EOF between messages", false, mutateLoss(50)},
		{"EOF is told once", "EOF between messages", false, mutateEOFOnce},
		{"EOF is io.ErrUnexpectedEOF", "EOF between messages", false, mutateError(io.EOF, io.ErrUnexpectedEOF)},
		{"a cut message is handed over", "EOF within a message", false, mutateCut},
		{"a cut message ends in io.EOF", "EOF within a large message", false, mutateError(io.ErrUnexpectedEOF, io.EOF)},
		{"Close leaves Read waiting", "Close ends Read", false, func(m *mutant, _ jsonrpc.Stream) { m.close = func() error { return nil } }},
		{"Close leaves Write waiting", "Close ends Write", true, func(m *mutant, _ jsonrpc.Stream) { m.close = func() error { return nil } }},
		{"Write keeps everything", "Close ends Write", true, func(m *mutant, _ jsonrpc.Stream) { m.write = func(p []byte) (int, error) { return len(p), nil } }},
		{"a second Close panics", "Close again", false, mutateClosePanic},
		{"a second Close waits for ever", "Close again", false, mutateCloseHang},
		{"Write after Close succeeds", "nothing works after Close", true, func(m *mutant, _ jsonrpc.Stream) { m.write = func(p []byte) (int, error) { return len(p), nil } }},
		{"TryWrite after Close succeeds", "nothing works after Close", true, func(m *mutant, _ jsonrpc.Stream) { m.tryWrite = func(p []byte) (int, error) { return len(p), nil } }},
		{"Read and Write share a lock", "Read and Write do not wait for each other", false, mutateLock},
		{"Read and Write of both ends share locks", "both directions full", false, mutateLocks},
		{"Close waits for Read", "Close ends Read", false, mutateCloseWaits},
		{"Close leaves one of both waiting", "Read, Write and Close side by side", false, mutateWriteHangs},
		{"TryWrite reports too much", "TryWrite writes what it says", true, mutateTryMore},
		{"TryWrite reports too little", "TryWrite writes what it says", true, mutateTryLess},
		{"TryWrite waits", "TryWrite does not wait", true, func(m *mutant, good jsonrpc.Stream) { m.tryWrite = good.Write }},
		{"no room is an error of TryWrite", "TryWrite does not wait", true, mutateTryError},
		{"WriteWatched keeps the bytes for the next Write", "WriteWatched writes as Write does", true, mutateWatchedKeeps},
		{"Room does not end", "Room is what Write has", true, func(m *mutant, _ jsonrpc.Stream) { m.turns.endless = true }},
		{"Write waits where there is no Room", "Room is what Write has", true, func(m *mutant, _ jsonrpc.Stream) { m.turns.waits = true }},
		{"Drop drops nothing", "Room is what Write has", true, func(m *mutant, _ jsonrpc.Stream) { m.turns.keeps = true }},
		{"nobody is told of room", "Room is what Write has", true, func(m *mutant, _ jsonrpc.Stream) { m.turns.silent = true }},
		{"deadlines are ignored", "SetReadDeadline interrupts Read", false, func(m *mutant, _ jsonrpc.Stream) { m.deadline = func(time.Time) error { return nil } }},
		{"a deadline has another error", "SetReadDeadline interrupts Read", false, mutateError(os.ErrDeadlineExceeded, errors.New("timeout"))},
		{"a deadline is final", "SetReadDeadline interrupts Read", false, mutateDeadlineFinal},
		{"a deadline loses what was read", "an interrupted Read loses nothing", false, mutateDeadlineLoss},
	}
}

// TestStreamMutants proves that the contract suite bites: each fault fails the
// check that is there for it, and a good pair with the same wrapping passes it.
func TestStreamMutants(t *testing.T) {
	t.Parallel()
	for _, tt := range mutants() {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := jsonrpc.Pipe()
				if failures := try(t, tt.check, &mutant{Stream: a}, &mutant{Stream: b}); len(failures) > 0 {
					t.Errorf("the good pair fails: %q", failures)
				}

				a, b = jsonrpc.Pipe()
				over := make(chan struct{})
				t.Cleanup(func() { close(over); a.Close(); b.Close() })
				ma, mb := &mutant{Stream: a, over: over}, &mutant{Stream: b, over: over}
				ma.peer, mb.peer = mb, ma
				if tt.writes {
					tt.mutate(ma, a)
				} else {
					tt.mutate(mb, b)
				}
				failures := try(t, tt.check, ma, mb)
				if len(failures) == 0 {
					t.Errorf("the check %q did not notice", tt.check)
				}
				t.Logf("%q", failures)
			})
		})
	}
}

// TestStreamChecksHaveMutants fails for a check that no fault has tried.
func TestStreamChecksHaveMutants(t *testing.T) {
	for _, c := range streamChecks() {
		if !slices.ContainsFunc(mutants(), func(m struct {
			fault, check string
			writes       bool
			mutate       func(m *mutant, good jsonrpc.Stream)
		},
		) bool {
			return m.check == c.name
		}) {
			t.Errorf("no mutant fails the check %q", c.name)
		}
	}
}

// whole reads a message of any size, with its bytes in memory of its own.
func whole(s jsonrpc.Stream) (jsonrpc.Part, error) {
	m, err := readMessage(s)
	if err != nil {
		return jsonrpc.Part{}, err
	}
	return jsonrpc.Part{Data: []byte(m.text), End: true, More: m.more}, nil
}

// mutateKeep once writes what it was given only when it is given more, as a Stream with
// a queue of slices does that has not made them its own.
func mutateKeep(m *mutant, good jsonrpc.Stream) {
	n := 0
	var kept []byte
	m.write = func(p []byte) (int, error) {
		good.Write(kept)
		kept = nil
		if n++; n == 5 {
			kept = p
			return len(p), nil
		}
		return good.Write(p)
	}
	m.tryWrite = m.write
}

func mutateDeadlineEarly(m *mutant, good jsonrpc.Stream) {
	m.deadline = func(t time.Time) error {
		if !t.IsZero() {
			t = time.Now()
		}
		return good.(readDeadliner).SetReadDeadline(t)
	}
}

func mutateOrder(m *mutant, good jsonrpc.Stream) {
	n := 0
	var held *jsonrpc.Part
	m.read = func() (jsonrpc.Part, error) {
		if held != nil {
			part := *held
			held = nil
			return part, nil
		}
		part, err := whole(good)
		if n++; n == 5 && err == nil {
			held = &part
			return whole(good)
		}
		return part, err
	}
}

func mutateLoss(nth int) func(m *mutant, good jsonrpc.Stream) {
	return func(m *mutant, good jsonrpc.Stream) {
		n := 0
		m.read = func() (jsonrpc.Part, error) {
			if n++; n == nth {
				whole(good)
			}
			return whole(good)
		}
	}
}

func mutateTwice(m *mutant, good jsonrpc.Stream) {
	n := 0
	var last jsonrpc.Part
	m.read = func() (jsonrpc.Part, error) {
		if n++; n == 5 {
			return last, nil
		}
		var err error
		last, err = whole(good)
		return last, err
	}
}

func mutateFirstOnly(m *mutant, good jsonrpc.Stream) {
	m.write = func(p []byte) (int, error) {
		first, _, _ := bytes.Cut(p, []byte{'\n'})
		good.Write(p[:min(len(first)+1, len(p))])
		return len(p), nil
	}
}

func mutateWriteIsMessage(m *mutant, good jsonrpc.Stream) {
	m.write = func(p []byte) (int, error) {
		good.Write(p)
		if p[len(p)-1] != '\n' {
			good.Write([]byte{'\n'})
		}
		return len(p), nil
	}
}

func mutateBytes(from, to string) func(m *mutant, good jsonrpc.Stream) {
	return func(m *mutant, good jsonrpc.Stream) {
		m.read = func() (jsonrpc.Part, error) {
			part, err := good.Read()
			part.Data = []byte(strings.ReplaceAll(string(part.Data), from, to))
			return part, err
		}
	}
}

func mutateParts(change func(jsonrpc.Part) jsonrpc.Part) func(m *mutant, good jsonrpc.Stream) {
	return func(m *mutant, good jsonrpc.Stream) {
		m.read = func() (jsonrpc.Part, error) {
			part, err := good.Read()
			return change(part), err
		}
	}
}

func mutateSeams(m *mutant, good jsonrpc.Stream) {
	m.read = func() (jsonrpc.Part, error) {
		part, err := good.Read()
		if !part.End && len(part.Data) > 1 {
			part.Data = part.Data[1:]
		}
		return part, err
	}
}

func mutateLimit(m *mutant, good jsonrpc.Stream) {
	m.write = func(p []byte) (int, error) {
		if n := len(p); n > bigMessage {
			good.Write(append(p[:bigMessage:bigMessage], '\n'))
			return n, nil
		}
		return good.Write(p)
	}
}

func mutateEmpty(m *mutant, good jsonrpc.Stream) {
	m.write = func(p []byte) (int, error) {
		good.Write(bytes.ReplaceAll(p, []byte("\n\n"), []byte("\n\"\"\n")))
		return len(p), nil
	}
}

// mutateReadAhead lets what arrives overwrite what was handed out, as a Stream
// with one buffer and a goroutine that reads would. The peer's Write does it,
// so that there is no data race to be found instead.
func mutateReadAhead(m *mutant, good jsonrpc.Stream) {
	var last []byte
	m.read = func() (jsonrpc.Part, error) {
		part, err := good.Read()
		last = part.Data
		return part, err
	}
	there := m.peer.Stream
	m.peer.write = func(p []byte) (int, error) {
		copy(last, p)
		return there.Write(p)
	}
}

func mutateMoreBlank(m *mutant, good jsonrpc.Stream) {
	m.read = func() (jsonrpc.Part, error) {
		part, err := good.Read()
		part.More = part.More || strings.Contains(string(part.Data), "b")
		return part, err
	}
}

func mutateEOFOnce(m *mutant, good jsonrpc.Stream) {
	told := false
	m.read = func() (jsonrpc.Part, error) {
		part, err := good.Read()
		if err != nil && told {
			<-m.over // the goroutine is lost, as the caller's would be
		}
		told = err != nil
		return part, err
	}
}

func mutateError(from, to error) func(m *mutant, good jsonrpc.Stream) {
	return func(m *mutant, good jsonrpc.Stream) {
		m.read = func() (jsonrpc.Part, error) {
			part, err := good.Read()
			if errors.Is(err, from) {
				err = to
			}
			return part, err
		}
	}
}

func mutateCut(m *mutant, good jsonrpc.Stream) {
	m.read = func() (jsonrpc.Part, error) {
		part, err := good.Read()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return jsonrpc.Part{Data: []byte(`{"a":`), End: true}, nil
		}
		return part, err
	}
}

func mutateClosePanic(m *mutant, good jsonrpc.Stream) {
	closed := make(chan struct{})
	m.close = func() error {
		close(closed)
		return good.Close()
	}
}

func mutateCloseHang(m *mutant, good jsonrpc.Stream) {
	once := make(chan struct{}, 1)
	m.close = func() error {
		select {
		case once <- struct{}{}:
		case <-m.over:
		}
		return good.Close()
	}
}

// A lock is a sync.Mutex for bubbles, where waiting for it takes no time.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

func mutateLock(m *mutant, good jsonrpc.Stream) {
	mu := newLock()
	m.read = func() (jsonrpc.Part, error) {
		mu.Lock()
		defer mu.Unlock()
		return good.Read()
	}
	m.write = func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return good.Write(p)
	}
}

func mutateCloseWaits(m *mutant, good jsonrpc.Stream) {
	mu := newLock()
	m.read = func() (jsonrpc.Part, error) {
		mu.Lock()
		defer mu.Unlock()
		return good.Read()
	}
	m.close = func() error {
		mu.Lock() // a reader with nothing to read keeps it
		defer mu.Unlock()
		return good.Close()
	}
}

// mutateLocks gives both ends such a lock.
func mutateLocks(m *mutant, good jsonrpc.Stream) {
	mutateLock(m, good)
	mutateLock(m.peer, m.peer.Stream)
}

func mutateWriteHangs(m *mutant, good jsonrpc.Stream) {
	m.write = func(p []byte) (int, error) {
		n, err := good.Write(p)
		if err != nil {
			<-m.over // the goroutine is lost, as the caller's would be
		}
		return n, err
	}
}

func mutateTryMore(m *mutant, good jsonrpc.Stream) {
	m.tryWrite = func(p []byte) (int, error) {
		n, err := good.(tryWriter).TryWrite(p)
		return min(n+1, len(p)), err
	}
}

func mutateTryLess(m *mutant, good jsonrpc.Stream) {
	m.tryWrite = func(p []byte) (int, error) {
		n, err := good.(tryWriter).TryWrite(p)
		return max(n-1, 0), err
	}
}

func mutateTryError(m *mutant, good jsonrpc.Stream) {
	m.tryWrite = func(p []byte) (int, error) {
		n, err := good.(tryWriter).TryWrite(p)
		if n == 0 {
			err = errors.New("try again")
		}
		return n, err
	}
}

func mutateWatchedKeeps(m *mutant, good jsonrpc.Stream) {
	var kept []byte
	m.watched = func(p []byte) (int, error) { kept = p; return len(p), nil }
	m.write = func(p []byte) (int, error) {
		if _, err := good.Write(kept); err != nil {
			return 0, err
		}
		kept = nil
		return good.Write(p)
	}
}

func mutateDeadlineFinal(m *mutant, good jsonrpc.Stream) {
	var final error
	m.read = func() (jsonrpc.Part, error) {
		if final != nil {
			return jsonrpc.Part{}, final
		}
		part, err := good.Read()
		final = err
		return part, err
	}
}

// mutateDeadlineLoss drops what had come of a message when its Read was
// interrupted, as json.Decoder over a connection with deadlines does.
func mutateDeadlineLoss(m *mutant, good jsonrpc.Stream) {
	lost := false
	m.read = func() (jsonrpc.Part, error) {
		part, err := good.Read()
		if lost && err == nil {
			part.Data = part.Data[len(part.Data)/2:]
		}
		lost = errors.Is(err, os.ErrDeadlineExceeded)
		return part, err
	}
}
