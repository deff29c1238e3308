package a2a

import (
	"context"
	"log/slog"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

const (
	// maxStderrLine is logged of one line, in bytes; a longer one comes in
	// pieces.
	maxStderrLine = 2 << 10
	// maxStderrRate is how many lines of one process are logged in a second.
	maxStderrRate = 20
)

// stderrLog writes what a process says on stderr into the log. It is used by
// one goroutine.
type stderrLog struct {
	ctx   context.Context //nolint:containedctx // for the handler of the log
	log   *slog.Logger
	agent parley.Agent
	now   func() time.Time

	window  time.Time
	lines   int // in the window
	dropped int // since the last line that was logged
}

func newStderrLog(ctx context.Context, log *slog.Logger, agent parley.Agent, now func() time.Time) *stderrLog {
	return &stderrLog{ctx: ctx, log: log, agent: agent, now: now}
}

// line logs one line without the agent's credential, or counts it if there were
// too many in this second.
func (s *stderrLog) line(text []byte) {
	if now := s.now(); now.Sub(s.window) >= time.Second {
		s.window, s.lines = now, 0
	}
	if s.lines++; s.lines > maxStderrRate {
		s.dropped++
		return
	}
	attrs := []slog.Attr{slog.String("agent", s.agent.Name), slog.String("line", bridge.Redact(s.agent, text, maxStderrLine))}
	if s.dropped > 0 {
		attrs = append(attrs, slog.Int("dropped", s.dropped))
		s.dropped = 0
	}
	s.log.LogAttrs(s.ctx, slog.LevelInfo, "agent_stderr", attrs...)
}
