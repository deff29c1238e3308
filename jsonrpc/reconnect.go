package jsonrpc

import (
	"context"
	"fmt"
	"io"
	"time"
)

// set makes conn the present connection, or cause the reason why there is none.
func (cl *Client) set(conn *Conn, cause error, over bool) {
	cl.mu.Lock()
	cl.conn, cl.cause, cl.over = conn, cause, over
	close(cl.changed)
	cl.changed = make(chan struct{})
	cl.mu.Unlock()
}

// run is the goroutine that connects, again and again.
func (cl *Client) run() {
	failures, idle := 0, 0 // since a connection stood for a while, or did its work; idle are no reason to give up
	for {
		conn, release, err := cl.connect()
		if err == nil {
			began := time.Now()
			// The state first: a call that had its result is not to see another one.
			cl.state.set(StateConnected, nil, notEnded)
			cl.set(conn, nil, false)
			err = cl.watch(conn, release)
			switch stood := time.Since(began); {
			case stood >= cl.cfg.MaxBackoff || conn.didItsWork():
				failures, idle = 0, 0
			case stood >= idleAfter && conn.wasIdle():
				idle++
			}
		}
		failures++
		cl.set(nil, err, false)
		if cl.ctx.Err() != nil || AdviceFor(err) == AdviceGiveUp || cl.cfg.MaxDials > 0 && failures-idle > cl.cfg.MaxDials {
			cl.giveUp(err)
			return
		}
		cl.state.set(StateDisconnected, err, notEnded)
		cl.state.set(StateConnecting, err, func(from State) bool { return from == StateDisconnected })
		_ = cl.sleep(cl.ctx, time.Now(), false, cl.backoff(failures)) // the next attempt looks whether it is over
	}
}

// didItsWork says of a connection that has ended whether the peer closed it in order
// after a call had a result, as servers do that take one call per connection. Another
// dial is paid for by a call then; one that breaks, or answers errors only, may do so
// again and again.
func (c *Conn) didItsWork() bool {
	return c.useful.Load() && c.cause == io.EOF //nolint:errorlint // that of a program that failed has one in it
}

// idleAfter is how long a connection has to stand to be ended for being idle: what the
// peer closes sooner it never took.
const idleAfter = time.Second

// wasIdle says of a connection that has ended whether the peer closed it in order before
// anything was sent on it, as servers do with those that nobody uses. Nothing has failed
// then that anybody wanted.
func (c *Conn) wasIdle() bool {
	return c.cause == io.EOF && c.report.calls.Load() == 0 && c.report.notifications.Load() == 0 //nolint:errorlint // see above
}

// notEnded says whether nobody has closed the Client.
func notEnded(from State) bool { return from < StateClosing }

// connect dials once. Its context outlives it, since that of a Subprocess is how
// long the program may run; release ends it, when the connection has ended.
func (cl *Client) connect() (conn *Conn, release context.CancelFunc, err error) {
	if err := cl.ctx.Err(); err != nil {
		return nil, nil, err
	}
	ctx, release := context.WithCancel(context.Background())
	late := time.AfterFunc(cl.cfg.DialTimeout, release)
	closed := context.AfterFunc(cl.ctx, release)
	s, err := cl.dial(ctx)
	inTime, open := late.Stop(), closed()
	if err == nil && inTime && open {
		return NewConn(s, cl.configFor(s)), release, nil
	}
	release()
	if err == nil {
		_ = s.Close() // its context has ended
		err = ctx.Err()
	}
	if !inTime {
		err = fmt.Errorf("%w: %w", &TimeoutError{After: cl.cfg.DialTimeout}, err)
	}
	return nil, nil, err
}

// configFor returns the Config of a connection over s, which may be of another kind
// than the one before: a panic of NewConn would be one of this goroutine.
func (cl *Client) configFor(s Stream) Config {
	cfg := cl.cfg.Config
	if _, ok := s.(readDeadliner); !ok {
		cfg.CallerReads = false
	}
	return cfg
}

// watch waits until the connection is of no more use, and returns why. What
// handlers still run on it have their grace beside the next connection.
func (cl *Client) watch(conn *Conn, release context.CancelFunc) error {
	end := func() {
		_ = conn.Close()
		release()
	}
	select {
	case <-conn.down:
		cl.tasks.Go(end)
		return conn.connError(StateDisconnected)
	case <-cl.ctx.Done():
		end()
		return ErrClosed
	}
}

// giveUp ends the Client for good.
func (cl *Client) giveUp(cause error) {
	if cl.ctx.Err() != nil {
		cause = ErrClosed
	}
	// First, since calls end when they hear that it is over.
	cl.state.set(StateDisconnected, cause, func(from State) bool { return from != StateDisconnected })
	cl.set(nil, cause, true)
}

// backoff is the pause after so many failures: MinBackoff, doubled with every
// failure up to MaxBackoff, less up to half of it by chance.
func (cl *Client) backoff(failures int) time.Duration {
	d, most := cl.cfg.MinBackoff, cl.cfg.MaxBackoff
	for n := 1; n < failures && d < most; n++ {
		d += min(d, most-d) // twice the largest there are would be negative
	}
	d = min(d, most)
	return d - time.Duration(cl.cfg.Random()*float64(d)/2)
}
