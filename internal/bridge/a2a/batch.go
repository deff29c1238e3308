package a2a

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

const (
	// batchWindow is how long a request waits for others to go along with.
	batchWindow = time.Millisecond
	// maxBatchBytes bounds the text of one batch: some servers take no more than
	// 100 KiB. A request that is larger goes alone.
	maxBatchBytes = 64 << 10
	// alonePeriod is how long an agent that refused a batch is left in peace.
	alonePeriod = 10 * time.Minute
	// maxAlone bounds the agents about which that is remembered.
	maxAlone = 1024
)

// batched is a [binding] of JSON-RPC over HTTP that posts requests together, as
// one JSON-RPC batch (JSON-RPC 2.0 section 6), to agents that declare to take
// them (Endpoint.Batch). Only requests of one kind, from one agent record with
// one credential, go together: gets, or sends of messages. Everything else is
// what the binding in it does.
//
// A batch is one exchange: its header is that of the first request, correlation
// id included, and if it fails, all its requests have that disposition. It has a
// trace context only if all its requests have the same: another one's would lead
// whoever reads it astray. An
// agent that refuses an array as such has executed nothing; the requests are
// then made one by one, and so are those of the next 10 minutes.
//
// Whoever makes it calls close.
type batched struct {
	binding
	now   func() time.Time
	ctx   context.Context //nolint:containedctx // ends with close; that of all batches
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex
	closed  bool                   // guarded by mu, like the rest
	pending map[batchKey]*batch    // that still take requests
	alone   map[batchKey]time.Time // until when no batches are sent
}

// batchKey is what requests have in common to go together.
type batchKey struct {
	link    linkKey
	agent   string
	verb    verb
	version Version
}

// batch is some requests that go together. Until it is sent it is guarded by
// the mutex of its owner.
type batch struct {
	key     batchKey
	members []*batchMember
	size    int
	timer   *time.Timer

	// ctx ends when no member waits any more.
	ctx     context.Context //nolint:containedctx // a batch is one exchange
	cancel  context.CancelFunc
	waiting int // guarded by the owner's mutex
}

// batchMember is one request. done is closed when reply and err are set.
type batchMember struct {
	ctx   context.Context //nolint:containedctx // its send guard is asked
	op    operation
	body  []byte
	done  chan struct{}
	sent  bool // guarded by the owner's mutex
	reply bridge.Reply
	err   error
	// panicked says over what, and where, the exchange has panicked, "" if it did not.
	panicked string
}

// newBatched wraps inner.
func newBatched(inner binding, now func() time.Time) *batched {
	b := &batched{binding: inner, now: now, pending: map[batchKey]*batch{}, alone: map[batchKey]time.Time{}}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// close ends the batches under way and waits for them. It may be called again.
func (b *batched) close() {
	b.mu.Lock()
	b.closed = true
	for _, g := range b.pending {
		b.sendLocked(g)
	}
	b.mu.Unlock()
	b.stop()
	b.tasks.Wait()
}

// carry implements [binding].
func (b *batched) carry(ctx context.Context, op operation, body []byte) (bridge.Reply, error) {
	if op.to.Batch < 2 || op.verb != verbGet && op.verb != verbSend || len(body) > maxBatchBytes/2 {
		return b.binding.carry(ctx, op, body)
	}
	m := &batchMember{ctx: ctx, op: op, body: body, done: make(chan struct{})}
	g := b.join(m)
	if g == nil {
		return b.binding.carry(ctx, op, body)
	}
	select {
	case <-m.done:
		b.leave(g, m)
		if m.panicked != "" {
			panic(m.panicked) // where somebody shields the process from it
		}
		return m.reply, m.err
	case <-ctx.Done():
	}
	sent := b.leave(g, m)
	c := &oneCall{op: op, outer: ctx}
	d, tail := bridge.NotSent, "nothing was sent"
	if sent {
		d, tail = bridge.Lost, "the request had been sent; what became of it is not known"
	}
	return bridge.Reply{}, c.timeUp(d, tail, ctx.Err())
}

// join puts m into a batch that is not sent yet, or begins one. Nil: m has to go
// alone.
func (b *batched) join(m *batchMember) *batch {
	key := batchKey{(&oneCall{op: m.op}).key(), m.op.agent.ID + "\x00" + m.op.agent.Name, m.op.verb, m.op.to.Version}
	b.mu.Lock()
	defer b.mu.Unlock()
	if until, ok := b.alone[key]; ok && b.now().Before(until) || b.closed {
		return nil
	}
	g := b.pending[key]
	if g != nil && !g.takes(m) {
		b.sendLocked(g)
		g = nil
	}
	if g == nil {
		g = &batch{key: key}
		g.ctx, g.cancel = context.WithCancel(b.ctx)
		b.pending[key] = g
		g.timer = time.AfterFunc(batchWindow, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.pending[key] == g {
				b.sendLocked(g)
			}
		})
	}
	g.members = append(g.members, m)
	g.size += len(m.body) + 1
	g.waiting++
	if len(g.members) >= m.op.to.Batch {
		b.sendLocked(g)
	}
	return g
}

// takes says whether m fits beside the members. Equal ids could not be told
// apart in the answer.
func (g *batch) takes(m *batchMember) bool {
	for _, other := range g.members {
		if other.op.id == m.op.id {
			return false
		}
	}
	return g.size+len(m.body)+2 <= maxBatchBytes
}

// leave counts m out, and says whether it had been sent. The exchange of a batch
// that nobody waits for is given up.
func (b *batched) leave(g *batch, m *batchMember) (sent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.waiting--; g.waiting == 0 {
		g.cancel()
	}
	if m.sent {
		return true
	}
	for i, other := range g.members {
		if other == m {
			g.members = append(g.members[:i], g.members[i+1:]...)
			g.size -= len(m.body) + 1
		}
	}
	return false
}

// sendLocked sends g, which takes no more requests from now on.
func (b *batched) sendLocked(g *batch) {
	g.timer.Stop()
	delete(b.pending, g.key)
	if len(g.members) == 0 || b.closed {
		for _, m := range g.members {
			m.err = (&oneCall{op: m.op}).fail(bridge.NotSent, parley.CodeAgentUnavailable, "this server is stopping; nothing was sent")
			close(m.done)
		}
		g.cancel()
		return
	}
	members := g.members
	for _, m := range members {
		m.sent = true
	}
	b.tasks.Go(func() {
		defer g.cancel()
		why := panicOf(func() { b.exchange(g) })
		for _, m := range members {
			if m.panicked == "" && m.reply.Status == 0 && m.err == nil { // an answer that is there counts
				m.panicked = why
			}
			close(m.done)
		}
	})
}

// panicOf does work, and says over what and where it has panicked, or "".
func panicOf(work func()) (why string) {
	defer func() {
		if v := recover(); v != nil {
			why = fmt.Sprintf("%v\n%s", v, debug.Stack())
		}
	}()
	work()
	return ""
}

// exchange makes the exchange of g and gives every member its answer.
func (b *batched) exchange(g *batch) {
	if len(g.members) < 2 {
		b.oneByOne(g)
		return
	}
	body := make([]byte, 0, g.size+2)
	var calls []context.Context
	op := g.members[0].op
	for i, m := range g.members {
		if m.op.task.Trace.ID() != op.task.Trace.ID() {
			op.task.Trace = parley.Trace{} // one request belongs to one trace
		}
		body = append(append(body, "[,"[min(i, 1)]), m.body...)
		calls = append(calls, m.ctx)
	}
	body = append(body, ']')
	reply, err := b.binding.carry(bridge.WithGuardsOf(g.ctx, calls...), op, body)
	if refusesBatch(reply, err) {
		b.remember(g.key)
		b.oneByOne(g)
		return
	}
	e, failed := errors.AsType[*bridge.ExchangeError](err)
	switch {
	case failed && e.Withheld && g.dropWithheld():
		b.exchange(g) // of the others nothing was sent, and nothing is against that
		return
	case failed && (e.Status == http.StatusRequestEntityTooLarge || e.Err.Code == parley.CodeLimit && g.key.verb == verbGet):
		b.oneByOne(g) // together they, or their answers, are too large; each may be fine
		return
	case err != nil:
		reply.Body = g.discreet(reply.Body)
		for _, m := range g.members {
			m.reply, m.err = reply, g.theirs(m, err)
		}
		return
	}
	g.share(reply)
}

// discreet takes the secrets of all calls out of what is told to each of them: an agent
// may repeat what it was sent. Calls take out their own only.
func (g *batch) discreet(text []byte) []byte {
	for _, m := range g.members {
		if s := m.op.agent.CallSecret.Reveal(); len(s) > 0 && bytes.Contains(text, s) {
			text = []byte(bridge.Redact(m.op.agent, text, len(text)))
		}
	}
	return text
}

// dropWithheld takes the members out whose calls may not be sent any more, with the
// error of that, and reports whether there are any. The error of the whole batch is
// theirs alone.
func (g *batch) dropWithheld() bool {
	var kept []*batchMember
	for _, m := range g.members {
		if m.err = bridge.Guarded(m.ctx, m.op.task, m.op.agent); m.err == nil {
			kept = append(kept, m)
		}
	}
	some := len(kept) < len(g.members)
	g.members = kept
	return some
}

// oneByOne makes the exchanges of the members by themselves, all at once, as
// they would have been made without batches.
func (b *batched) oneByOne(g *batch) {
	var all sync.WaitGroup
	for _, m := range g.members {
		all.Go(func() {
			m.panicked = panicOf(func() { m.reply, m.err = b.binding.carry(bridge.WithGuardsOf(g.ctx, m.ctx), m.op, m.body) })
		})
	}
	all.Wait()
}

// theirs is err, which belongs to the first member, for member m.
func (g *batch) theirs(m *batchMember, err error) error {
	e, ok := errors.AsType[*bridge.ExchangeError](err)
	if !ok {
		return err
	}
	own, inner := *e, *e.Err
	inner.Agent, inner.Step, inner.Attempt = m.op.agent.Name, m.op.task.Step, m.op.task.Attempt
	inner.Message, inner.Details = string(g.discreet([]byte(inner.Message))), g.discreet(inner.Details)
	own.Err, own.Body = &inner, g.discreet(own.Body)
	return &own
}

// refusesBatch says whether an answer is one error about the array as such:
// nothing was executed then. Agents without batches say -32600, or -32602 like
// two SDKs, or -32700.
func refusesBatch(reply bridge.Reply, err error) bool {
	if e, ok := errors.AsType[*bridge.ExchangeError](err); err != nil && (!ok || e.Status == 0) {
		return false
	}
	body, bad := bridge.CheckJSON("Response", reply.Body)
	if bad != nil || body[0] != '{' {
		return false
	}
	var failure []byte
	for name, value := range bridge.Members(body) {
		switch string(name) {
		case "error":
			failure = value
		case "id":
			if present(value) {
				return false
			}
		case "result":
			if present(value) {
				return false
			}
		}
	}
	if !present(failure) {
		return false
	}
	switch f := readError(failure); f.code {
	case codeInvalidRequest, codeInvalidParams, codeParse:
		return true
	}
	return false
}

// remember notes that no batches are sent for a while.
func (b *batched) remember(key batchKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.alone) >= maxAlone {
		clear(b.alone)
	}
	b.alone[key] = b.now().Add(alonePeriod)
}

// share hands every member its own part of the answer.
func (g *batch) share(reply bridge.Reply) {
	body, err := bridge.CheckJSON("Response", reply.Body)
	elements := bridge.Elements(body)
	if _, named := answerID(body); err == nil && named {
		elements = func(yield func([]byte) bool) { yield(body) } // an array of one, without its brackets
	} else if err != nil || body[0] != '[' {
		// One answer for all: an error, or something that cannot be read. Either
		// way everybody shall see it.
		reply.Body = g.discreet(reply.Body)
		for _, m := range g.members {
			m.reply = reply
		}
		return
	}
	answers := map[string][]byte{}
	var nameless [][]byte
	for element := range elements {
		id, ok := answerID(element)
		if _, twice := answers[id]; ok && !twice {
			answers[id] = element
		} else if !ok {
			nameless = append(nameless, element)
		}
	}
	var missing []*batchMember
	for _, m := range g.members {
		answer, ok := answers[m.op.id]
		if !ok {
			missing = append(missing, m)
			continue
		}
		m.reply = bridge.Reply{Status: reply.Status, Header: reply.Header, Body: bytes.Clone(answer)}
	}
	if len(missing) == 1 && len(nameless) == 1 { // an error to a request whose id could not be read
		missing[0].reply = bridge.Reply{Status: reply.Status, Header: reply.Header, Body: bytes.Clone(nameless[0])}
		return
	}
	for _, m := range missing {
		c := &oneCall{op: m.op}
		m.err = mayRetry(c.fail(bridge.Lost, parley.CodeAgentError,
			"the answer to a batch of %d requests holds none for this one; what became of it is not known", len(g.members)))
	}
}

// answerID gives the id of a response, or false if it is null or no string.
func answerID(response []byte) (string, bool) {
	if len(response) == 0 || response[0] != '{' {
		return "", false
	}
	for name, value := range bridge.Members(response) {
		if string(name) == "id" {
			return bridge.Text(value)
		}
	}
	return "", false
}
