package registry_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

// damagedStore cannot read some members of the record of one agent until it is written.
type damagedStore struct {
	*fakeStore
	name string
}

func (s *damagedStore) Agent(ctx context.Context, ref string) (parley.Agent, error) {
	a, err := s.fakeStore.Agent(ctx, ref)
	if err == nil && a.Name == s.name {
		a.Retry, a.Limits, a.Breaker, a.Health, a.TLS = parley.RetryConfig{}, parley.AgentLimits{}, nil, nil, parley.AgentTLS{}
		a.Unreadable, err = true, parley.Errorf(parley.CodeInternal, "the limits of agent %q cannot be read", a.Name)
	}
	return a, err
}

func (s *damagedStore) UpdateAgent(ctx context.Context, a parley.Agent, read time.Time) error {
	s.name = ""
	return s.fakeStore.UpdateAgent(ctx, a, read)
}

// TestAD12_ADamagedRecordIsDeclaredAnew: a record that cannot be read does not keep a server
// from starting that declares the agent: nothing of what cannot be read is kept anyway. A
// change of single members is refused.
func TestAD12_ADamagedRecordIsDeclaredAnew(t *testing.T) {
	store := &damagedStore{}
	f := newFixture(t, func(c *registry.Config) { store.fakeStore = c.Store.(*fakeStore); c.Store = store })
	const text = `agents: [{name: a, url: 'http://a', limits: {queue: 7}, auth: {type: bearer, token: s3cret}}, {name: b, url: 'http://b'}]`
	if _, err := f.declare(t, text); err != nil {
		t.Fatal(err)
	}
	before, err := f.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	store.name = "a"
	if _, err := f.Update(t.Context(), "a", parley.AgentSpec{Description: new("x")}); parley.CodeOf(err) != parley.CodeInternal {
		t.Errorf("a member changed: %v", err)
	}
	if counts, err := f.declare(t, text); counts != [3]int{0, 1, 1} || err != nil {
		t.Fatalf("declared: %v, %v", counts, err)
	}
	after, err := f.Get(t.Context(), "a")
	before.UpdatedAt = after.UpdatedAt
	if diff := cmp.Diff(before, after, secretsEqual); err != nil || diff != "" {
		t.Errorf("%v, it was and is:\n%s", err, diff)
	}
}
