package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
)

// versions deploys versions 1 to n of a workflow.
func (r *rig) versions(n int) {
	for i := range n {
		r.apply(fmt.Sprintf("name: order\nsteps: [{id: a, agent: writer, input: {n: %d}}]\n", i+1))
	}
}

// starts gives the version that a start gets, or the code of its refusal.
func (r *rig) starts(ref, version string) string {
	r.t.Helper()
	run, _, err := r.x.Start(r.t.Context(), parley.StartRequest{Workflow: ref, Version: version})
	if err != nil {
		return string(parley.CodeOf(err))
	}
	return run.Version
}

func (r *rig) alias(alias, version string) {
	r.t.Helper()
	_, _, err := r.catalog.SetAlias(r.t.Context(), parley.AliasRequest{Workflow: "order", Alias: alias, Version: version, By: "ann"})
	check(r.t, err)
}

func (r *rig) deprecate(ref string, undo bool) error {
	_, err := r.catalog.Deprecate(r.t.Context(), parley.DeprecateRequest{Ref: ref, Reason: "too slow", Undo: undo, By: "ann"})
	return err
}

// TestC10_AliasesMoveNewRunsOnly: a start takes what its alias stands for at that
// moment, without any delay in this process; runs stay on their version.
func TestC10_AliasesMoveNewRunsOnly(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.versions(3)
		r.alias("beta", "2")
		first := r.begin(parley.StartRequest{Workflow: "order", Version: "beta"})
		r.alias("beta", "3")
		for _, c := range []struct{ ref, version, want string }{
			{"order", "beta", "3"}, {"order@beta", "", "3"}, {"order", "1", "1"}, {"order", "", "3"}, {"order", "gamma", "not_found"},
		} {
			if got := r.starts(c.ref, c.version); got != c.want {
				t.Errorf("%s %s starts %s, want %s", c.ref, c.version, got, c.want)
			}
		}
		run, err := r.x.Get(t.Context(), first)
		check(t, err)
		if run.Version != "2" || run.Steps[0].Status == parley.StepPending {
			t.Errorf("the run is on version %s, %s", run.Version, run.Steps[0].Status)
		}
		r.alias("gamma", "beta") // what another alias stands for
		if got := r.starts("order", "gamma"); got != "3" {
			t.Errorf("gamma starts %s", got)
		}
	})
}

// TestS11_StartsWithoutVersion: the alias stable, else the newest that is not
// deprecated.
func TestS11_StartsWithoutVersion(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.versions(3)
		want := func(version string) {
			t.Helper()
			if got := r.starts("order", ""); got != version {
				t.Errorf("starts %s, want %s", got, version)
			}
		}
		want("3")
		r.alias("stable", "1")
		want("1")
		check(t, r.catalog.RemoveAlias(t.Context(), parley.AliasRequest{Workflow: "order", Alias: "stable"}))
		want("3")
		check(t, r.deprecate("order@3", false))
		want("2")
		check(t, r.deprecate("order@2", false))
		check(t, r.deprecate("order@1", false))
		want("conflict")
		check(t, r.deprecate("order@1", true))
		want("1")
	})
}

// TestC10_DeprecatedVersionsRefuseNewRuns: with the reason and the way out; runs
// that were there go on, and can be retried.
func TestC10_DeprecatedVersionsRefuseNewRuns(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.versions(2)
		run := r.begin(parley.StartRequest{Workflow: "order", Version: "1"})
		if err := r.deprecate("order", false); parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("a whole workflow: %v", err)
		}
		v, err := r.catalog.Deprecate(t.Context(), parley.DeprecateRequest{Ref: "order@1", Reason: "too slow", By: "ann"})
		check(t, err)
		if v.Deprecated == nil || v.Deprecated.By != "ann" || v.Deprecated.At.IsZero() {
			t.Errorf("deprecated %+v", v.Deprecated)
		}
		check(t, r.deprecate("order@1", false))
		_, _, err = r.x.Start(t.Context(), parley.StartRequest{Workflow: "order", Version: "1"})
		if parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), "too slow") || !strings.Contains(err.Error(), "parley workflow deprecate order@1 --undo") {
			t.Errorf("a start: %v", err)
		}
		if got := r.starts(v.ID, ""); got != "conflict" {
			t.Errorf("by its id it starts %s", got)
		}
		_, err = r.x.Cancel(t.Context(), parley.CancelRequest{Run: run})
		check(t, err)
		again, err := r.x.Retry(t.Context(), run, "ann")
		check(t, err)
		if again.Version != "1" || again.Status != parley.RunRunning {
			t.Errorf("retried on version %s: %s", again.Version, again.Status)
		}
		keyed := parley.StartRequest{Workflow: "order", Version: "1", IdempotencyKey: "k"}
		check(t, r.deprecate("order@1", true))
		before := r.begin(keyed)
		check(t, r.deprecate("order@1", false))
		// Who asks again under its key gets the run that there is (rule C7).
		if same, existing, err := r.x.Start(t.Context(), keyed); err != nil || !existing || same.ID != before {
			t.Errorf("under its key: %s, %v, %v", same.ID, existing, err)
		}
		keyed.Input = []byte(`{"x":1}`)
		if _, _, err := r.x.Start(t.Context(), keyed); parley.CodeOf(err) != parley.CodeIdempotencyConflict {
			t.Errorf("under its key with other input: %v", err)
		}
		keyed.IdempotencyKey = "other"
		if _, _, err := r.x.Start(t.Context(), keyed); parley.CodeOf(err) != parley.CodeConflict {
			t.Errorf("under another key: %v", err)
		}
		check(t, r.deprecate("order@1", true))
		if got := r.starts("order", "1"); got != "1" {
			t.Errorf("once it is undone it starts %s", got)
		}
	})
}

// TestC10_DeleteAsksForAliases: a version that an alias stands for stays; a whole
// workflow goes with its aliases, and comes back when it is deployed again.
func TestC10_DeleteAsksForAliases(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.versions(2)
		r.alias("stable", "1")
		if err := r.catalog.Remove(t.Context(), "order@1", "ann"); parley.CodeOf(err) != parley.CodeConflict {
			t.Errorf("a version with an alias: %v", err)
		}
		if err := r.deprecate("order@stable", false); parley.CodeOf(err) != parley.CodeConflict {
			t.Errorf("deprecated: %v", err)
		}
		check(t, r.catalog.Remove(t.Context(), "order@2", "ann"))
		if got := r.starts("order", "2"); got != "conflict" {
			t.Errorf("a deleted version starts %s", got)
		}
		check(t, r.catalog.Remove(t.Context(), "order", "ann"))
		check(t, r.catalog.Remove(t.Context(), "order", "ann"))
		list, err := r.catalog.Aliases(t.Context(), "order")
		check(t, err)
		if got := r.starts("order", ""); got != "not_found" || len(list) != 0 {
			t.Errorf("the workflow starts %s with aliases %v", got, list)
		}
		v, created, err := r.catalog.Apply(t.Context(), parley.ApplyRequest{Source: []byte("name: order\nsteps: [{id: a, agent: writer, input: {n: 2}}]\n")})
		check(t, err)
		if created || v.Version != "2" || v.Status != parley.AgentActive || r.starts("order", "") != "2" {
			t.Errorf("deployed again: %+v", v)
		}
	})
}

// TestC10_VersionsNameTheirAliases: who looks at versions sees what stands for them.
func TestC10_VersionsNameTheirAliases(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.versions(2)
		r.alias("stable", "1")
		r.alias("beta", "2")
		r.alias("alpha", "2")
		list, _, err := r.catalog.Versions(t.Context(), "order", parley.Page{})
		check(t, err)
		got := map[string][]string{}
		for _, v := range list {
			got[v.Version] = v.Aliases
		}
		v, err := r.catalog.Get(t.Context(), "order")
		check(t, err)
		got["newest"] = v.Aliases
		page, _, err := r.catalog.List(t.Context(), parley.WorkflowQuery{Name: "order"})
		check(t, err)
		got["listed"] = page[0].Aliases
		want := map[string][]string{"1": {"stable"}, "2": {"alpha", "beta"}, "newest": {"alpha", "beta"}, "listed": {"alpha", "beta"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("aliases (-want +got):\n%s", diff)
		}
		for _, req := range []parley.AliasRequest{
			{Workflow: "order", Alias: "x", Version: "7"}, {Workflow: "none", Alias: "x", Version: "1"}, {Workflow: "order", Alias: "x", Version: "none"},
		} {
			if _, _, err := r.catalog.SetAlias(t.Context(), req); parley.CodeOf(err) != parley.CodeNotFound {
				t.Errorf("%+v: %v", req, err)
			}
		}
	})
}

// TestLimits_OfDocumentsCountWhenTheyAreDeployed: who lowers a limit later does not
// stop what was deployed before.
func TestLimits_OfDocumentsCountWhenTheyAreDeployed(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		cfg := r.config
		cfg.Documents.Steps = 1
		strict := executor.New(cfg)
		catalog := executor.NewCatalog(executor.CatalogConfig{
			DB: r.db, Executor: strict, Now: time.Now, NewID: func() string { return "definition" },
			KnownAgent: func(context.Context, string) bool { return true },
		})
		_, _, err := catalog.Apply(t.Context(), parley.ApplyRequest{Source: []byte(strings.Replace(twoSteps, "talk", "more", 1))})
		var problems parley.Problems
		if !errors.As(err, &problems) || problems[0].Code != "limit" || !strings.Contains(problems[0].Text, "steps") {
			t.Errorf("a workflow above the limit: %v", err)
		}
		if run, _, err := strict.Start(t.Context(), parley.StartRequest{Workflow: "talk"}); err != nil || run.Status != parley.RunRunning {
			t.Errorf("one that was there before: %s, %v", run.Status, err)
		}
	})
}
