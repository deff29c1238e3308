package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"mime"
	"net/http"
	"time"

	"github.com/parley-project/parley"
)

const (
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 10 * time.Second
	// idleLimit is how long a stream may be silent before it is taken for
	// dead. Servers send a comment now and then when there is nothing to say.
	idleLimit = 90 * time.Second
)

// WatchOptions say where to begin and how long to put up with a server that
// cannot be reached. The zero value watches from the first event.
type WatchOptions struct {
	// After is the number of the last event that the caller has; 0 is none.
	After int64
	// GiveUpAfter bounds the time without any connection; 0 is 2 minutes.
	GiveUpAfter time.Duration
	// OnRetry is called before each wait that follows a failure, on the
	// goroutine that watches. It may be nil. A stream that was cut off after it
	// had given something is no failure yet.
	OnRetry func(err error, delay time.Duration)
}

// Watch gives the events of a run in order, without gaps and each once, as
// they happen, up to the one that ends the run. If the connection breaks, it
// goes on after the last event that it gave.
//
// The sequence ends with a non-nil error, and no event beside it, when the
// context ends, when the server refuses (an [*Error], such as for an unknown
// run), when the first connection cannot be made, or when none could be made
// for the time of the options. Events of types that this package does not know
// are given too. The caller may stop at any event; the connection is closed
// before the sequence returns.
func (c *Client) Watch(ctx context.Context, run string, o WatchOptions) iter.Seq2[parley.Event, error] {
	return func(yield func(parley.Event, error) bool) {
		if err := needName("run", run); err != nil {
			yield(parley.Event{}, err)
			return
		}
		w := &watch{c: c, run: run, o: o, last: o.After, yield: yield}
		w.o.GiveUpAfter = cmp.Or(o.GiveUpAfter, 2*time.Minute)
		if err := w.loop(ctx); err != nil && !errors.Is(err, errStopped) {
			yield(parley.Event{}, err)
		}
	}
}

// The ways in which a stream ends by itself.
const (
	// errStopped: the caller wants no more.
	errStopped = watchError("stopped")
	// errOver: the run's last event was given.
	errOver = watchError("over")
	// errSilent: nothing was heard for idleLimit. Unlike the others it is a
	// failure.
	errSilent = watchError("the server has fallen silent")
)

type watchError string

func (w watchError) Error() string { return string(w) }

// watch is one call of Watch.
type watch struct {
	c     *Client
	run   string
	o     WatchOptions
	yield func(parley.Event, error) bool

	// last is the number of the last event given.
	last int64
	// contact is when the last connection ended; zero is none yet.
	contact time.Time
	// idle ends the stream at hand when the server is silent for idleLimit.
	idle *time.Timer
	// gap is the number after which the last stream went on too far.
	gap     int64
	backoff time.Duration
	// asked is the least delay that the server asked for.
	asked time.Duration
}

func (w *watch) loop(ctx context.Context) error {
	for {
		before := w.last
		err := w.stream(ctx)
		if errors.Is(err, errOver) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && w.last == before {
			// The server closed a stream on which it had nothing to say: the
			// run may have ended before, with what we have.
			over, e := w.over(ctx)
			if over {
				return nil
			}
			err = e
		}
		if err := w.wait(ctx, err, w.last > before); err != nil {
			return err
		}
	}
}

// wait sleeps before the next try, or gives the error that ends the watch.
func (w *watch) wait(ctx context.Context, err error, progress bool) error {
	if err != nil && !w.temporary(err) {
		return err
	}
	now := w.c.now()
	if err != nil && now.Sub(w.contact) > w.o.GiveUpAfter {
		return err
	}
	if progress || w.backoff == 0 {
		w.backoff = firstBackoff
	} else {
		w.backoff = min(2*w.backoff, maxBackoff)
	}
	// Up to a half more, so that many watchers of one server do not come back
	// together.
	delay := max(w.backoff+time.Duration(w.c.jitter()*float64(w.backoff)/2), w.asked)
	if err != nil && w.o.OnRetry != nil {
		w.o.OnRetry(err, delay)
	}
	return w.c.sleep(ctx, delay)
}

// temporary reports whether another try can help.
func (w *watch) temporary(err error) bool {
	if w.contact.IsZero() || errors.Is(err, errStopped) {
		return false
	}
	if refused, ok := errors.AsType[*Error](err); ok {
		switch refused.Status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests:
			return true
		}
		return refused.Status >= 500
	}
	return errors.Is(err, ErrUnreachable)
}

// over asks whether the run has ended and all its events were given.
func (w *watch) over(ctx context.Context) (bool, error) {
	run, err := w.c.Run(ctx, w.run)
	if err != nil {
		return false, err
	}
	return run.Status.Terminal() && run.Seq <= w.last, nil
}

// stream reads one connection to its end: nil when the server closed it.
func (w *watch) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	header := http.Header{"Accept": {"text/event-stream"}}
	if w.last > 0 {
		header.Set("Last-Event-ID", fmt.Sprint(w.last))
	}
	resp, err := w.c.send(ctx, call{method: http.MethodGet, path: path("runs", w.run, "events"), header: header})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return errOver
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		return parley.Errorf(parley.CodeInternal, "the server answered the request for events with %q", media)
	}
	w.idle = time.AfterFunc(idleLimit, func() { cancel(errSilent) })
	defer w.idle.Stop()
	err = w.read(newSSEReader(&alive{r: resp.Body, touch: w.listen}, int(min(w.c.maxBody, math.MaxInt))))
	w.contact = w.c.now()
	if errors.Is(err, ErrUnreachable) && errors.Is(context.Cause(ctx), errSilent) {
		return &UnreachableError{URL: w.c.URL(), err: errSilent}
	}
	return err
}

// listen begins the time anew in which the server has to say something.
func (w *watch) listen() { w.idle.Reset(idleLimit) }

func (w *watch) read(r *sseReader) error {
	for {
		m, err := r.next()
		w.asked = min(r.retry, time.Minute)
		switch {
		case ended(err):
			return nil
		case parley.CodeOf(err) == parley.CodeLimit:
			return err
		case err != nil:
			return &UnreachableError{URL: w.c.URL(), err: err}
		}
		if m.Name == "error" {
			return streamError(m.Data)
		}
		var e parley.Event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return parley.Errorf(parley.CodeInternal, "the server sent an event that is not what the API promises: %w", err)
		}
		if err := w.give(e); err != nil {
			return err
		}
	}
}

// streamError is why the server ended a stream that it had begun.
func streamError(data []byte) error {
	var w wireError
	if err := json.Unmarshal(data, &w); err != nil {
		return parley.Errorf(parley.CodeInternal, "the server ended the events for a reason that cannot be read: %w", err)
	}
	return w.error(w.Status)
}

// give hands an event to the caller, unless it was given before.
func (w *watch) give(e parley.Event) error {
	if e.Seq <= w.last {
		return nil
	}
	if e.Seq > w.last+1 {
		if w.gap == w.last+1 {
			return parley.Errorf(parley.CodeInternal, "the server keeps no event %d of run %s", w.last+1, w.run)
		}
		w.gap = w.last + 1
		return &UnreachableError{URL: w.c.URL(), err: fmt.Errorf("event %d was lost on the way", w.last+1)}
	}
	w.last = e.Seq
	w.idle.Stop() // nobody listens while the caller works on it
	if !w.yield(e, nil) {
		return errStopped
	}
	w.listen()
	switch e.Type {
	case parley.EventRunCompleted, parley.EventRunFailed, parley.EventRunCancelled:
		return errOver
	}
	return nil
}

// alive tells that bytes have come.
type alive struct {
	r     io.Reader
	touch func()
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if n > 0 {
		a.touch()
	}
	return n, err
}
