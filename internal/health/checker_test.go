package health_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/health"
	"github.com/parley-project/parley/internal/store"
)

// rig is a store in virtual time, and the looks that were taken at its agents.
type rig struct {
	t  *testing.T
	db *store.DB

	mu    sync.Mutex // protects what follows
	looks map[string][]time.Time
	// under counts the looks under way, most how many there were at most.
	under, most int
	tokens      int
	log         bytes.Buffer // of checkers; read it when none runs
	// look, if set, is a look.
	look func(ctx context.Context, agent parley.Agent) (parley.AgentHealth, error)
	// damaged are the agents whose records cannot be read.
	damaged []string
}

func newRig(t *testing.T, agents ...string) *rig {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "parley.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, db: db, looks: map[string][]time.Time{}}
	for _, name := range agents {
		r.add(parley.Agent{Name: name})
	}
	return r
}

func (r *rig) add(a parley.Agent) {
	r.t.Helper()
	a.ID, a.URL, a.Protocol, a.Retry = "id-"+a.Name, "http://"+a.Name+"/", parley.ProtocolSimpleA2A, parley.DefaultRetryConfig()
	if err := r.db.CreateAgent(r.t.Context(), a); err != nil {
		r.t.Fatal(err)
	}
}

// agent gives a record.
func (r *rig) agent(ctx context.Context, name string) (parley.Agent, error) {
	if slices.Contains(r.damaged, name) {
		return parley.Agent{}, errors.New("its record is damaged")
	}
	return r.db.Agent(ctx, name)
}

// checker is that of one process.
func (r *rig) checker(random float64, concurrent int) *health.Checker {
	return health.New(health.Config{
		DB: r.db, Agent: r.agent, Concurrent: concurrent, Random: func() float64 { return random },
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
		Look: func(ctx context.Context, agent parley.Agent, within time.Duration) (parley.AgentHealth, error) {
			r.mu.Lock()
			r.looks[agent.Name] = append(r.looks[agent.Name], time.Now())
			r.under++
			r.most = max(r.most, r.under)
			look := r.look
			r.mu.Unlock()
			defer func() {
				r.mu.Lock()
				r.under--
				r.mu.Unlock()
			}()
			if want := health.DefaultTimeout; within != want && (agent.Health == nil || within != agent.Health.Timeout) {
				r.t.Errorf("within %v", within)
			}
			if look == nil {
				return parley.AgentHealth{Healthy: true, Message: "well"}, nil
			}
			return look(ctx, agent)
		},
		NewToken: func() string {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.tokens++
			return fmt.Sprint("token-", r.tokens)
		},
	})
}

// run runs checkers for a while.
func (r *rig) run(d time.Duration, checkers ...*health.Checker) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range checkers {
		all.Go(func() {
			if err := c.Run(ctx); err != nil {
				r.t.Error(err)
			}
		})
	}
	all.Wait()
}

func (r *rig) count(agent string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.looks[agent])
}

func (r *rig) state(agent string) parley.HealthState {
	r.t.Helper()
	h, err := r.db.Health(r.t.Context(), agent)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) events(agent string) (kinds []parley.AgentEventType) {
	r.t.Helper()
	list, err := r.db.AgentEvents(r.t.Context(), agent, 0, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range list {
		kinds = append(kinds, e.Type)
	}
	return kinds
}

// TestOneLook: however many processes look at agents, each is looked at once an
// interval, and nobody else is: not agents out of use.
func TestOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "a", "b", "c")
		r.add(parley.Agent{Name: "idle", Status: parley.AgentInactive})
		r.add(parley.Agent{Name: "gone", Status: parley.AgentDeleted})
		r.run(10*health.DefaultInterval, r.checker(0, 0), r.checker(0.3, 0), r.checker(0.6, 0), r.checker(0.99, 0))
		for name, looks := range r.looks {
			if name == "idle" || name == "gone" {
				t.Errorf("%s was looked at", name)
			}
			if n := len(looks); n < 9 || n > 12 {
				t.Errorf("%s was looked at %d times", name, n)
			}
			for i := 1; i < len(looks); i++ {
				if gap := looks[i].Sub(looks[i-1]); gap < health.DefaultInterval*8/10 || gap > health.DefaultInterval*12/10 {
					t.Errorf("%s was looked at again after %v", name, gap)
				}
			}
		}
		if len(r.looks) != 3 || r.state("a").Status != parley.HealthHealthy || len(r.events("a")) != 1 {
			t.Errorf("%d agents, %+v, %v", len(r.looks), r.state("a"), r.events("a"))
		}
	})
}

// TestSlowAgents: looks that take long hold up no more than their slots; all the
// others are looked at as soon as one is free.
func TestSlowAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 36
		names := make([]string, agents)
		for i := range names {
			names[i] = fmt.Sprintf("agent-%02d", i)
		}
		r := newRig(t, names...)
		r.look = func(ctx context.Context, _ parley.Agent) (parley.AgentHealth, error) {
			select {
			case <-time.After(3100 * time.Millisecond): // no multiple of the time between two sweeps
			case <-ctx.Done():
			}
			return parley.AgentHealth{Message: "no answer"}, nil
		}
		r.run(29*time.Second, r.checker(0.5, 4)) // 9 rounds of 3.1 s each
		for _, name := range names {
			if r.count(name) != 1 {
				t.Errorf("%s was looked at %d times", name, r.count(name))
			}
		}
		if r.most != 4 {
			t.Errorf("%d looks were under way", r.most)
		}
	})
}

// TestLookEnds: when a process stops, its looks are given up and say nothing;
// Run returns after they have ended. Another process looks at the next time.
func TestLookEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "a")
		r.look = func(ctx context.Context, _ parley.Agent) (parley.AgentHealth, error) {
			<-ctx.Done()
			return parley.AgentHealth{Message: "cut"}, nil
		}
		r.run(10*time.Second, r.checker(0.5, 0))
		if r.under != 0 || r.count("a") != 1 {
			t.Errorf("%d looks under way of %d", r.under, r.count("a"))
		}
		if h := r.state("a"); h.Status != parley.HealthUnknown || h.Failures != 0 || !h.CheckedAt.IsZero() {
			t.Errorf("%+v", h)
		}
		r.look = nil
		r.run(15*time.Second, r.checker(0.5, 0))
		if r.count("a") != 1 {
			t.Error("looked at again before its time")
		}
		r.run(10*time.Second, r.checker(0.5, 0))
		if h := r.state("a"); r.count("a") != 2 || h.Status != parley.HealthHealthy {
			t.Errorf("%d looks, %+v", r.count("a"), h)
		}
	})
}

// TestLookFails: a look that says nothing, one that stumbles over what the agent has
// sent, and a record that cannot be read, cost only themselves.
func TestLookFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "a", "b", "ill", "odd")
		r.look = func(_ context.Context, agent parley.Agent) (parley.AgentHealth, error) {
			switch agent.Name {
			case "b":
				return parley.AgentHealth{}, errors.New("nobody can look")
			case "ill":
				return parley.AgentHealth{Message: "no connection"}, nil
			case "odd":
				panic("index out of range")
			}
			return parley.AgentHealth{Healthy: true}, nil
		}
		r.run(50*time.Second, r.checker(0.5, 1))
		if h := r.state("odd"); h.Status != parley.HealthUnknown || r.count("odd") != 2 {
			t.Errorf("%d looks, %+v", r.count("odd"), h)
		}
		if h := r.state("b"); h.Status != parley.HealthUnknown || r.count("b") != 2 {
			t.Errorf("%d looks, %+v", r.count("b"), h)
		}
		h := r.state("ill")
		if h.Status != parley.HealthUnhealthy || h.Failures != 2 || h.Message != "no connection" || len(r.events("ill")) != 1 {
			t.Errorf("%+v, %v", h, r.events("ill"))
		}
		if h := r.state("a"); h.Status != parley.HealthHealthy {
			t.Errorf("%+v", h)
		}
		log := r.log.String()
		if lost := strings.Count(log, "a look at an agent was lost"); lost != 2 || strings.Count(log, "nobody can look") != lost || strings.Contains(log, "error=<nil>") {
			t.Error(log)
		}
	})
}

// TestDamagedRecords: records that cannot be read, as many as are looked at together, keep
// nobody else from being looked at, and are told of once an interval.
func TestDamagedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "a", "b", "well")
		r.damaged = []string{"a", "b"}
		r.run(50*time.Second, r.checker(0.5, 2))
		if h := r.state("well"); r.count("well") != 2 || h.Status != parley.HealthHealthy {
			t.Errorf("%d looks, %+v", r.count("well"), h)
		}
		for _, name := range r.damaged {
			if h := r.state(name); r.count(name) != 0 || h.Status != parley.HealthUnknown || !h.CheckedAt.IsZero() {
				t.Errorf("%s: %d looks, %+v", name, r.count(name), h)
			}
		}
		if n := strings.Count(r.log.String(), "its record is damaged"); n < 2 || n > 4 {
			t.Errorf("%d lines:\n%s", n, r.log.String())
		}
		r.damaged = nil
		r.run(30*time.Second, r.checker(0.5, 2))
		if h := r.state("a"); h.Status != parley.HealthHealthy {
			t.Errorf("a record that was mended: %+v", h)
		}
	})
}

// TestCardOfCredential: the card that everybody sees is compared with the one that the
// agent is called by only if that is the same: with a credential it may be another.
func TestCardOfCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		called := json.RawMessage(`{"protocol":"a2a","card_hash":"aa"}`)
		r.add(parley.Agent{Name: "open", Detected: called})
		r.add(parley.Agent{Name: "none", Detected: called, Auth: parley.Auth{Type: parley.AuthNone}})
		r.add(parley.Agent{Name: "bearer", Detected: called, Auth: parley.Auth{Type: parley.AuthBearer}})
		r.add(parley.Agent{Name: "certificate", Detected: called, TLS: parley.AgentTLS{CA: "env:CA"}})
		r.look = func(context.Context, parley.Agent) (parley.AgentHealth, error) {
			return parley.AgentHealth{Healthy: true, CardHash: "bb"}, nil
		}
		r.run(10*time.Second, r.checker(0.5, 0))
		for agent, want := range map[string]bool{"open": true, "none": true, "bearer": false, "certificate": false} {
			if got := slices.Contains(r.events(agent), parley.EventCardChanged); got != want || r.state(agent).CardHash != "bb" {
				t.Errorf("%s: changed %t, %+v", agent, got, r.state(agent))
			}
		}
	})
}

// TestOwnSettings: an agent is looked at as its record says, which counts from the
// next look on.
func TestOwnSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "a")
		r.add(parley.Agent{Name: "often", Health: &parley.HealthCheck{Interval: 5 * time.Second, Timeout: time.Second}})
		r.add(parley.Agent{Name: "off", Health: &parley.HealthCheck{Off: true}})
		r.run(time.Minute, r.checker(0.5, 0))
		if n := r.count("often"); n < 10 || n > 13 || r.count("off") != 0 || r.count("a") != 2 {
			t.Errorf("often %d, off %d, a %d", n, r.count("off"), r.count("a"))
		}
		off, err := r.db.Agent(t.Context(), "off")
		if err != nil {
			t.Fatal(err)
		}
		read := off.UpdatedAt
		off.Health, off.UpdatedAt = nil, read.Add(time.Microsecond)
		if err := r.db.UpdateAgent(t.Context(), off, read); err != nil {
			t.Fatal(err)
		}
		r.run(time.Minute, r.checker(0.5, 0))
		if n := r.count("off"); n == 0 {
			t.Error("not looked at")
		}
	})
}
