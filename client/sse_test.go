package client

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// read gives all messages of a stream.
func readMessages(r *sseReader) (list []message, err error) {
	for {
		m, err := r.next()
		if err != nil {
			return list, err
		}
		list = append(list, m)
	}
}

func TestSSE(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, stream string
		want         []message
	}{
		{"one", "id: 1\nevent: x\ndata: a\n\n", []message{{"1", "x", []byte("a")}}},
		{"lines join", "data: a\ndata\ndata:  b\n\n", []message{{Data: []byte("a\n\n b")}}},
		{"CR LF", "data: a\r\n\r\ndata: b\r\n\r\n", []message{{Data: []byte("a")}, {Data: []byte("b")}}},
		{"CR", "data: a\r\rdata: b\r\r", []message{{Data: []byte("a")}, {Data: []byte("b")}}},
		{"comments and unknown fields", ": hi\nfoo: bar\nfoo\ndata: a\n\n", []message{{Data: []byte("a")}}},
		{"no data, no message", "event: x\nid: 7\n\ndata: a\n\n", []message{{Data: []byte("a")}}},
		{"empty data", "data\n\n", []message{{Data: []byte("")}}},
		{"an id with NUL is not taken", "id: 1\x00\ndata: a\n\n", []message{{Data: []byte("a")}}},
		{"byte order mark", "\ufeffdata: a\n\n", []message{{Data: []byte("a")}}},
		{"cut off", "data: a\n\ndata: b\n", []message{{Data: []byte("a")}}},
		{"colon in the value", "data: a: b\n\n", []message{{Data: []byte("a: b")}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := readMessages(newSSEReader(iotest.OneByteReader(strings.NewReader(tt.stream)), 1000))
			if diff := cmp.Diff(tt.want, got); diff != "" || !errors.Is(err, io.EOF) {
				t.Error(diff, err)
			}
		})
	}
}

func TestSSELimit(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"data: " + strings.Repeat("x", 200) + "\n\n",
		strings.Repeat("data: x\n", 40),
		strings.Repeat("x", 200),
		": " + strings.Repeat("x", 200),
	} {
		_, err := readMessages(newSSEReader(strings.NewReader(s), 100))
		if parley.CodeOf(err) != parley.CodeLimit {
			t.Errorf("%.20q: %v", s, err)
		}
	}
	// The limit is one for each message: many small ones may be more.
	got, _ := readMessages(newSSEReader(strings.NewReader(strings.Repeat("data: 0123456789\n\n: beat\n\n", 50)), 100))
	if len(got) != 50 {
		t.Errorf("%d messages", len(got))
	}
}

func TestSSERetry(t *testing.T) {
	t.Parallel()
	r := newSSEReader(strings.NewReader("retry: 1500\nretry: x\nretry: -1\nretry: 99999999999999\ndata: a\n\n"), 1000)
	if _, err := r.next(); err != nil || r.retry != 1500*time.Millisecond {
		t.Errorf("%v, %v", r.retry, err)
	}
}

// However a stream is cut into pieces, the same messages come out, none beyond
// the limit, and reading ends.
func FuzzSSE(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "id: 1\r\nevent: x\r\ndata: {}\r\n\r\n", "\ufeff:\n\rdata\r\r", "retry: 10\n\n", "data: a\r\n\ndata:b\n\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		const limit = 64
		whole, err := readMessages(newSSEReader(strings.NewReader(stream), limit))
		pieces, err2 := readMessages(newSSEReader(iotest.OneByteReader(strings.NewReader(stream)), limit))
		if diff := cmp.Diff(whole, pieces); diff != "" || parley.CodeOf(err) != parley.CodeOf(err2) {
			t.Error(diff, err, err2)
		}
		for _, m := range whole {
			if len(m.Data) > limit || strings.ContainsAny(m.Name, "\r\n") || strings.Contains(string(m.Data), "\r") {
				t.Errorf("%q", m)
			}
		}
	})
}
