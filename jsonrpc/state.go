package jsonrpc

import (
	"sync"
	"sync/atomic"
)

// A State is where a connection is in its life (RPC-26). A Conn starts
// connected and goes to disconnected, by way of closing when Close or Shutdown
// ends it, when handlers still run as the peer hangs up, or when calls wait as it
// takes nothing any more; it never comes back.
// A Client starts connecting and, until it is closed, comes back to it.
type State uint8

// The states of a connection.
const (
	// StateConnecting: a Client dials, or waits before it dials again.
	StateConnecting State = iota
	// StateConnected: calls are sent, requests are handled.
	StateConnected
	// StateClosing: new calls and requests are refused, running handlers have
	// their grace, and what a peer that has gone wrote before is read.
	StateClosing
	// StateDisconnected: nothing is sent or read any more.
	StateDisconnected
)

// String returns the name of the state: "connecting", "connected", "closing"
// or "disconnected".
func (s State) String() string {
	switch s {
	case StateConnecting:
		return "connecting"
	case StateConnected:
		return "connected"
	case StateClosing:
		return "closing"
	case StateDisconnected:
		return "disconnected"
	}
	return "unknown"
}

// A StateChange is one step in the life of a connection.
type StateChange struct {
	// Conn is the name of the connection.
	Conn string
	// From and To are the state left and the state entered.
	From, To State
	// Cause says why: io.EOF when the peer hung up, ErrClosed when this side
	// closed, the transport's error otherwise. Nil on entering StateConnecting
	// for the first time and on entering StateConnected.
	Cause error
}

// stateBox holds a State that is read without a lock, changes atomically, and
// tells every change to a hook, one at a time and in order, without holding a
// lock meanwhile.
type stateBox struct {
	now  atomic.Uint32
	tell func(StateChange) // may be nil
	// spawn runs what tells, on a goroutine; nil: who changes the state tells.
	spawn func(func())
	conn  string

	mu      sync.Mutex
	untold  []StateChange
	telling bool
}

func (b *stateBox) get() State { return State(b.now.Load()) }

// set moves to a state, if allowed says that it may follow the present one.
func (b *stateBox) set(to State, cause error, allowed func(from State) bool) {
	b.mu.Lock()
	from := State(b.now.Load())
	if !allowed(from) {
		b.mu.Unlock()
		return
	}
	b.now.Store(uint32(to))
	if b.tell != nil {
		b.untold = append(b.untold, StateChange{Conn: b.conn, From: from, To: to, Cause: cause})
	}
	if b.telling || len(b.untold) == 0 { // the one who tells comes round to it
		b.mu.Unlock()
		return
	}
	b.telling = true
	if b.spawn != nil {
		b.spawn(b.tellAll)
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	b.tellAll()
}

// tellAll tells what nobody was told yet.
func (b *stateBox) tellAll() {
	b.mu.Lock()
	for len(b.untold) > 0 {
		next := b.untold[0]
		b.untold = b.untold[1:]
		b.mu.Unlock()
		b.tell(next)
		b.mu.Lock()
	}
	b.telling = false
	b.mu.Unlock()
}
