package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// brokenBus refuses what is published.
type brokenBus struct {
	bus.Bus
	err error
}

func (b brokenBus) Publish(context.Context, bus.Message) error { return b.err }

// TestKeepRecordWithoutStore: without a store the topic of dead letters is all
// there is. Where there is none the log says what was lost, and nothing waits for
// it; any other trouble passes.
func TestKeepRecordWithoutStore(t *testing.T) {
	for _, c := range []struct {
		err  error
		lost bool
	}{
		{parley.Errorf(parley.CodeNotFound, "no topic"), true},
		{parley.Errorf(parley.CodeUnauthorized, "no right"), true},
		{parley.Errorf(parley.CodeLimit, "too large"), true},
		{parley.Errorf(parley.CodeUnavailable, "no broker"), false},
		{errors.New("odd"), false},
		{nil, false},
	} {
		var log bytes.Buffer
		s := &Server{cfg: Config{Now: time.Now}, bus: brokenBus{err: c.err}, log: slog.New(slog.NewTextHandler(&log, nil))}
		err := s.keepRecord(t.Context(), bus.DeadLetter{Run: "run-1", Task: "task-1", Code: "timeout", Reason: "too late"})
		if lost := strings.Contains(log.String(), "dead_letter_lost") && strings.Contains(log.String(), "task-1"); lost != c.lost {
			t.Errorf("%v: %s", c.err, log.String())
		}
		if c.lost && err != nil || !c.lost && !errors.Is(err, c.err) {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}
