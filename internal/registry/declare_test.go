package registry_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

func (f *fixture) declare(t *testing.T, text string) (counts [3]int, err error) {
	t.Helper()
	specs, problems := registry.LoadFile("a.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	counts[0], counts[1], counts[2], err = f.Declare(t.Context(), specs)
	return counts, err
}

func TestAD12_DeclareIsIdempotent(t *testing.T) {
	f := newFixture(t)
	const text = `agents:
- {name: a, url: 'http://a', timeout: 5s}
- {name: b, url: 'http://b', protocol: jsonrpc-2.0, protocol_config: {method: m}, auth: {type: bearer, token: first}}
- {name: c, url: 'http://c', auth: {type: apikey, secret: 'env:AGENT_TOKEN'}}
`
	for i, want := range [][3]int{{3, 0, 0}, {0, 0, 3}, {0, 0, 3}} {
		before := f.store.byID
		if counts, err := f.declare(t, text); counts != want || err != nil {
			t.Errorf("time %d: added, updated, unchanged = %v, %v; want %v", i+1, counts, err, want)
		}
		if diff := cmp.Diff(before, f.store.byID, secretsEqual); i > 0 && diff != "" {
			t.Errorf("time %d changed the store:\n%s", i+1, diff)
		}
		f.advance(time.Minute)
	}
	// One member changes, one goes back to its default, one secret is new.
	counts, err := f.declare(t, strings.NewReplacer(", timeout: 5s", "", "first", "second").Replace(text))
	if counts != [3]int{0, 2, 1} || err != nil {
		t.Errorf("after a change: %v, %v", counts, err)
	}
	a, _ := f.Get(t.Context(), "a")
	b, _ := f.Lookup(t.Context(), "b")
	if a.Timeout != 30*time.Second || a.UpdatedAt != f.now() || a.UpdatedBy != "agents file" || string(b.Credential.Reveal()) != "second" {
		t.Errorf("a = %+v\nb = %+v with %q", a, b, b.Credential.Reveal())
	}
	// The same credential of another type is not "unchanged".
	if counts, err := f.declare(t, "agents: [{name: b, url: 'http://b', protocol: jsonrpc-2.0, protocol_config: {method: m}, auth: {type: apikey, key: second}}]"); counts != [3]int{0, 1, 0} || err != nil {
		t.Errorf("another type: %v, %v", counts, err)
	}
}

func TestAD12_DeclareAndTheStatus(t *testing.T) {
	f := newFixture(t)
	const text = "agents: [{name: a, url: 'http://a'}, {name: b, url: 'http://b'}]"
	if _, err := f.declare(t, text); err != nil {
		t.Fatal(err)
	}
	f.mustAdd(t, spec("other"))
	if _, err := f.Update(t.Context(), "a", parley.AgentSpec{Status: new(parley.AgentInactive)}); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(t.Context(), "b", ""); err != nil {
		t.Fatal(err)
	}
	counts, err := f.declare(t, text)
	if counts != [3]int{0, 1, 1} || err != nil {
		t.Errorf("%v, %v", counts, err)
	}
	for name, want := range map[string]parley.AgentStatus{"a": parley.AgentInactive, "b": parley.AgentActive, "other": parley.AgentActive} {
		if a, err := f.Get(t.Context(), name); a.Status != want || err != nil {
			t.Errorf("%s is %s, %v; want %s", name, a.Status, err, want)
		}
	}
}

func TestAD12_DeclareChecksAllBeforeTheFirst(t *testing.T) {
	f := newFixture(t)
	specs := []parley.AgentSpec{spec("a"), spec("b"), spec("a"), {}}
	specs[1].Protocol = new("soap")
	_, _, _, err := f.Declare(t.Context(), specs)
	want := []string{"agents[1].protocol", "agents[2].name", "agents[3].name", "agents[3].url"}
	if diff := cmp.Diff(want, pathsOf(t, err)); diff != "" || parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if len(f.store.byID) != 0 {
		t.Errorf("%d agents were stored", len(f.store.byID))
	}
	if _, _, _, err := f.Declare(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestAD12_DeclareGoesOnAfterAFailure(t *testing.T) {
	f := newFixture(t)
	f.store.onWrite = func(a parley.Agent) error {
		if a.Name == "b" {
			return parley.Errorf(parley.CodeUnavailable, "the disk is full")
		}
		return nil
	}
	const text = "agents: [{name: a, url: 'http://a'}, {name: b, url: 'http://b'}]"
	if counts, err := f.declare(t, text); counts != [3]int{1, 0, 0} || parley.CodeOf(err) != parley.CodeUnavailable {
		t.Errorf("%v, %v", counts, err)
	}
	f.store.onWrite = nil
	if counts, err := f.declare(t, text); counts != [3]int{1, 0, 1} || err != nil {
		t.Errorf("again: %v, %v", counts, err)
	}
}

// Two servers that start at once declare the same file.
func TestAD12_DeclareWhileAnotherServerDoes(t *testing.T) {
	f := newFixture(t)
	other := registry.New(registry.Config{
		Store: f.store, Secrets: f.secrets, Now: f.now, Protocols: []string{"simple-a2a"},
		NewID: func() string { return "00000000-0000-4000-8000-00000000000f" },
	})
	first := true
	f.store.onWrite = func(parley.Agent) error {
		if !first {
			return nil
		}
		first = false
		f.store.mu.Unlock()
		defer f.store.mu.Lock()
		_, err := other.Add(t.Context(), spec("a"))
		return err
	}
	added, updated, unchanged, err := f.Declare(t.Context(), []parley.AgentSpec{spec("a")})
	if added != 0 || updated != 0 || unchanged != 1 || err != nil {
		t.Errorf("%d added, %d updated, %d unchanged, %v; want it unchanged", added, updated, unchanged, err)
	}
}

// TestAD5_UpdatesAreNotLost: three processes that change one agent at the same
// moment, by one clock, all have their change in the record.
func TestAD5_UpdatesAreNotLost(t *testing.T) {
	f := newFixture(t)
	f.mustAdd(t, spec("a"))
	// Each has read the record before one of them writes.
	var readers sync.WaitGroup
	readers.Add(3)
	var reads atomic.Int64
	f.store.onRead = func(context.Context, string) error {
		if reads.Add(1) <= 3 {
			readers.Done()
			readers.Wait()
		}
		return nil
	}
	var wg sync.WaitGroup
	for i, change := range []func(*registry.Registry) error{
		func(r *registry.Registry) error {
			return second(r.Update(t.Context(), "a", parley.AgentSpec{Timeout: new(2 * time.Second)}))
		},
		func(r *registry.Registry) error {
			return second(r.Update(t.Context(), "a", parley.AgentSpec{Description: new("x")}))
		},
		func(r *registry.Registry) error { return r.Remove(t.Context(), "a", "") },
	} {
		wg.Go(func() {
			if err := change(registry.New(f.cfg)); err != nil {
				t.Errorf("change %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	f.store.onRead = nil
	if a, _ := f.Get(t.Context(), "a"); a.Timeout != 2*time.Second || a.Description != "x" || a.Status != parley.AgentDeleted {
		t.Errorf("%+v lost a change", a)
	}
}

// TestAD5_ChangedAllTheTime: a change that always comes too late ends, and says
// that it was not made.
func TestAD5_ChangedAllTheTime(t *testing.T) {
	f := newFixture(t)
	before := f.mustAdd(t, spec("a"))
	tries := 0
	f.store.onWrite = func(parley.Agent) error {
		tries++
		return parley.Errorf(parley.CodeConflict, "changed meanwhile")
	}
	_, err := f.Update(t.Context(), "a", parley.AgentSpec{Description: new("x")})
	if parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), "nothing is changed; try again") || tries != 20 {
		t.Errorf("%v after %d tries", err, tries)
	}
	if a, _ := f.Get(t.Context(), "a"); a.Description != before.Description || !a.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("%+v is changed", a)
	}
}
