package rpcws

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// A script is the socket of a peer that sends what is written down, in portions
// of the given sizes, and hangs up. It records what it gets.
type script struct {
	net.Conn
	in       []byte
	portions []byte
	got      bytes.Buffer
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := len(s.in)
	if len(s.portions) > 0 {
		n, s.portions = 1+int(s.portions[0]), append(s.portions[1:], s.portions[0])
	}
	n = copy(p[:min(n, len(p))], s.in)
	s.in = s.in[n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error) { return s.got.Write(p) }
func (s *script) Close() error                { return nil }

// tryWrite takes as much as the next portion says, and then nothing once.
func (s *script) tryWrite(p []byte) (int, error) {
	n := len(p)
	if len(s.portions) > 0 {
		n, s.portions = int(s.portions[0])%(len(p)+1), append(s.portions[1:], s.portions[0])
	}
	return s.got.Write(p[:n])
}

// hijackWriter is a server's ResponseWriter whose connection is conn.
type hijackWriter struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

func handshake() *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
	}
	return r
}

// serverStream returns a server's stream over conn.
func serverStream(t testing.TB, conn net.Conn) *stream {
	t.Helper()
	s, err := accept(hijackWriter{httptest.NewRecorder(), conn}, handshake(), AcceptConfig{PingInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// masked appends a client's frame with the key 0, under which a payload stays
// as it is.
func masked(dst []byte, first byte, payload string) []byte {
	dst = append(dst, first)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 0x80|127), uint64(n))
	}
	return append(append(dst, 0, 0, 0, 0), payload...)
}

func inputs() [][]byte {
	ping := masked(masked(masked(nil, 1, "a"), 0x89, "p"), 0x80, "b")
	return [][]byte{
		nil,
		{0x81},
		{0x81, 0xff, 1},
		masked(nil, 0x81, "{}"),
		masked(masked(nil, 0x82, strings.Repeat("x", 300)), 0x81, "y"),
		masked(masked(nil, 0x81, ""), 0x81, strings.Repeat("x", 130)),
		ping,
		masked(masked(ping, 0x88, "\x03\xe8"), 0x81, "late"),
		masked(nil, 0x88, "\x03\xf0why"),
		{0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1},
		{0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1},
	}
}

// FuzzWireRead: what the library gets is what the socket gave, frame by frame,
// and More is only said when a message has begun.
func FuzzWireRead(f *testing.F) {
	for _, in := range inputs() {
		f.Add(in, []byte{3}, byte(5), byte(0))
		f.Add(in, []byte{}, byte(200), byte(70))
	}
	f.Fuzz(func(t *testing.T, in, portions []byte, size, buffer byte) {
		w := newWire(&script{in: in, portions: bytes.Clone(portions)}, nil)
		w.in = make([]byte, maxHeader+int(buffer))
		p := make([]byte, int(size)+1)
		var got, frame []byte
		for {
			n, err := w.Read(p)
			got, frame = append(got, p[:n]...), append(frame, p[:n]...)
			if err != nil {
				if !errors.Is(err, io.ErrUnexpectedEOF) || n != 0 {
					t.Fatalf("Read: %d, %v", n, err)
				}
				break
			}
			if n == 0 {
				t.Fatal("read nothing")
			}
			if w.left > 0 {
				continue
			}
			if total, ok := frameSize(frame); ok && total != uint64(len(frame)) {
				t.Fatalf("a frame of %d bytes came as %d", total, len(frame))
			}
			frame = frame[:0]
			if rest := in[len(got):]; w.more.Load() && (len(rest) < 2 || rest[0]&0xf != 1 && rest[0]&0xf != 2 || rest[1]&0x7f == 0) {
				t.Fatalf("More before %.20q", rest)
			}
		}
		if !bytes.Equal(got, in) {
			t.Fatalf("%d bytes became %d", len(in), len(got))
		}
	})
}

// abrupt is a script whose end the library does not take for that of a message, as it
// does io.EOF between two fragments.
type abrupt struct{ *script }

func (a abrupt) Read(p []byte) (int, error) {
	n, err := a.script.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// FuzzInput reads arbitrary bytes of a peer as the bare library does, with the
// same messages and an end of the same kind, whatever portions they come in.
func FuzzInput(f *testing.F) {
	for _, in := range inputs() {
		f.Add(in, []byte{3}, byte(0))
		f.Add(in, []byte{}, byte(70))
	}
	f.Fuzz(func(t *testing.T, in, portions []byte, buffer byte) {
		bare, err := websocket.Accept(hijackWriter{httptest.NewRecorder(), abrupt{&script{in: in}}}, handshake(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer bare.CloseNow()
		bare.SetReadLimit(-1)
		s := serverStream(t, &script{in: in, portions: bytes.Clone(portions)})
		defer s.Close()
		s.wire.in = make([]byte, maxHeader+int(buffer))
		for {
			var want []byte
			var wantErr error
			for wantErr == nil && len(want) == 0 { // empty messages are skipped
				_, want, wantErr = bare.Read(context.Background())
			}
			var got []byte
			var gotErr error
			for end := false; !end && gotErr == nil; {
				part, err := s.Read()
				got, end, gotErr = append(got, part.Data...), part.End, err
			}
			if (gotErr == nil) != (wantErr == nil) || gotErr == nil && !bytes.Equal(got, want) {
				t.Fatalf("got %.40q, %v, want %.40q, %v", got, gotErr, want, wantErr)
			}
			if gotErr == nil {
				continue
			}
			code := websocket.CloseStatus(wantErr)
			done := code == websocket.StatusNormalClosure || code == websocket.StatusGoingAway || code == websocket.StatusNoStatusRcvd
			if errors.Is(gotErr, io.EOF) && !done {
				t.Fatalf("ended with %v instead of %v", gotErr, wantErr)
			}
			return
		}
	})
}

// FuzzWrite cuts lines into any calls of Write and TryWrite, on a socket that
// takes any portions: the messages are the lines, each in frames of its own. A *
// in the text stands for many letters.
func FuzzWrite(f *testing.F) {
	for _, text := range []string{"", "\n", "{}\n", "a\nb\n\n \nc\n", "*\na*\nb\n", "*****\n", strings.Repeat("0123456789\n", 20)} {
		f.Add(text, uint32(700), []byte{0}, []byte{})
		f.Add(text, uint32(70_000), []byte{1, 200, 7, 255}, []byte{0, 255, 3})
		f.Add(text, uint32(1<<20), []byte{255}, []byte{255})
	}
	f.Add("{}\n", uint32(0), []byte{200}, []byte{1}) // the socket takes one byte of the frame
	f.Fuzz(func(t *testing.T, text string, times uint32, cuts, portions []byte) {
		if text = strings.ReplaceAll(text, "*", strings.Repeat("x", int(times%(1<<20+100)))); len(text) > 8<<20 {
			return
		}
		conn := &script{portions: bytes.Clone(portions)}
		s := serverStream(t, conn)
		s.wire.try = conn
		conn.got.Reset()
		for i, rest := 0, []byte(text); len(rest) > 0; i++ {
			piece, cut := rest, byte(0)
			if len(cuts) > 0 {
				cut = cuts[i%len(cuts)]
				piece = rest[:min(len(rest), 1+int(cut)*int(cut)*int(cut)/16)]
			}
			n, err := 0, error(nil)
			if cut%2 == 0 {
				n, err = tryStream{s}.TryWrite(piece)
			}
			if err == nil && n < len(piece) {
				var m int
				m, err = s.Write(piece[n:])
				n += m
			}
			if err != nil || n != len(piece) {
				t.Fatalf("wrote %d of %d bytes: %v", n, len(piece), err)
			}
			rest = rest[n:]
		}
		var want []string
		for line := range strings.Lines(text) {
			line, end := strings.CutSuffix(strings.TrimLeft(line, " \t\r"), "\n")
			if end && line != "" {
				want = append(want, line)
			}
		}
		got, err := messages(conn.got.Bytes())
		if err != nil && (!errors.Is(err, errCut) || strings.HasSuffix(text, "\n")) {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d lines became %d messages", len(want), len(got))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("message %d: %.60q, want %.60q", i, got[i], want[i])
			}
		}
	})
}

// errCut is what an unfinished message may end in: the library keeps a piece.
var errCut = errors.New("cut within a frame")

// messages reads a server's text frames.
func messages(b []byte) (all []string, err error) {
	var message strings.Builder
	begun := false
	for len(b) > 0 {
		size, ok := frameSize(b)
		if !ok || size > uint64(len(b)) {
			return all, errCut
		}
		head := size - uint64(b[1])
		switch b[1] {
		case 126:
			head = size - uint64(binary.BigEndian.Uint16(b[2:]))
		case 127:
			head = size - binary.BigEndian.Uint64(b[2:])
		}
		if op := b[0] & 0x7f; op > 1 || (op == 0) != begun {
			return all, errors.New("a frame where none belongs")
		}
		message.Write(b[head:size])
		if begun = b[0]&0x80 == 0; !begun {
			all = append(all, message.String())
			message.Reset()
		}
		b = b[size:]
	}
	return all, nil
}
