package jsonrpc

import (
	"errors"
	"io"
	"os"
	"time"
)

// A receiver takes what the Stream gives and puts it where it belongs. It is
// used by one goroutine at a time: the reading one, or with Config.CallerReads
// the caller whose turn it is.
type receiver struct {
	c        *Conn
	msg      message
	entries  []message // of the batch at hand
	filled   []*slot   // of calls that the batch at hand answers, to be told
	spare    *batch    // for the next one; nil: it needs its own
	names    map[string]string
	nameBuf  [maxNameLen]byte
	inline   job // the request being handled inline
	contexts contextSlab
	unsent   bool // answers were appended and not flushed
	enough   int  // bytes of answers that do not wait for further messages
	more     bool // the rest of a message is to come, or the next one is there
	assembly assembly
}

// Bounds of the table of method names, which saves a copy of the name for each
// request; a peer that sends other names all the time gets its copies.
const (
	maxNames   = 256 // names
	maxNameLen = 64  // bytes
)

// Answers wait for further messages that are there already, so that many go out
// in one write. The first of them go out early all the same, then twice as many
// each time: with all in one write the peer would have nothing to do while they
// are made, and nor would we while the peer takes them in.
const (
	firstFlush = 2 << 10  // bytes of answers that do not wait any longer
	lastFlush  = 32 << 10 // the same, after many
)

// read is the goroutine that reads, until the Stream ends.
func (c *Conn) read() {
	err := errReaderGone
	defer func() { // deferred for handlers that call runtime.Goexit
		c.in.assembly.breakOff(err)
		c.end(err, !isHangUp(err))
	}()
	for {
		err = c.in.next()
		switch {
		case err == nil:
		case c.token != nil && errors.Is(err, os.ErrDeadlineExceeded): // else it would come again at once
			c.interrupted()
		default:
			return
		}
	}
}

// errReaderGone ends a connection when whoever read it was ended by what it had to
// run: an inline handler that called runtime.Goexit, as testing's FailNow does.
var errReaderGone = errors.New("jsonrpc: a handler ended the goroutine that reads")

// isHangUp says that the peer sends no more, but may well wait for the answers
// to what it has sent.
func isHangUp(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// interrupted lends reading to callers, if that is what the goroutine that
// reads was interrupted for.
func (c *Conn) interrupted() {
	_ = c.token.stream.SetReadDeadline(time.Time{})
	if c.in.assembly.params == nil { // else a caller could have to wait for a handler
		c.token.lent.lend(c)
	}
}

// next reads the next part of a message and handles it. An error is the end of
// the Stream.
func (in *receiver) next() error {
	part, err := in.c.stream.Read()
	if err != nil {
		if lost, ok := errors.AsType[*UndeliveredError](err); ok {
			in.c.undelivered(lost)
			return nil
		}
		return err
	}
	in.more = part.More || !part.End
	switch {
	case part.Void:
		in.takeBack()
	case part.End && in.assembly.empty():
		in.whole(part.Data)
	default:
		in.part(part)
	}
	if in.unsent && (!part.More || !part.End) {
		in.flush()
	}
	return nil
}

// flush sees to it that the answers get written.
func (in *receiver) flush() {
	in.unsent, in.enough = false, firstFlush
	in.c.w.mu.Lock()
	in.c.w.flush(false)
}

// whole handles a message that is there as a whole.
func (in *receiver) whole(text []byte) {
	if len(text) > in.c.cfg.MaxMessage {
		s := in.skimmer()
		s.take(text)
		in.oversize(&s)
		return
	}
	m := &in.msg
	m.scan(text, in.c.cfg.MaxDepth)
	if m.kind == kindBatch {
		in.batch(text)
		return
	}
	switch m.kind {
	case kindRequest, kindNotification:
		in.request(m)
	case kindResult, kindError:
		in.c.settle(m)
	default:
		in.refuse(m)
	}
	if poison {
		overwrite(m.params)
	}
}

// refuse answers what is no message, and goes on (RPC-4, RPC-5, RPC-25). What
// can only be a response to a call of ours ends that call instead. A client
// answers nothing of the kind: see Config.IgnoreInvalid.
func (in *receiver) refuse(m *message) {
	e := m.fail()
	kind := NoticeInvalid
	if m.kind == kindMalformed {
		kind = NoticeMalformed
	}
	in.c.report.notice(kind, e)
	if in.c.badResponse(m) {
		return
	}
	if !in.c.ignoresInvalid() {
		in.answer(m.answerID(), &response{err: e})
	}
}

// answer appends a response to the write buffer; it is flushed when no further
// message is there, or enough wait.
func (in *receiver) answer(id []byte, r *response) {
	w := in.c.w
	if w.lockAnswer() != nil {
		return
	}
	out := w.answers()
	start := len(*out)
	*out = endLine(r.append(*out, id), start)
	in.appended(len(*out))
}

// appended unlocks the writer after an answer was appended.
func (in *receiver) appended(waiting int) {
	if waiting < in.enough {
		in.c.w.mu.Unlock()
		in.unsent = true
		return
	}
	in.c.w.flush(false)
	in.unsent, in.enough = false, min(2*in.enough, lastFlush)
}

// name returns the message's method: its bytes, and as a string.
func (in *receiver) name(m *message) (raw []byte, name string) {
	raw = m.methodName(in.nameBuf[:0])
	if name, ok := in.names[string(raw)]; ok {
		return raw, name
	}
	name = string(raw)
	if len(in.names) < maxNames && len(name) <= maxNameLen {
		if in.names == nil {
			in.names = make(map[string]string)
		}
		in.names[name] = name
	}
	return raw, name
}

// request has a request or a notification handled.
func (in *receiver) request(m *message) {
	s := in.c.srv
	raw, name := in.name(m)
	switch {
	case s.running.cancels(m, name):
	case in.c.state.get() != StateConnected:
		if m.kind == kindRequest {
			in.answer(m.id, &response{err: &Error{Code: CodeClosing, Message: CodeClosing.String()}})
		}
	case s.inlines(raw):
		j := &in.inline
		s.fill(j, m, name)
		s.begin(s.base, &in.contexts, j)
		result, err := s.handle(j)
		in.answerInline(j, result, err)
	default:
		j := s.newJob(m, name)
		s.begin(s.base, &in.contexts, j)
		if !s.pool.submitSoon(j) {
			in.busy(j)
		}
	}
}

// busy refuses a job for want of handlers (RPC-23).
func (in *receiver) busy(j *job) {
	s := in.c.srv
	s.running.remove(j.req.id, j.req.ctx)
	e := s.busy(&j.req)
	if !j.req.IsNotification() {
		in.answer(j.req.id, &response{err: e})
	}
	s.free(j)
}

// answerInline answers a request on the goroutine that reads.
func (in *receiver) answerInline(j *job, result any, err error) {
	s := in.c.srv
	defer s.closeResult(&j.req, result)
	if j.req.IsNotification() {
		s.dropped(&j.req, err)
		return
	}
	r := s.respond(&j.req, result, err)
	if r.stream != nil {
		// Writing it piece by piece could mean to wait for a peer that waits
		// for us to read.
		r = s.readAll(&j.req, r)
	}
	in.answer(j.req.id, &r)
	s.bufs.put(r.scratch)
}
