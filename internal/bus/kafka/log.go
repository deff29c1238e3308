package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// repeatEvery is how often the same is said again while it goes on.
	repeatEvery = 30 * time.Second
	// repeatsMost bounds what is remembered to have been said.
	repeatsMost = 256
)

// repeats keeps what goes wrong again and again from filling the log: the library says so
// with each try, and for each publication that is refused.
type repeats struct {
	now func() time.Time

	mu   sync.Mutex // protects said
	said map[string]*saying
}

// saying is something that was said, and how often it was left out since.
type saying struct {
	at   time.Time
	left int
}

func newRepeats(now func() time.Time) *repeats {
	return &repeats{now: now, said: make(map[string]*saying)}
}

// due reports whether it is time to say something, and how often it was not said since the
// last time.
func (r *repeats) due(what string) (left int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	s := r.said[what]
	if s != nil && now.Sub(s.at) < repeatEvery {
		s.left++
		return 0, false
	}
	if s == nil {
		if len(r.said) >= repeatsMost {
			clear(r.said)
		}
		s = &saying{}
		r.said[what] = s
	}
	left, s.at, s.left = s.left, now, 0
	return left, true
}

// clientLog passes on what the client library says, the same only now and then.
type clientLog struct {
	to      *slog.Logger
	repeats *repeats
}

// Level implements [kgo.Logger].
func (clientLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

// Log implements [kgo.Logger]. The library's errors are ones that it retries,
// so they are warnings here.
func (l clientLog) Log(level kgo.LogLevel, msg string, args ...any) {
	left, ok := l.repeats.due(sameness(msg, args))
	if !ok {
		return
	}
	if left > 0 {
		args = append(args, "left_out", left)
	}
	to := slog.LevelInfo
	if level == kgo.LogLevelError {
		to = slog.LevelWarn
	}
	l.to.Log(context.Background(), to, fmt.Sprint("kafka: ", msg), args...)
}

// sameness is what two lines have in common that say the same: the text, and what it
// happened to, but not the number of the try.
func sameness(msg string, args []any) string {
	var b strings.Builder
	b.WriteString(msg)
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "err", "group", "topic", "addr", "broker":
			fmt.Fprint(&b, " ", args[i+1])
		}
	}
	return b.String()
}
