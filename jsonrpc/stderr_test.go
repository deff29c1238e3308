package jsonrpc

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"
)

// TestStderrTail proves that the end of what a child writes to its stderr is kept, as
// much as is asked for: never twice as much, and all of it when that is asked for.
func TestStderrTail(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 4<<10)
	for _, limit := range []int{1, 1000, len(text) - 1, len(text), len(text) + 1, math.MaxInt} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		s := newStderrReader(r, nil, SubprocessConfig{StderrTail: limit})
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.run()
		}()
		w.WriteString(text)
		w.Close()
		<-done
		r.Close()
		want := text[max(0, len(text)-limit):]
		if got := s.tail(); !bytes.Equal(got, []byte(want)) || len(s.last)-limit > limit {
			t.Errorf("of %d bytes: %d, and %d are kept", limit, len(got), len(s.last))
		}
	}
}
