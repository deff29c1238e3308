package registry_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

// fakeStore is a registry.Store in memory. The hooks run before an operation.
type fakeStore struct {
	mu      sync.Mutex
	byID    map[string]parley.Agent
	reads   atomic.Int64
	onRead  func(ctx context.Context, name string) error
	onWrite func(parley.Agent) error
}

func (s *fakeStore) find(idOrName string) (parley.Agent, bool) {
	if a, ok := s.byID[idOrName]; ok {
		return a, true
	}
	for _, a := range s.byID {
		if a.Name == idOrName {
			return a, true
		}
	}
	return parley.Agent{}, false
}

func (s *fakeStore) CreateAgent(_ context.Context, a parley.Agent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onWrite != nil {
		if err := s.onWrite(a); err != nil {
			return err
		}
	}
	if _, ok := s.find(a.Name); ok {
		return parley.Errorf(parley.CodeConflict, "name taken")
	}
	s.byID[a.ID] = a
	return nil
}

func (s *fakeStore) UpdateAgent(_ context.Context, a parley.Agent, read time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onWrite != nil {
		if err := s.onWrite(a); err != nil {
			return err
		}
	}
	stored, ok := s.byID[a.ID]
	if !ok {
		return parley.Errorf(parley.CodeNotFound, "no agent %s", a.ID)
	}
	if !stored.UpdatedAt.Equal(read) || !a.UpdatedAt.After(read) {
		return parley.Errorf(parley.CodeConflict, "changed at %v, not %v; now %v", stored.UpdatedAt, read, a.UpdatedAt)
	}
	s.byID[a.ID] = a
	return nil
}

func (s *fakeStore) Agent(ctx context.Context, idOrName string) (parley.Agent, error) {
	s.reads.Add(1)
	s.mu.Lock()
	a, ok := s.find(idOrName)
	s.mu.Unlock()
	// The hook runs after the read, as an answer may be under way for long.
	if s.onRead != nil {
		if err := s.onRead(ctx, idOrName); err != nil {
			return parley.Agent{}, err
		}
	}
	if !ok {
		return parley.Agent{}, parley.Errorf(parley.CodeNotFound, "no agent %s", idOrName)
	}
	return a, nil
}

func (s *fakeStore) Agents(_ context.Context, q parley.AgentQuery) ([]parley.Agent, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []parley.Agent
	for _, a := range s.byID {
		if (q.Status == "" || a.Status == q.Status) && (q.Name == "" || a.Name == q.Name) && (q.Protocol == "" || a.Protocol == q.Protocol) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b parley.Agent) int { return cmp.Compare(a.Name, b.Name) })
	from := min(q.Page.Offset, len(all))
	return all[from:min(from+q.Page.Limit, len(all))], len(all), nil
}

// fixture is a registry on fakes with a clock that stands still.
type fixture struct {
	*registry.Registry
	cfg     registry.Config
	store   *fakeStore
	secrets *registry.Secrets
	env     map[string]string
	dir     string // of file: references
	key     string // the key file
	clock   atomic.Int64
	probe   func(context.Context, parley.Agent) (parley.AgentHealth, error)
}

func (f *fixture) now() time.Time          { return time.UnixMilli(f.clock.Load()).UTC() }
func (f *fixture) advance(d time.Duration) { f.clock.Add(d.Milliseconds()) }

func (f *fixture) Probe(ctx context.Context, a parley.Agent) (parley.AgentHealth, error) {
	return f.probe(ctx, a)
}

// checkJSONRPC stands for the checker of an adapter.
func checkJSONRPC(config json.RawMessage) []error {
	var c map[string]json.RawMessage
	if err := json.Unmarshal(config, &c); err != nil {
		return []error{err}
	}
	var errs []error
	if v, ok := c["method"]; ok && (len(v) < 3 || v[0] != '"') {
		errs = append(errs, errors.New("method: must be a string that is not empty"))
	}
	if v, ok := c["version"]; ok && string(v) != `"2.0"` {
		errs = append(errs, parley.Errorf(parley.CodeInvalid, `protocol_config.version: can only be "2.0"`))
	}
	return errs
}

func newFixture(t testing.TB, change ...func(*registry.Config)) *fixture {
	t.Helper()
	f := &fixture{
		store: &fakeStore{byID: map[string]parley.Agent{}},
		env:   map[string]string{"AGENT_TOKEN": "from-the-env", "OTHER": "must-not-be-read"},
		dir:   t.TempDir(), key: t.TempDir() + "/keys/agents.key",
	}
	f.clock.Store(1_700_000_000_000)
	f.secrets = registry.NewSecrets(registry.SecretsConfig{
		Dir: f.dir, EnvPrefix: "AGENT_", KeyFile: f.key,
		LookupEnv: func(n string) (string, bool) { v, ok := f.env[n]; return v, ok },
	})
	var ids atomic.Int64
	cfg := registry.Config{
		Store: f.store, Prober: f, Secrets: f.secrets, Now: f.now,
		Protocols: []string{parley.ProtocolSimpleA2A, parley.ProtocolJSONRPC},
		Checkers:  map[string]func(json.RawMessage) []error{parley.ProtocolJSONRPC: checkJSONRPC},
		NewID:     func() string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", ids.Add(1)) },
	}
	for _, c := range change {
		c(&cfg)
	}
	f.cfg, f.Registry = cfg, registry.New(cfg)
	return f
}

// spec is an agent that has what it must have.
func spec(name string) parley.AgentSpec {
	return parley.AgentSpec{Name: &name, URL: new("http://agent.example")}
}

// mustAdd adds and fails the test if that fails.
func (f *fixture) mustAdd(t testing.TB, s parley.AgentSpec) parley.Agent {
	t.Helper()
	a, err := f.Add(t.Context(), s)
	if err != nil {
		t.Fatalf("Add: %v", err)
	}
	return a
}

// pathsOf lists the paths of an error's details, in order.
func pathsOf(t testing.TB, err error) []string {
	t.Helper()
	e, ok := errors.AsType[*parley.Error](err)
	if !ok {
		t.Fatalf("%T %v is no *parley.Error", err, err)
	}
	var details []struct{ Path, Code, Detail string }
	if err := json.Unmarshal(e.Details, &details); err != nil {
		t.Fatalf("details %s: %v", e.Details, err)
	}
	var paths []string
	for _, d := range details {
		if d.Code == "" || d.Detail == "" {
			t.Errorf("detail %+v is not complete", d)
		}
		paths = append(paths, d.Path)
	}
	return paths
}
