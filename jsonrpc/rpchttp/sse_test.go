package rpchttp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestEventFields holds the parser to the standard where it has state, or limits: the
// chunks are what is read at once.
func TestEventFields(t *testing.T) {
	for name, c := range map[string]struct {
		chunks string // cut at "|"
		want   string // events, as the recorder of FuzzEvents shows them
	}{
		"a return at the end of a chunk":        {"data: a\r|data: b|\n\n", `["" "a\nb" ""]`},
		"return and line feed in two chunks":    {"data: a\r|\ndata: b\r|\n\r|\n", `["" "a\nb" ""]`},
		"a return alone ends a line":            {"data: a\r\rdata: b\r\r", `["" "a" "" "" "b" ""]`},
		"a comment between":                     {"data: a\n:\n: c\n:data: d\ndata: b\n\n", `["" "a\nb" ""]`},
		"a comment in two chunks":               {"data: a\n:| c\n\n", `["" "a" ""]`},
		"only the first byte order mark":        {byteOrderMark + "data: a\n\n" + byteOrderMark + "data: b\n\n", `["" "a" ""]`},
		"a byte order mark in pieces":           {"\xef|\xbb|\xbfdata: a\n\n", `["" "a" ""]`},
		"the last type counts":                  {"event: x\nevent: y\ndata: a\n\n", `["y" "a" ""]`},
		"a type is that of one event":           {"event: x\ndata: a\n\ndata: b\n\n", `["x" "a" "" "" "b" ""]`},
		"a type without data":                   {"event: x\n\ndata: a\n\n", `["" "a" ""]`},
		"an empty id":                           {"id: 5\ndata: a\n\nid\ndata: b\n\n", `["" "a" "5" "" "b" ""]`},
		"an event without an id":                {"id: 5\ndata: a\n\ndata: b\n\n", `["" "a" "5" "" "b" "5"]`},
		"an id without data":                    {"id: 5\n\ndata: a\n\n", `["" "a" "5"]`},
		"one space is dropped":                  {"data:  a\ndata:| b\ndata: | c\n\n", `["" " a\nb\n c" ""]`},
		"a type of 64 bytes":                    {"event: " + strings.Repeat("t", 64) + "\ndata: a\n\n", fmt.Sprintf(`[%q "a" ""]`, strings.Repeat("t", 64))},
		"a type of 65 bytes":                    {"event: " + strings.Repeat("t", 65) + "\ndata: a\n\n", `["" "a" ""]`},
		"an id of 1024 bytes":                   {"id: " + strings.Repeat("i", 1024) + "\ndata: a\n\n", fmt.Sprintf(`["" "a" %q]`, strings.Repeat("i", 1024))},
		"an id of 1025 bytes":                   {"id: " + strings.Repeat("i", 1024) + "|i\ndata: a\n\n", `["" "a" ""]`},
		"a long field that begins like a short": {"data" + strings.Repeat("a", 40) + ": b\ndata: a\n\n", `["" "a" ""]`},
		"a long field in two chunks":            {"datadatadatadata|data: b\ndata: a\n\n", `["" "a" ""]`},
		"an empty data line is one":             {"data\ndata\n\n", `["" "\n" ""]`},
		"a zero in an id":                       {"id: 1\x00\ndata: a\n\n", `["" "a" ""]`},
		"blank lines are no events":             {"\n\n\nevent: x\n\n\n", `[]`},
		"what has no end is none":               {"data: a\n", `[]`},
	} {
		var chunks [][]byte
		for chunk := range strings.SplitSeq(c.chunks, "|") {
			chunks = append(chunks, []byte(chunk))
		}
		if got, _ := parseEvents(chunks...); fmt.Sprint(got) != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestEventRetry: the pause that a server asks for is a number of milliseconds, and
// nothing else.
func TestEventRetry(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"1500": 1500 * time.Millisecond, "0": 0, "0010": 10 * time.Millisecond, "9999999999": 9999999999 * time.Millisecond,
		"10000000000": time.Second, "0x10": time.Second, "1_0": time.Second, "-1": time.Second, "+1": time.Second, "1s": time.Second, "": time.Second,
	} {
		p := &eventParser{sink: new(recorder)}
		if err := p.feed([]byte("retry: 1000\nretry: " + value + "\n")); err != nil || p.retry != want {
			t.Errorf("%q: %v, %v", value, p.retry, err)
		}
	}
}

// TestEventsForgotten: of a stream that was cut stay the id of the last event that
// came whole and the pause, and nothing else.
func TestEventsForgotten(t *testing.T) {
	r := new(recorder)
	r.p = &eventParser{sink: r}
	feed := func(text string) {
		if err := r.p.feed([]byte(text)); err != nil {
			t.Error(err)
		}
	}
	feed("retry: 7\nid: 1\ndata: a\n\nid: 2\nevent: x\ndata: cu")
	r.p.forget()
	r.text.Reset() // the sink's own affair
	if r.p.lastID != "1" || r.p.retry != 7*time.Millisecond {
		t.Errorf("id %q, pause %v", r.p.lastID, r.p.retry)
	}
	feed(byteOrderMark + "data: b\n\n")
	if want := `["" "a" "1" "" "b" "1"]`; fmt.Sprint(r.log) != want {
		t.Errorf("%s, want %s", r.log, want)
	}
	if r.p.lastID != "1" {
		t.Errorf("an event without an id made it %q", r.p.lastID)
	}
}

// TestEventMemory: of a field that is not data no more is kept than counts.
func TestEventMemory(t *testing.T) {
	p := &eventParser{sink: new(recorder)}
	for _, field := range []string{"", "id: "} {
		if err := p.feed([]byte(field)); err != nil {
			t.Fatal(err)
		}
		for range 64 {
			if err := p.feed([]byte(strings.Repeat("x", 1024))); err != nil {
				t.Fatal(err)
			}
		}
		if len(p.name) > maxFieldName+len(byteOrderMark) || len(p.value) > maxEventID+1 {
			t.Errorf("%q: a name of %d bytes, a value of %d", field, len(p.name), len(p.value))
		}
		if err := p.feed([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
}

// A fullSink takes nothing.
type fullSink struct{ events, pieces int }

var errFullSink = errors.New("full")

func (s *fullSink) data([]byte) error  { s.pieces++; return errFullSink }
func (s *fullSink) event(string) error { s.events++; return errFullSink }

// TestEventSinkFails: when the sink fails the parser says so, and parses no more.
func TestEventSinkFails(t *testing.T) {
	for _, text := range []string{"data: a\ndata: b\n\n", "data\ndata\n\n", "data:\ndata: b\n\n", "data\n\ndata\n\n"} {
		sink := new(fullSink)
		if err := (&eventParser{sink: sink}).feed([]byte(text)); !errors.Is(err, errFullSink) || sink.events+sink.pieces != 1 {
			t.Errorf("%q: %v, after %d pieces and %d events", text, err, sink.pieces, sink.events)
		}
	}
}
