package store

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

func aliasChange(workflow, alias, version, id string) AliasChange {
	return AliasChange{
		WorkflowAlias: parley.WorkflowAlias{Workflow: workflow, Alias: alias, Version: version, UpdatedAt: epoch, UpdatedBy: "ann"}, AuditID: id,
	}
}

// deployed puts versions 1 to n of w.
func deployed(t *testing.T, db *DB, n int) {
	t.Helper()
	for i := range n {
		d := definition("id-"+string(rune('1'+i)), "w", "content "+string(rune('1'+i)))
		d.CreatedAt = epoch.Add(time.Duration(i) * time.Second)
		must(db.PutDefinition(t.Context(), d, PutVersion))(t)
	}
}

// TestC10_AliasesStandForVersions: an alias is set, moved and removed, each with
// who did it and when, and stands for a version that takes runs.
func TestC10_AliasesStandForVersions(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		deployed(t, db, 3)
		set := func(c AliasChange) (parley.WorkflowAlias, bool) {
			a, created, err := db.SetAlias(ctx, c)
			check(t, err)
			return a, created
		}
		a, created := set(aliasChange("w", "beta", "2", "1"))
		want := parley.WorkflowAlias{
			Workflow: "w", Alias: "beta", Version: "2", DefinitionID: "id-2", CreatedAt: epoch, UpdatedAt: epoch, CreatedBy: "ann", UpdatedBy: "ann",
		}
		diff(t, []any{a, created}, []any{want, true})
		diff(t, must(db.Definition(ctx, "w@beta"))(t).ID, "id-2")

		// Moved by somebody else; to move it where it is changes nothing.
		move := aliasChange("w", "beta", "3", "2")
		move.UpdatedBy, move.UpdatedAt = "bob", epoch.Add(time.Hour)
		a, created = set(move)
		want.Version, want.DefinitionID, want.UpdatedBy, want.UpdatedAt = "3", "id-3", "bob", epoch.Add(time.Hour)
		diff(t, []any{a, created}, []any{want, false})
		a, created = set(aliasChange("w", "beta", "3", "never"))
		diff(t, []any{a, created}, []any{want, false})
		diff(t, must(db.Definition(ctx, "w@beta"))(t).ID, "id-3")
		set(aliasChange("w", "alpha", "1", "3"))
		var names []string
		for _, a := range must(db.Aliases(ctx, "w", "other"))(t) {
			names = append(names, a.Alias+"="+a.Version)
		}
		diff(t, names, []string{"alpha=1", "beta=3"})

		for _, c := range []struct {
			change AliasChange
			code   parley.Code
		}{
			{aliasChange("w", "beta", "9", "x"), parley.CodeNotFound},
			{aliasChange("none", "beta", "1", "x"), parley.CodeNotFound},
			{aliasChange("w", "Beta", "1", "x"), parley.CodeInvalid},
			{aliasChange("w", "2", "1", "x"), parley.CodeInvalid},
		} {
			_, _, err := db.SetAlias(ctx, c.change)
			wantCode(t, err, c.code)
		}
		check(t, db.RemoveAlias(ctx, aliasChange("w", "beta", "", "4")))
		wantCode(t, db.RemoveAlias(ctx, aliasChange("w", "beta", "", "x")), parley.CodeNotFound)
		_, err := db.Definition(ctx, "w@beta")
		wantCode(t, err, parley.CodeNotFound)

		entries, total, err := db.Audits(ctx, AuditQuery{EntityType: "workflow", EntityID: "w"})
		check(t, err)
		var told []string
		for _, e := range entries {
			told = append(told, e.Action+" "+e.By+" "+string(e.Changes))
		}
		diff(t, total, 4)
		for _, want := range []string{
			`alias ann {"alias":"beta","version":"2"}`, `alias bob {"alias":"beta","from":"2","version":"3"}`,
			`alias ann {"alias":"alpha","version":"1"}`, `unalias ann {"alias":"beta","from":"3"}`,
		} {
			if !strings.Contains(strings.Join(told, "\n"), want) {
				t.Errorf("the record has no %s:\n%s", want, strings.Join(told, "\n"))
			}
		}
	})
}

// TestS11_WhatAStartMeans: a version or an alias is taken as given; else the alias
// stable, else the newest version that is not deprecated. Who only looks sees the
// newest.
func TestS11_WhatAStartMeans(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		deployed(t, db, 3)
		means := func(want string) {
			t.Helper()
			for _, ref := range []string{"w", "Name of w"} {
				diff(t, must(db.Definition(ctx, ref))(t).ID, want)
				diff(t, must(db.Newest(ctx, ref))(t).ID, "id-3")
			}
		}
		deprecate := func(version string, undo bool) {
			t.Helper()
			check(t, db.SetDeprecation(ctx, DeprecationChange{
				Workflow: "w", Version: version, Undo: undo, Deprecation: parley.Deprecation{At: epoch, By: "ann", Reason: "old"}, AuditID: version + map[bool]string{true: "u"}[undo],
			}))
		}
		means("id-3")
		deprecate("3", false)
		means("id-2")
		diff(t, must(db.Definition(ctx, "w@3"))(t).Deprecated, &parley.Deprecation{At: epoch, By: "ann", Reason: "old"})
		deprecate("3", false)
		_, _, err := db.SetAlias(ctx, aliasChange("w", "stable", "1", "a"))
		check(t, err)
		means("id-1")
		diff(t, must(db.Definition(ctx, "w@stable"))(t).ID, "id-1")
		check(t, db.RemoveAlias(ctx, aliasChange("w", "stable", "", "b")))
		deprecate("1", false)
		deprecate("2", false)
		means("id-3") // the start says that it is deprecated
		deprecate("2", true)
		means("id-2")
		if d := must(db.Definition(ctx, "w@2"))(t).Deprecated; d != nil {
			t.Errorf("deprecated %v", d)
		}
		check(t, db.SetDefinitionStatus(ctx, "id-2", parley.AgentInactive, "ann", epoch))
		diff(t, must(db.Definition(ctx, "w"))(t).ID, "id-3")
	})
}

// TestC10_AliasesAndDeprecationExcludeEachOther: an alias never stands for a version
// that takes no new runs, nor is there a version of its name.
func TestC10_AliasesAndDeprecationExcludeEachOther(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		deployed(t, db, 2)
		_, _, err := db.SetAlias(ctx, aliasChange("w", "stable", "1", "a"))
		check(t, err)
		before, stable := dump(t, db), must(db.Aliases(ctx, "w"))(t)
		gone := DeprecationChange{Workflow: "w", Version: "1", Deprecation: parley.Deprecation{At: epoch}, AuditID: "b"}
		wantCode(t, db.SetDeprecation(ctx, gone), parley.CodeConflict)
		d := definition("id-9", "w", "nine")
		d.Version = "stable"
		_, err = db.PutDefinition(ctx, d, PutVersion)
		wantCode(t, err, parley.CodeConflict)
		diff(t, []any{dump(t, db), must(db.Aliases(ctx, "w"))(t)}, []any{before, stable})
		gone.Version = "9"
		wantCode(t, db.SetDeprecation(ctx, gone), parley.CodeNotFound)

		gone.Version = "2"
		check(t, db.SetDeprecation(ctx, gone))
		_, _, err = db.SetAlias(ctx, aliasChange("w", "stable", "2", "c"))
		wantCode(t, err, parley.CodeConflict)
		d.Version = "rc"
		must(db.PutDefinition(ctx, d, PutVersion))(t)
		_, _, err = db.SetAlias(ctx, aliasChange("w", "rc", "1", "c"))
		wantCode(t, err, parley.CodeConflict)
		check(t, db.SetDefinitionStatus(ctx, "id-9", parley.AgentDeleted, "ann", epoch))
		_, _, err = db.SetAlias(ctx, aliasChange("w", "other", "rc", "c"))
		wantCode(t, err, parley.CodeConflict)

		// What was deleted is there again once it is deployed again.
		d.UpdatedBy, d.UpdatedAt = "bob", epoch.Add(time.Hour)
		back := must(db.PutDefinition(ctx, d, PutVersion))(t)
		diff(t, []any{back.ID, back.Status, back.UpdatedBy}, []any{"id-9", parley.AgentActive, "bob"})
		diff(t, must(db.Definition(ctx, "w@rc"))(t), back)
		check(t, db.SetDefinitionStatus(ctx, "id-9", parley.AgentDeleted, "ann", epoch))
		d.Status = parley.AgentInactive
		diff(t, must(db.PutDefinition(ctx, d, PutVersion))(t).Status, parley.AgentDeleted)
	})
}

// TestAliasMigration: versions that were there before stay, and take new runs.
func TestAliasMigration(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string) {
		ctx := t.Context()
		db := reopen(t, target, Options{})
		deployed(t, db, 1)
		_, _, err := db.SetAlias(ctx, aliasChange("w", "stable", "1", "a"))
		check(t, err)
		check(t, db.MigrateDown(ctx, 16))
		check(t, db.Migrate(ctx))
		d := must(db.Definition(ctx, "w"))(t)
		if d.ID != "id-1" || d.Deprecated != nil || len(must(db.Aliases(ctx, "w"))(t)) != 0 {
			t.Errorf("%+v", d)
		}
	})
}

// TestC10_OneOfAliasAndDeprecationWins: of who makes an alias stand for a version
// and who deprecates it at the same time exactly one succeeds, in one transaction
// and in two.
func TestC10_OneOfAliasAndDeprecationWins(t *testing.T) {
	race := func(t *testing.T, db *DB) {
		for i := range 8 {
			k := "w" + string(rune('a'+i))
			for _, content := range []string{"one", "two"} {
				must(db.PutDefinition(t.Context(), definition("id-"+content+"-"+k, k, content), PutVersion))(t)
			}
			writers := []func() error{
				func() error {
					_, _, err := db.SetAlias(t.Context(), aliasChange(k, "stable", "1", "alias-"+k))
					return err
				},
				func() error {
					return db.SetDeprecation(t.Context(), DeprecationChange{
						Workflow: k, Version: "1", Deprecation: parley.Deprecation{At: epoch}, AuditID: "deprecate-" + k,
					})
				},
			}
			var errs [2]error
			var both sync.WaitGroup
			begun := make(chan struct{})
			for w := range writers {
				both.Go(func() { <-begun; errs[w] = writers[(w+i)%2]() })
			}
			close(begun)
			both.Wait()
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Errorf("%s: %v and %v", k, errs[0], errs[1])
			}
			for _, err := range errs {
				if err != nil {
					wantCode(t, err, parley.CodeConflict)
				}
			}
			named := len(must(db.Aliases(t.Context(), k))(t)) > 0
			if gone := must(db.Definition(t.Context(), k+"@1"))(t).Deprecated != nil; gone == named {
				t.Errorf("%s: named %v, deprecated %v", k, named, gone)
			}
			if _, n, err := db.Audits(t.Context(), AuditQuery{EntityID: k}); n != 1 || err != nil {
				t.Errorf("%s: the record has %d entries, %v", k, n, err)
			}
		}
	}
	eachDB(t, race)
	t.Run("connections", func(t *testing.T) { race(t, reopen(t, pgtest.Database(t), Options{Writers: 4})) })
}

// TestC10_AliasAndVersionOfOneName: of an alias and a version of that name, which come at
// once, one is there, whether they share a transaction or not.
func TestC10_AliasAndVersionOfOneName(t *testing.T) {
	named := func(workflow string) Definition {
		d := definition("id-named-"+workflow, workflow, "named")
		d.Version = "canary"
		return d
	}
	oneOf := func(t *testing.T, db *DB, workflow string, errs ...error) {
		t.Helper()
		refused := 0
		for _, err := range errs {
			if err != nil {
				refused++
				wantCode(t, err, parley.CodeConflict)
			}
		}
		aliases, versions := len(must(db.Aliases(t.Context(), workflow))(t)), len(versionsOf(t, db, workflow))
		if refused != 1 || aliases+versions != 2 {
			t.Errorf("%s: %d refused, %d aliases and %d versions", workflow, refused, aliases, versions)
		}
	}
	first := func(t *testing.T, db *DB, workflow string) {
		t.Helper()
		must(db.PutDefinition(t.Context(), definition("id-"+workflow, workflow, "one"), PutVersion))(t)
	}
	eachDB(t, func(t *testing.T, db *DB) {
		for i, workflow := range []string{"a", "b", "c", "d"} {
			first(t, db, workflow)
			mode, version := PutVersion, named(workflow)
			if i > 1 { // that looks for longer before it writes
				mode, version.ID = PutReplace, "id-"+workflow
			}
			writers := []func() error{
				func() error {
					_, _, err := db.SetAlias(t.Context(), aliasChange(workflow, "canary", "1", "audit-"+workflow))
					return err
				},
				func() error { _, err := db.PutDefinition(t.Context(), version, mode); return err },
			}
			errs := make([]error, 2)
			var both sync.WaitGroup
			release := stall(t, db)
			for n := range writers {
				both.Go(func() { errs[n] = writers[(n+i)%2]() })
				queued(t, db, n+1)
			}
			release()
			both.Wait()
			oneOf(t, db, workflow, errs...)
		}
	})
	t.Run("transactions", func(t *testing.T) {
		target := pgtest.Copy(t, migrated(t))
		db, other := openedAt(t, target, Options{}), openedAt(t, target, Options{})
		first(t, db, "a")
		end := halfway(t, other, func(s *session) error {
			err := holdVersions(s, "a")
			if err == nil {
				_, err = s.exec(insertAlias, "canary", unixMicro(epoch), unixMicro(epoch), "ann", "ann", "a", "1")
			}
			return err
		})
		done := make(chan error, 1)
		go func() { _, err := db.PutDefinition(t.Context(), named("a"), PutVersion); done <- err }()
		blocked(t, db, done)
		end()
		oneOf(t, db, "a", <-done)

		first(t, db, "b")
		end = halfway(t, other, func(s *session) error {
			d := named("b")
			_, err := place(s, &d, PutVersion)
			if err == nil {
				err = insertDefinition(s, &d)
			}
			return err
		})
		go func() { _, _, err := db.SetAlias(t.Context(), aliasChange("b", "canary", "1", "audit")); done <- err }()
		blocked(t, db, done)
		end()
		oneOf(t, db, "b", <-done)
	})
}
