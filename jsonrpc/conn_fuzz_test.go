package jsonrpc

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A partStream gives prepared parts, and keeps what is written.
type partStream struct {
	begin   <-chan struct{} // closed when parts are there
	parts   []Part
	written bytes.Buffer
	closed  chan struct{}
}

func (s *partStream) Read() (Part, error) {
	<-s.begin
	if len(s.parts) == 0 {
		<-s.closed
		return Part{}, io.ErrClosedPipe
	}
	p := s.parts[0]
	s.parts = s.parts[1:]
	return p, nil
}

func (s *partStream) Write(p []byte) (int, error) { return s.written.Write(p) }

func (s *partStream) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

// cut makes parts of messages: every line of data is one, and cuts says how
// long its parts are.
func cut(data, cuts []byte) (parts []Part) {
	n := 0
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		for len(line) > 0 {
			size := len(line)
			if n < len(cuts) && cuts[n] > 0 {
				size = min(int(cuts[n]), size)
			}
			parts = append(parts, Part{Data: bytes.Clone(line[:size]), End: size == len(line), More: n%2 == 0})
			line = line[size:]
			n++
		}
	}
	return parts
}

// FuzzConn gives a Conn with a handler and a pending call arbitrary bytes in
// arbitrary parts: it never panics or hangs, writes nothing but valid messages,
// and still answers afterwards (RPC-25).
func FuzzConn(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`,
		`{"jsonrpc":"2.0","id":4096,"result":{"a":[1,2,3]}}` + "\n" + `{"jsonrpc":"2.0","id":8192,"result":"x"}`,
		`{"jsonrpc":"2.0","id":4096,"error":{"code":1,"message":"x"}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":4097,"result":"text"},{"jsonrpc":"2.0","method":"n"},1]`,
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`,
		`{"jsonrpc":"2.0","id":4097,"result":"` + strings.Repeat("x", 600) + `"}`,
		`{"jsonrpc":"2.0","id":4097,"result":["` + strings.Repeat(`x","`, 100) + `"],"a":1}`,
		`{"id":4097,"result":"abc","jsonrpc":"1.0"}`, `{"id":4097,"result":1,"error":{}}`,
		"garbage", "[]", "{", "\xff", strings.Repeat("[", 200),
	} {
		f.Add([]byte(seed), []byte(""))
		f.Add([]byte(seed), []byte("\x14\x14\x14"))
	}
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		synctest.Test(t, func(t *testing.T) { fuzzConn(t, cut(data, cuts)) })
	})
}

func fuzzConn(t *testing.T, parts []Part) {
	begin := make(chan struct{})
	s := &partStream{closed: make(chan struct{}), begin: begin}
	c := NewConn(s, Config{Handler: HandlerFunc(echo), MaxMessage: 1000, Cancel: LSPCancel, Timeout: time.Second})
	done := make(chan struct{}, 2)
	var sunk strings.Builder
	for _, result := range []any{new(any), &sunk} { // ids 4096 and 4097
		go func() {
			c.Call(t.Context(), "ours", nil, result)
			done <- struct{}{}
		}()
		synctest.Wait()
	}
	s.parts = append(parts, Part{Data: []byte(`{"jsonrpc":"2.0","id":"probe","method":"m","params":["probe"]}`), End: true})
	close(begin)
	<-done
	<-done // answered, or timed out
	c.Close()

	lines := strings.Split(strings.TrimSuffix(s.written.String(), "\n"), "\n")
	probes := 0
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("wrote %q", line)
		}
		if line == `{"jsonrpc":"2.0","id":"probe","result":["probe"]}` {
			probes++
		}
	}
	if probes == 0 {
		t.Errorf("no answer afterwards, but %q", lines)
	}
}

// FuzzHead holds scanHead to scan: what the beginning of a message tells is
// what the whole of it says.
func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":12,"result":[1,2,3]}`), 30)
	f.Add([]byte(`{"id":12,"result":"abc","jsonrpc":"2.0"}`), 20)
	f.Fuzz(func(t *testing.T, text []byte, n int) {
		var m message
		m.scan(text, 20)
		if m.kind != kindResult || n < 0 || n > len(text) {
			return
		}
		h := scanHead(text[:n], 20)
		if h.id != nil && !bytes.Equal(h.id, m.id) {
			t.Errorf("id %s, not %s", h.id, m.id)
		}
		if h.value != 0 && &text[h.value] != &m.result[0] {
			t.Errorf("the result begins at %d", h.value)
		}
		if h.value != 0 && !json.Valid(m.result) {
			t.Errorf("result %s", m.result)
		}
	})
}
