package registry_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/store"
)

// The registry on the real store: nothing is lost or shown in the rows.
func TestAD5_OnTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "parley.db")
	db, err := store.Open(t.Context(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(c *registry.Config) { c.Store = db })
	s := spec("a")
	s.Protocol, s.ProtocolConfig = new(parley.ProtocolJSONRPC), json.RawMessage(`{"method":"m"}`)
	s.Auth = &parley.AuthSpec{Type: parley.AuthAPIKey, Literal: parley.NewSecret([]byte("c4nary"))}
	s.Description, s.Timeout, s.MaxConcurrent, s.Idempotent = new("d"), new(2*time.Second), new(3), new(true)
	s.OutcomeUnknown, s.By = new(parley.OutcomeLookup), "ann"
	added := f.mustAdd(t, s)
	got, err := f.Get(t.Context(), added.ID)
	if diff := cmp.Diff(added, got, secretsEqual); err != nil || diff != "" {
		t.Errorf("%v (-added +stored):\n%s", err, diff)
	}
	for _, want := range []int{0, 0} {
		_, updated, unchanged, err := f.Declare(t.Context(), []parley.AgentSpec{s})
		if updated != want || unchanged != 1 || err != nil {
			t.Errorf("declared again: %d updated, %d unchanged, %v", updated, unchanged, err)
		}
	}
	if looked, err := f.Lookup(t.Context(), "a"); err != nil || string(looked.Credential.Reveal()) != "c4nary" {
		t.Errorf("credential %q, %v", looked.Credential.Reveal(), err)
	}
	if err := f.Remove(t.Context(), "a", "bob"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Add(t.Context(), s); parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), "Agent with name 'a' already exists") {
		t.Errorf("the name of a deleted agent: %v", err)
	}
	f.mustAdd(t, spec("b"))
	if agents, total, err := f.List(t.Context(), parley.AgentQuery{Status: parley.AgentDeleted}); len(agents) != 1 || total != 1 || err != nil {
		t.Errorf("deleted ones: %v, %d, %v", agents, total, err)
	}
	if _, err := f.Lookup(t.Context(), "nobody"); parley.CodeOf(err) != parley.CodeUnknownAgent {
		t.Errorf("an unknown name: %v", err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "c4nary") {
			t.Errorf("%s holds the credential", filepath.Base(file))
		}
	}
}
