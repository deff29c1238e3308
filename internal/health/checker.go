package health

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// The defaults and bounds of [parley.HealthCheck].
const (
	DefaultInterval = 30 * time.Second
	DefaultTimeout  = 5 * time.Second
)

const (
	// sweepEvery is how often is looked whose time has come.
	sweepEvery = time.Second
	// defaultConcurrent bounds the looks that one process has under way.
	defaultConcurrent = 64
	// saveWithin bounds the writing of what a look has shown.
	saveWithin = 10 * time.Second
)

// Config of a [Checker]. Check, Concurrent and Logger have defaults; all else is
// required.
type Config struct {
	DB *store.DB
	// Agent gives a record by its name.
	Agent func(ctx context.Context, name string) (parley.Agent, error)
	// Look looks at an agent once, within that time. An agent that is not well is
	// no error.
	Look func(ctx context.Context, agent parley.Agent, within time.Duration) (parley.AgentHealth, error)
	// Check is that of agents whose records say nothing; zero members take
	// [DefaultInterval] and [DefaultTimeout].
	Check parley.HealthCheck
	// Concurrent bounds the looks under way in this process; default 64.
	Concurrent int
	// Random gives a number of at least 0 and less than 1.
	Random func() float64
	// NewToken gives a text that was never used before.
	NewToken func() string
	// Logger gets the changes, and what goes wrong; default none.
	Logger *slog.Logger
}

// Checker looks at the agents of a store. Any number of processes may do so.
type Checker struct {
	cfg Config
	// slots holds one value for each look under way.
	slots chan struct{}
	// free is told when a look has ended while others had to wait for it.
	free chan struct{}
}

// New makes a Checker.
func New(cfg Config) *Checker {
	cfg.Check.Interval = cmp.Or(cfg.Check.Interval, DefaultInterval)
	cfg.Check.Timeout = cmp.Or(cfg.Check.Timeout, DefaultTimeout)
	if cfg.Concurrent <= 0 {
		cfg.Concurrent = defaultConcurrent
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Checker{cfg: cfg, slots: make(chan struct{}, cfg.Concurrent), free: make(chan struct{}, 1)}
}

// Run looks at agents until ctx ends, and returns when no look is under way any
// more. Looks that ctx has cut short say nothing.
func (c *Checker) Run(ctx context.Context) error {
	var looks sync.WaitGroup
	defer looks.Wait()
	for {
		more, err := c.sweep(ctx, &looks)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			c.cfg.Logger.Warn("agents were not looked at; it is tried again", "event", "agent_health", "error", err)
		}
		var free chan struct{}
		if more && err == nil {
			free = c.free
		}
		// Processes that have started together need not stay so.
		t := time.NewTimer(c.spread(sweepEvery))
		select {
		case <-t.C:
		case <-free:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// spread gives a time that is up to a tenth shorter or longer than d.
func (c *Checker) spread(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(c.cfg.Random()*float64(d/5))
}

// sweep begins the looks whose time has come, as many as there are slots. more
// says that there may be others.
func (c *Checker) sweep(ctx context.Context, looks *sync.WaitGroup) (more bool, err error) {
	select { // what was freed before is counted here
	case <-c.free:
	default:
	}
	room := cap(c.slots) - len(c.slots)
	if room == 0 {
		return true, nil
	}
	now := c.cfg.DB.Now()
	names, err := c.cfg.DB.HealthDue(ctx, now, room)
	if err != nil || len(names) == 0 {
		return false, err
	}
	var failed error
	agents := make(map[string]parley.Agent, len(names))
	claims := make([]store.HealthClaim, 0, len(names))
	for _, name := range names {
		agent, err := c.cfg.Agent(ctx, name)
		if err != nil {
			// Of one record. Its turn is over all the same: the others would never have theirs.
			failed, agent = fmt.Errorf("agent %q: %w", name, err), parley.Agent{}
		} else {
			agents[name] = agent
		}
		claims = append(claims, store.HealthClaim{Agent: name, Next: now.Add(c.spread(c.check(agent).Interval))})
	}
	token := c.cfg.NewToken()
	won, err := c.cfg.DB.ClaimHealth(ctx, claims, token, now)
	if err != nil {
		return false, err
	}
	for _, name := range won {
		agent, read := agents[name]
		if !read || c.check(agent).Off || agent.Status != parley.AgentActive {
			continue
		}
		c.slots <- struct{}{} // there is room: nobody else takes any
		looks.Go(func() {
			defer func() {
				<-c.slots
				select {
				case c.free <- struct{}{}:
				default:
				}
			}()
			c.look(ctx, agent, token)
		})
	}
	return len(names) == room, failed
}

// check says how an agent is looked at.
func (c *Checker) check(agent parley.Agent) parley.HealthCheck {
	check := c.cfg.Check
	if own := agent.Health; own != nil {
		check.Off = own.Off
		check.Interval, check.Timeout = cmp.Or(own.Interval, check.Interval), cmp.Or(own.Timeout, check.Timeout)
	}
	check.Timeout = min(check.Timeout, check.Interval)
	return check
}

// look looks at one agent and stores what that has shown. What the agent sends may be
// anything: should somebody stumble over it, no other agent is to suffer.
func (c *Checker) look(ctx context.Context, agent parley.Agent, token string) {
	defer func() {
		if v := recover(); v != nil {
			c.cfg.Logger.Error("a look at an agent panicked; please report it", "event", "agent_health", "agent", agent.Name,
				"panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	health, err := c.cfg.Look(ctx, agent, c.check(agent).Timeout)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = c.save(ctx, agent, health, token)
	}
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.Warn("a look at an agent was lost; it is looked at again", "event", "agent_health", "agent", agent.Name, "error", err)
	}
}

func (c *Checker) save(ctx context.Context, agent parley.Agent, health parley.AgentHealth, token string) error {
	ctx, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	health.At = c.cfg.DB.Now()
	before, err := c.cfg.DB.Health(ctx, agent.Name)
	if err != nil {
		return err
	}
	after, events := Next(before, health, detectedHash(agent))
	ok, err := c.cfg.DB.SaveHealth(ctx, after, token, events)
	if err != nil || !ok {
		return err // not ok: somebody else has looked since
	}
	for _, e := range events {
		level := slog.LevelInfo
		if e.Type == parley.EventCardChanged || after.Status == parley.HealthUnhealthy {
			level = slog.LevelWarn
		}
		c.cfg.Logger.Log(ctx, level, "an agent has changed", "event", string(e.Type), "agent", agent.Name,
			"status", string(after.Status), "message", after.Message)
	}
	return nil
}

// detectedHash is the hash of the card that the agent is called by, if the one
// that everybody sees is comparable with it: with a credential it may be another.
func detectedHash(agent parley.Agent) string {
	d, ok := parley.ReadDetection(agent.Detected)
	if !ok || agent.Auth.Type != "" && agent.Auth.Type != parley.AuthNone || agent.TLS != (parley.AgentTLS{}) {
		return ""
	}
	return d.CardHash
}
