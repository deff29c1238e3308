package jsonrpc

import (
	"context"
	"slices"
	"sync"
)

// A batch is an array of requests of the peer that is being answered (JSON-RPC
// 2.0 section 6). Its entries are handled side by side, within the bound on
// handlers; the answer is written when the last of them is done, in the order
// of the entries.
type batch struct {
	s     *server
	reply func(*batch) // writes the answer

	mu        sync.Mutex
	waiting   []*job // entries that nobody handles yet
	spreading bool   // another goroutine is asked to join in
	left      int    // entries not done
	answers   *buffer
	spans     []span // of answers, by entry; empty for notifications
}

type span struct{ from, to int }

// keepEntries is the number of entries above which their memory is not kept for
// the next batch.
const keepEntries = 256

// batch handles a batch on the goroutine that reads.
func (in *receiver) batch(text []byte) {
	m := &in.msg
	in.entries = m.scanBatch(in.entries[:0], text, in.c.cfg.MaxDepth, in.c.cfg.MaxBatch)
	if m.kind != kindBatch {
		in.refuse(m)
		return
	}
	defer in.tellFilled() // should a hook or a handler end the goroutine
	b := in.newBatch()
	responses := true
	for i := range in.entries {
		e := &in.entries[i]
		if e.kind == kindResult || e.kind == kindError {
			if s := in.c.fill(e, false); s != nil {
				in.filled = append(in.filled, s)
			}
			continue
		}
		if responses {
			responses = false
			in.contexts.reserve(min(len(in.entries)-i, keepEntries))
		}
		in.tellFilled() // before a handler takes its time
		in.batchEntry(b, i, e)
	}
	in.tellFilled()
	if cap(in.entries) > keepEntries {
		in.entries, in.filled = nil, nil
	}
	if b.left > 1 {
		in.spare = nil // others have it, and may look at it after its end
	}
	if responses {
		return
	}
	b.start()
	if b.last() {
		in.replyBatch(b)
	}
}

// tellFilled tells the calls whose answers have come, the first one last: who waits
// for the calls of a batch does so in their order, and is woken once then, instead of
// again and again while the others are on the way.
func (in *receiver) tellFilled() {
	for _, s := range slices.Backward(in.filled) {
		s.done <- struct{}{}
	}
	clear(in.filled)
	in.filled = in.filled[:0]
}

// newBatch returns a batch for the entries at hand: the one before if none but
// this goroutine had it.
func (in *receiver) newBatch() *batch {
	b, n := in.spare, len(in.entries)
	if b == nil {
		b = &batch{s: in.c.srv, reply: in.c.replyBatch}
	}
	in.spare = nil
	if n <= keepEntries {
		in.spare = b
	}
	b.left = 1
	if cap(b.spans) < n {
		b.spans = make([]span, n)
	}
	b.spans = b.spans[:n]
	clear(b.spans)
	return b
}

// batchEntry handles what is handled at once of a batch, and leaves the rest
// waiting.
func (in *receiver) batchEntry(b *batch, i int, e *message) {
	s := in.c.srv
	if e.kind == kindInvalid {
		fault := e.fail()
		in.c.report.notice(NoticeInvalid, fault)
		if !in.c.badResponse(e) && !in.c.ignoresInvalid() {
			b.append(i, e.answerID(), &response{err: fault})
		}
		return
	}
	raw, name := in.name(e)
	switch {
	case s.running.cancels(e, name):
	case in.c.state.get() != StateConnected:
		if e.kind == kindRequest {
			b.append(i, e.id, &response{err: &Error{Code: CodeClosing, Message: CodeClosing.String()}})
		}
	case s.inlines(raw):
		j := &in.inline
		s.fill(j, e, name)
		s.begin(s.base, &in.contexts, j)
		result, err := s.handle(j)
		b.answer(i, &j.req, result, err)
		if poison {
			overwrite(e.params)
		}
	default:
		j := s.newJob(e, name)
		s.begin(s.base, &in.contexts, j)
		b.add(i, j)
	}
}

// add leaves an entry waiting.
func (b *batch) add(i int, j *job) {
	j.batch, j.entry = b, i
	b.waiting = append(b.waiting, j)
	b.left++
}

// start has the waiting entries handled: by one goroutine, which asks others to
// join in. When there is none to be had, the answer to all of them is that.
func (b *batch) start() {
	if b.spread() {
		return
	}
	for j := b.take(); j != nil; j = b.take() {
		b.s.running.remove(j.req.id, j.req.ctx)
		if e := b.s.busy(&j.req); !j.req.IsNotification() {
			b.append(j.entry, j.req.id, &response{err: e})
		}
		b.s.free(j)
		b.done()
	}
}

// done counts an entry that is done, and replies when it was the last. Who
// fills the batch counts as an entry.
func (b *batch) done() {
	if b.last() {
		b.reply(b)
	}
}

func (b *batch) last() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left--
	return b.left == 0
}

// take returns an entry that waits; nil when none does.
func (b *batch) take() *job {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		return nil
	}
	j := b.waiting[0]
	b.waiting = b.waiting[1:]
	return j
}

// spread asks another goroutine to join in, if entries wait and none was asked
// before that has not come yet. It says whether one comes, or need not.
func (b *batch) spread() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spreading || len(b.waiting) == 0 {
		return true
	}
	// The entry stays where others see it until it is sure that somebody comes
	// for it: who sees none leaves for good.
	if !b.s.pool.submit(b.waiting[0]) {
		return false
	}
	b.waiting, b.spreading = b.waiting[1:], true
	return true
}

// run handles entries on a goroutine of the pool, as long as there are any.
func (b *batch) run(j *job) {
	b.mu.Lock()
	b.spreading = false
	b.mu.Unlock()
	for j != nil {
		b.spread()
		j = b.handle(j)
	}
}

// handle handles one entry, and returns the next one for the same goroutine.
// Whoever goes on is found before this entry is done, which may end the batch.
func (b *batch) handle(j *job) (next *job) {
	var result any
	err := errExited
	defer func() {
		w := j.worker
		b.answer(j.entry, &j.req, result, err)
		b.s.free(j)
		exited := err == errExited //nolint:errorlint // our own
		if !exited {
			next = b.take()
		}
		if next == nil {
			b.s.pool.release(w)
		} else {
			next.worker = w
		}
		if exited {
			b.start()
		}
		b.done()
	}()
	result, err = b.s.handle(j)
	return nil
}

// answer takes what the handler of the entry i returned.
func (b *batch) answer(i int, req *Request, result any, err error) {
	defer b.s.closeResult(req, result)
	if req.IsNotification() {
		b.s.dropped(req, err)
		return
	}
	r := b.s.respond(req, result, err)
	if r.stream != nil {
		r = b.s.readAll(req, r)
	}
	b.append(i, req.id, &r)
	b.s.bufs.put(r.scratch)
}

// append keeps the answer to the entry i.
func (b *batch) append(i int, id []byte, r *response) {
	b.mu.Lock()
	if b.answers == nil {
		b.answers = b.s.bufs.get()
	}
	from := len(b.answers.b)
	b.answers.b = r.append(b.answers.b, id)
	b.spans[i] = span{from, len(b.answers.b)}
	b.mu.Unlock()
}

// free gives back the memory of the answers, when they are written.
func (b *batch) free() {
	b.s.bufs.put(b.answers)
	b.answers = nil
}

// appendTo appends the answer to the batch, which is nothing when all entries
// were notifications.
func (b *batch) appendTo(dst []byte) []byte {
	next := byte('[')
	for _, s := range b.spans {
		if s.from == s.to {
			continue
		}
		dst = append(append(dst, next), b.answers.b[s.from:s.to]...)
		next = ','
	}
	if next == '[' {
		return dst
	}
	return append(dst, ']')
}

// replyBatch writes the answer from a goroutine of the pool.
func (c *Conn) replyBatch(b *batch) {
	defer b.free()
	if b.answers == nil || c.w.lock(context.Background(), 0, sendsAnswer, len(b.answers.b)) != nil {
		return
	}
	start := len(c.w.buf)
	c.w.buf = endLine(b.appendTo(c.w.buf), start)
	c.w.flush(c.srv.pool.busy())
}

// replyBatch writes the answer on the goroutine that reads.
func (in *receiver) replyBatch(b *batch) {
	defer b.free()
	if b.answers == nil || in.c.w.lockAnswer() != nil {
		return
	}
	out := in.c.w.answers()
	start := len(*out)
	*out = endLine(b.appendTo(*out), start)
	in.appended(len(*out))
}
