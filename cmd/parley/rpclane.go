package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

const (
	sideA = "A"
	sideB = "B"

	// traceKeep bounds what is kept of a message that comes in parts, for its
	// trace, in bytes.
	traceKeep = 1 << 20
	// maxInFlight bounds the requests whose answers are waited for in the
	// trace of one direction. The oldest is forgotten first.
	maxInFlight = 4096
	// maxTracedID bounds the ids that are remembered, in bytes.
	maxTracedID = 256
	// drainTime bounds the wait for answers after side A has said all it has
	// to say.
	drainTime = 10 * time.Second
)

// sideError says which side of a proxied connection ended it, and why.
type sideError struct {
	side string
	err  error
}

func (e *sideError) Error() string { return "side " + e.side + ": " + e.err.Error() }

func (e *sideError) Unwrap() error { return e.err }

// hungUp reports whether the side ended the connection in good order.
func (e *sideError) hungUp() bool { return errors.Is(e.err, io.EOF) }

// carry passes the messages of one connection on in both directions until a
// side ends it, and closes both. When A has nothing more to say, what it asked
// for is still answered. Nothing is kept beyond the message at hand, so that a
// slow side slows the other. The result names the side that ended it; it is nil
// if that was the end of ctx, or of A with every request answered.
func carry(ctx context.Context, t *tracer, conn int, a, b jsonrpc.Stream) error {
	closeBoth := func() { _ = b.Close(); _ = a.Close() }
	stop := context.AfterFunc(ctx, closeBoth)
	defer stop()
	asked, back := newInFlight(), newInFlight()
	there := &lane{trace: t, conn: conn, from: sideA, to: sideB, src: a, dst: b, asked: asked, other: back}
	here := &lane{trace: t, conn: conn, from: sideB, to: sideA, src: b, dst: a, asked: back, other: asked}
	var wg sync.WaitGroup
	ends := make(chan *sideError, 2)
	wg.Go(func() { ends <- there.run() })
	wg.Go(func() { ends <- here.run() })
	end := <-ends
	if end.side == sideA && end.hungUp() {
		if half, ok := b.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		late := time.NewTimer(drainTime)
		select {
		case <-asked.drained():
			end = nil
		case end = <-ends:
		case <-late.C:
			if open := asked.open(); open != "" {
				end = &sideError{sideB, fmt.Errorf("no answer to %s within %s of the last that side A had to say", open, drainTime)}
			}
		case <-ctx.Done():
		}
		late.Stop()
	}
	closeBoth()
	wg.Wait()
	if ctx.Err() != nil || end == nil || end.hungUp() && asked.none() {
		return nil
	}
	return end
}

// lane is one direction of a proxied connection. It belongs to the goroutine
// of its run.
type lane struct {
	trace    *tracer
	conn     int
	from, to string
	src, dst jsonrpc.Stream
	// asked holds the requests that went this way, other those that are
	// answered this way.
	asked, other *inFlight

	size int64  // of the message at hand so far
	kept []byte // its beginning, if it comes in parts
	buf  []byte
}

// run passes messages on until a side fails.
func (l *lane) run() *sideError {
	for {
		part, err := l.src.Read()
		if u, ok := errors.AsType[*jsonrpc.UndeliveredError](err); ok {
			if err := l.lost(u); err != nil {
				return &sideError{l.to, err}
			}
			continue
		}
		if err != nil {
			return &sideError{l.from, err}
		}
		if err := l.pass(part); err != nil {
			return &sideError{l.to, err}
		}
	}
}

// pass writes one part of a message to the other side, and tells about the
// message before its last part goes.
func (l *lane) pass(part jsonrpc.Part) error {
	l.size += int64(len(part.Data))
	l.buf = asLine(l.buf[:0], part)
	text := part.Data
	if !part.End || l.size > int64(len(part.Data)) {
		l.kept = append(l.kept, part.Data[:min(len(part.Data), traceKeep-len(l.kept))]...)
		text = l.kept
	}
	var s sketch
	if part.End {
		if part.Void {
			l.tellCut(text)
		} else {
			s = l.tell(text)
		}
		l.size = 0
		if cap(l.kept) > 64<<10 {
			l.kept = nil
		}
		l.kept = l.kept[:0]
	}
	if part.Void {
		return l.cut()
	}
	if s.refused {
		return nil
	}
	if _, err := l.dst.Write(l.buf); err != nil {
		return err
	}
	l.other.answered(s.answers)
	if src, ok := l.src.(interface{ passed(sketch) }); ok && part.End {
		src.passed(s)
	}
	return nil
}

// cut ends a message of which the source has lost the rest. It answers nothing: the whole
// message, or an error, is still to come. Who has passed none of it on drops it.
func (l *lane) cut() error {
	if dst, ok := l.dst.(interface{ drop() }); ok {
		dst.drop()
		return nil
	}
	_, err := l.dst.Write(l.buf)
	return err
}

// tellCut writes a message of which the rest was lost into the trace.
func (l *lane) tellCut(text []byte) {
	r := traceRecord{
		At: l.trace.now(), Conn: l.conn, From: l.from, To: l.to, Kind: kindMalformed, Size: l.size,
		Fault: "cut: its rest was lost; it comes again, or an error does",
	}
	r.Text, _ = excerpt(l.trace.redactor, text, l.trace.limit, false)
	r.Cut = true
	l.trace.write(r)
}

// asLine appends a part as Stream.Write wants it. A line feed within a message
// is no newline of ours: it becomes a carriage return, which is white space to
// JSON between its tokens, and as wrong as before within a string.
func asLine(dst []byte, part jsonrpc.Part) []byte {
	dst = append(dst, part.Data...)
	for rest := dst; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		rest[i] = '\r'
		rest = rest[i+1:]
	}
	if part.End {
		dst = append(dst, '\n')
	}
	return dst
}

// tell writes a message into the trace.
func (l *lane) tell(text []byte) sketch {
	now := l.trace.now()
	s := newSketch(text, l.size == int64(len(text)))
	r := traceRecord{
		At: now, Conn: l.conn, From: l.from, To: l.to, Kind: s.kind, Method: s.method, ID: s.id, Code: s.code,
		Entries: s.entries, Size: l.size, Fault: s.fault,
	}
	if dst, ok := l.dst.(interface{ refuse(sketch) string }); ok {
		if why := dst.refuse(s); why != "" {
			r.Fault, s.refused = why, true
		}
	}
	r.Text, r.Cut = excerpt(l.trace.redactor, text, l.trace.limit, s.kind != kindMalformed)
	r.Cut = r.Cut || r.Text != "" && l.size > int64(len(text))
	if s.kind == kindLarge || s.unsure {
		l.asked.addUnknown()
	}
	l.asked.add(s.asks, now, l.size > int64(len(text)))
	for _, id := range s.answers {
		if sent, ok := l.other.find(id); ok {
			r.took = now.Sub(sent.at)
			r.Elapsed = new(float64(r.took.Microseconds()) / 1000)
			if s.kind != kindBatch {
				r.Method = sent.method
			}
			break
		}
	}
	l.trace.write(r)
	return s
}

// lost tells about a message that came from the other side and could not be
// delivered to this one, and answers the requests in it: nobody else will.
func (l *lane) lost(u *jsonrpc.UndeliveredError) error {
	s := newSketch(u.Message, true)
	text, cut := excerpt(l.trace.redactor, u.Message, l.trace.limit, s.kind != kindMalformed)
	l.trace.write(traceRecord{
		At: l.trace.now(), Conn: l.conn, From: l.to, To: l.from, Kind: kindLost, Method: s.method, ID: s.id,
		Entries: s.entries, Size: int64(len(u.Message)), Fault: l.trace.redactor.String(u.Err.Error()), Text: text, Cut: cut,
	})
	if len(s.asks) == 0 {
		return nil
	}
	type answer struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   wireError       `json:"error"`
	}
	fault := wireError{Code: jsonrpc.CodeInternalError, Message: "the proxy could not deliver the request to side " + l.from}
	if e, ok := errors.AsType[*jsonrpc.Error](u.Err); ok { // the side refused it, without naming its id
		fault = wireError{e.Code, e.Message, e.Data}
	}
	var all []answer
	var ids []string
	for _, q := range s.asks {
		all = append(all, answer{"2.0", json.RawMessage(q.id), fault})
		ids = append(ids, q.id)
	}
	var v any = all
	if s.kind != kindBatch {
		v = all[0]
	}
	b, err := toJSON(v)
	if err != nil {
		return err
	}
	if _, err := l.dst.Write(append(b, '\n')); err != nil {
		return err
	}
	l.other.answered(ids)
	return nil
}

// inFlight holds the requests of one direction that were not answered yet. Its
// methods may be called concurrently.
type inFlight struct {
	mu   sync.Mutex
	sent map[string]sentRequest // guarded by mu
	// unsure: a request went by that is not remembered; unknown are the large messages
	// that may have been one.
	unsure  bool // guarded by mu
	unknown int  // guarded by mu
	// unseen are the answers that went by without their ids. Each is to one of sent, or of
	// unknown; which one is not known.
	unseen int           // guarded by mu
	empty  chan struct{} // closed when sent and unknown have had their answers; guarded by mu
}

type sentRequest struct {
	at     time.Time
	method string
	// times that the id was sent without an answer in between.
	times int
	// large: it may be refused for its size, which is answered without its id.
	large bool
}

func newInFlight() *inFlight { return &inFlight{sent: map[string]sentRequest{}} }

// addUnknown remembers that a large message went by that may have been a request.
func (f *inFlight) addUnknown() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unknown++
}

// add remembers requests, large ones if only the beginning of their message was seen.
func (f *inFlight) add(asks []asked, now time.Time, large bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range asks {
		if len(q.id) > maxTracedID {
			f.unsure = true
			continue
		}
		again, ok := f.sent[q.id]
		if !ok && len(f.sent) >= maxInFlight {
			f.forgetOldestLocked()
		}
		f.sent[q.id] = sentRequest{now, clip(q.method, nameColumn*2), again.times + 1, large}
	}
}

func (f *inFlight) forgetOldestLocked() {
	oldest, at := "", time.Time{}
	for id, s := range f.sent {
		if at.IsZero() || s.at.Before(at) {
			oldest, at = id, s.at
		}
	}
	delete(f.sent, oldest)
	f.unseen = max(f.unseen-1, 0) // most likely it was that one's
}

// find gives the request that an answer belongs to.
func (f *inFlight) find(id string) (sentRequest, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.sent[id]
	return s, ok
}

// answered forgets requests whose answers were passed on.
func (f *inFlight) answered(ids []string) {
	if len(ids) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		if id == unseenID {
			f.unseen++
			continue
		}
		s, ok := f.sent[id]
		if !ok {
			if id, ok = f.refusedLocked(id); !ok {
				continue
			}
			s = f.sent[id]
		}
		if s.times--; s.times > 0 {
			f.sent[id] = s
		} else if ok {
			delete(f.sent, id)
		}
	}
	if f.empty != nil && f.awaitedLocked()+f.unknown <= f.unseen {
		close(f.empty)
		f.empty = nil
	}
}

// awaitedLocked counts the requests that are remembered.
func (f *inFlight) awaitedLocked() (n int) {
	for _, s := range f.sent {
		n += s.times
	}
	return n
}

// refusedLocked gives the request that an answer with an unknown id is likely to be
// for: with the id null the oldest large one, which its receiver has not read to its
// id; else a large message whose id was not seen here.
func (f *inFlight) refusedLocked(answer string) (id string, ok bool) {
	var at time.Time
	for open, s := range f.sent {
		if answer == "null" && s.large && (!ok || s.at.Before(at)) {
			id, at, ok = open, s.at, true
		}
	}
	if !ok && f.unknown > 0 {
		f.unknown--
	}
	return id, ok
}

// open names the requests that were not answered, a few at most; "" is none.
func (f *inFlight) open() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	const most = 5
	var names []string
	for id, s := range f.sent {
		names = append(names, strings.TrimSpace(s.method+" id "+clip(id, nameColumn)))
	}
	slices.Sort(names)
	if n := len(names) - most; n > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, ", ")
}

// none reports whether every request was answered.
func (f *inFlight) none() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.awaitedLocked() <= f.unseen
}

// drained is closed when every request is answered, and never if nobody can
// tell. It is called once.
func (f *inFlight) drained() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{})
	switch {
	case f.unsure:
	case f.awaitedLocked()+f.unknown <= f.unseen:
		close(c)
	default:
		f.empty = c
	}
	return c
}
