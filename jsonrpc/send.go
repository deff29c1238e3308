package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
)

// outParams are the params of a message of ours, ready to be written.
type outParams struct {
	raw     []byte    // checked; nil when absent
	scratch *buffer   // what raw points into, to be given back; may be nil
	stream  io.Reader // the rest of params, which begin with raw; nil when raw is all
	check   *valueChecker
}

// encode makes the JSON text of params.
func (c *Conn) encode(params any) (outParams, error) {
	switch p := params.(type) {
	case nil:
		return outParams{}, nil
	case json.RawMessage:
		return c.encodeRaw(p)
	case *json.RawMessage:
		if p == nil {
			return outParams{}, nil
		}
		return c.encodeRaw(*p)
	case io.Reader:
		return c.encodeReader(p)
	}
	out := outParams{scratch: c.bufs.get()}
	text, err := appendWithin(c.cfg.Codec, out.scratch.b[:0], params, c.cfg.MaxDepth-1)
	if err != nil {
		c.bufs.put(out.scratch)
		return outParams{}, err
	}
	out.scratch.b, out.raw = text, text
	out, err = shaped(out)
	if err != nil {
		c.bufs.put(out.scratch)
		out.scratch = nil
	}
	return out, err
}

// encodeRaw takes a JSON text that the caller made.
func (c *Conn) encodeRaw(text json.RawMessage) (outParams, error) {
	if len(text) == 0 {
		return outParams{}, nil
	}
	if !c.cfg.TrustRaw {
		if err := checkValue(text, c.cfg.MaxDepth-1); err != nil {
			return outParams{}, err
		}
	}
	return shaped(outParams{raw: text})
}

// A boundReader is a reader of params that ends with the call: it may give a
// little now and then, for ever.
type boundReader struct {
	ctx context.Context //nolint:containedctx // of the call, in which alone it is read
	r   io.Reader
}

func (b *boundReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

// bound gives a call whose params are read the time that it has.
func (call *outCall) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || call.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, call.timeout)
}

// readError says that params could not be had since their time was over, if
// that is what err means.
func (c *Conn) readError(ctx context.Context, call *outCall, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return c.contextError(ctx, call)
	}
	return err
}

// encodeReader reads as much of params as fits a piece, so that short ones
// are sent like any others.
func (c *Conn) encodeReader(r io.Reader) (outParams, error) {
	out := outParams{scratch: c.bufs.get(), check: newStreamChecker(&c.cfg)}
	more, err := beginStream(r, out.scratch, out.check)
	if err == nil {
		out.raw = out.scratch.b
		out, err = shaped(out)
	}
	if err != nil {
		c.bufs.put(out.scratch)
		return outParams{}, err
	}
	if more {
		out.stream = r
	}
	return out, nil
}

// readRest reads streamed params into memory.
func (c *Conn) readRest(out *outParams) error {
	text, err := readRest(out.scratch.b, out.stream, out.check)
	out.scratch.b, out.raw, out.stream = text, text, nil
	return err
}

// shaped checks that params are an array or an object (JSON-RPC 2.0 section
// 4.2), and leaves out null.
func shaped(out outParams) (outParams, error) {
	absent, err := checkParams(out.raw)
	if absent {
		out.raw = nil
	}
	return out, err
}

// send appends a message to the write buffer, waiting for room, and sees to it
// that it gets written. Without an id it is a notification, which has no slot and
// may wait a moment for others; for a call somebody waits.
func (c *Conn) send(ctx context.Context, s *slot, call *outCall, out *outParams) error {
	var id [uuidText]byte
	o := outgoing{method: call.method, params: out.raw}
	if call.id != 0 {
		o.id = c.ids.append(id[:0], call.id)
	}
	o.meta = c.metaToSend(ctx)
	w, what := c.w, sendsCall
	if s == nil {
		what = sendsNotification
	}
	if !w.lockNow(what) {
		if call.start == 0 {
			call.start = c.clock.now()
		}
		if _, ok := ctx.Deadline(); ok { // which takes the place of the Conn's
			call.timeout = -1
		}
		if err := w.lock(ctx, call.timeout, what, o.size()); err != nil {
			return c.sendError(ctx, call, err)
		}
	}
	call.sent = true
	start := len(w.buf)
	if out.stream != nil {
		w.buf = append(appendRequestHead(w.buf, &o), paramsKey...)
		var sent *extent
		if s != nil {
			s.sent = extent{id: call.id, bytes: len(w.buf) - start}
			sent = &s.sent
		}
		err := w.streamLocked(ctx, out.raw, out.stream, out.check, sent)
		return c.sendError(ctx, call, err)
	}
	w.buf = endLine(appendRequest(w.buf, &o), start)
	if s == nil {
		w.flushLater()
	} else {
		s.sent = extent{id: call.id, bytes: len(w.buf) - start - 1}
		w.flush(c.pending.count.Load() > 1)
	}
	return nil
}

// metaToSend returns the metadata that goes out with a message; nil: none.
func (c *Conn) metaToSend(ctx context.Context) *Meta {
	if !c.cfg.SendMeta {
		return nil
	}
	if meta, ok := MetaFrom(ctx); ok {
		return &meta
	}
	return nil
}

// sendError turns the error of waiting for room into what a caller gets.
func (c *Conn) sendError(ctx context.Context, call *outCall, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return c.contextError(ctx, call)
	case errors.Is(err, context.DeadlineExceeded):
		return &TimeoutError{After: call.timeout}
	}
	return err
}
