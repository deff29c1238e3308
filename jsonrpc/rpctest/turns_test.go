package rpctest

import (
	"bytes"
	"sync"

	"github.com/parley-project/parley/jsonrpc"
)

// turnRoom is how many bytes may wait in the turns of a mutant.
const turnRoom = 64 << 10

// turns are a queue before a Stream, in which what is written waits for its turn from
// OnRoom on, with its faults.
type turns struct {
	endless, waits, silent, keeps bool

	mu      sync.Mutex
	told    func()
	changed sync.Cond
	waiting []byte
	err     error // of the Stream
	closed  bool
}

// Room says what there is room for, for calls and notifications alike.
func (m *mutant) Room() (calls, notifications bool) {
	m.turns.mu.Lock()
	defer m.turns.mu.Unlock()
	room := m.turns.endless || len(m.turns.waiting) < turnRoom
	return room, room
}

// OnRoom begins to queue.
func (m *mutant) OnRoom(told func()) {
	m.turns.changed.L = &m.turns.mu
	m.turns.told = told
	go m.turns.run(m.Stream)
}

func (t *turns) on() bool { return t.told != nil }

func (t *turns) write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.waits && len(t.waiting) >= turnRoom && t.err == nil {
		t.changed.Wait()
	}
	if t.err != nil {
		return 0, t.err
	}
	t.waiting = append(t.waiting, p...)
	t.changed.Broadcast()
	return len(p), nil
}

// Drop takes out what has the id, if it is whole.
func (m *mutant) Drop(id []byte) bool {
	t := &m.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	i := bytes.Index(t.waiting, append([]byte(`{"jsonrpc":"2.0","id":`), append(id, `,"method"`...)...))
	if i < 0 {
		return false
	}
	if !t.keeps {
		end := i + bytes.IndexByte(t.waiting[i:], '\n') + 1
		t.waiting = append(t.waiting[:i:i], t.waiting[end:]...)
	}
	return true
}

// run writes what waits until the Stream is closed.
func (t *turns) run(to jsonrpc.Stream) {
	for {
		t.mu.Lock()
		for len(t.waiting) == 0 && !t.closed {
			t.changed.Wait()
		}
		p := t.waiting[:min(len(t.waiting), turnRoom/2)]
		t.mu.Unlock()
		_, err := to.Write(p)
		t.mu.Lock()
		was := len(t.waiting)
		t.waiting, t.err = t.waiting[len(p):], err
		opened := was >= turnRoom && len(t.waiting) < turnRoom
		t.changed.Broadcast()
		t.mu.Unlock()
		if err != nil || len(p) == 0 {
			return
		}
		if opened && !t.silent {
			t.told()
		}
	}
}

func (t *turns) close() {
	if t.on() {
		t.mu.Lock()
		t.closed = true
		t.changed.Broadcast()
		t.mu.Unlock()
	}
}
