package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"
)

// Call calls a method of the peer and waits for the answer (RPC-7).
//
// params: nil leaves them out; a json.RawMessage is checked and sent as it is,
// and so is what a *json.RawMessage points to, which costs no allocation; an
// io.Reader is streamed, as JSON text, and keeps other messages waiting
// while it is read, and a Read of it that is under way is waited for; everything
// else is encoded by the Codec. They must become an array or an object (JSON-RPC
// 2.0 section 4.2); null is left out.
//
// result: nil drops the result; *json.RawMessage has its storage reused for the
// text; an io.Writer has the text written to it, for results longer than the
// Stream's buffer as it arrives and from the goroutine that reads, never after
// Call returned (a panic of it is the error of the call); everything else is a
// pointer that the Codec decodes into: what is none is refused before anything is
// sent.
//
// ctx bounds the whole of the call, waiting for room to write included; its
// deadline takes the place of Config.Timeout. An error is always a *CallError. When
// ctx ends just as the connection does, it tells of ctx.
func (c *Conn) Call(ctx context.Context, method string, params, result any, opts ...CallOption) error {
	_, err := c.do(ctx, method, params, result, opts)
	return err
}

// do is Call; sent says that the peer may have got the request.
func (c *Conn) do(ctx context.Context, method string, params, result any, opts []CallOption) (sent bool, err error) {
	call := outCall{method: method, start: c.clock.now(), timeout: c.cfg.Timeout}
	if len(opts) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = call.apply(ctx, c.clock, opts)
		defer cancel()
	}
	err = c.call(ctx, &call, params, result)
	if err != nil || c.cfg.Hooks.CallDone != nil {
		err = c.callDone(ctx, &call, err)
	}
	return call.sent, err
}

// An outCall is one call or notification of ours.
type outCall struct {
	method  string
	start   int64 // on the Conn's clock; zero for a notification that has not waited
	timeout time.Duration
	id      uint64 // zero: none yet
	// sent says that some of the message may have reached the Stream.
	sent bool
}

// apply applies the options; start is on clock.
func (call *outCall) apply(ctx context.Context, clock clock, opts []CallOption) (context.Context, context.CancelFunc) {
	var o callOptions
	for _, option := range opts {
		option(&o)
	}
	if o.timeout != 0 {
		call.timeout = -1
	}
	if o.timeout > 0 {
		return context.WithDeadline(ctx, clock.at(call.start).Add(o.timeout))
	}
	return ctx, func() {}
}

// callDone wraps up a call: its error, and the hook.
func (c *Conn) callDone(ctx context.Context, call *outCall, err error) error {
	if err != nil {
		err = c.wrap(ctx, call, err)
	}
	if c.cfg.Hooks.CallDone != nil {
		c.cfg.Hooks.CallDone(CallInfo{
			Conn: c.cfg.Name, Method: call.method, Elapsed: time.Duration(c.clock.now() - call.start), Err: err,
		})
	}
	return err
}

// wrap says which call it was that ended with err (RPC-21).
func (c *Conn) wrap(ctx context.Context, call *outCall, err error) error {
	if _, lost := err.(*ConnError); lost && ctx.Err() != nil { //nolint:errorlint // our own
		// Not a matter of chance, where ctx ends the connection as well: see Start.
		err = c.contextError(ctx, call)
	}
	// One in another is about another call: that whose result the params were, perhaps.
	if lost, ok := err.(*UndeliveredError); ok && lost.NotSent { //nolint:errorlint // see above
		call.sent = false // it reached the Stream, but not the peer
	}
	e := &CallError{Conn: c.cfg.Name, Method: call.method, Sent: call.sent, Err: c.explain(call, err)}
	if call.start != 0 {
		e.Elapsed = time.Duration(c.clock.now() - call.start)
	}
	if call.id != 0 {
		e.ID = ID{string(c.ids.append(nil, call.id))}
	}
	if meta, ok := MetaFrom(ctx); ok {
		e.CorrelationID = meta.CorrelationID
	}
	if e.CorrelationID == "" {
		e.CorrelationID = correlationID(err)
	}
	return e
}

// call makes a call, and returns the bare error.
func (c *Conn) call(ctx context.Context, call *outCall, params, result any) error {
	c.report.calls.Add(1)
	if err := ctx.Err(); err != nil {
		return c.contextError(ctx, call)
	}
	if r, ok := params.(io.Reader); ok {
		var cancel context.CancelFunc
		ctx, cancel = call.bound(ctx)
		defer cancel()
		params = &boundReader{ctx, r}
	}
	out, err := c.encode(params)
	if err != nil {
		return c.readError(ctx, call, err)
	}
	defer c.bufs.put(out.scratch)

	want := awaiting{deadline: c.deadline(ctx, call)}
	if err := want.wants(result); err != nil {
		return err
	}
	s, id, err := c.pending.take(want)
	if err != nil {
		return err
	}
	call.id = id
	if want.deadline != 0 {
		c.armSweep()
	}
	if err := c.sendCall(ctx, s, call, &out); err != nil {
		return err
	}
	if err := c.await(ctx, s, call); err != nil {
		return err
	}
	return c.take(s, result)
}

// sendCall sends a call. When that fails, by a panic of the reader of its params
// as well, the slot is free again.
func (c *Conn) sendCall(ctx context.Context, s *slot, call *outCall, out *outParams) error {
	sent := false
	defer func() {
		if !sent {
			c.giveUp(s, call)
		}
	}()
	err := c.send(ctx, s, call, out)
	sent = err == nil
	return err
}

// deadline is when the sweeper ends the call; zero: never.
func (c *Conn) deadline(ctx context.Context, call *outCall) int64 {
	if call.timeout <= 0 {
		return 0
	}
	if ctx.Done() != nil {
		if _, ok := ctx.Deadline(); ok {
			call.timeout = -1
			return 0
		}
	}
	return max(call.start+int64(call.timeout), 0) // beyond what can be counted is never
}

// wants sets how the result is wanted. What no result can be put into is found before
// the peer is asked, not by the work that it has done in vain.
func (a *awaiting) wants(result any) error {
	switch r := result.(type) {
	case nil:
	case *json.RawMessage:
		if r == nil {
			return noPlace(result)
		}
		a.raw = r
	case io.Writer:
		a.sink, a.keep = &sink{w: r}, true
	default:
		if v := reflect.ValueOf(result); v.Kind() != reflect.Pointer || v.IsNil() {
			return noPlace(result)
		}
		a.keep = true
	}
	return nil
}

// noPlace says that no result can be put into what was given for it.
func noPlace(result any) error {
	return fmt.Errorf("jsonrpc: a result cannot be put into the %T that was given for it: it has to be a pointer, and not nil", result)
}

// await waits until the call is settled. With an error the slot is free again.
func (c *Conn) await(ctx context.Context, s *slot, call *outCall) error {
	var err error
	if c.token.inHand() {
		return c.token.await(ctx, s, call)
	}
	switch done := ctx.Done(); done {
	case nil:
		<-s.done
		err = s.err
	default:
		select {
		case <-s.done:
			err = s.err
		case <-done:
			return c.abandon(ctx, s, call)
		}
	}
	if err != nil {
		c.failed(s, call, err)
	} else if c.token != nil {
		c.token.lent.called(c)
	}
	return err
}

// failed frees the slot of a call that was settled with err by another
// goroutine. Its result may still be on the way: it must not be written any
// more, and the peer is told when nobody waited any longer.
func (c *Conn) failed(s *slot, call *outCall, err error) {
	if s.sink != nil {
		s.sink.close()
	}
	c.pending.release(s)
	if _, late := err.(*TimeoutError); late { //nolint:errorlint // our own, from sweep
		c.tellCancelled(call)
	}
}

// abandon gives up a call whose context has ended, unless it is being settled
// at this moment. With an error the slot is free again.
func (c *Conn) abandon(ctx context.Context, s *slot, call *outCall) error {
	if won, _ := c.pending.settle(call.id); won == nil {
		<-s.done
		err := s.err
		if err != nil {
			c.failed(s, call, err)
		}
		return err
	}
	if s.sink != nil {
		s.sink.close()
	}
	c.pending.release(s)
	c.tellCancelled(call)
	return c.contextError(ctx, call)
}

// giveUp frees the slot of a call that was not sent, however it stands.
func (c *Conn) giveUp(s *slot, call *outCall) {
	if won, _ := c.pending.settle(call.id); won == nil {
		<-s.done
		c.bufs.put(s.answer)
	}
	if s.sink != nil {
		s.sink.close()
	}
	c.pending.release(s)
}

// contextError says how ctx ended.
func (c *Conn) contextError(ctx context.Context, call *outCall) error {
	err := ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		if call.start == 0 { // it has not waited
			return &TimeoutError{}
		}
		return &TimeoutError{After: given(ctx, c.clock.at(call.start))}
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// take hands the result that has come to the caller.
func (c *Conn) take(s *slot, result any) error {
	keep, answer, k := s.keep, s.answer, s.sink
	c.pending.release(s)
	if !keep {
		return nil
	}
	defer c.bufs.put(answer)
	switch {
	case k == nil:
		if err := c.cfg.Codec.Decode(answer.b, result); err != nil {
			return &ResultError{Err: err}
		}
	case answer != nil: // it came whole
		k.write(answer.b)
	}
	if k != nil && k.err != nil {
		return &ResultError{Err: k.err}
	}
	return nil
}

// Notify sends a notification: params are as in Call, nothing comes back. It
// returns when the message is handed over for writing, so that an error of the
// Stream may come too late for it. ctx bounds the wait for room to write.
func (c *Conn) Notify(ctx context.Context, method string, params any) error {
	call := outCall{method: method, timeout: c.cfg.Timeout}
	err := c.notify(ctx, &call, params)
	if err == nil {
		return nil
	}
	return c.wrap(ctx, &call, err)
}

func (c *Conn) notify(ctx context.Context, call *outCall, params any) error {
	c.report.notifications.Add(1)
	if ctx.Err() != nil {
		return c.contextError(ctx, call)
	}
	if c.state.get() != StateConnected {
		if err := c.pending.refused(); err != nil {
			return err
		}
	}
	if r, ok := params.(io.Reader); ok {
		call.start = c.clock.now()
		var cancel context.CancelFunc
		ctx, cancel = call.bound(ctx)
		defer cancel()
		params = &boundReader{ctx, r}
	}
	out, err := c.encode(params)
	if err != nil {
		return c.readError(ctx, call, err)
	}
	defer c.bufs.put(out.scratch)
	return c.send(ctx, nil, call, &out)
}
