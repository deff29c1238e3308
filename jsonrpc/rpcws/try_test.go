package rpcws

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/parley-project/parley/jsonrpc"
)

// A socketScript is a script whose writes that may wait are counted.
type socketScript struct {
	script
	waited int
	fails  error     // of tryWrite
	wrote  func(int) // told of such a write; may be nil
}

func (s *socketScript) Write(p []byte) (int, error) {
	s.waited++
	if s.wrote != nil {
		s.wrote(len(p))
	}
	return s.script.Write(p)
}

func (s *socketScript) tryWrite(p []byte) (int, error) {
	if s.fails != nil {
		return 0, s.fails
	}
	return s.script.tryWrite(p)
}

// tried returns a stream over a socket that takes these portions, one for each
// attempt, before it takes everything.
func tried(t *testing.T, portions ...byte) (tryStream, *socketScript) {
	t.Helper()
	conn := new(socketScript)
	s := serverStream(t, conn)
	s.wire.try = conn
	conn.got.Reset()
	conn.waited, conn.portions = 0, portions
	return tryStream{s}, conn
}

func wrote(t *testing.T, conn *socketScript, want ...string) {
	t.Helper()
	got, err := messages(conn.got.Bytes())
	if err != nil || strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("the peer got %q, %v, want %q", got, err, want)
	}
}

// TestTryWriteWhole: what goes at once is written without waiting, and nothing of it
// is kept.
func TestTryWriteWhole(t *testing.T) {
	s, conn := tried(t)
	lines := strings.Repeat(strings.Repeat("x", 99)+"\n", 1000) // more than fills a write buffer
	if n, err := s.TryWrite([]byte(lines)); err != nil || n != 100_000 || conn.waited != 0 || len(s.wire.out) != 0 || s.trying || s.wire.corked {
		t.Errorf("%d bytes, %v, %d writes that may wait", n, err, conn.waited)
	}
	if got, err := messages(conn.got.Bytes()); err != nil || len(got) != 1000 {
		t.Errorf("%d messages, %v", len(got), err)
	}
	// Write again goes to the socket as soon as a buffer is full: 64 KiB, what is beyond
	// them of the last message, and the rest.
	if n, err := s.Write([]byte(lines)); err != nil || n != 100_000 || conn.waited != 3 {
		t.Errorf("Write: %d bytes, %v, in %d writes", n, err, conn.waited)
	}
	s.wire.background.Wait()
}

// TestTryWriteLimit: so much at a time, and whole messages only.
func TestTryWriteLimit(t *testing.T) {
	s, conn := tried(t)
	n, err := s.TryWrite(bytes.Repeat([]byte("1234567\n"), tryLimit/8+100))
	if err != nil || n != tryLimit {
		t.Errorf("%d bytes, %v", n, err)
	}
	n, err = s.TryWrite(bytes.Repeat([]byte("123456789\n"), tryLimit))
	if err != nil || n != tryLimit/10*10 {
		t.Errorf("%d bytes, %v", n, err)
	}
	before := conn.got.Len()
	for _, text := range []string{"", "x", strings.Repeat("x", tryLimit) + "\n"} {
		if n, err := s.TryWrite([]byte(text)); err != nil || n != 0 || conn.got.Len() != before {
			t.Errorf("%d bytes of %.10q, %v", n, text, err)
		}
	}
}

// TestTryWritePartly: of what the socket does not take the last newline comes back,
// and nothing else is tried before Write has written the rest.
func TestTryWritePartly(t *testing.T) {
	for _, took := range []byte{0, 1, 3, 7} {
		s, conn := tried(t, took)
		if n, err := s.TryWrite([]byte("{}\n[1]\n")); err != nil || n != 6 || conn.got.Len() != int(took) {
			t.Errorf("%d of 9 bytes taken: %d, %v", took, n, err)
		}
		conn.portions = nil
		if n, err := s.TryWrite([]byte("\n[2]\n")); err != nil || n != 0 || conn.got.Len() != int(took) {
			t.Errorf("%d of 9 bytes taken: then %d, %v, %d bytes written", took, n, err, conn.got.Len())
		}
		if n, err := s.Write([]byte("\n[2]\n")); err != nil || n != 5 || conn.waited != 1 {
			t.Errorf("Write: %d, %v", n, err)
		}
		if n, err := s.TryWrite([]byte("[3]\n")); err != nil || n != 4 {
			t.Errorf("TryWrite afterwards: %d, %v", n, err)
		}
		wrote(t, conn, "{}", "[1]", "[2]", "[3]")
	}
}

// A slowSocket takes 64 KiB in 20 s, and nothing without waiting. Its peer says nothing.
type slowSocket struct {
	net.Conn // gives nothing to read until it is closed
	got      bytes.Buffer
}

func (s *slowSocket) tryWrite([]byte) (int, error) { return 0, nil }

func (s *slowSocket) Write(p []byte) (int, error) {
	time.Sleep(20 * time.Second * time.Duration(len(p)) / (64 << 10))
	return s.got.Write(p)
}

// TestSlowPeerOfRest: a peer that takes 64 KiB within StallTimeout is not given up
// while it takes what an attempt to write has left, which may be more.
func TestSlowPeerOfRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		socket := &slowSocket{Conn: here}
		s := serverStream(t, socket)
		s.wire.try = socket
		socket.got.Reset()
		conn := jsonrpc.NewConn(tryStream{s}, jsonrpc.Config{StallTimeout: 30 * time.Second})
		params := `["` + strings.Repeat("x", 120<<10) + `"]`
		err := conn.Call(t.Context(), "m", json.RawMessage(params), nil, jsonrpc.WithTimeout(time.Minute))
		if !errors.Is(err, jsonrpc.ErrTimeout) { // it was sent, and the peer does not answer
			t.Error(err)
		}
		synctest.Wait()
		if got, err := messages(socket.got.Bytes()); err != nil || len(got) != 1 || !strings.Contains(got[0], params) {
			t.Errorf("the peer got %d messages, %v", len(got), err)
		}
		there.Close()
		conn.Close()
	})
}

// TestWriteWatched: of what was begun before, or attempted, the peer is given 64 KiB
// at a time, and each is told of; of what is written by others nothing.
func TestWriteWatched(t *testing.T) {
	var pieces []int
	watch := func(on bool) {
		if !on {
			t.Error("watch(false)")
		}
		pieces = append(pieces, -1)
	}
	conn := &socketScript{wrote: func(n int) { pieces = append(pieces, n) }}
	s := serverStream(t, conn)
	half := strings.Repeat("x", 60<<10)
	if _, err := s.Write([]byte(half)); err != nil {
		t.Fatal(err)
	}
	pieces = nil
	if n, err := s.WriteWatched([]byte(half+"\n"), watch); err != nil || n != len(half)+1 {
		t.Errorf("%d, %v", n, err)
	}
	if want := []int{64 << 10, -1, 56<<10 + 10, -1}; !slices.Equal(pieces, want) {
		t.Errorf("pieces of %d bytes, want %d", pieces, want)
	}
	pieces = nil
	if _, err := s.Write([]byte("{}\n")); err != nil || slices.Contains(pieces, -1) {
		t.Errorf("pieces of %d bytes, %v", pieces, err)
	}
	wrote(t, conn, half+half, "{}")
}

// TestTryWriteBesideOthers: the middle of a message and what stands behind the writes
// of others are left to Write.
func TestTryWriteBesideOthers(t *testing.T) {
	s, conn := tried(t)
	refused := func(what string) {
		t.Helper()
		before := conn.got.Len()
		if n, err := s.TryWrite([]byte("}\n")); err != nil || n != 0 || conn.got.Len() != before {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	write := func(text string) {
		t.Helper()
		if n, err := s.Write([]byte(text)); err != nil || n != len(text) {
			t.Errorf("Write: %d, %v", n, err)
		}
	}
	write("{")
	refused("a message has begun")
	write("}\n")
	large := strings.Repeat("x", fragment+1)
	write(large)
	refused("fragments were sent")
	write("\n")
	s.wire.flushing = true // somebody writes a control frame
	refused("somebody writes")
	s.wire.flushing = false
	wrote(t, conn, "{}", large)
}

// TestTryWriteFails: an error of the socket ends the stream for Write as well.
func TestTryWriteFails(t *testing.T) {
	s, conn := tried(t)
	conn.fails = syscall.EPIPE
	if _, err := s.TryWrite([]byte("{}\n")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("TryWrite: %v", err)
	}
	conn.fails = nil
	for _, write := range []func([]byte) (int, error){s.TryWrite, s.Write, s.TryWrite} {
		if n, err := write([]byte("{}\n")); !errors.Is(err, syscall.EPIPE) || n != 0 && conn.got.Len() > 0 {
			t.Errorf("then: %d, %v", n, err)
		}
	}
	if conn.got.Len() > 0 {
		t.Errorf("written after an error: %q", conn.got.Bytes())
	}
	lost, conn := tried(t)
	lost.giveUp(ErrNoPong)
	conn.fails = syscall.EPIPE
	if _, err := lost.TryWrite([]byte("{}\n")); !errors.Is(err, ErrNoPong) {
		t.Errorf("TryWrite after the connection was given up: %v", err)
	}
}

// TestTryWriteAfterClose: the library's error is that of TryWrite.
func TestTryWriteAfterClose(t *testing.T) {
	s, conn := tried(t)
	_ = s.ws.CloseNow()
	before := conn.got.Len()
	if _, err := s.TryWrite([]byte("{}\n")); err == nil || conn.got.Len() != before {
		t.Errorf("%v", err)
	}
}

// TestAbilities: a stream says that it can be tried only when its socket can.
func TestAbilities(t *testing.T) {
	type tryer interface{ TryWrite([]byte) (int, error) }
	s, _ := tried(t)
	if _, ok := s.withAbilities().(tryer); !ok {
		t.Error("no TryWrite")
	}
	s.wire.try = nil
	if _, ok := s.withAbilities().(tryer); ok {
		t.Error("TryWrite without a socket to try")
	}
}

// TestOptions: the zero value means the defaults; a negative interval means no pings.
func TestOptions(t *testing.T) {
	want := options{defaultPingInterval, defaultPingTimeout, defaultCloseTimeout, compression(false)}
	if got := (options{compression: websocket.CompressionDisabled}).withDefaults(); got != want {
		t.Errorf("%+v", got)
	}
	want.pingInterval = -1
	if got := (options{-1, -1, -1, compression(false)}).withDefaults(); got != want {
		t.Errorf("negative: %+v", got)
	}
	own := options{1, 2, 3, compression(true)}
	if got := own.withDefaults(); got != own || own.compression != websocket.CompressionNoContextTakeover {
		t.Errorf("%+v", got)
	}
	s := serverStream(t, new(script)) // without pings
	if _, err := s.Read(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if _, again := s.Read(); !errors.Is(again, io.ErrUnexpectedEOF) {
		t.Error(again)
	}
}
