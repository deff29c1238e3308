package agentcard

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

const (
	defaultCards = 1000
	// defaultFresh is how long a card is taken for what it was if it says
	// nothing; the others bound what it may say (RFC 9111). A choice that has
	// become wrong is renegotiated before that.
	defaultFresh = 5 * time.Minute
	minFresh     = 30 * time.Second
	maxFresh     = 24 * time.Hour
	// failureFresh is how long a failure is repeated instead of asking again.
	failureFresh = 5 * time.Second
)

// kept is what is remembered of one agent.
type kept struct {
	found Found
	err   error
	doc   *document // nil without a card
	fresh time.Duration
	until time.Time
}

// cache remembers what was found. One caller at a time looks at an agent; the
// others wait for what it finds.
type cache struct {
	size int

	mu      sync.Mutex
	entries map[cacheKey]*cacheEntry // guarded by mu
}

type cacheKey [sha256.Size]byte

type cacheEntry struct {
	// turn holds one value; who takes it may look and set last.
	turn chan struct{}
	mu   sync.Mutex
	last *kept // guarded by mu
}

func newCache(size int) *cache { return &cache{size: size, entries: map[cacheKey]*cacheEntry{}} }

// keyOf is everything of agent that a detection depends on. Credentials go in as a
// hash only: what a reference names may change while the reference stays.
func keyOf(a parley.Agent) cacheKey {
	// Without its resolved secrets a record always has a JSON form.
	b, _ := json.Marshal([]any{a.URL, a.Protocol, string(a.ProtocolConfig), a.Auth, a.TLS})
	h := sha256.New()
	part := func(b []byte) {
		one := sha256.Sum256(b)
		h.Write(one[:])
	}
	part(b)
	part(a.Credential.Reveal())
	resolved := a.Resolved.Digest()
	part(resolved[:])
	return cacheKey(h.Sum(nil))
}

func (c *cache) entry(key cacheKey) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		for k := range c.entries { // any of them: a miss costs one look
			if len(c.entries) < c.size {
				break
			}
			delete(c.entries, k)
		}
		e = &cacheEntry{turn: make(chan struct{}, 1)}
		e.turn <- struct{}{}
		c.entries[key] = e
	}
	return e
}

// expire makes the next get look again. A failure is forgotten.
func (c *cache) expire(key cacheKey) {
	e := c.entry(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil {
		return
	}
	last := *e.last
	last.until = time.Time{}
	e.last = &last
}

// get gives what is known about key, or looks. What look gives is kept, an error
// too, unless the caller went away.
func (c *cache) get(ctx context.Context, key cacheKey, now func() time.Time, look func(before *kept) (*kept, error)) (Found, error) {
	e := c.entry(key)
	if k := e.current(now()); k != nil {
		return k.found, k.err
	}
	select {
	case <-e.turn:
	case <-ctx.Done():
		return Found{}, parley.Errorf(parley.CodeUnavailable, "finding out about an agent was given up: %w", context.Cause(ctx))
	}
	defer func() { e.turn <- struct{}{} }()
	if k := e.current(now()); k != nil { // somebody else has looked meanwhile
		return k.found, k.err
	}
	e.mu.Lock()
	before := e.last
	e.mu.Unlock()
	k, err := look(before)
	if err != nil && ctx.Err() != nil {
		return Found{}, err
	}
	if err != nil {
		k = &kept{err: err, fresh: failureFresh}
		if before != nil {
			k.doc = before.doc
		}
	}
	k.until = now().Add(k.fresh)
	e.mu.Lock()
	e.last = k
	e.mu.Unlock()
	return k.found, k.err
}

func (e *cacheEntry) current(now time.Time) *kept {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last != nil && now.Before(e.last.until) {
		return e.last
	}
	return nil
}

// freshness reads a Cache-Control.
func freshness(control string) time.Duration {
	fresh := defaultFresh
	for directive := range strings.SplitSeq(strings.ToLower(control), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch name {
		case "no-store", "no-cache":
			return minFresh
		case "max-age":
			if n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil {
				fresh = time.Duration(n) * time.Second
			}
		}
	}
	return min(max(fresh, minFresh), maxFresh)
}
