package executor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

const (
	// intakeQueue bounds the records of one intake that wait for a worker; the
	// bus waits when it is full.
	intakeQueue = 1_024
	// intakeTries is how often a record is tried that fails for a reason that may
	// pass, before it is a dead letter.
	intakeTries = 20
	// awayTries is how often, and awayPause how long after each other, if the reason is
	// that a value kept apart cannot be fetched now: its store may be away for long while
	// the database is well, and all that comes meanwhile would be dead letters.
	awayTries   = 240
	awayPause   = 15 * time.Second
	intakePause = 50 * time.Millisecond
	intakeLong  = 5 * time.Second
)

// intake takes the records of a subject that must not be lost: one is
// acknowledged only when what it says is durable, or when it is kept as a dead
// letter.
type intake struct {
	subject, group string
	workers        int
	// handle makes a record durable. It may be called again with the same
	// record, and concurrently with others. since is when the record was taken, or
	// a record could not be handled for a reason that may pass, if that was later.
	handle func(ctx context.Context, m bus.Message, since time.Time) error

	troubled atomic.Pointer[time.Time] // when that was last
}

// since gives what handle is told of a record that was taken at that time.
func (in *intake) since(taken time.Time) time.Time {
	if t := in.troubled.Load(); t != nil && t.After(taken) {
		return *t
	}
	return taken
}

// takeIn subscribes. Records of one key are handled one after the other, in the
// order of the bus; those that have no key have no order. One that is to be tried
// again holds up those of its key, and others only while the store or the bus is
// away, not while values that are kept apart are. The records that are in hand when
// stop is called are ended first, or come again.
func (x *Executor) takeIn(ctx context.Context, in *intake) (stop func(), err error) {
	deferred, ok := x.cfg.Bus.(bus.Deferred)
	if !ok {
		return x.cfg.Bus.Subscribe(ctx, in.subject, in.group, func(ctx context.Context, m bus.Message) error {
			_ = x.tryUntil(ctx, in, &taken{m: m, at: x.cfg.Now()}, func(err error) bool { return err == nil })
			return nil
		})
	}
	queue, room, lines := make(chan taken, intakeQueue), make(chan struct{}, intakeQueue), newLines()
	var workers sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	// handle reports whether a record is done for good; if not, it comes back by the
	// queue when it is to be tried again. While the store is away others would fare no
	// better: they stay on the bus, rather than become dead letters.
	handle := func(r taken) bool {
		err := x.tryUntil(ctx, in, &r, concernsNoOthers)
		if err == nil {
			r.done()
			<-room
			return true
		}
		workers.Go(func() {
			if sleep(ctx, r.pause(err)) {
				queue <- r // it has kept its room
			}
		})
		return false
	}
	for range in.workers {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done(): // what is in the queue comes again
					return
				case r := <-queue:
					for ok := true; ok && handle(r); {
						r, ok = lines.next(r.m.Key)
					}
				}
			}
		})
	}
	leave, err := deferred.SubscribeDeferred(ctx, in.subject, in.group, func(_ context.Context, m bus.Message, done func()) {
		r := taken{m: m, at: x.cfg.Now(), done: done}
		select {
		case room <- struct{}{}:
		case <-ctx.Done(): // it comes again
			return
		}
		if lines.lead(r) {
			queue <- r // there is room
		}
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if leave != nil {
				leave()
			}
			workers.Wait()
		})
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// taken is a record that is to be handled; at is when it came, tries how often it
// was tried, done acknowledges it.
type taken struct {
	m     bus.Message
	at    time.Time
	tries int
	done  func()
}

// concernsNoOthers reports whether a record that ended so concerns no others: it is done,
// or fails for a reason of its own.
func concernsNoOthers(err error) bool {
	return parley.CodeOf(err) != parley.CodeUnavailable || errors.Is(err, store.ErrAway)
}

// pause is how long to wait after the last try, which failed so.
func (r *taken) pause(err error) time.Duration {
	if errors.Is(err, store.ErrAway) {
		return awayPause
	}
	pause := intakePause
	for n := 1; n < r.tries && pause < intakeLong; n++ {
		pause *= 2
	}
	return min(pause, intakeLong)
}

// lines keeps the records of each key in their order while workers handle those
// of different keys beside each other.
type lines struct {
	mu sync.Mutex
	// behind are the records that wait for one of their key, by key; a key is there
	// as long as one of it is in hand.
	behind map[string][]taken // guarded by mu
}

func newLines() *lines { return &lines{behind: make(map[string][]taken)} }

// lead reports whether a record is to be handled now; else it waits for those of
// its key.
func (l *lines) lead(r taken) bool {
	if r.m.Key == "" {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, busy := l.behind[r.m.Key]
	if busy {
		waiting = append(waiting, r)
	}
	l.behind[r.m.Key] = waiting
	return !busy
}

// next gives the record that follows one that was handled, if there is one.
func (l *lines) next(key string) (taken, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.behind[key]
	if len(waiting) == 0 {
		delete(l.behind, key)
		return taken{}, false
	}
	r := waiting[0]
	waiting[0] = taken{} // let go of the value
	l.behind[key] = waiting[1:]
	return r, true
}

// traceOf gives the trace context in the headers of a record.
func traceOf(m *bus.Message) parley.Trace {
	return parley.TraceOf(m.Values(parley.HeaderTraceparent), m.Values(parley.HeaderTracestate))
}

// tryUntil tries a record until what came of it is enough, or ctx ends.
func (x *Executor) tryUntil(ctx context.Context, in *intake, r *taken, enough func(error) bool) error {
	for {
		if err := x.tryRecord(ctx, in, r); enough(err) || !sleep(ctx, r.pause(err)) {
			return err
		}
	}
}

// tryRecord handles a record once more. It is done for good if there is no error: what
// it says is durable, or it is a dead letter.
func (x *Executor) tryRecord(ctx context.Context, in *intake, r *taken) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.tries++
	err := in.handle(ctx, r.m, in.since(r.at))
	if err != nil && ctx.Err() == nil && (final(err) || r.tries >= mostTries(err)) {
		err = x.bury(ctx, in, r.m, buried{err, r.tries})
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	in.troubled.Store(new(x.cfg.Now()))
	x.cfg.Logger.Warn("a record could not be handled; it is tried again",
		"subject", r.m.Subject, "partition", r.m.At.Partition, "offset", r.m.At.Offset, "try", r.tries, "error", err)
	return err
}

// mostTries is how often a record is tried at the most that fails for that reason.
func mostTries(err error) int {
	if errors.Is(err, store.ErrAway) {
		return awayTries
	}
	return intakeTries
}

// buried says why a record is given up, and after how many tries.
type buried struct {
	reason error
	tries  int
}

// bury hands a record over to whoever keeps dead letters.
func (x *Executor) bury(ctx context.Context, in *intake, m bus.Message, b buried) error {
	reason, tries := b.reason, b.tries
	x.cfg.Logger.Error("a record cannot be handled; it is a dead letter", "event", "record_refused",
		"subject", m.Subject, "topic", m.At.Topic, "partition", m.At.Partition, "offset", m.At.Offset, "key", clip(m.Key, 256), "error", reason)
	if x.cfg.DeadLetters == nil {
		return nil
	}
	text := reason.Error()
	if e, ok := errors.AsType[*parley.Error](reason); ok {
		text = e.Message
	}
	if some, ok := errors.AsType[*notStartedError](reason); ok {
		some.mark(&m)
	}
	run, task := idsOf(m)
	return x.cfg.DeadLetters(ctx, bus.DeadLetter{
		Message: m, Code: string(parley.CodeOf(reason)), Reason: text, Attempts: tries, Group: in.group, Run: run, Task: task,
	})
}

// idsOf gives the run and the task that a record names, as far as it can be read.
func idsOf(m bus.Message) (run, task string) {
	switch m.Subject {
	case bus.SubjectResults:
		r, _ := records.DecodeResult(m.Value)
		return r.RunID, r.TaskID
	case bus.SubjectStartRequests:
		r, _ := records.DecodeExecution(m.Value)
		return r.RunID, ""
	case bus.SubjectCancelRequests:
		r, _ := records.DecodeCancellation(m.Value)
		return r.RunID, ""
	}
	return "", ""
}

// final reports whether an error stands however often the record is tried: it
// is about the record, not about the store or the bus.
func final(err error) bool {
	e, ok := errors.AsType[*parley.Error](err)
	return ok && e.Code != parley.CodeInternal && e.Code != parley.CodeUnavailable
}
