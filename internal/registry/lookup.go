package registry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
)

const (
	maxAge           = 5 * time.Second
	defaultCacheSize = 10_000
)

// Lookup gives the active agent of that name for a call, with its Credential.
// It is at most 5 s old, and never older than a change made through this
// registry. Unknown names are not remembered, so that an agent added elsewhere
// is found at once.
//
// The error is a [*parley.Error]: code unknown_agent for a name that is unknown
// or deleted, agent_rejected for an agent that is inactive, and
// agent_unavailable, which may be tried again, if its credential cannot be had:
// then the agent comes beside it, without one.
func (r *Registry) Lookup(ctx context.Context, name string) (parley.Agent, error) {
	if e := r.cache.get(name); e != nil && r.cfg.Now().Before(e.until) {
		return e.agent, nil
	}
	return r.cache.load(ctx, name, r.cfg.Now, r.fetch)
}

// fetch reads an agent for a call.
func (r *Registry) fetch(ctx context.Context, name string) (parley.Agent, error) {
	agent, err := r.cfg.Store.Agent(ctx, name)
	switch {
	case parley.CodeOf(err) == parley.CodeNotFound, err == nil && (agent.Name != name || agent.Status == parley.AgentDeleted):
		return parley.Agent{}, agentError(parley.CodeUnknownAgent, name, "agent '%s' is not known or was deleted", shown(name))
	case err != nil:
		return parley.Agent{}, err
	case agent.Status != parley.AgentActive:
		return parley.Agent{}, agentError(parley.CodeAgentRejected, name, "agent '%s' is inactive; make it active to have it called", shown(name))
	}
	armed, err := r.resolve(agent)
	if err != nil {
		e := agentError(parley.CodeAgentUnavailable, name, "agent '%s' cannot be called without its credential: %s", shown(name), messageOf(err))
		e.Retryable = true
		return agent, e
	}
	return armed, nil
}

func agentError(code parley.Code, agent, format string, args ...any) *parley.Error {
	e := parley.Errorf(code, format, args...)
	e.Agent = agent
	return e
}

// cache remembers agents for calls. Reading takes no lock.
type cache struct {
	age     time.Duration
	size    int
	entries sync.Map // string → *entry
	count   atomic.Int64

	mu sync.Mutex
	// loads are under way, one per name. drop takes a load out, and a load that
	// was taken out remembers nothing: what it read may be older than the change.
	loads map[string]*load // guarded by mu
}

type entry struct {
	agent parley.Agent
	until time.Time
}

type load struct {
	done  chan struct{} // closed when agent and err are set
	agent parley.Agent
	err   error
	// cut says that the caller who loads went away, which concerns nobody else.
	cut bool
}

func newCache(age time.Duration, size int) *cache {
	return &cache{age: age, size: size, loads: map[string]*load{}}
}

func (c *cache) get(name string) *entry {
	if v, ok := c.entries.Load(name); ok {
		return v.(*entry)
	}
	return nil
}

// load fetches name once for all who ask at the same time.
func (c *cache) load(ctx context.Context, name string, now func() time.Time,
	fetch func(context.Context, string) (parley.Agent, error),
) (parley.Agent, error) {
	for {
		c.mu.Lock()
		l, running := c.loads[name]
		if !running {
			l = &load{done: make(chan struct{}), cut: true}
			c.loads[name] = l
		}
		c.mu.Unlock()
		if !running {
			// The age counts from before the read.
			return c.run(ctx, name, l, now(), fetch)
		}
		select {
		case <-l.done:
			if !l.cut {
				return l.agent, l.err
			}
		case <-ctx.Done():
			return parley.Agent{}, gone(ctx)
		}
	}
}

func (c *cache) run(ctx context.Context, name string, l *load, start time.Time,
	fetch func(context.Context, string) (parley.Agent, error),
) (parley.Agent, error) {
	defer close(l.done)
	defer func() { // also if fetch panics, or nobody would ever load name again
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.loads[name] != l {
			return
		}
		delete(c.loads, name)
		if !l.cut && l.err == nil {
			c.keepLocked(name, &entry{agent: l.agent, until: start.Add(c.age)}, start)
		}
	}()
	l.agent, l.err = fetch(ctx, name)
	l.cut = l.err != nil && ctx.Err() != nil
	if l.cut {
		return parley.Agent{}, gone(ctx)
	}
	return l.agent, l.err
}

func gone(ctx context.Context) error {
	return parley.Errorf(parley.CodeUnavailable, "looking up an agent was given up: %w", context.Cause(ctx))
}

// keepLocked stores e and makes room if there is none: first of what is too
// old, then of anything, a tenth at a time so that making room stays rare.
func (c *cache) keepLocked(name string, e *entry, now time.Time) {
	if _, had := c.entries.Swap(name, e); had {
		return
	}
	if c.count.Add(1) <= int64(c.size) {
		return
	}
	c.entries.Range(func(k, v any) bool {
		if k != name && !now.Before(v.(*entry).until) {
			c.removeLocked(k)
		}
		return true
	})
	room := int64(c.size - c.size/10)
	c.entries.Range(func(k, _ any) bool {
		if c.count.Load() <= max(room, 1) {
			return false
		}
		if k != name {
			c.removeLocked(k)
		}
		return true
	})
}

func (c *cache) removeLocked(name any) {
	if _, had := c.entries.LoadAndDelete(name); had {
		c.count.Add(-1)
	}
}

// drop forgets name, also what is being read of it just now.
func (c *cache) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.loads, name)
	c.removeLocked(name)
}
