package store

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

func removal(workflow, id string) Removal {
	return Removal{Workflow: workflow, ID: id, By: "bob", At: epoch, NewID: func() string { return "gone-" + workflow }}
}

// TestC10_RemovedVersions: what is deleted, by whom, and what becomes of aliases.
func TestC10_RemovedVersions(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		deployed(t, db, 3)
		set := func(alias, version string) {
			t.Helper()
			_, _, err := db.SetAlias(ctx, aliasChange("w", alias, version, "audit-"+alias))
			check(t, err)
		}
		set("beta", "2")
		want := func(states ...string) {
			t.Helper()
			var got []string
			for _, d := range versionsOf(t, db, "w") {
				got = append(got, d.Version+" "+string(d.Status)+" "+d.UpdatedBy)
			}
			diff(t, got, states)
		}
		err := db.RemoveVersions(ctx, removal("w", "id-2"))
		wantCode(t, err, parley.CodeConflict)
		if !strings.Contains(err.Error(), `version 2 of workflow "w" is what beta stands for`) {
			t.Error(err)
		}
		check(t, db.RemoveVersions(ctx, removal("w", "id-3")))
		check(t, db.RemoveVersions(ctx, removal("w", "id-3")))
		want("3 deleted bob", "2 active ann", "1 active ann")
		check(t, db.RemoveVersions(ctx, removal("w", "")))
		check(t, db.RemoveVersions(ctx, removal("w", "")))
		want("3 deleted bob", "2 deleted bob", "1 deleted bob")
		diff(t, len(must(db.Aliases(ctx, "w"))(t)), 0)
		entries, n, err := db.Audits(ctx, AuditQuery{EntityType: "workflow", EntityID: "w"})
		check(t, err)
		if actions := []string{entries[0].Action, entries[1].Action}; n != 2 || !slices.Contains(actions, "unalias") {
			t.Errorf("%d entries: %s", n, actions)
		}
	})
}

// TestC10_AliasAndRemoval: of an alias of a version and its removal, which come at
// once, one is refused, and of a workflow that goes no alias is left, whether they
// share a transaction or not.
func TestC10_AliasAndRemoval(t *testing.T) {
	put := func(t *testing.T, db *DB, workflow string) (id string) {
		t.Helper()
		id = "id-" + workflow
		must(db.PutDefinition(t.Context(), definition(id, workflow, "one"), PutVersion))(t)
		return id
	}
	agree := func(t *testing.T, db *DB, workflow string, whole bool, named, removed error) {
		t.Helper()
		deleted := versionsOf(t, db, workflow)[0].Status == parley.AgentDeleted
		aliases := len(must(db.Aliases(t.Context(), workflow))(t))
		if deleted == (aliases > 0) || deleted != (removed == nil) || whole && removed != nil || !whole && (named == nil) == deleted {
			t.Errorf("%s: deleted %v with %d aliases; alias: %v, removal: %v", workflow, deleted, aliases, named, removed)
		}
		for _, err := range []error{named, removed} {
			if err != nil {
				wantCode(t, err, parley.CodeConflict)
			}
		}
	}
	eachDB(t, func(t *testing.T, db *DB) {
		for i, workflow := range []string{"a", "b", "c", "d"} {
			id := put(t, db, workflow)
			if i > 1 {
				id = ""
			}
			var errs [2]error
			writers := []func(){
				func() {
					_, _, errs[0] = db.SetAlias(t.Context(), aliasChange(workflow, "beta", "1", "audit-"+workflow))
				},
				func() { errs[1] = db.RemoveVersions(t.Context(), removal(workflow, id)) },
			}
			var both sync.WaitGroup
			release := stall(t, db)
			for n := range writers {
				both.Go(writers[(n+i)%2])
				queued(t, db, n+1)
			}
			release()
			both.Wait()
			agree(t, db, workflow, id == "", errs[0], errs[1])
		}
	})
	t.Run("transactions", func(t *testing.T) {
		target := pgtest.Copy(t, migrated(t))
		db, other := openedAt(t, target, Options{}), openedAt(t, target, Options{})
		done := make(chan error, 1)
		for _, whole := range []bool{false, true} {
			workflow := map[bool]string{false: "a", true: "b"}[whole]
			id := put(t, db, workflow)
			if whole {
				id = ""
			}
			end := halfway(t, other, func(s *session) error {
				err := holdVersions(s, workflow)
				if err == nil {
					_, err = s.exec(insertAlias, "beta", unixMicro(epoch), unixMicro(epoch), "ann", "ann", workflow, "1")
				}
				return err
			})
			go func() { done <- db.RemoveVersions(t.Context(), removal(workflow, id)) }()
			blocked(t, db, done)
			end()
			agree(t, db, workflow, whole, nil, <-done)
		}
	})
}
