package server_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley/internal/store"
)

// life is one process of the failpoint matrix, from its start to its end: every
// write, and every byte from and to others, goes through it, so that it can be
// killed, stopped and cut off.
type life struct {
	name  string
	traps []*trap
	// aside is what a scenario does at a point before anything else, or nil.
	aside func(l *life, point string)

	mu sync.Mutex // protects what follows
	// dead: nothing gets done any more. thawed is closed when a stopped process goes
	// on; nil while it is not stopped.
	dead   bool
	died   chan struct{} // closed then
	thawed chan struct{}
	conns  map[*mortalConn]struct{}
	trace  []string
	// loses: the next answers to COMMITs are lost, from the first one until then. late
	// is how much later those reach the server; lost counts them.
	loses bool
	until time.Time
	late  time.Duration
	lost  int
}

func newLife(name string, traps []*trap, aside func(*life, string)) *life {
	return &life{name: name, traps: traps, aside: aside, died: make(chan struct{}), conns: map[*mortalConn]struct{}{}}
}

// errReplyLost is what a write gives whose commit nobody knows of.
var errReplyLost = fmt.Errorf("%w: the reply was lost on purpose", store.ErrInDoubt)

// commitMessage is how a COMMIT goes to PostgreSQL.
var commitMessage = []byte("Q\x00\x00\x00\x0bCOMMIT\x00")

// hit is the failpoint of the process: nobody who is dead writes anything, and
// whoever is stopped goes on when that is over.
func (l *life) hit(point string) error {
	if err := l.pass(); err != nil {
		return err
	}
	if l.aside != nil {
		l.aside(l, point)
	}
	l.mu.Lock()
	last := ""
	if len(l.trace) > 0 {
		last = l.trace[len(l.trace)-1]
	}
	if name, _, _ := strings.Cut(point, "."); name != "beat" && name != "schedules" {
		l.trace = append(l.trace, point)
	}
	l.mu.Unlock()
	if err := l.reached(point, last); err != nil {
		return err
	}
	return l.pass()
}

// reached lets the fault happen whose point this is; last is the point before.
func (l *life) reached(point, last string) (err error) {
	for _, t := range l.traps {
		if err == nil {
			err = t.passed(l, point, last)
		}
	}
	return err
}

// pass waits while the process is stopped, and gives an error if it is dead.
func (l *life) pass() error {
	for {
		l.mu.Lock()
		dead, thawed := l.dead, l.thawed
		l.mu.Unlock()
		switch {
		case dead:
			return errCrashed
		case thawed == nil:
			return nil
		}
		<-thawed
	}
}

// kill is SIGKILL: whatever is under way gets nowhere, connections are cut. seen is
// called when nothing can happen any more, and nobody knows of the death yet.
func (l *life) kill(seen func()) {
	l.mu.Lock()
	defer close(l.died)
	l.dead = true
	if l.thawed != nil {
		close(l.thawed)
		l.thawed = nil
	}
	conns := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Conn.Close()
	}
	time.Sleep(settles)
	seen()
}

// settles is how long a database may still be at what it was told before.
const settles = 20 * time.Millisecond

// stop is SIGSTOP, cont SIGCONT.
func (l *life) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thawed == nil && !l.dead {
		l.thawed = make(chan struct{})
	}
}

func (l *life) cont() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thawed != nil {
		close(l.thawed)
		l.thawed = nil
	}
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// loseReplies cuts the next connection that sends a COMMIT, and others for a while.
// The COMMITs reach the server all the same, so much later.
func (l *life) loseReplies(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loses, l.late = true, late
}

// lostReplies counts those.
func (l *life) lostReplies() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func (l *life) losesThis() (late time.Duration, loses bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.loses || l.lost > 0 && time.Now().After(l.until) {
		return 0, false
	}
	if l.lost == 0 {
		l.until = time.Now().Add(lostWindow)
	}
	l.lost++
	return l.late, true
}

// passes counts how often the process came by a point.
func (l *life) passes(point string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.trace {
		if p == point {
			n++
		}
	}
	return n
}

func (l *life) points() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.trace)
}

// dial makes every connection of the process.
func (l *life) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := l.pass(); err != nil {
		return nil, err
	}
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = c.Close()
		return nil, errCrashed
	}
	m := &mortalConn{Conn: c, life: l}
	l.conns[m] = struct{}{}
	return m, nil
}

// mortalConn is a connection of a life.
type mortalConn struct {
	net.Conn
	life *life

	mu sync.Mutex // protects cut
	// cut: nothing more is read.
	cut bool
}

func (c *mortalConn) Read(b []byte) (int, error) {
	if c.isCut() {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b)
	if passed := c.life.pass(); passed != nil {
		return 0, passed
	}
	if c.isCut() {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *mortalConn) isCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

func (c *mortalConn) Write(b []byte) (int, error) {
	if err := c.life.pass(); err != nil {
		return 0, err
	}
	if bytes.HasSuffix(b, commitMessage) {
		if late, loses := c.life.losesThis(); loses {
			c.loseReply(bytes.Clone(b), late)
			return len(b), nil
		}
	}
	return c.Conn.Write(b)
}

// loseReply lets the process see the connection break, and the server get the
// COMMIT, later.
func (c *mortalConn) loseReply(commit []byte, late time.Duration) {
	c.mu.Lock()
	c.cut = true
	c.mu.Unlock()
	_ = c.SetReadDeadline(time.Now())
	go func() {
		time.Sleep(late)
		_, _ = c.Conn.Write(commit)
		time.Sleep(lateClose)
		_ = c.Conn.Close()
	}()
}

// lateClose is how long the server has for a COMMIT before its connection ends.
const lateClose = 200 * time.Millisecond

func (c *mortalConn) Close() error {
	c.life.mu.Lock()
	delete(c.life.conns, c)
	c.life.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil // it ends with the COMMIT that is on its way
	}
	return c.Conn.Close()
}

// faultKind is what happens at a point.
type faultKind string

const (
	faultKill    faultKind = "kill"
	faultStop    faultKind = "stop"
	faultLost    faultKind = "reply lost"
	faultDelayed faultKind = "commit delayed"
)

// trap waits for the first process that comes by a point, and has the fault happen
// to it there.
type trap struct {
	point string
	kind  faultKind
	// stopped returns when a stopped process is to go on.
	stopped func(l *life)
	// wire: replies are lost on their way from PostgreSQL.
	wire bool
	// seen is called when a process was killed or stopped.
	seen func()

	sprung chan struct{}
	mu     sync.Mutex // protects what follows
	armed  bool
	victim *life
	over   chan struct{} // closed when a stopped process goes on
}

func newTrap(point string, kind faultKind) *trap {
	return &trap{point: point, kind: kind, seen: func() {}, sprung: make(chan struct{}), over: make(chan struct{})}
}

// arm lets the trap spring from now on.
func (t *trap) arm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed = true
}

// caught is the process that the fault happened to, or nil.
func (t *trap) caught() *life {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.victim
}

// matches reports whether a process that comes by a point is at the trap's; last is
// the point before. Answer, decision and next claim of one process are one unit, and
// have their points one after the other.
func (t *trap) matches(point, last string) bool {
	switch t.point {
	case "merged.before":
		return point == "P11.before" && last == "P7.before"
	case "merged.after":
		return point == "P11.after" && last == "P7.after"
	}
	return point == t.point
}

// passed lets the fault happen if this is its time.
func (t *trap) passed(l *life, point, last string) error {
	t.mu.Lock()
	if !t.armed || t.victim != nil || !t.matches(point, last) {
		t.mu.Unlock()
		return nil
	}
	t.victim = l
	t.mu.Unlock()
	defer close(t.sprung)
	switch t.kind {
	case faultKill:
		l.kill(t.seen)
	case faultStop:
		l.stop()
		time.Sleep(settles)
		t.seen()
		go func() {
			defer close(t.over)
			defer l.cont()
			t.stopped(l)
		}()
	case faultLost:
		if !t.wire {
			return errReplyLost
		}
		l.loseReplies(0)
	case faultDelayed:
		l.loseReplies(lateCommit)
	}
	return nil
}

const (
	// lostWindow is how long a process loses the replies to its commits, so that the
	// one in question is among them.
	lostWindow = 60 * time.Millisecond
	// lateCommit is how much later than its reply was given up a COMMIT arrives: the
	// bridge, or the executor, has looked at the row by then.
	lateCommit = 500 * time.Millisecond
)
