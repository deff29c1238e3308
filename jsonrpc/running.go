package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// Why the context of a request ended.
var (
	errHandled  = errors.New("jsonrpc: the request was handled")
	errPeerGone = fmt.Errorf("jsonrpc: the peer cancelled the request: %w", context.Canceled)
)

// running knows the contexts of the requests being handled, by the raw text of
// their ids, when there is a notification by which the peer cancels them. The
// zero value knows nothing.
type running struct {
	method, member string // of the notification, see CancelStyle

	mu       sync.Mutex
	contexts map[string]*requestContext
}

// add remembers a request. Of two with the same id, which is the peer's
// mistake, the first is remembered.
func (r *running) add(id []byte, ctx *requestContext) {
	if r.contexts == nil || id == nil {
		return
	}
	r.mu.Lock()
	if _, twice := r.contexts[string(id)]; !twice {
		r.contexts[string(id)] = ctx
	}
	r.mu.Unlock()
}

// remove forgets the request that add was called for with ctx, if it was remembered.
func (r *running) remove(id []byte, ctx *requestContext) {
	if r.contexts == nil || id == nil {
		return
	}
	r.mu.Lock()
	if r.contexts[string(id)] == ctx {
		delete(r.contexts, string(id))
	}
	r.mu.Unlock()
}

// cancels says whether the message is the peer's cancellation of a request, and
// if so cancels it. One that names no running request is ignored: the answer
// was on its way.
func (r *running) cancels(m *message, name string) bool {
	if r.contexts == nil || m.kind != kindNotification || name != r.method {
		return false
	}
	var params map[string]json.RawMessage
	if m.params == nil || json.Unmarshal(m.params, &params) != nil {
		return true
	}
	r.mu.Lock()
	ctx := r.contexts[string(params[r.member])]
	r.mu.Unlock()
	if ctx != nil {
		ctx.end(errPeerGone)
	}
	return true
}

// tellCancelled tells the peer that nobody waits any more for the answer to a call
// that was sent, unless it still waits for its turn and is not sent. It waits for nothing. Where senders wait for room the notice goes
// beyond it: there is one for each call in flight at most, and a peer that is late is
// the one to be spared work.
func (c *Conn) tellCancelled(call *outCall) {
	w := c.w
	method, member := c.cfg.Cancel.method()
	if method == "" && w.turns == nil {
		return
	}
	id := c.ids.append(nil, call.id)
	if w.turns != nil && w.turns.Drop(id) {
		call.sent = false
		return
	}
	if method == "" {
		return
	}
	params := append([]byte(`{"`), member...)
	params = append(params, `":`...)
	params = append(append(params, id...), '}')
	if !w.lockBeyond() {
		return
	}
	out := w.answers() // which are not to stand in a streamed message either
	start := len(*out)
	*out = endLine(appendRequest(*out, &outgoing{method: method, params: params}), start)
	w.flushLater()
}
