package jsonrpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is one end of a connection: it calls the peer and answers the peer's
// calls over one Stream, with ids that are separate for each direction (RPC-9).
// Its methods may be called by any number of goroutines at once (RPC-8).
//
// Goroutines: one reads, parses and runs inline handlers, one writes what did
// not go without waiting, and up to Config.MaxHandlers run the other handlers.
// Close waits for all of them. While calls are made one at a time and the peer
// does nothing but answer, on a Stream with SetReadDeadline, the callers read;
// a request of the peer may then wait for half a millisecond once.
type Conn struct {
	cfg     Config
	report  reporter
	stream  Stream
	clock   clock
	ids     idForm
	pending *pending
	bufs    buffers
	w       *writer
	srv     *server
	in      receiver
	token   *readToken // nil when only the goroutine that reads can
	state   stateBox
	refusal atomic.Pointer[refusal] // the newest; nil when there was none
	useful  atomic.Bool             // a call had a result

	sweepEvery time.Duration
	sweeping   atomic.Bool
	sweeper    *time.Timer

	ending sync.Once
	ended  sync.Once
	told   sync.Once             // closes done
	cause  error                 // why the connection ends; set before ending
	broke  atomic.Pointer[error] // why nothing can be written; nil as long as it can
	stop   chan struct{}
	down   chan struct{} // closed when it is no longer connected
	done   chan struct{} // closed when it is disconnected
	// tasks are the goroutines that Close waits for.
	tasks sync.WaitGroup
}

// Bounds of the time between two looks for calls that have timed out.
const (
	maxSweep = 250 * time.Millisecond
	minSweep = time.Millisecond
)

// flushGrace is how long the end of a connection waits for the peer to take
// what was written before.
const flushGrace = time.Second

// lastAnswers is how long a connection is read on when nothing can be written to it
// any more.
const lastAnswers = 250 * time.Millisecond

// answerGrace is how long it waits for handlers to answer once their contexts
// have ended.
const answerGrace = time.Second

// NewConn makes a connection of a Stream, which it owns from now on, and starts
// to read. Close it when it is no longer needed, even after it ended by itself.
//
// It panics when cfg asks for CallerReads together with a Handler, or on a
// Stream without SetReadDeadline.
func NewConn(s Stream, cfg Config) *Conn {
	c := newConn(s, cfg.withDefaults())
	if cfg.CallerReads {
		c.token = newReadToken(c)
	} else {
		c.token = newLentToken(c)
		c.tasks.Go(c.read)
	}
	c.tasks.Go(func() { c.w.run(c.stop) })
	return c
}

func newConn(s Stream, cfg Config) *Conn {
	c := &Conn{
		cfg:        cfg,
		stream:     s,
		clock:      clock{time.Now()},
		ids:        newIDForm(cfg.IDs),
		pending:    newPending(cfg.MaxPending),
		sweepEvery: min(max(cfg.Timeout/4, minSweep), maxSweep),
		stop:       make(chan struct{}),
		down:       make(chan struct{}),
		done:       make(chan struct{}),
	}
	c.report.conn, c.report.hooks = cfg.Name, cfg.Hooks
	c.state.conn, c.state.tell = cfg.Name, cfg.Hooks.StateChange
	c.state.now.Store(uint32(StateConnected))
	c.w = newWriter(s, &c.cfg, c.writeBroken)
	c.srv = newServer(&c.cfg, &c.report, &c.bufs, c)
	c.in.c, c.in.enough = c, firstFlush
	c.sweeper = time.AfterFunc(time.Hour, c.sweep)
	c.sweeper.Stop()
	return c
}

// Pair returns two connections that are joined in memory.
func Pair(a, b Config) (*Conn, *Conn) {
	x, y := Pipe()
	return NewConn(x, a), NewConn(y, b)
}

// Name returns the connection's name, as in Config.
func (c *Conn) Name() string { return c.cfg.Name }

// State returns where the connection is in its life.
func (c *Conn) State() State { return c.state.get() }

// ignoresInvalid says that what is no message is not answered.
func (c *Conn) ignoresInvalid() bool { return c.cfg.IgnoreInvalid || c.cfg.Handler == nil }

// Done returns a channel that is closed when the connection is disconnected.
// Handlers may still be running then, and if it broke its Stream may still be
// closing; Close waits for them.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns nil until Done is closed, and then a *ConnError with the cause.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.connError(StateDisconnected)
	default:
		return nil
	}
}

// Stats returns what happened on the connection so far.
func (c *Conn) Stats() Stats {
	s := c.report.stats()
	s.Pending, s.Handling = int(c.pending.count.Load()), c.srv.pool.handling()
	return s
}

// Close ends the connection: new calls and requests are refused, pending calls
// fail at once with a *ConnError, running handlers have Config.Grace to answer
// before their contexts end and a second afterwards, what was written has another
// second to get out. Over a socket, a peer that has called has one more to take its
// answers and to close its end.
//
// It returns when no goroutine of the connection is left, which takes as long as
// the slowest handler does that ignores its context, or a Reader that one returned
// and that cannot be closed, or does not return when it is; for the same reason a
// handler must not call it (it may do so in a goroutine of its own). It may be
// called more than once and from several goroutines; it returns nil, or the
// error that ended the connection before.
func (c *Conn) Close() error {
	c.end(ErrClosed, false)
	c.tasks.Wait()
	if errors.Is(c.cause, ErrClosed) || errors.Is(c.cause, io.EOF) { // the usual ends
		return nil
	}
	return c.connError(StateDisconnected)
}

// Shutdown closes the connection after the pending calls and running handlers
// have ended, or with ctx: new calls and requests are refused at once, but
// nothing that was begun is broken off before then.
func (c *Conn) Shutdown(ctx context.Context) error {
	c.pending.refuse(&ConnError{Conn: c.cfg.Name, State: StateClosing, Err: ErrClosed})
	c.state.set(StateClosing, ErrClosed, func(from State) bool { return from < StateClosing })
	tick := time.NewTicker(minSweep)
	defer tick.Stop()
	for (c.pending.count.Load() > 0 || c.srv.pool.running() > 0) && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-c.done:
			return c.Close()
		case <-ctx.Done():
		}
	}
	return c.Close()
}

// writeBroken ends the connection, since nothing can be written to it any more: new
// calls fail at once. Those that wait may have been answered by a peer that went
// then; what it sent is read first, to its end, or for a moment.
func (c *Conn) writeBroken(err error) {
	if errors.Is(err, errStalled) || c.pending.count.Load() == 0 {
		c.end(err, true)
		return
	}
	c.broke.CompareAndSwap(nil, &err)
	why := c.connErrorFor(err, StateDisconnected)
	c.pending.refuse(why)
	c.w.close(why)
	c.state.set(StateClosing, err, func(from State) bool { return from < StateClosing })
	time.AfterFunc(lastAnswers, func() { c.end(err, true) })
}

// end begins the end of the connection, the first time it is called; cause is
// why. With broken nothing can be written or read any more.
func (c *Conn) end(cause error, broken bool) {
	if why := c.broke.Load(); why != nil { // that came first
		cause, broken = *why, true
	}
	c.ending.Do(func() {
		c.cause = cause
		state := StateClosing
		if broken {
			state = StateDisconnected
		}
		why := c.connError(state)
		c.pending.refuse(why) // before the hook is told, which may try to call
		if broken {
			c.disconnect(false)
			c.disconnected() // first, for those who call again when a call has failed
		} else {
			c.state.set(state, cause, func(from State) bool { return from < state })
		}
		c.pending.failAll(why)
		if c.token.inHand() {
			c.token.interrupt()
		}
		close(c.down)
		c.tasks.Go(c.finish)
	})
	if broken {
		c.disconnect(false)
	}
}

// finish gives the handlers their grace and then ends everything.
func (c *Conn) finish() {
	grace, cancel := context.WithTimeout(context.Background(), max(c.cfg.Grace, 0))
	c.srv.pool.wait(grace)
	cancel()
	c.srv.cancel(c.connError(StateClosing))
	answer, cancel := context.WithTimeout(context.Background(), answerGrace)
	c.srv.pool.wait(answer)
	cancel()
	flush, cancel := context.WithTimeout(context.Background(), flushGrace)
	written := c.w.flushed(flush)
	cancel()
	c.disconnect(written && c.srv.asked.Load())
	c.srv.pool.close()
	c.sweeper.Stop()
	if c.token != nil && c.token.lent != nil {
		c.token.lent.timer.Stop()
	}
	close(c.stop)
}

// disconnect ends reading and writing, once. It may be called by who makes a call,
// and so leaves it to a goroutine to close the Stream: that of a Subprocess waits
// for the end of the program. As long as finish has not called it, there are other
// tasks that Close waits for. With answered the last answers may be on the way.
func (c *Conn) disconnect(answered bool) {
	c.ended.Do(func() {
		c.w.close(c.connError(StateDisconnected))
		c.tasks.Go(func() {
			closing := c.stream.Close
			if s, ok := c.stream.(gentleCloser); ok && answered {
				closing = s.closeGently
			}
			_ = closing() // nothing can be done about its error
			c.disconnected()
		})
	})
}

// disconnected tells that the connection is disconnected.
func (c *Conn) disconnected() {
	c.state.set(StateDisconnected, c.cause, func(from State) bool { return from < StateDisconnected })
	c.told.Do(func() { close(c.done) })
}

// connError says that, and why, the connection is in state. A connection that
// stood once may stand again, unless this side ended it or its Stream knows
// better.
func (c *Conn) connError(state State) error { return c.connErrorFor(c.cause, state) }

// connErrorFor is connError with the cause.
func (c *Conn) connErrorFor(cause error, state State) error {
	recoverable := !errors.Is(cause, ErrClosed)
	if r, ok := errors.AsType[recoverer](cause); ok {
		recoverable = r.Recoverable()
	}
	return &ConnError{Conn: c.cfg.Name, State: state, Recoverable: recoverable, Err: cause}
}

// armSweep sees to it that the calls that have timed out are looked for.
func (c *Conn) armSweep() {
	if !c.sweeping.Load() && c.sweeping.CompareAndSwap(false, true) {
		c.sweeper.Reset(c.sweepEvery)
	}
}

// sweep ends the calls that have timed out. It says that it is not coming again
// before it looks, so that a call that begins meanwhile is either seen or makes
// it come again.
func (c *Conn) sweep() {
	c.sweeping.Store(false)
	more := c.pending.expire(c.clock.now(), &TimeoutError{After: c.cfg.Timeout})
	if c.token.inHand() {
		c.token.interrupt()
	}
	if more {
		c.armSweep()
	}
}
