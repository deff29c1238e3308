package rpcws

import (
	"strings"
	"testing"
)

// TestReadBuffer: a message is handed over in parts of a bounded size, and the memory of
// a large one is given back when small ones have followed for a while.
func TestReadBuffer(t *testing.T) {
	var in []byte
	large := strings.Repeat("x", 3*largeMessage+5)
	in = masked(in, 0x81, large)
	for range calmAfter - 1 {
		in = masked(in, 0x81, "{}")
	}
	in = masked(in, 0x81, strings.Repeat("y", smallMessage+1)) // once more from the beginning
	for range calmAfter + 1 {
		in = masked(in, 0x81, "{}")
	}
	s := serverStream(t, &script{in: in})
	next := func(want string) {
		t.Helper()
		var got strings.Builder
		for {
			part, err := s.Read()
			if err != nil {
				t.Fatal(err)
			}
			if n := len(part.Data); n > largeMessage || !part.End && n != largeMessage {
				t.Errorf("a part of %d bytes, end %t", n, part.End)
			}
			got.Write(part.Data)
			if part.End {
				break
			}
		}
		if got.String() != want {
			t.Errorf("%d bytes, want %d", got.Len(), len(want))
		}
	}
	size := func(want int) {
		t.Helper()
		if len(s.buf) != want {
			t.Errorf("the buffer has %d bytes, want %d", len(s.buf), want)
		}
	}
	size(smallMessage)
	next(large)
	size(largeMessage)
	for range calmAfter - 1 {
		next("{}")
		size(largeMessage)
	}
	next(strings.Repeat("y", smallMessage+1))
	for range calmAfter {
		next("{}")
		size(largeMessage)
	}
	next("{}")
	size(smallMessage)
}

// TestHeaderAcrossBuffers: a header that begins in the last bytes of the buffer, and is
// not whole in it, is read all the same.
func TestHeaderAcrossBuffers(t *testing.T) {
	const header = 8 // of a masked frame of this size
	for left := range maxHeader + 2 {
		first := strings.Repeat("x", readBuffer-left-header)
		s := serverStream(t, &script{in: masked(masked(nil, 0x81, first), 0x81, "second")})
		for _, want := range []string{first, "second"} {
			if part, err := s.Read(); string(part.Data) != want || !part.End || err != nil {
				t.Errorf("%d bytes are left: %d bytes, %v", left, len(part.Data), err)
			}
		}
	}
}

// TestFrameSizes: what is there as a whole goes in one frame up to 1 MiB, what comes in
// pieces up to 64 KiB; blanks before a message are no part of it.
func TestFrameSizes(t *testing.T) {
	for name, c := range map[string]struct {
		writes []string
		frames []int
	}{
		"whole":              {[]string{strings.Repeat("x", wholeMessage) + "\n"}, []int{wholeMessage}},
		"of middle size":     {[]string{strings.Repeat("x", fragment+1) + "\n"}, []int{fragment + 1}},
		"in pieces":          {[]string{strings.Repeat("x", fragment-1), "x", "\n"}, []int{fragment}},
		"begun before":       {[]string{"x", strings.Repeat("x", wholeMessage-1) + "\n"}, []int{wholeMessage}},
		"blanks":             {[]string{" \t\r{}\n", "\t", "\r[1]\n", " \t\r\n"}, []int{2, 3}},
		"blanks in a piece":  {[]string{"{", " \t1}\n"}, []int{5}},
		"blanks after parts": {[]string{strings.Repeat("x", fragment+1), " \n"}, nil}, // a blank is part of it
	} {
		conn := new(script)
		s := serverStream(t, conn)
		conn.got.Reset()
		total := 0
		for _, text := range c.writes {
			if n, err := s.Write([]byte(text)); err != nil || n != len(text) {
				t.Fatalf("%s: %d, %v", name, n, err)
			}
			total += len(strings.TrimSuffix(text, "\n"))
		}
		got, err := messages(conn.got.Bytes())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.frames == nil {
			if len(got) != 1 || len(got[0]) != total {
				t.Errorf("%s: %d messages", name, len(got))
			}
			continue
		}
		var frames []int
		for b := conn.got.Bytes(); len(b) > 0; {
			n, _ := frameSize(b)
			head := uint64(2)
			switch b[1] {
			case 126:
				head = 4
			case 127:
				head = 10
			}
			frames, b = append(frames, int(n-head)), b[n:]
		}
		if len(frames) != len(c.frames) {
			t.Errorf("%s: frames of %v bytes, want %v", name, frames, c.frames)
			continue
		}
		for i := range frames {
			if frames[i] != c.frames[i] {
				t.Errorf("%s: frames of %v bytes, want %v", name, frames, c.frames)
			}
		}
	}
}

// TestCloseCode: who closes says 1000, a server that goes away 1001.
func TestCloseCode(t *testing.T) {
	for leaving, want := range map[bool]string{false: "\x88\x02\x03\xe8", true: "\x88\x02\x03\xe9"} {
		conn := new(script)
		s := serverStream(t, conn)
		s.leaving.Store(leaving)
		if err := s.Close(); err != nil || !strings.HasSuffix(conn.got.String(), want) {
			t.Errorf("leaving %t: %v, %q", leaving, err, conn.got.String())
		}
	}
}
