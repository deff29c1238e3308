package jsonrpc

import (
	"context"
	"errors"
	"io"
	"slices"
)

// A Batch is a number of calls and notifications that are sent as one array
// (JSON-RPC 2.0 section 6). The zero value is empty and ready to use. It is
// filled by one goroutine and sent once, by Conn.Batch or Client.Batch.
type Batch struct {
	calls []*BatchCall
	slab  []BatchCall // to be given out: fewer and larger allocations
}

// A BatchCall is one call or notification of a Batch.
type BatchCall struct {
	method         string
	params, result any
	notification   bool
	err            error

	// While it is under way.
	call outCall
	slot *slot
}

// Err returns nil when the call was answered and its result taken, or sent if
// it is a notification, and a *CallError otherwise. Before the Batch was sent it
// is nil.
func (b *BatchCall) Err() error { return b.err }

// Call adds a call. params and result are those of Conn.Call; params that are an
// io.Reader are read into memory.
func (b *Batch) Call(method string, params, result any) *BatchCall {
	return b.add(BatchCall{method: method, params: params, result: result})
}

// Notify adds a notification.
func (b *Batch) Notify(method string, params any) *BatchCall {
	return b.add(BatchCall{method: method, params: params, notification: true})
}

func (b *Batch) add(e BatchCall) *BatchCall {
	if len(b.slab) == cap(b.slab) {
		n := min(max(4*cap(b.slab), 4), 64)
		b.slab = make([]BatchCall, 0, n)
		if cap(b.calls)-len(b.calls) < n {
			b.calls = slices.Grow(b.calls, max(n, 3*len(b.calls)))
		}
	}
	b.slab = append(b.slab, e)
	p := &b.slab[len(b.slab)-1]
	b.calls = append(b.calls, p)
	return p
}

// once says that some of the params can be read only once.
func (b *Batch) once() bool {
	return slices.ContainsFunc(b.calls, func(e *BatchCall) bool {
		_, ok := e.params.(io.Reader)
		return ok
	})
}

// writes says that some of the results go to an io.Writer.
func (b *Batch) writes() bool {
	return slices.ContainsFunc(b.calls, func(e *BatchCall) bool {
		_, ok := e.result.(io.Writer)
		return ok
	})
}

// sent says that the peer may have got the batch, which was written: none of its
// calls knows better.
func (b *Batch) sent() bool {
	return !slices.ContainsFunc(b.calls, func(e *BatchCall) bool {
		lost, ok := errors.AsType[*UndeliveredError](e.err)
		return ok && lost.NotSent
	})
}

// failed returns the error of an entry that may come through when the batch is
// made again; nil when there is none.
func (b *Batch) failed() error {
	for _, e := range b.calls {
		if repeatable(e.err) {
			return e.err
		}
	}
	return nil
}

// Len returns the number of entries.
func (b *Batch) Len() int { return len(b.calls) }

// Batch sends the entries of b as one message and waits until each of its calls
// is answered, or has timed out by itself. The answers may come in any order,
// in one array or in several messages. An empty Batch sends nothing.
//
// It returns an error, and then every entry has one, when the batch was not
// sent as a whole: a *CallError with the method "batch". What became of the
// entries otherwise is said by BatchCall.Err.
func (c *Conn) Batch(ctx context.Context, b *Batch, opts ...CallOption) error {
	_, err := c.batch(ctx, b, opts)
	return err
}

// batch is Batch; sent says that the peer may have got it.
func (c *Conn) batch(ctx context.Context, b *Batch, opts []CallOption) (sent bool, err error) {
	if len(b.calls) == 0 {
		return false, nil
	}
	all := outCall{method: "batch", start: c.clock.now(), timeout: c.cfg.Timeout}
	if len(opts) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = all.apply(ctx, c.clock, opts)
		defer cancel()
	}
	defer b.giveUp(c) // for params and results that panic
	if err := c.sendBatch(ctx, b, &all); err != nil {
		b.giveUp(c)
		for _, e := range b.calls {
			e.call = outCall{method: e.method, start: all.start}
			e.finish(ctx, c, err)
		}
		return false, c.wrap(ctx, &all, err)
	}
	for _, e := range b.calls {
		if e.notification {
			e.err = nil // that of an attempt before, which did not come so far
			continue
		}
		e.call.sent = true
		s := e.slot
		e.slot = nil
		err := c.await(ctx, s, &e.call)
		if err == nil {
			err = c.take(s, e.result)
		}
		e.finish(ctx, c, err)
	}
	return true, nil
}

// giveUp frees the slots that entries still have.
func (b *Batch) giveUp(c *Conn) {
	for _, e := range b.calls {
		if e.slot != nil {
			c.giveUp(e.slot, &e.call)
			e.slot = nil
		}
	}
}

// finish sets what became of the entry: of a notification, why it was not sent.
func (b *BatchCall) finish(ctx context.Context, c *Conn, err error) {
	if b.notification {
		b.err = c.wrap(ctx, &b.call, err)
	} else {
		b.err = c.callDone(ctx, &b.call, err)
	}
}

// sendBatch gives every call a slot and writes the array.
func (c *Conn) sendBatch(ctx context.Context, b *Batch, all *outCall) error {
	if len(b.calls) > c.cfg.MaxBatch {
		return &ResourceError{What: "batch", Limit: c.cfg.MaxBatch, Unit: unitEntries}
	}
	if ctx.Err() != nil {
		return c.contextError(ctx, all)
	}
	reading := ctx
	if b.once() {
		var cancel context.CancelFunc
		reading, cancel = all.bound(ctx)
		defer cancel()
	}
	text := c.bufs.get()
	defer c.bufs.put(text)
	dst := append(text.b[:0], '[')
	deadline := c.deadline(ctx, all)
	meta := c.metaToSend(ctx)
	for i, e := range b.calls {
		if i > 0 {
			dst = append(dst, ',')
		}
		e.call = outCall{method: e.method, start: all.start, timeout: all.timeout}
		if r, ok := e.params.(io.Reader); ok {
			e.params = &boundReader{reading, r}
		}
		var err error
		if dst, err = c.appendEntry(dst, e, deadline, meta); err != nil {
			return c.readError(reading, all, err)
		}
	}
	dst = append(dst, ']')
	text.b = dst
	if deadline != 0 {
		c.armSweep()
	}
	if err := c.w.lock(ctx, all.timeout, sendsCall, len(dst)); err != nil {
		return c.sendError(ctx, all, err)
	}
	for _, e := range b.calls {
		if e.slot != nil {
			e.slot.sent = extent{id: e.call.id, bytes: len(dst), entries: len(b.calls)}
		}
	}
	start := len(c.w.buf)
	c.w.buf = endLine(append(c.w.buf, dst...), start)
	c.w.flush(false)
	return nil
}

// appendEntry appends one entry, and takes a slot for it if it is a call.
func (c *Conn) appendEntry(dst []byte, e *BatchCall, deadline int64, meta *Meta) ([]byte, error) {
	out, err := c.encode(e.params)
	if err == nil && out.stream != nil {
		err = c.readRest(&out)
	}
	defer c.bufs.put(out.scratch)
	if err != nil {
		return dst, err
	}
	var id [uuidText]byte
	o := outgoing{method: e.method, params: out.raw, meta: meta}
	if e.notification {
		c.report.notifications.Add(1)
	} else {
		c.report.calls.Add(1)
		want := awaiting{deadline: deadline}
		if err := want.wants(e.result); err != nil {
			return dst, err
		}
		if e.slot, e.call.id, err = c.pending.take(want); err != nil {
			return dst, err
		}
		o.id = c.ids.append(id[:0], e.call.id)
	}
	return appendRequest(dst, &o), nil
}
