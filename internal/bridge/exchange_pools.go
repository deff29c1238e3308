package bridge

import (
	"crypto/tls"
	"net/http"
	"sync"
	"time"
)

const (
	// maxPools bounds the connection pools of net/http, one for each host and
	// TLS identity; poolIdle is how long an unused one is kept.
	maxPools = 4096
	poolIdle = 10 * time.Minute
)

// lifetime is how long connections are used. Names are resolved when a
// connection is made, so that an agent that moves is found again after it at
// the latest.
type lifetime struct {
	most   time.Duration
	jitter func() float64
}

// draw gives most, less up to a fifth: connections that were made at once are
// not all made anew at once.
func (l lifetime) draw() time.Duration {
	return l.most - time.Duration(l.jitter()*float64(l.most)/5)
}

// pools holds the connection pools of net/http: one for each host, since that
// of an agent is replaced as a whole when it gets old, and for each TLS
// identity, since what an agent's certificate opened is never used for another
// agent. It may be used concurrently.
type pools struct {
	make func(key poolKey, own *tls.Config) *http.Transport
	now  func() time.Time
	life lifetime

	mu  sync.Mutex
	all map[poolKey]*agedPool // guarded by mu
}

// poolKey is whom connections lead to, and who opens them.
type poolKey struct {
	scheme, host string
	identity     identityKey
}

type agedPool struct {
	*http.Transport
	used, until time.Time
}

// get gives the pool of key, or nil if there is none or it is too old. The
// connections of an old one end with the exchanges that they carry.
func (s *pools) get(key poolKey) *http.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(key, s.now())
}

func (s *pools) getLocked(key poolKey, now time.Time) *http.Transport {
	p := s.all[key]
	switch {
	case p == nil:
		return nil
	case !now.Before(p.until):
		p.CloseIdleConnections()
		delete(s.all, key)
		return nil
	}
	p.used = now
	return p.Transport
}

// of gives the pool of key, made if there is none; own is nil without a TLS
// identity.
func (s *pools) of(key poolKey, own *tls.Config) *http.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if t := s.getLocked(key, now); t != nil {
		return t
	}
	s.makeRoomLocked(now)
	p := &agedPool{Transport: s.make(key, own), used: now, until: now.Add(s.life.draw())}
	s.all[key] = p
	return p.Transport
}

// makeRoomLocked drops the pools that nobody used for long, such as those of
// certificates that were replaced, and the oldest one if there are too many.
// Exchanges under way go on.
func (s *pools) makeRoomLocked(now time.Time) {
	var oldest poolKey
	first := now
	for key, p := range s.all {
		if now.Sub(p.used) > poolIdle {
			p.CloseIdleConnections()
			delete(s.all, key)
			continue
		}
		if !p.used.After(first) {
			oldest, first = key, p.used
		}
	}
	if len(s.all) >= maxPools {
		s.all[oldest].CloseIdleConnections()
		delete(s.all, oldest)
	}
}

func (s *pools) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		p.CloseIdleConnections()
	}
}
