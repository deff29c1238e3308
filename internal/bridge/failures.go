package bridge

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

const (
	// failureWindow is how long failures of one kind are counted after the first.
	failureWindow = time.Minute
	// maxFailures bounds the kinds that are told apart; the others are one.
	maxFailures = 4096
)

// failures bounds the log lines about agents that fail: with a dead one there would
// be a line for each call. Of each kind the first has its line, with all that is known
// about it (BR-7.3); those of the following minute have theirs at debug, and then one
// line counts them and has the context of the newest. What became of each task is in
// its attempts. It may be used concurrently.
type failures struct {
	log *slog.Logger

	mu  sync.Mutex
	all map[failureKind]*failureRun // guarded by mu
}

func newFailures(log *slog.Logger) *failures {
	return &failures{log: log, all: map[failureKind]*failureRun{}}
}

// failureKind is what failures have in common that are counted together.
type failureKind struct {
	agent, class, text string
	level              slog.Level
}

// failureRun are the failures of a window after the first.
type failureRun struct {
	more int
	// attrs are those of the newest.
	attrs []slog.Attr
}

// classOf is the class of an error: its code, what was left behind, and the status of
// the agent's answer.
func classOf(d Disposition, e *parley.Error) string {
	return string(e.Code) + " " + d.word() + " " + strconv.Itoa(detailsOf(e).Status)
}

// note writes the line of one failure, at the level of its kind or at debug.
func (f *failures) note(ctx context.Context, kind failureKind, attrs []slog.Attr) {
	f.mu.Lock()
	run := f.all[kind]
	if run == nil && len(f.all) >= maxFailures {
		kind.agent, kind.class = "", ""
		run = f.all[kind]
	}
	level := kind.level
	if run == nil {
		f.all[kind] = &failureRun{}
		time.AfterFunc(failureWindow, func() { f.sum(kind) })
	} else {
		run.more++
		run.attrs = attrs
		level = slog.LevelDebug
	}
	f.mu.Unlock()
	f.log.LogAttrs(ctx, level, kind.text, attrs...)
}

// sum ends the window of a kind: the next failure has a line of its own again.
func (f *failures) sum(kind failureKind) {
	f.mu.Lock()
	run := f.all[kind]
	delete(f.all, kind)
	f.mu.Unlock()
	if run.more > 0 {
		f.log.LogAttrs(context.Background(), kind.level, kind.text, append(slices.Clip(run.attrs),
			slog.Int("more", run.more), slog.Duration("within", failureWindow))...)
	}
}
