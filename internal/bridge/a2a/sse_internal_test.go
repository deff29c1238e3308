package a2a

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// body is a stream in memory. Close ends a Read that waits.
type body struct {
	io.Reader
	end func()
}

func (b body) Close() {
	if b.end != nil {
		b.end()
	}
}

// allEvents reads a stream to its end.
func allEvents(r io.Reader, limit int) (got []string, err error) {
	e := newEvents(body{Reader: r}, limit)
	for {
		event, err := e.next(context.Background())
		if err != nil {
			return got, err
		}
		got = append(got, string(event))
	}
}

// TestEvents_Forms: what servers write, whatever the pieces in which it comes.
func TestEvents_Forms(t *testing.T) {
	cases := []struct {
		name, in string
		want     []string
	}{
		{"line feeds", "data: a\n\ndata: b\n\n", []string{"a", "b"}},
		{"carriage returns", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		{"lone carriage returns", ": hi\r\rdata: a\rdata: b\r\rdata: c\r\r", []string{"a\nb", "c"}},
		{"line ends of all kinds", "data: a\r\ndata: b\rdata: c\n\rdata: d\n\r\n", []string{"a\nb\nc", "d"}},
		{"without a space", "data:a\n\n", []string{"a"}},
		{"one space only is taken off", "data:  a\n\n", []string{" a"}},
		{"several lines", "data: a\ndata: b\ndata:\n\n", []string{"a\nb\n"}},
		{"names, ids, times and comments", ": hi\nevent: error\nid: 7\nretry: 10\ndata: a\nfoo\n\n", []string{"a"}},
		{"comments between events", ": ping\n\n: ping\n\ndata: a\n\n: ping\n\n", []string{"a"}},
		{"a byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{"a"}},
		{"no data", "event: x\n\ndata\n\ndata:\n\ndata: a\n\n", []string{"a"}},
		{"a last event that is not whole", "data: a\n\ndata: b\n", []string{"a"}},
		{"a last line that is not whole", "data: a\n\ndata: b", []string{"a"}},
		{"colons", "data: a: b\n\n", []string{"a: b"}},
		{"nothing", "", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"whole": strings.NewReader(c.in), "by bytes": iotest.OneByteReader(strings.NewReader(c.in)),
			} {
				got, err := allEvents(r, 1<<10)
				if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v\n%s", how, err, diff)
				}
			}
		})
	}
}

// TestEvents_Limit: one event has a limit, whether in one line or in many; a
// stream has none here.
func TestEvents_Limit(t *testing.T) {
	const limit = 10_000
	for name, in := range map[string]string{
		"one line":   "data: " + strings.Repeat("x", limit) + "\n\n",
		"many lines": strings.Repeat("data: x\n", limit),
		"comments":   strings.Repeat(": x\n", limit),
		"no end":     strings.Repeat("x", 2*limit),
	} {
		got, err := allEvents(strings.NewReader(in), limit)
		e, ok := errors.AsType[*bridge.ExchangeError](err)
		if len(got) > 0 || !ok || e.Disposition != bridge.Lost || e.Err.Code != parley.CodeLimit {
			t.Errorf("%s: %d events, %v", name, len(got), err)
		}
	}
	got, err := allEvents(strings.NewReader(strings.Repeat("data: x\n\n", limit)), limit)
	if len(got) != limit || !errors.Is(err, io.EOF) {
		t.Errorf("%d events, %v", len(got), err)
	}
}

// TestEvents_Interrupted: the end of the context ends a wait, and so does close.
func TestEvents_Interrupted(t *testing.T) {
	for _, how := range []string{"context", "close"} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			e := newEvents(body{r, func() { _ = w.CloseWithError(errors.New("closed")) }}, 100)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := e.next(ctx); err == nil {
					t.Error("an event came")
				}
			})
			synctest.Wait()
			if how == "context" {
				cancel()
			} else {
				e.close()
				e.close()
			}
			wg.Wait()
		})
	}
}

// FuzzEvents: no stream breaks the reader, every event is within the limit, and
// the pieces in which bytes arrive make no difference.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\n\n", ": c\r\ndata:b\r\n\r\n", "data\ndata: x\n\n", "\xef\xbb\xbfdata: a\n\n", "data: a\r\r", "\n\n\ndata: "} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 64
		whole, err := allEvents(bytes.NewReader(in), limit)
		pieces, err2 := allEvents(iotest.OneByteReader(bytes.NewReader(in)), limit)
		if diff := cmp.Diff(whole, pieces); diff != "" || (err == nil) != (err2 == nil) || errors.Is(err, io.EOF) != errors.Is(err2, io.EOF) {
			t.Fatalf("%v, %v: %s", err, err2, diff)
		}
		for _, event := range whole {
			if len(event) == 0 || len(event) > limit {
				t.Fatalf("an event of %d bytes", len(event))
			}
		}
	})
}
