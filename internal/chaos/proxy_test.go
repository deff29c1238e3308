package chaos_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// direction is one of the two ways through a proxy.
type direction int

const (
	upstream   direction = iota // from the client to the target
	downstream                  // and back
)

// proxy is the network between one process and one target. Whole, it forwards;
// silent, bytes wait in one direction or both, as behind a broken switch; torn,
// every connection is reset, and so is each new one.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	silent  [2]bool
	torn    bool
	changed chan struct{} // closed and replaced at each change
	links   map[*link]struct{}
	closed  bool
	pumps   sync.WaitGroup
}

// link is one connection through a proxy.
type link struct {
	client, server net.Conn
	gone           chan struct{}
	once           sync.Once
}

func newProxy(tb testing.TB, target string) *proxy { return newProxyAt(tb, "127.0.0.1:0", target) }

func newProxyAt(tb testing.TB, listen, target string) *proxy {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", listen)
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{listener: l, target: target, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.pumps.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.tear()
	p.pumps.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.pumps.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	l := &link{client: client, gone: make(chan struct{})}
	defer l.end()
	if !p.register(l) || !p.pass(l, upstream) {
		return
	}
	defer p.forget(l)
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err == nil {
		p.join(l, server)
	}
}

// join forwards between a link's client and its server until one of them ends.
func (p *proxy) join(l *link, server net.Conn) {
	defer server.Close()
	p.mu.Lock()
	l.server = server
	p.mu.Unlock()
	select {
	case <-l.gone: // reset while the server was dialed, so that nobody else closes it
		return
	default:
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(l, l.client, server, downstream) })
	p.pump(l, server, l.client, upstream)
	pumps.Wait()
}

// register notes a link, unless the network is torn.
func (p *proxy) register(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.torn || p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// pump copies one direction until one side ends.
func (p *proxy) pump(l *link, to, from net.Conn, d direction) {
	defer l.end()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.pass(l, d) {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil {
			return
		}
		if err != nil {
			if half, ok := to.(*net.TCPConn); ok && errors.Is(err, io.EOF) && p.pass(l, d) {
				_ = half.CloseWrite()
				time.Sleep(10 * time.Millisecond) // what the other side still says
			}
			return
		}
	}
}

// pass waits until a direction lets bytes through; false when the link is gone.
func (p *proxy) pass(l *link, d direction) bool {
	for {
		p.mu.Lock()
		silent, changed := p.silent[d], p.changed
		p.mu.Unlock()
		if !silent {
			return true
		}
		select {
		case <-changed:
		case <-l.gone:
			return false
		}
	}
}

// end resets both sides.
func (l *link) end() {
	l.once.Do(func() {
		close(l.gone)
		for _, c := range []net.Conn{l.client, l.server} {
			if tcp, ok := c.(*net.TCPConn); ok && tcp != nil {
				_ = tcp.SetLinger(0)
				_ = tcp.Close()
			}
		}
	})
}

// silence lets nothing through in the given directions; connections stay.
func (p *proxy) silence(directions ...direction) {
	p.change(func() {
		for _, d := range directions {
			p.silent[d] = true
		}
	})
}

// tear resets all connections, and each new one until heal.
func (p *proxy) tear() {
	p.change(func() { p.torn = true })
	p.reset()
}

// reset resets the connections that are there.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.end()
	}
}

// heal makes the network whole: what has waited arrives.
func (p *proxy) heal() { p.change(func() { p.silent, p.torn = [2]bool{}, false }) }

func (p *proxy) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	close(p.changed)
	p.changed = make(chan struct{})
}

// TestResetWhileDialing: a link that is reset before its server has answered the call
// ends, though neither server nor client ever says anything.
func TestResetWhileDialing(t *testing.T) {
	t.Parallel()
	p := newProxy(t, "127.0.0.1:1")
	client, caller := net.Pipe()
	server, called := net.Pipe()
	l := &link{client: client, gone: make(chan struct{})}
	p.register(l)
	p.reset()
	_ = client.Close() // as the reset of a real connection does
	ended := make(chan struct{})
	go func() { p.join(l, server); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
	_, _ = caller.Close(), called.Close()
	<-ended
}

// TestProxy holds the network to what the faults mean: silence delays and loses
// nothing, in the direction that it has only; a tear resets.
func TestProxy(t *testing.T) {
	t.Parallel()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	heard := make(chan byte, 8)
	serving.Go(func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					heard <- b[0]
					_, _ = c.Write(b)
				}
			})
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = echo.Close() })
	p := newProxy(t, echo.Addr().String())
	c, err := net.Dial("tcp", p.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	say := func(b byte) { _, _ = c.Write([]byte{b}) }
	hear := func(within time.Duration) byte {
		_ = c.SetReadDeadline(time.Now().Add(within))
		b := make([]byte, 1)
		if _, err := c.Read(b); err != nil {
			return 0
		}
		return b[0]
	}
	say('a')
	if got := hear(5 * time.Second); got != 'a' || <-heard != 'a' {
		t.Fatalf("whole: %q", got)
	}
	p.silence(downstream)
	say('b')
	if got := <-heard; got != 'b' {
		t.Fatalf("silent downstream: %q arrived", got)
	}
	if got := hear(50 * time.Millisecond); got != 0 {
		t.Fatalf("silent downstream: %q came back", got)
	}
	p.heal()
	if got := hear(5 * time.Second); got != 'b' {
		t.Fatalf("healed: %q", got)
	}
	p.silence(upstream)
	say('c')
	select {
	case got := <-heard:
		t.Fatalf("silent upstream: %q arrived", got)
	case <-time.After(50 * time.Millisecond):
	}
	p.tear()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Fatalf("torn: %v, want a reset", err)
	}
	p.heal()
	again, err := net.Dial("tcp", p.address())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	_, _ = again.Write([]byte{'d'})
	if got := <-heard; got != 'd' {
		t.Fatalf("healed: %q arrived", got)
	}
}
