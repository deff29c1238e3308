package jsonrpc

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// A ClientConfig says how a Client connects, and in Config how each of its
// connections behaves. Hooks.StateChange is told the states of the Client, with
// Config.Name, and not those of its connections; it has a goroutine of its own, and
// may call, as to subscribe again. Hooks.CallDone is told of each attempt of a call,
// and of a call that failed while there was no connection.
type ClientConfig struct {
	Config
	// MinBackoff is the time before the first new attempt to connect; it
	// doubles with every failure up to MaxBackoff. A connection that ends is a
	// failure, too, unless it has stood for MaxBackoff, or brought a result and
	// was then closed in order by the peer (io.EOF): after such a one the time is
	// MinBackoff again. Defaults, also for negative ones: 100 ms and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// DialTimeout bounds one attempt to connect. Default 10 s.
	DialTimeout time.Duration
	// MaxDials is how many times in a row the Client connects again after a
	// failure before it gives up for good. A connection that stood for a second,
	// and that the peer closed in order before anything was sent on it, does not
	// count. Default 100; negative: no bound.
	MaxDials int
	// MaxAttempts bounds how many times a call is tried. Default 3.
	MaxAttempts int
	// Random returns a number in [0, 1), by which the Client takes up to half
	// off a backoff, so that many clients do not come back at the same moment
	// (RPC-22). Default: rand.Float64.
	Random func() float64
}

// A Client calls a peer over one connection at a time and makes a new one when
// it ends (RPC-22). Its methods may be called by any number of goroutines at
// once.
type Client struct {
	dial  func(context.Context) (Stream, error)
	cfg   ClientConfig
	state stateBox
	ctx   context.Context //nolint:containedctx // ends with Close; that of dialing
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex
	conn    *Conn         // nil while there is none
	cause   error         // why there is none
	over    bool          // there never will be one again
	changed chan struct{} // closed when one of the above changes
}

// NewClient returns a Client and begins to connect. dial makes a connected
// Stream, which then belongs to the Client. Its context ends with
// ClientConfig.DialTimeout or with Close, and when dial has returned a Stream with
// the connection: a program that Start has started with it runs so long. Close the
// Client when it is no longer needed.
//
// After an error of dial, or the end of a connection, about which AdviceFor says
// to give up, the Client gives up for good: every call fails at once with that
// error. After all others it goes on, up to ClientConfig.MaxDials.
func NewClient(dial func(ctx context.Context) (Stream, error), cfg ClientConfig) *Client {
	cfg.Config = cfg.withDefaults()
	cfg.MinBackoff, cfg.MaxBackoff = max(cfg.MinBackoff, 0), max(cfg.MaxBackoff, 0)
	setDefault(&cfg.MinBackoff, 100*time.Millisecond)
	setDefault(&cfg.MaxBackoff, 30*time.Second)
	setDefault(&cfg.DialTimeout, 10*time.Second)
	setDefault(&cfg.MaxDials, 100)
	setDefault(&cfg.MaxAttempts, 3)
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	cl := &Client{dial: dial, cfg: cfg, changed: make(chan struct{})}
	cl.state.conn, cl.state.tell, cl.state.spawn = cfg.Name, cfg.Hooks.StateChange, cl.tasks.Go
	cl.cfg.Hooks.StateChange = nil
	cl.ctx, cl.stop = context.WithCancel(context.Background())
	cl.tasks.Go(cl.run)
	return cl
}

// Call is Conn.Call on the present connection, or on the next one: while the
// Client connects, a call waits, with its context or Config.Timeout. When the
// connection ends, a call is made again on the next one if it was certainly
// not sent, or is Idempotent; but params that are an io.Reader are not read
// twice, and an io.Writer that got something of a result gets no other. A call
// that a living connection could not deliver (an *UndeliveredError, as over HTTP)
// and that may succeed later is made again in the same cases, after the pause
// that the peer asks for or a backoff as between two dials; if the peer asks for
// more than ClientConfig.MaxBackoff, or than the call has left, it fails at once.
// All of this has the time of one call, and ClientConfig.MaxAttempts.
func (cl *Client) Call(ctx context.Context, method string, params, result any, opts ...CallOption) error {
	_, once := params.(io.Reader)
	var started *startedWriter
	if w, ok := result.(io.Writer); ok {
		started = &startedWriter{Writer: w}
		result = started
	}
	own, err := cl.try(ctx, method, opts, func(ctx context.Context, c *Conn) (attempt, error) {
		sent, err := c.do(ctx, method, params, result, opts)
		return attempt{sent: sent, last: once || started != nil && started.yes}, err
	})
	if own != nil {
		cl.told(own)
	}
	return err
}

// A startedWriter knows whether anything was written. It is looked at when the
// call is over, after which nothing is.
type startedWriter struct {
	io.Writer
	yes bool
}

func (w *startedWriter) Write(p []byte) (int, error) {
	w.yes = true
	return w.Writer.Write(p)
}

// Notify is Conn.Notify on the present connection or the next one; a
// notification that was certainly not sent is sent again.
func (cl *Client) Notify(ctx context.Context, method string, params any) error {
	_, once := params.(io.Reader)
	_, err := cl.try(ctx, method, nil, func(ctx context.Context, c *Conn) (attempt, error) {
		err := c.Notify(ctx, method, params)
		return attempt{last: once}, err // it reports no error once it was handed over
	})
	return err
}

// Batch is Conn.Batch on the present connection or the next one. It is made
// again as a whole, and only when it was certainly not sent or is Idempotent,
// and has neither params that are an io.Reader nor results for an io.Writer.
func (cl *Client) Batch(ctx context.Context, b *Batch, opts ...CallOption) error {
	start, before := time.Now(), time.Duration(0)
	written, sent, once := false, false, b.once()
	own, err := cl.try(ctx, "batch", opts, func(ctx context.Context, c *Conn) (attempt, error) {
		before = time.Since(start)
		var err error
		a := attempt{last: once}
		if written, err = c.batch(ctx, b, opts); written {
			err = b.failed()
			a = attempt{sent: b.sent(), last: once || b.writes()}
		}
		sent = sent || a.sent
		return a, err
	})
	for _, e := range b.calls {
		switch {
		case own != nil && (!written || repeatable(e.err)): // it would have been made again
			each := *own
			each.Method = e.method
			e.err = &each
			if !e.notification {
				cl.told(&each)
			}
		case e.err != nil:
			e.err = ofAll(e.err, before, sent)
		}
	}
	if written {
		return nil // its entries say what became of them
	}
	return err
}

// State returns where the Client is: it comes back to StateConnecting until it
// is closed or has given up.
func (cl *Client) State() State { return cl.state.get() }

// Name returns the name, as in Config.
func (cl *Client) Name() string { return cl.cfg.Name }

// Close ends the Client and its connection, as Conn.Close does. It may be called
// more than once.
func (cl *Client) Close() error {
	cl.state.set(StateClosing, ErrClosed, func(from State) bool { return from < StateClosing })
	cl.stop()
	cl.tasks.Wait()
	return nil
}

// An attempt says how far a call got.
type attempt struct {
	sent bool // the peer may have got it
	last bool // it cannot be made again, whatever happened
}

// repeatable says whether a call that failed with err may come through when it
// is made again: its connection ended, or lives on and could not deliver it just
// then.
func repeatable(err error) bool {
	if _, ok := errors.AsType[*ConnError](err); ok {
		return true // the Client knows whether there will be another one
	}
	_, ok := errors.AsType[*UndeliveredError](err)
	return ok && Recoverable(err)
}

// ofAll returns the error of the last attempt as one of the call, which had taken a
// time before, and of which the peer may have got an earlier attempt.
func ofAll(err error, before time.Duration, sent bool) error {
	call, ok := err.(*CallError) //nolint:errorlint // our own, not one in another
	if !ok || before == 0 && sent == call.Sent {
		return err
	}
	e := *call // a hook may be looking at it
	e.Elapsed += before
	if late, ok := e.Err.(*TimeoutError); ok && late.unsent && sent { //nolint:errorlint // see above
		e.Err = &TimeoutError{After: late.After}
	}
	e.Sent = e.Sent || sent
	return &e
}

// try makes a call until it need not or must not be made again. own is the error
// when no Conn has told the hook of it.
func (cl *Client) try(ctx context.Context, method string, opts []CallOption, call func(context.Context, *Conn) (attempt, error)) (own *CallError, err error) {
	var o callOptions
	for _, option := range opts {
		option(&o)
	}
	start := time.Now()
	within, free := ctx, context.CancelFunc(nil)
	before, sent := time.Duration(0), false
	for n := 1; ; n++ {
		conn := cl.present()
		if free == nil && (n > 1 || conn == nil) { // else the Conn sees to it, at less cost
			within, free = cl.bound(ctx, start, o.timeout) //nolint:fatcontext // it is done once
			defer free()
		}
		if err != nil { // of the attempt before
			d, ok := cl.pauseAfter(within, err, n-1)
			if !ok {
				return nil, ofAll(err, before, sent)
			}
			if why := cl.sleep(within, start, sent, d); why != nil {
				err = &waitError{why, errors.Unwrap(err)}
				break
			}
			conn = cl.present()
		}
		if conn == nil {
			if conn, err = cl.await(within, start, sent); err != nil {
				break
			}
		}
		if free != nil {
			before = time.Since(start)
		}
		var a attempt
		a, err = call(within, conn)
		sent = sent || a.sent
		if a.last || n >= cl.cfg.MaxAttempts || a.sent && !o.idempotent || !repeatable(err) {
			return nil, ofAll(err, before, sent)
		}
	}
	own = &CallError{Conn: cl.cfg.Name, Method: method, Elapsed: time.Since(start), Sent: sent, Err: err}
	if meta, ok := MetaFrom(ctx); ok {
		own.CorrelationID = meta.CorrelationID
	}
	return own, own
}

// pauseAfter says how long to wait before a call that failed with err, at its
// n-th attempt, is made again; false: longer than it may.
func (cl *Client) pauseAfter(ctx context.Context, err error, n int) (time.Duration, bool) {
	lost, ok := errors.AsType[*UndeliveredError](err)
	if !ok {
		return 0, true // the connection ended, and there is a pause before the next one
	}
	if lost.RetryAfter > cl.cfg.MaxBackoff {
		return 0, false
	}
	d := max(cl.backoff(n), lost.RetryAfter)
	end, bounded := ctx.Deadline()
	return d, !bounded || time.Until(end) > d
}

// told tells the hook of a call that no Conn has told it of.
func (cl *Client) told(e *CallError) {
	if cl.cfg.Hooks.CallDone != nil {
		cl.cfg.Hooks.CallDone(CallInfo{Conn: e.Conn, Method: e.Method, Elapsed: e.Elapsed, Err: e})
	}
}

// bound gives a call that began at start the time that it has, with waiting for
// connections and all attempts.
func (cl *Client) bound(ctx context.Context, start time.Time, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); timeout == 0 && !ok {
		timeout = cl.cfg.Timeout
	}
	free := func() {}
	if timeout > 0 {
		ctx, free = context.WithDeadline(ctx, start.Add(timeout))
	}
	return context.WithValue(ctx, beganKey{}, start), free
}

// present returns the connection that stands now; nil when there is none.
func (cl *Client) present() *Conn {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.conn == nil || cl.conn.State() != StateConnected {
		return nil
	}
	return cl.conn
}

// await waits for a connection, for a call that began at start; sent says that the peer
// may have got it before.
func (cl *Client) await(ctx context.Context, start time.Time, sent bool) (*Conn, error) {
	for {
		cl.mu.Lock()
		conn, cause, over, changed := cl.conn, cl.cause, cl.over, cl.changed
		cl.mu.Unlock()
		switch {
		case conn != nil && conn.State() == StateConnected:
			return conn, nil
		case over:
			return nil, &ConnError{Conn: cl.cfg.Name, State: StateDisconnected, Err: cause}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, cl.tooLate(ctx, cause, start, sent)
		}
	}
}

// tooLate says why there was no connection in time for a call that began at start.
func (cl *Client) tooLate(ctx context.Context, cause error, start time.Time, sent bool) error {
	err := ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		err = &TimeoutError{After: given(ctx, start), unsent: !sent}
	}
	if cause == nil {
		return err
	}
	return &waitError{err, &ConnError{
		Conn: cl.cfg.Name, State: StateConnecting,
		Recoverable: AdviceFor(cause) != AdviceGiveUp, // by which run decides whether to go on
		Err:         cause,
	}}
}

// A waitError says how a call ended that waited to be made, and why it had to wait.
type waitError struct{ end, why error }

// Error tells both, on one line, which what errors.Join returns does not.
func (e *waitError) Error() string { return e.end.Error() + "; " + unprefixed(e.why) }

// Unwrap returns both.
func (e *waitError) Unwrap() []error { return []error{e.end, e.why} }

// beganKey finds in the context of an attempt when the call began.
type beganKey struct{}

// given is the time that what began at start, or before with attempts of which this is
// the last, had until the deadline of ctx, which is over.
func given(ctx context.Context, start time.Time) time.Duration {
	if began, ok := ctx.Value(beganKey{}).(time.Time); ok {
		start = began
	}
	end, ok := ctx.Deadline()
	if !ok { // a context that ends without one
		end = time.Now()
	}
	return max(end.Sub(start), 0)
}

// sleep waits for d; an error says that ctx, that of a call that began at start and may
// have been sent, or the Client ended before.
func (cl *Client) sleep(ctx context.Context, start time.Time, sent bool, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-cl.ctx.Done():
		return &ConnError{Conn: cl.cfg.Name, State: StateClosing, Err: ErrClosed}
	case <-ctx.Done():
		return cl.tooLate(ctx, nil, start, sent)
	}
}
