package logging

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

const (
	// repeatWindow is how long warnings of one cause are counted, not written.
	repeatWindow = 10 * time.Second
	// maxCauses bounds the causes that are known at a time, and maxTold the messages
	// of one; what is above has its lines.
	maxCauses, maxTold = 256, 64
)

// repeats bounds the warnings and errors of which something amiss would have very
// many: that somebody cannot be reached, such as the database, of which everything
// that needs it would have a line each second, and that something which came is not
// taken: a record, of which a sender that is broken would have one after the other, or a
// request in the name of Slack, which anybody can send. A cause is the text of the
// attribute error, or what those have in common. Of each the first line
// of every message is written; what follows is counted, and each repeatWindow has one
// line with the newest of them and the count of the others (more, within), until it is
// over. At level debug all are written, as such.
type repeats struct {
	slog.Handler
	known *causes
}

// causes is what all handlers of one logger share.
type causes struct {
	mu  sync.Mutex
	all map[string]*cause // guarded by mu
}

// cause is why lines are left out at present.
type cause struct {
	told map[string]bool
	// more were left out in this window, of which newest is the last one.
	more   int
	newest func(more int)
}

func newRepeats(h slog.Handler) *repeats {
	return &repeats{Handler: h, known: &causes{all: make(map[string]*cause)}}
}

// WithAttrs implements [slog.Handler].
func (h *repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeats{h.Handler.WithAttrs(attrs), h.known}
}

// WithGroup implements [slog.Handler].
func (h *repeats) WithGroup(name string) slog.Handler {
	return &repeats{h.Handler.WithGroup(name), h.known}
}

// Handle implements [slog.Handler].
func (h *repeats) Handle(ctx context.Context, r slog.Record) error {
	if told(r) {
		if !h.Enabled(ctx, slog.LevelDebug) {
			return nil
		}
		r = r.Clone()
		r.Level = slog.LevelDebug
		return h.Handler.Handle(ctx, r)
	}
	if why := cmp.Or(unreachable(r), refused(r)); why != "" && !h.known.first(why, r.Message, h.later(ctx, r)) {
		if !h.Enabled(ctx, slog.LevelDebug) {
			return nil
		}
		r = r.Clone()
		r.Level = slog.LevelDebug
	}
	return h.Handler.Handle(ctx, r)
}

// later writes a record that was left out as the newest of so many.
func (h *repeats) later(ctx context.Context, r slog.Record) func(more int) {
	r, ctx = r.Clone(), context.WithoutCancel(ctx)
	return func(more int) {
		r.AddAttrs(slog.Int("more", more), slog.Duration("within", repeatWindow))
		_ = h.Handler.Handle(ctx, r) // there is nobody to tell
	}
}

// first reports whether a line is to be written now.
func (k *causes) first(why, message string, later func(int)) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.all[why]
	switch {
	case c == nil && len(k.all) >= maxCauses:
		return true
	case c == nil:
		k.all[why] = &cause{told: map[string]bool{message: true}}
		time.AfterFunc(repeatWindow, func() { k.sum(why) })
		return true
	case !c.told[message] && len(c.told) < maxTold:
		c.told[message] = true
		return true
	}
	c.more, c.newest = c.more+1, later
	return false
}

// sum ends a window. A cause without a line in it is over.
func (k *causes) sum(why string) {
	k.mu.Lock()
	c := k.all[why]
	more, newest := c.more, c.newest
	c.more, c.newest = 0, nil
	if more == 0 {
		delete(k.all, why)
	}
	k.mu.Unlock()
	if more > 0 {
		newest(more - 1)
		time.AfterFunc(repeatWindow, func() { k.sum(why) })
	}
}

// ownPort is the end of a connection that is another one each time.
var ownPort = regexp.MustCompile(`:\d+->`)

// told reports whether a warning or an error is about something of which the log has
// a line already, and gets one when it is over: the error says so by Told.
func told(r slog.Record) bool {
	e, ok := errors.AsType[interface {
		error
		Told() bool
	}](errorOf(r))
	return ok && e.Told()
}

// errorOf gives the error of a warning or an error; nil for all other lines.
func errorOf(r slog.Record) (err error) {
	if r.Level < slog.LevelWarn {
		return nil
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "error" || a.Value.Kind() != slog.KindAny {
			return true
		}
		err, _ = a.Value.Any().(error)
		return false
	})
	return err
}

// unreachable gives why a warning or an error says that somebody cannot be reached;
// "" for all others.
func unreachable(r slog.Record) string {
	err := errorOf(r)
	if _, wire := errors.AsType[net.Error](err); wire || parley.CodeOf(err) == parley.CodeUnavailable {
		return ownPort.ReplaceAllString(err.Error(), "->")
	}
	return ""
}

// refused gives what a warning or an error about something that is not taken has in
// common with those about others: the event, the code, the topic and the reason; "" for
// all other lines. Of the rest, each has its own.
func refused(r slog.Record) string {
	if r.Level < slog.LevelWarn {
		return ""
	}
	var event, topic, code, why string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "event":
			event = a.Value.String()
		case "topic":
			topic = a.Value.String()
		case "code":
			code = a.Value.String()
		case "why":
			why = a.Value.String()
		}
		return true
	})
	switch event {
	case "slack_unverified":
		return event + " " + why
	case "dead_letter", "record_refused", "task_refused":
		if code == "" {
			code = string(parley.CodeOf(errorOf(r)))
		}
		return event + " " + code + " " + topic
	}
	return ""
}
