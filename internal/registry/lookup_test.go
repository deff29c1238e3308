package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

func TestLookupErrors(t *testing.T) {
	f := newFixture(t)
	f.mustAdd(t, spec("deleted"))
	if err := f.Remove(t.Context(), "deleted", ""); err != nil {
		t.Fatal(err)
	}
	s := spec("inactive")
	s.Status = new(parley.AgentInactive)
	f.mustAdd(t, s)
	byID := f.mustAdd(t, spec("by id")).ID
	for name, ref := range map[string]string{"unset": "env:AGENT_ABSENT", "two lines": "file:lines"} {
		s := spec(name)
		s.Auth = &parley.AuthSpec{Type: parley.AuthBearer, Secret: ref}
		f.mustAdd(t, s)
	}
	write(t, f.dir+"/lines", "a\nX-Other: b")
	for _, tt := range []struct {
		name      string
		code      parley.Code
		retryable bool
		text      string
	}{
		{"nobody", parley.CodeUnknownAgent, false, "agent 'nobody' is not known"},
		{"", parley.CodeUnknownAgent, false, "agent '' is not known"},
		{strings.Repeat("é", 65), parley.CodeUnknownAgent, false, "agent '" + strings.Repeat("é", 64) + "…' is not known"},
		{byID, parley.CodeUnknownAgent, false, "is not known"},
		{"deleted", parley.CodeUnknownAgent, false, "was deleted"},
		{"inactive", parley.CodeAgentRejected, false, "is inactive; make it active"},
		{"unset", parley.CodeAgentUnavailable, true, "without its credential: secret env:AGENT_ABSENT does not exist"},
		{"two lines", parley.CodeAgentUnavailable, true, "one line of printable ASCII"},
	} {
		a, err := f.Lookup(t.Context(), tt.name)
		beside := ""
		if tt.code == parley.CodeAgentUnavailable {
			beside = tt.name
		}
		if a.Name != beside || len(a.Credential.Reveal()) != 0 || a.Resolved != nil {
			t.Errorf("Lookup(%q) gives agent %q beside its error, want %q without a credential", tt.name, a.Name, beside)
		}
		e, ok := errors.AsType[*parley.Error](err)
		if !ok || e.Code != tt.code || e.Retryable != tt.retryable || e.Agent != tt.name || !strings.Contains(e.Message, tt.text) {
			t.Errorf("Lookup(%q): %+v; want %s, %q", tt.name, err, tt.code, tt.text)
		}
	}
	// Nothing of that is remembered: it can be mended at once.
	f.env["AGENT_ABSENT"] = "now"
	if a, err := f.Lookup(t.Context(), "unset"); err != nil || string(a.Credential.Reveal()) != "now" {
		t.Errorf("after the variable was set: %q, %v", a.Credential.Reveal(), err)
	}
	f.mustAdd(t, spec("nobody"))
	if _, err := f.Lookup(t.Context(), "nobody"); err != nil {
		t.Errorf("after the agent was added: %v", err)
	}
	broken := parley.Errorf(parley.CodeUnavailable, "no store")
	f.store.onRead = func(context.Context, string) error { return broken }
	if _, err := f.Lookup(t.Context(), "other"); !errors.Is(err, broken) {
		t.Errorf("the store's error became %v", err)
	}
}

func TestLookupRemembersForFiveSeconds(t *testing.T) {
	f := newFixture(t, func(c *registry.Config) { c.CacheFor = time.Hour }) // more than allowed
	s := spec("a")
	s.Auth = &parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:AGENT_TOKEN"}
	f.mustAdd(t, s)
	look := func(wantSecret string, wantReads int64) {
		t.Helper()
		before := f.store.reads.Load()
		a, err := f.Lookup(t.Context(), "a")
		if reads := f.store.reads.Load() - before; err != nil || string(a.Credential.Reveal()) != wantSecret || reads != wantReads {
			t.Errorf("credential %q, %d reads, %v; want %q, %d reads", a.Credential.Reveal(), reads, err, wantSecret, wantReads)
		}
	}
	look("from-the-env", 1)
	f.env["AGENT_TOKEN"] = "changed"
	look("from-the-env", 0)
	f.advance(5*time.Second - time.Millisecond)
	look("from-the-env", 0)
	f.advance(time.Millisecond)
	look("changed", 1)
	look("changed", 0)
	// In this order: Declare changes back what Update did.
	for _, change := range []func() error{
		func() error { return second(f.Update(t.Context(), "a", parley.AgentSpec{Description: new("x")})) },
		func() error { _, _, _, err := f.Declare(t.Context(), []parley.AgentSpec{s}); return err },
	} {
		if err := change(); err != nil {
			t.Error(err)
		}
		look("changed", 1)
	}
	if err := f.Remove(t.Context(), "a", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Lookup(t.Context(), "a"); parley.CodeOf(err) != parley.CodeUnknownAgent {
		t.Errorf("after Remove: %v", err)
	}
}

// What was read before a change is not remembered after it.
func TestLookupThatAChangeOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.mustAdd(t, spec("a"))
		hold := make(chan struct{})
		var held atomic.Bool
		held.Store(true)
		f.store.onRead = func(context.Context, string) error {
			if held.Swap(false) {
				<-hold
			}
			return nil
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if a, err := f.Lookup(t.Context(), "a"); err != nil || a.Description != "" {
				t.Errorf("the slow one: %q, %v", a.Description, err)
			}
		})
		synctest.Wait() // it has read, and waits
		if _, err := f.Update(t.Context(), "a", parley.AgentSpec{Description: new("new")}); err != nil {
			t.Fatal(err)
		}
		// It does not join the slow one either.
		if a, err := f.Lookup(t.Context(), "a"); err != nil || a.Description != "new" {
			t.Errorf("during: %q, %v", a.Description, err)
		}
		close(hold)
		wg.Wait()
		if a, err := f.Lookup(t.Context(), "a"); err != nil || a.Description != "new" {
			t.Errorf("after: %q, %v", a.Description, err)
		}
	})
}

// Who asks after an agent was added does not get what was read before.
func TestLookupThatAnAddOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		hold := make(chan struct{})
		var held atomic.Bool
		held.Store(true)
		f.store.onRead = func(context.Context, string) error {
			if held.Swap(false) {
				<-hold
			}
			return nil
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := f.Lookup(t.Context(), "a"); parley.CodeOf(err) != parley.CodeUnknownAgent {
				t.Errorf("the slow one: %v", err)
			}
		})
		synctest.Wait()
		f.mustAdd(t, spec("a"))
		wg.Go(func() {
			if _, err := f.Lookup(t.Context(), "a"); err != nil {
				t.Errorf("after Add: %v", err)
			}
		})
		synctest.Wait()
		close(hold)
		wg.Wait()
	})
}

func TestLookupReadsOnceForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.mustAdd(t, spec("a"))
		hold := make(chan struct{})
		f.store.onRead = func(ctx context.Context, _ string) error {
			select {
			case <-hold:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		before := f.store.reads.Load()
		gone, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		lookup := func(ctx context.Context, code parley.Code) {
			if _, err := f.Lookup(ctx, "a"); parley.CodeOf(err) != code {
				t.Errorf("Lookup: %v, want code %q", err, code)
			}
		}
		// The first to come reads, and goes away; so does one who waits.
		wg.Go(func() { lookup(gone, parley.CodeUnavailable) })
		synctest.Wait()
		wg.Go(func() { lookup(gone, parley.CodeUnavailable) })
		for range 10 {
			wg.Go(func() { lookup(t.Context(), "") })
		}
		synctest.Wait()
		if n := f.store.reads.Load() - before; n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
		leave()
		synctest.Wait()
		if n := f.store.reads.Load() - before; n != 2 {
			t.Errorf("%d reads after the reader left, want 2", n)
		}
		close(hold)
		wg.Wait()
		if n := f.store.reads.Load() - before; n != 2 {
			t.Errorf("%d reads in the end, want 2", n)
		}
	})
}

func TestLookupSurvivesAPanic(t *testing.T) {
	f := newFixture(t)
	f.mustAdd(t, spec("a"))
	f.store.onRead = func(context.Context, string) error { panic("store") }
	func() {
		defer func() { _ = recover() }()
		_, _ = f.Lookup(t.Context(), "a")
		t.Error("the panic was swallowed")
	}()
	f.store.onRead = nil
	if _, err := f.Lookup(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestLookupCacheIsBounded(t *testing.T) {
	const size = 50
	f := newFixture(t, func(c *registry.Config) { c.CacheSize = size })
	for i := range 4 * size {
		f.mustAdd(t, spec(fmt.Sprintf("agent %d", i)))
	}
	kept := func() (n int) {
		for i := range 4 * size {
			before := f.store.reads.Load()
			if _, err := f.Lookup(t.Context(), fmt.Sprintf("agent %d", i)); err != nil {
				t.Fatal(err)
			}
			if f.store.reads.Load() == before {
				n++
			}
		}
		return n
	}
	kept()
	if n := kept(); n > size {
		t.Errorf("%d agents were remembered, at most %d may be", n, size)
	}
	// What is used again and again is found in it nevertheless.
	before := f.store.reads.Load()
	for range 100 {
		if _, err := f.Lookup(t.Context(), "agent 1"); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.store.reads.Load() - before; n > 1 {
		t.Errorf("%d reads for one agent", n)
	}
}

// Lookups beside changes: after a change has returned, nobody sees what was.
func TestLookupConcurrently(t *testing.T) {
	f := newFixture(t, func(c *registry.Config) { c.CacheSize = 3 })
	const agents, changes = 5, 60
	var version [agents]atomic.Int64
	for i := range agents {
		f.mustAdd(t, spec(fmt.Sprint("agent ", i)))
	}
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for g := range 4 {
		readers.Go(func() {
			for i := g; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				least := version[i%agents].Load()
				a, err := f.Lookup(t.Context(), fmt.Sprint("agent ", i%agents))
				if err != nil {
					t.Error(err)
					return
				}
				if got := int64(a.MaxConcurrent); got < least {
					t.Errorf("version %d of %s after %d was written", got, a.Name, least)
					return
				}
			}
		})
	}
	for i := range agents {
		writers.Go(func() {
			for v := 1; v <= changes; v++ {
				if _, err := f.Update(t.Context(), fmt.Sprint("agent ", i), parley.AgentSpec{MaxConcurrent: &v}); err != nil {
					t.Error(err)
				}
				version[i].Store(int64(v))
				f.advance(time.Millisecond)
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

func BenchmarkLookup(b *testing.B) {
	f := newFixture(b, func(c *registry.Config) { c.Now = time.Now })
	s := spec("a")
	s.Auth = &parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:AGENT_TOKEN"}
	f.mustAdd(b, s)
	b.Run("cached", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := f.Lookup(b.Context(), "a"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cached in parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := f.Lookup(b.Context(), "a"); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
