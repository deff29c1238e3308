package logging_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/logging"
)

// guarded is a buffer for several goroutines.
type guarded struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (g *guarded) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.Write(p)
}

// take gives what was written since the last time.
func (g *guarded) take() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.b.Reset()
	return g.b.String()
}

// TestRepeats: while somebody cannot be reached, each message about it has one line,
// and then each 10 s have one with a count, until it is over. All else is written.
func TestRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out guarded
		l := logging.New(&out, logging.Config{}).With("worker", "w")
		down := func(n string) error {
			return parley.Errorf(parley.CodeUnavailable, "the database cannot be reached: read tcp 127.0.0.1:%s->127.0.0.1:5432: reset", n)
		}
		lines := func() []string {
			synctest.Wait()
			return strings.Split(strings.TrimSpace(out.take()), "\n")
		}
		for _, n := range []string{"1", "22", "333", "4444"} {
			l.Warn("not read", "error", down(n), "n", n)
			l.Error("not written", "error", down(n), "n", n)
			l.Warn("a bad record", "error", errors.New("it is no JSON"))
			l.Info("not read", "error", down(n))
		}
		if got := lines(); len(got) != 2+4+4 {
			t.Errorf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
		}
		time.Sleep(11 * time.Second)
		got := lines()
		if len(got) != 1 || !strings.Contains(got[0], `level=ERROR msg="not written" worker=w`) || !strings.Contains(got[0], "n=4444 more=5 within=10s") {
			t.Errorf("after the window:\n%s", strings.Join(got, "\n"))
		}
		l.Warn("not read", "error", down("5"))
		if got := lines(); got[0] != "" {
			t.Errorf("it goes on, and there is a line: %s", got)
		}
		time.Sleep(11 * time.Second)
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "more=0") {
			t.Errorf("after another window:\n%s", strings.Join(got, "\n"))
		}
		time.Sleep(21 * time.Second)
		l.Warn("not read", "error", down("6"))
		if got := lines(); len(got) != 1 || strings.Contains(got[0], "more") || got[0] == "" {
			t.Errorf("another time:\n%s", strings.Join(got, "\n"))
		}
		time.Sleep(11 * time.Second)
		all := logging.New(&out, logging.Config{Level: slog.LevelDebug})
		all.Warn("not read", "error", down("7"))
		all.Warn("not read", "error", down("8"))
		if got := lines(); len(got) != 2 || !strings.Contains(got[1], "level=DEBUG") {
			t.Errorf("at debug:\n%s", strings.Join(got, "\n"))
		}
		time.Sleep(21 * time.Second)
	})
}

// TestRefused: of records that cannot be handled each topic and code has a line
// of every message, and then each 10 s one with a count, whatever else the lines say.
// What is not of them has its lines.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out guarded
		l := logging.New(&out, logging.Config{Format: logging.JSON})
		const records, lost = 5_000, 20
		for n := range records {
			err := parley.Errorf(parley.CodeInvalid, "record %d is no JSON", n)
			l.Error("refused", "event", "record_refused", "topic", "requests", "offset", n, "error", err)
			l.Error("refused", "event", "task_refused", "topic", "tasks", "offset", n, "error", err)
			l.Warn("not signed", "event", "slack_unverified", "bytes", n, "why", "unsigned")
			for _, topic := range []string{"requests", "tasks"} {
				l.Warn("kept", "event", "dead_letter", "id", n, "code", parley.CodeInvalid, "topic", topic, "offset", n)
			}
			if n < lost {
				l.Error("lost", "event", "dead_letter_lost", "code", parley.CodeInvalid, "topic", "tasks", "offset", n)
			}
		}
		l.Warn("kept", "event", "dead_letter", "id", records, "code", parley.CodeLimit, "topic", "tasks", "offset", records)
		l.Warn("not signed", "event", "slack_unverified", "bytes", 1, "why", "signature")
		counted := func() (lines, all int) {
			synctest.Wait()
			for text := range strings.Lines(out.take()) {
				var line struct{ More int }
				if err := json.Unmarshal([]byte(text), &line); err != nil {
					t.Fatal(err)
				}
				lines, all = lines+1, all+1+line.More
			}
			return lines, all
		}
		if lines, all := counted(); lines != 5+lost+2 || all != lines {
			t.Errorf("%d lines count %d", lines, all)
		}
		time.Sleep(11 * time.Second)
		if lines, all := counted(); lines != 5 || all != 5*(records-1) {
			t.Errorf("after the window %d lines count %d", lines, all)
		}
		time.Sleep(11 * time.Second)
	})
}

// toldError is an error that has a line of its own.
type toldError struct{ told bool }

func (toldError) Error() string { return "the schema is another one" }
func (e toldError) Told() bool  { return e.told }

// TestTold: what the log has a line about already has no others, but at level debug.
func TestTold(t *testing.T) {
	for level, want := range map[slog.Level]int{slog.LevelInfo: 1, slog.LevelDebug: 3} {
		var out guarded
		l := logging.New(&out, logging.Config{Level: level})
		for range 2 {
			l.Warn("not read", "error", fmt.Errorf("sweep: %w", toldError{true}))
		}
		l.Warn("not read", "error", toldError{false})
		if text := out.take(); strings.Count(text, "\n") != want || strings.Count(text, "level=WARN") != 1 {
			t.Errorf("at %s:\n%s", level, text)
		}
	}
}
