package kafka

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	parley "github.com/parley-project/parley"
)

// TestClientLogRepeats: what the library says with each of its tries is in the log once in
// a while, with the number of those left out; what is about something else is not left out.
func TestClientLogRepeats(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	l := clientLog{slog.New(slog.NewTextHandler(&out, nil)), newRepeats(func() time.Time { return now })}
	for try := range 100 {
		l.Log(kgo.LogLevelError, "group manage loop errored", "group", "g", "err", "refused", "consecutive_errors", try)
	}
	l.Log(kgo.LogLevelError, "group manage loop errored", "group", "h", "err", "refused", "consecutive_errors", 1)
	l.Log(kgo.LogLevelError, "group manage loop errored", "group", "g", "err", "another", "consecutive_errors", 1)
	now = now.Add(repeatEvery)
	l.Log(kgo.LogLevelError, "group manage loop errored", "group", "g", "err", "refused", "consecutive_errors", 100)
	text := out.String()
	if strings.Count(text, "\n") != 4 || strings.Count(text, "left_out=99") != 1 {
		t.Errorf("the log:\n%s", text)
	}
	for i := range 10 * repeatsMost {
		l.Log(kgo.LogLevelError, "other", "topic", i)
	}
	if n := len(l.repeats.said); n > repeatsMost {
		t.Errorf("%d things are remembered", n)
	}
}

// TestTroubleIsLogged: the beginning and the end of a trouble are in the log, once; one that
// comes and goes is there now and then, and one that stays in the end. That it turns out to
// be of another kind is there, too.
func TestTroubleIsLogged(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	s := newState(func() time.Time { return now }, slog.New(slog.NewTextHandler(&out, nil)))
	wrong := parley.Errorf(parley.CodeUnauthorized, "allow it")
	for range 50 {
		s.note("topic t", wrong)
		s.note("topic t", wrong)
		s.note("topic t", nil)
		s.note(connection+"h:1", wrong)
	}
	if text := out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "allow it") || !strings.Contains(text, "is over") {
		t.Errorf("the log:\n%s", text)
	}
	out.Reset()
	s.note("topic t", parley.Errorf(parley.CodeUnauthorized, "allow something else"))
	s.note("topic t", nil)
	if text := out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "something else") {
		t.Errorf("of another trouble with the same:\n%s", text)
	}
	out.Reset()
	s.note("topic t", wrong)
	now = now.Add(repeatEvery)
	s.note("topic t", wrong)
	if text := out.String(); strings.Count(text, "allow it") != 1 {
		t.Errorf("a trouble that stays:\n%s", text)
	}
	out.Reset()
	for try := range 50 {
		s.note("group g", parley.Errorf(parley.CodeUnavailable, "cannot be reached from port %d", try))
	}
	for try := range 50 {
		s.note("group g", parley.Errorf(parley.CodeUnauthorized, "check the login"))
		s.note("group g", parley.Errorf(parley.CodeUnavailable, "cannot be reached from port %d", try))
	}
	if text := out.String(); strings.Count(text, "\n") != 3 || !strings.Contains(text, "from port 0") || !strings.Contains(text, "check the login") {
		t.Errorf("of a trouble that becomes another one:\n%s", text)
	}
}
