package bridge

import (
	"slices"
	"sync"
	"time"
)

// connPool keeps idle connections: a bounded number, none of them for longer than
// idleTimeout or beyond its own time. It may be used concurrently.
type connPool struct {
	idleTimeout time.Duration
	most        int
	now         func() time.Time

	mu sync.Mutex
	// idle has the most recently used connection of each host last.
	idle  map[string][]*directConn
	count int
	// sweeper closes what stays idle. It runs while anything is kept.
	sweeper  *time.Timer
	sweeping bool
}

func newConnPool(idleTimeout time.Duration, most int, now func() time.Time) *connPool {
	return &connPool{idleTimeout: idleTimeout, most: most, now: now, idle: map[string][]*directConn{}}
}

// take gives a connection to host that seems to be alive, with the deadline of
// its next exchange, or nil. The caller puts it back or closes it.
func (p *connPool) take(host string, deadline time.Time) *directConn {
	for {
		c := p.pop(host)
		if c == nil {
			return nil
		}
		if now := p.now(); now.Sub(c.idleSince) < p.idleTimeout && now.Before(c.until) && c.alive(deadline) {
			return c
		}
		_ = c.Close()
	}
}

func (p *connPool) pop(host string) *directConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[host]
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1
	c := list[last]
	list[last] = nil
	p.idle[host] = list[:last]
	p.count--
	return c
}

// put keeps c, or closes it if it is too old or enough are kept: a host never
// gets the last places, but one more while it has fewer than are free.
func (p *connPool) put(c *directConn) error {
	c.idleSince = p.now()
	if cap(c.out) > maxKeptBuffer {
		c.out = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle[c.host]) >= p.most-p.count || !c.idleSince.Before(c.until) {
		return c.Close()
	}
	p.idle[c.host] = append(p.idle[c.host], c)
	p.count++
	if !p.sweeping {
		p.sweeping = true
		p.sweepLaterLocked()
	}
	return nil
}

func (p *connPool) sweepLaterLocked() {
	if p.sweeper == nil {
		p.sweeper = time.AfterFunc(p.idleTimeout, p.sweep)
		return
	}
	p.sweeper.Reset(p.idleTimeout)
}

// sweep closes what was idle for too long. A connection goes at the latest
// after twice the timeout.
func (p *connPool) sweep() {
	p.closeIdle(p.now().Add(-p.idleTimeout))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeping = p.count > 0; p.sweeping {
		p.sweepLaterLocked()
	}
}

// closeIdle closes what is idle since before the given time, or then.
func (p *connPool) closeIdle(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host, list := range p.idle {
		// The longest idle ones are first.
		n := slices.IndexFunc(list, func(c *directConn) bool { return c.idleSince.After(before) })
		if n < 0 {
			n = len(list)
		}
		for _, c := range list[:n] {
			_ = c.Close()
		}
		p.count -= n
		if n == len(list) {
			delete(p.idle, host)
			continue
		}
		p.idle[host] = slices.Delete(list, 0, n)
	}
}
