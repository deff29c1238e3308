package jsonrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// input is a connection that gives what r gives and takes nothing.
type input struct{ io.Reader }

func (input) Write(p []byte) (int, error) { return len(p), nil }
func (input) Close() error                { return nil }

// readAll reads all messages and the error that ends them.
func readAll(s Stream) ([]string, error) {
	var all []string
	var text []byte
	for {
		part, err := s.Read()
		if err != nil {
			return all, err
		}
		if text = append(text, part.Data...); part.End {
			all = append(all, string(text))
			text = text[:0]
		}
	}
}

func TestLineEnds(t *testing.T) {
	long := `{"x":"` + strings.Repeat("y", 3*maxReadBufferSize)
	tests := []struct {
		in   string
		want []string
		err  error
	}{
		{"", nil, io.EOF},
		{"\n\r\n \t\n", nil, io.EOF},
		{" \t", nil, io.EOF},
		{"{}\n[]\n", []string{"{}", "[]"}, io.EOF},
		{"{}\r\n\r\n  []\r\n", []string{"{}", "[]"}, io.EOF},
		{"{}\r", []string{"{}"}, io.EOF},
		{"{}\n[1] \r\n \t", []string{"{}", "[1] "}, io.EOF},
		{"1\n[1]", []string{"1", "[1]"}, io.EOF},
		{"{}\n{\"a\":", []string{"{}"}, io.ErrUnexpectedEOF},
		{"12", nil, io.ErrUnexpectedEOF},
		{long + "\"}", []string{long + "\"}"}, io.EOF},
		{long + "\"}\r", []string{long + "\"}"}, io.EOF},
		{long, nil, io.ErrUnexpectedEOF},
		{strings.Repeat(" ", 3*maxReadBufferSize) + "{}\n", []string{"{}"}, io.EOF},
		{strings.Repeat("\r", 3*maxReadBufferSize) + "\n", nil, io.EOF},
		{"x" + strings.Repeat("\r", maxReadBufferSize) + "\n{}\n", []string{"x" + strings.Repeat("\r", maxReadBufferSize-1), "{}"}, io.EOF},
	}
	for _, tt := range tests {
		for name, r := range map[string]io.Reader{
			"at once":         strings.NewReader(tt.in),
			"half":            iotest.HalfReader(strings.NewReader(tt.in)),
			"with the error":  iotest.DataErrReader(strings.NewReader(tt.in)),
			"byte after byte": iotest.OneByteReader(strings.NewReader(tt.in)),
		} {
			s := NewLineStream(input{r})
			got, err := readAll(s)
			if fmt.Sprint(got) != fmt.Sprint(tt.want) || err != tt.err {
				t.Errorf("%.20q… %s: %.60q, %v, want %.60q, %v", tt.in, name, got, err, tt.want, tt.err)
			}
			if _, again := s.Read(); again != tt.err {
				t.Errorf("%.20q… %s: the error is %v the second time", tt.in, name, again)
			}
		}
	}
}

// The errors of lost framing say what was seen.
func TestHeaderErrors(t *testing.T) {
	const (
		whole = "Content-Length: 2\r\n\r\n{}"
		blank = "Content-Length: 1\r\n\r\n " // is no message
	)
	tests := []struct{ in, problem string }{
		{"Content-Type: x\r\n\r\n{}", "headers without Content-Length"},
		{"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "a second Content-Length"},
		{"Content-Length: -2\r\n\r\n{}", `no number from 0 to 1099511627776: "Content-Length: -2"`},
		{"Content-Length: \r\n\r\n{}", "no number"},
		{"Content-Length: +2\r\n\r\n{}", "no number"},
		{"Content-Length: 2 2\r\n\r\n{}", "no number"},
		{"Content-Length: 0x2\r\n\r\n{}", "no number"},
		{"Content-Length: 1099511627777\r\n\r\n{}", "no number"},
		{"Content-Length: 99999999999999999999\r\n\r\n{}", "no number"},
		{"Content-Length 2\r\n\r\n{}", `a line without a colon among the headers: "Content-Length 2"`},
		{`{"jsonrpc":"2.0"}` + "\n", "without headers"},
		{"X: " + strings.Repeat("x", maxHeaderBlock), "more than 8192 bytes"},
		{strings.Repeat("X: x\r\n", maxHeaderBlock/6+1), "more than 8192 bytes"},
	}
	for _, tt := range tests {
		for before, messages := range map[string]int{"": 0, whole: 1, blank: 0, whole + blank: 1} {
			s := NewHeaderStream(input{strings.NewReader(before + tt.in)})
			got, err := readAll(s)
			var lost *FramingError
			if !errors.As(err, &lost) || !strings.Contains(err.Error(), tt.problem) || len(lost.Seen) > 64 || len(got) != messages {
				t.Errorf("%.40q after %q: %q, %v, want %q", tt.in, before, got, err, tt.problem)
			}
			if _, again := s.Read(); again != err {
				t.Errorf("%.40q after %q: the error is %v the second time", tt.in, before, again)
			}
		}
	}
	for in, want := range map[string]error{
		"":                          io.EOF,
		"\r\n":                      io.EOF,
		"Content-L":                 io.ErrUnexpectedEOF,
		"Content-Length: 2\r\n\r\n": io.ErrUnexpectedEOF,
		whole:                       io.EOF,
		"content-length:2\n\n{":     io.ErrUnexpectedEOF,
		"Content-Length: 0\r\n\r\nContent-Length: 3\r\n\r\n \r\n" + whole: io.EOF,
	} {
		if got, err := readAll(NewHeaderStream(input{strings.NewReader(in)})); err != want || len(got) != strings.Count(in, whole) {
			t.Errorf("%q: %q, %v, want %v", in, got, err, want)
		}
	}
}

// RPC-19: a buffer that grew for a large message becomes small again, and one
// that is needed stays.
func TestBufferShrinks(t *testing.T) {
	large := `["` + strings.Repeat("x", 2*readBufferSize) + `"]` + "\n"
	small := strings.Repeat(`["small"]`+"\n", 2*shrinkAfter)
	for _, text := range []string{large, strings.Repeat("x", 10*maxReadBufferSize) + "\n"} {
		r, w := io.Pipe()
		s := &lineStream{rw: input{r}, in: newInbuf(r), next: -1}
		go io.WriteString(w, text)
		for end := false; !end; {
			part, err := s.Read()
			if err != nil {
				t.Fatal(err)
			}
			end = part.End
		}
		if n := len(s.in.buf); n != maxReadBufferSize {
			t.Errorf("%d bytes of buffer for a message of %d", n, len(text))
		}
		go func() {
			for line := range strings.Lines(small) {
				io.WriteString(w, line)
			}
		}()
		for range 2 * shrinkAfter {
			if _, err := s.Read(); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.in.buf); n != readBufferSize {
			t.Errorf("%d bytes of buffer after %d small messages", n, 2*shrinkAfter)
		}
	}
}

func TestNoProgress(t *testing.T) {
	if _, err := NewLineStream(input{zeroReader{}}).Read(); err != io.ErrNoProgress {
		t.Errorf("Read: %v", err)
	}
}

type zeroReader struct{}

func (zeroReader) Read([]byte) (int, error) { return 0, nil }

// A Stream has the abilities that its connection has, and no others.
func TestAbilities(t *testing.T) {
	tcp, _ := tcpPair(t)
	inMemory, _ := bytePipe()
	netPipe, _ := net.Pipe()
	reading, pollable, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close()
	defer pollable.Close()
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unix := descriptorWriter(tcp) != nil
	for name, tt := range map[string]struct {
		rw            io.ReadWriteCloser
		try, deadline bool
	}{
		"tcp":         {tcp, unix, true},
		"in memory":   {inMemory, true, true},
		"net.Pipe":    {netPipe, false, true},
		"os.Pipe":     {pollable, unix, unix},
		"file":        {file, false, false},
		"embedded":    {struct{ *net.TCPConn }{tcp}, false, true},
		"stdio, file": {newStdioConn(file, file), false, false},
		"stdio, pipe": {newStdioConn(pollable, pollable), unix, unix},
	} {
		for _, framing := range []Framing{NewLineStream, NewHeaderStream} {
			s := framing(tt.rw)
			_, try := s.(tryWriter)
			_, deadline := s.(readDeadliner)
			if try != tt.try || deadline != tt.deadline {
				t.Errorf("%s, %T: TryWrite %v, SetReadDeadline %v, want %v, %v", name, s, try, deadline, tt.try, tt.deadline)
			}
		}
	}
}

func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// echoLines sends back what it reads.
func echoLines(s Stream) {
	for {
		part, err := s.Read()
		if err != nil {
			return
		}
		text := part.Data
		if part.End {
			text = append(bytes.Clone(text), '\n')
		}
		if _, err := s.Write(text); err != nil {
			return
		}
	}
}

// Serve keeps to its limit, ends what is open, and waits for it.
func TestServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var now, most, ended atomic.Int64
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, ln, ServeConfig{MaxConns: 2}, func(s Stream) {
			defer ended.Add(1)
			defer now.Add(-1)
			most.Store(max(most.Load(), now.Add(1)))
			echoLines(s)
		})
	}()
	var clients sync.WaitGroup
	for i := range 10 {
		clients.Go(func() {
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			s := NewLineStream(conn)
			text := fmt.Sprintf(`{"id":%d}`, i)
			io.WriteString(conn, text+"\n")
			if part, err := s.Read(); string(part.Data) != text {
				t.Errorf("echo of %s is %q, %v", text, part.Data, err)
			}
		})
	}
	clients.Wait()
	idle, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	io.WriteString(idle, "{}\n")
	idle.Read(make([]byte, 3))
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if most.Load() > 2 || ended.Load() != 11 || now.Load() != 0 {
		t.Errorf("%d connections at a time, %d handled, %d still there", most.Load(), ended.Load(), now.Load())
	}
}

// failingListener fails, now and then or for ever.
type failingListener struct {
	net.Listener
	failures int
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failures--; l.failures >= 0 {
		return nil, errors.New("too many open files")
	}
	return nil, net.ErrClosed
}

func TestServeAcceptErrors(t *testing.T) {
	for failures, want := range map[int]string{3: "", 100: "too many open files"} {
		synctest.Test(t, func(t *testing.T) {
			ln := &failingListener{closedListener{}, failures}
			start := time.Now()
			err := Serve(t.Context(), ln, ServeConfig{}, nil)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%d failures: %v", failures, err)
			}
			if took := time.Since(start); took == 0 || took > 20*time.Second {
				t.Errorf("%d failures took %v", failures, took)
			}
		})
	}
}

type closedListener struct{}

func (closedListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (closedListener) Close() error              { return nil }
func (closedListener) Addr() net.Addr            { return &net.TCPAddr{} }

// chunked gives text in chunks whose lengths follow from the bytes of sizes.
type chunked struct {
	text, sizes []byte
	at          int
}

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.text) == 0 {
		return 0, io.EOF
	}
	size := len(c.text)
	if len(c.sizes) > 0 {
		size = int(c.sizes[c.at%len(c.sizes)])
		size = 1 + size*size*size/64 // 1 byte to 253 KiB
		c.at++
	}
	n := copy(p, c.text[:min(size, len(c.text))])
	c.text = c.text[n:]
	return n, nil
}

// fuzzFraming says that the chunks in which a text arrives do not matter, and
// that memory stays bounded.
func fuzzFraming(f *testing.F, newStream Framing, buf func(Stream) []byte) {
	f.Fuzz(func(t *testing.T, text, sizes []byte, times uint16) {
		// Large inputs, too: some of the text again and again.
		n := int(times)
		if len(text)*(n+1) > 2*maxReadBufferSize {
			n = 0
		}
		text = bytes.Repeat(text, n+1)
		want, wantErr := readAll(newStream(input{&chunked{text: text}}))
		s := newStream(input{&chunked{text: text, sizes: sizes}})
		got, err := readAll(s)
		if !slices.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("in chunks: %.200q, %v\nat once:   %.200q, %v", got, err, want, wantErr)
		}
		for _, m := range got {
			if allBlank([]byte(m)) {
				t.Errorf("a blank message %q", m)
			}
		}
		if n := len(buf(s)); n > maxReadBufferSize {
			t.Errorf("%d bytes of buffer", n)
		}
	})
}

func FuzzLines(f *testing.F) {
	for _, seed := range []string{"{}\n[]\n", "{}\r\n\r\n [] \r", "{\"a\":\n", "\r\r\n", "{}", "x\r"} {
		f.Add([]byte(seed), []byte{0}, uint16(0))
		f.Add([]byte(seed), []byte{2, 0, 250}, uint16(2000))
	}
	f.Add([]byte("[12345678]"), []byte{255, 0, 90}, uint16(40000))
	fuzzFraming(f, NewLineStream, func(s Stream) []byte { return s.(*lineStream).in.buf })
}

func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{"Content-Length: 2\r\n\r\n{}", "content-length:2\n\n[]\r\n", "Content-Length: 0\r\n\r\n", "X: y\r\nContent-Length: 3\r\n\r\n \n ", "Content-Length: 900\r\n\r\n{"} {
		f.Add([]byte(seed), []byte{0}, uint16(0))
		f.Add([]byte(seed), []byte{2, 0, 250}, uint16(2000))
	}
	f.Add([]byte("Content-length:0\n\n0"), []byte{16}, uint16(15))
	f.Add([]byte("Content-Length:402123\r\n\r\n[\"12345678\"]"), []byte{255, 0, 90}, uint16(9000))
	fuzzFraming(f, NewHeaderStream, func(s Stream) []byte { return s.(*headerStream).in.buf })
}

// endless gives the same lines for ever.
type endless struct {
	text []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func BenchmarkStreamRead(b *testing.B) {
	body := `{"jsonrpc":"2.0","id":1,"method":"m","params":["` + strings.Repeat("x", 248) + `"]}`
	for name, s := range map[string]Stream{
		"lines":   NewLineStream(input{&endless{text: []byte(strings.Repeat(body+"\n", 1000))}}),
		"headers": NewHeaderStream(input{&endless{text: []byte(strings.Repeat("Content-Length: 299\r\n\r\n"+body, 1000))}}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if part, err := s.Read(); err != nil || len(part.Data) != len(body) {
					b.Fatalf("%d bytes, %v", len(part.Data), err)
				}
			}
		})
	}
}

func BenchmarkTryWrite(b *testing.B) {
	x, y := tcpPair(b)
	go io.Copy(io.Discard, y)
	s, ok := NewLineStream(x).(tryWriter)
	if !ok {
		b.Fatal("no TryWrite on this system")
	}
	text := []byte(strings.Repeat("x", 299) + "\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.TryWrite(text); err != nil {
			b.Fatal(err)
		}
	}
}

// The hot paths of a Stream do not allocate.
func TestStreamAllocs(t *testing.T) {
	x, y := tcpPair(t)
	for _, framing := range []Framing{NewLineStream, NewHeaderStream} {
		out, in := framing(x), framing(y)
		text := []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n")
		if n := testing.AllocsPerRun(200, func() {
			if try, ok := out.(tryWriter); ok {
				try.TryWrite(text)
			} else {
				out.Write(text)
			}
			in.Read()
		}); n > 0 {
			t.Errorf("%T: %v allocations for a message", out, n)
		}
	}
}

// slowTaker takes so many bytes of each attempt to write.
type slowTaker struct {
	io.ReadWriteCloser
	most int
	got  bytes.Buffer
}

func (s *slowTaker) TryWrite(p []byte) (int, error) {
	return s.got.Write(p[:min(len(p), s.most)])
}

func (s *slowTaker) Write(p []byte) (int, error) { return s.got.Write(p) }

// TestHeaderTryWriteRests proves that a message for header framing gets out whole
// whatever part of its frame goes at once, and that what is still owed of it comes
// before anything else.
func TestHeaderTryWriteRests(t *testing.T) {
	const text = `{"jsonrpc":"2.0","method":"m"}`
	frame := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text)
	for most := 1; most <= 2*len(frame)+1; most++ {
		rw := &slowTaker{most: most}
		s := NewHeaderStream(rw).(tryWriter)
		for rest, tries := []byte(text+"\n"+text+"\n"), 0; len(rest) > 0; tries++ {
			n, err := s.TryWrite(rest)
			if rest = rest[n:]; err != nil || tries > 4*len(frame) {
				t.Fatalf("%d bytes at a time: %v after %d attempts", most, err, tries)
			}
		}
		if got := rw.got.String(); got != frame+frame {
			t.Fatalf("%d bytes at a time: %q", most, got)
		}
	}
}
