package a2a

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between Parley and an agent and breaks what the test wants.
type proxy struct {
	l    net.Listener
	wg   sync.WaitGroup
	copy func(c, server net.Conn, swallow, stall bool)

	mu      sync.Mutex
	target  string
	closed  bool
	swallow int // how many connections more lose their answers
	stall   int // how many connections more get no answer at all
	lost    int // how many answers were lost
	conns   map[net.Conn]bool
}

// newProxy makes a proxy in front of the HTTP server at base.
func newProxy(t *testing.T, base string) *proxy {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	return newProxyOf(t, u.Host, nil)
}

// newProxyOf makes a proxy in front of target; exchange copies what the two
// sides of a connection say, until one ends. Without it all bytes are copied.
func newProxyOf(t *testing.T, target string, exchange func(c, server net.Conn, swallow, stall bool)) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target, l: l, copy: exchange, conns: make(map[net.Conn]bool)}
	if p.copy == nil {
		p.copy = p.pass
	}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		_ = l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

// through is raw with the proxy's address.
func (p *proxy) through(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.l.Addr().String()
	return u.String()
}

// lead makes new connections go to target, and breaks the others.
func (p *proxy) lead(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.cut()
}

// swallowNext breaks the next n connections as soon as an answer comes.
func (p *proxy) swallowNext(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow = n
}

// stallNext lets the next n connections wait for their answers for ever.
func (p *proxy) stallNext(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stall = n
}

// swallowed says how many answers were lost so far.
func (p *proxy) swallowed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// cut breaks all connections that there are, and says how many.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	return len(p.conns)
}

func (p *proxy) serve() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		swallow, stall, ok := p.admit(c)
		if !ok {
			_ = c.Close()
			return
		}
		p.wg.Go(func() {
			defer p.dismiss(c)
			p.mu.Lock()
			target := p.target
			p.mu.Unlock()
			if server, err := net.Dial("tcp", target); err == nil {
				p.copy(c, server, swallow, stall)
			}
		})
	}
}

func (p *proxy) admit(c net.Conn) (swallow, stall, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, false, false
	}
	if swallow = p.swallow > 0; swallow {
		p.swallow--
	}
	if stall = p.stall > 0; stall {
		p.stall--
	}
	p.conns[c] = true
	return swallow, stall, true
}

func (p *proxy) dismiss(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// pass copies both directions until one ends.
func (p *proxy) pass(c, server net.Conn, swallow, stall bool) {
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(server, c)
		_ = server.Close()
	})
	switch {
	case stall:
		_, _ = io.Copy(io.Discard, server)
	case swallow:
		if n, _ := server.Read(make([]byte, 1)); n > 0 {
			p.mu.Lock()
			p.lost++
			p.mu.Unlock()
		}
	default:
		_, _ = io.Copy(c, server)
	}
	_ = c.Close()
	_ = server.Close()
	wg.Wait()
}
