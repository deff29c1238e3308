package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley/internal/logging"
)

// traceRecord is one message that went through a proxy, as its trace tells it.
type traceRecord struct {
	At time.Time `json:"at"`
	// Conn numbers the connections of side A from 1.
	Conn int `json:"conn"`
	// From and To are A and B.
	From string `json:"from"`
	To   string `json:"to"`
	Kind string `json:"kind"`
	// Method of a response is that of its request.
	Method string          `json:"method,omitempty"`
	ID     json.RawMessage `json:"id,omitempty"`
	Code   json.RawMessage `json:"code,omitempty"`
	// Entries of a batch.
	Entries int `json:"entries,omitempty"`
	// Elapsed is the time since the request, in milliseconds.
	Elapsed *float64 `json:"elapsed_ms,omitempty"`
	// Size of the message without its framing, in bytes.
	Size int64 `json:"size"`
	// Fault says what is wrong with the message.
	Fault string `json:"fault,omitempty"`
	// Text is the beginning of the message without credentials.
	Text string `json:"text,omitempty"`
	Cut  bool   `json:"cut,omitempty"`

	took time.Duration
}

// tracer writes what goes through a proxy. Its methods may be called
// concurrently.
type tracer struct {
	// format is one of the output formats.
	format string
	zone   *time.Location
	now    func() time.Time
	// limit of the text shown, in bytes.
	limit int
	paint func(ink, string) string
	// many: connections are numbered.
	many     bool
	redactor *logging.Redactor

	mu  sync.Mutex
	w   io.Writer // guarded by mu
	err error     // guarded by mu
}

// write writes one record. A trace that cannot be written does not hold up the
// messages: the first error is kept.
func (t *tracer) write(r traceRecord) {
	var line []byte
	switch t.format {
	case "json", "jsonl", "yaml":
		b, err := toJSON(r)
		if err == nil && t.format == "yaml" {
			b, err = toYAML(b)
			b = append([]byte("---\n"), bytes.TrimRight(b, "\n")...)
		}
		if err != nil {
			t.fail(err)
			return
		}
		line = append(b, '\n')
	default:
		line = append(t.line(r), '\n')
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.w.Write(line); err != nil && t.err == nil {
		t.err = err
	}
}

func (t *tracer) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
}

// failed gives the first error of writing.
func (t *tracer) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// kindColumn is as wide as the longest kind.
const kindColumn = len(kindNotification)

// line gives a record for people: time, connection, direction, kind, size,
// method, id, elapsed time, error code, what is wrong, text.
func (t *tracer) line(r traceRecord) []byte {
	arrow := "A → B"
	if r.From == sideB {
		arrow = "A ← B"
	}
	clock := "15:04:05.000"
	if t.format == "wide" {
		clock = "2006-01-02 15:04:05.000000"
	}
	cells := []string{t.paint(styleDim, r.At.In(t.zone).Format(clock))}
	if t.many {
		cells = append(cells, t.paint(styleDim, fmt.Sprintf("#%d", r.Conn)))
	}
	cells = append(cells, arrow, t.paint(inkOfKind(r.Kind), pad(r.Kind, kindColumn)), pad(byteCount(r.Size), 7))
	if r.Method != "" {
		cells = append(cells, clip(clean(r.Method), nameColumn*2))
	}
	if len(r.ID) > 0 {
		cells = append(cells, "id "+clip(clean(string(r.ID)), nameColumn*2))
	}
	if r.Entries > 0 {
		cells = append(cells, strings.Replace(plural(r.Entries, "entry"), "entrys", "entries", 1))
	}
	if r.Elapsed != nil {
		cells = append(cells, elapsed(r.took))
	}
	if len(r.Code) > 0 {
		cells = append(cells, t.paint(styleBad, clean(string(r.Code))))
	}
	if r.Fault != "" {
		cells = append(cells, t.paint(styleWarn, clean(r.Fault)))
	}
	if r.Text != "" {
		text := clean(r.Text)
		if r.Cut {
			text += "…"
		}
		cells = append(cells, text)
	}
	return []byte(strings.TrimRight(strings.Join(cells, gap), " "))
}

func inkOfKind(kind string) ink {
	switch kind {
	case kindRequest, kindNotification:
		return styleBusy
	case kindResponse:
		return styleGood
	case kindError, kindMalformed, kindInvalid, kindLost:
		return styleBad
	}
	return styleNone
}

// elapsed gives d as precise as it is short.
func elapsed(d time.Duration) string {
	switch {
	case d < 0:
		return "0µs"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.1fms", float64(d.Microseconds())/1000)
	}
	return duration(d)
}

// byteCount gives a size as people read it.
func byteCount(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	case n < 10<<30:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d GiB", n>>30)
}
