package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

const (
	// noticeWindow is how long notices are counted, not written, when there were
	// noticeLines of their kind.
	noticeWindow = 10 * time.Second
	noticeLines  = 20
)

// notices writes the notices of connections to standard error, few of a kind: a peer
// that sends a stream of nonsense would fill the disk of whoever keeps what is said.
type notices struct {
	app *app

	mu    sync.Mutex
	kinds map[jsonrpc.NoticeKind]*noticeKind // guarded by mu; nil when they have ended
}

// noticeKind is what was said of a kind lately.
type noticeKind struct {
	lines  int // written
	more   int // left out in this window, of which newest is the last one
	newest string
	window *time.Timer
}

func (a *app) notices() *notices {
	return &notices{app: a, kinds: make(map[jsonrpc.NoticeKind]*noticeKind)}
}

// take is a hook.
func (n *notices) take(x jsonrpc.Notice) {
	text := fmt.Sprintf("%s: %s", x.Kind, clean(x.Err.Error()))
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kinds == nil {
		return
	}
	k := n.kinds[x.Kind]
	if k == nil {
		k = &noticeKind{window: time.AfterFunc(noticeWindow, func() { n.sum(x.Kind) })}
		n.kinds[x.Kind] = k
	}
	if k.lines < noticeLines {
		k.lines++
		n.app.note("%s", text)
		return
	}
	k.more, k.newest = k.more+1, text
}

// sum ends a window. A kind of which nothing was left out in it has its lines again.
func (n *notices) sum(kind jsonrpc.NoticeKind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.kinds[kind]
	switch {
	case k == nil:
	case k.more == 0:
		delete(n.kinds, kind)
	default:
		n.rest(k)
		k.window.Reset(noticeWindow)
	}
}

// rest writes what was left out of a kind; n.mu is held.
func (n *notices) rest(k *noticeKind) {
	if k.more > 1 {
		n.app.note("%s (and %d more within %v)", k.newest, k.more-1, noticeWindow)
	} else if k.more == 1 {
		n.app.note("%s", k.newest)
	}
	k.more = 0
}

// end writes what was left out, and nothing afterwards.
func (n *notices) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.kinds {
		k.window.Stop()
		n.rest(k)
	}
	n.kinds = nil
}
