package executor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestC10_NobodyGetsAnOlderVersion: while a whole workflow is deleted its name means
// the newest version, or nothing.
func TestC10_NobodyGetsAnOlderVersion(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.versions(20)
		var looking sync.WaitGroup
		began, seen := make(chan struct{}), []string{}
		looking.Go(func() {
			for {
				d, err := r.db.Definition(t.Context(), "order")
				if err != nil {
					return // deleted, or the test is over
				}
				if seen = append(seen, d.Version); len(seen) == 1 {
					close(began)
				}
			}
		})
		<-began
		check(t, r.catalog.Remove(t.Context(), "order", "ann"))
		looking.Wait()
		if got := slices.Compact(seen); !slices.Equal(got, []string{"20"}) {
			t.Errorf("the name meant %s", got)
		}
	})
}

// TestC10_DeletedByAName: a name that a deleted workflow has, too, is that of the
// other one; and what is switched off can be deleted.
func TestC10_DeletedByAName(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		apply := func(id, status string) {
			t.Helper()
			_, _, err := r.catalog.Apply(t.Context(), parley.ApplyRequest{
				Source: fmt.Appendf(nil, "name: Report\nworkflow_id: %s\nsteps: [{id: a, agent: writer}]\n", id), Status: parley.AgentStatus(status),
			})
			check(t, err)
			time.Sleep(time.Second)
		}
		apply("first", "")
		apply("second", "")
		check(t, r.catalog.Remove(t.Context(), "second", "ann"))
		_, _, err := r.catalog.SetAlias(t.Context(), parley.AliasRequest{Workflow: "Report", Alias: "stable", Version: "1", By: "ann"})
		check(t, err)
		want := func(ref string, status parley.AgentStatus, aliases int) {
			t.Helper()
			list, _, err := r.catalog.Versions(t.Context(), ref, parley.Page{})
			check(t, err)
			if len(list) != 1 || list[0].Status != status || len(list[0].Aliases) != aliases {
				t.Errorf("%s is %s with aliases %s, want %s with %d", ref, list[0].Status, list[0].Aliases, status, aliases)
			}
		}
		want("first", parley.AgentActive, 1)
		check(t, r.catalog.Remove(t.Context(), "Report", "ann"))
		want("first", parley.AgentDeleted, 0)
		apply("third", string(parley.AgentInactive))
		check(t, r.catalog.Remove(t.Context(), "Report", "ann"))
		want("third", parley.AgentDeleted, 0)
	})
}

// TestC10_NoAliasOfADeletedVersion: of a version that is deleted while an alias is to
// stand for it one of the two is refused.
func TestC10_NoAliasOfADeletedVersion(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		const rounds = 40
		r.versions(rounds)
		for i := range rounds {
			version := fmt.Sprint(i + 1)
			var named, removed error
			var both sync.WaitGroup
			both.Go(func() {
				_, _, named = r.catalog.SetAlias(context.Background(), parley.AliasRequest{Workflow: "order", Alias: "beta", Version: version, By: "ann"})
			})
			both.Go(func() { removed = r.catalog.Remove(context.Background(), "order@"+version, "bob") })
			both.Wait()
			if (named == nil) == (removed == nil) || parley.CodeOf(errors.Join(named, removed)) != parley.CodeConflict {
				t.Fatalf("version %s: alias: %v, removal: %v", version, named, removed)
			}
			list, err := r.catalog.Aliases(t.Context(), "order")
			check(t, err)
			if d, err := r.db.Definition(t.Context(), "order@beta"); len(list) > 0 && (err != nil || d.Status != parley.AgentActive) {
				t.Fatalf("beta stands for version %s, which is %s: %v", d.Version, d.Status, err)
			}
		}
	})
}
