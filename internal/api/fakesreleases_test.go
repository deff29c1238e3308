package api

import (
	"context"
	"slices"

	"github.com/parley-project/parley"
)

// fakeReleases is the view of aliases and deprecated versions.
type fakeReleases struct{ *world }

func (f fakeReleases) Aliases(_ context.Context, ref string) ([]parley.WorkflowAlias, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.findWorkflow(ref)
	return f.aliases, err
}

func (f fakeReleases) SetAlias(_ context.Context, req parley.AliasRequest) (a parley.WorkflowAlias, created bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.findWorkflow(req.Workflow)
	if err == nil {
		err = parley.CheckAlias(req.Alias)
	}
	if err != nil {
		return a, false, err
	}
	n := len(f.aliases)
	f.drop(req.Alias)
	a = parley.WorkflowAlias{
		Workflow: v.Workflow, Alias: req.Alias, Version: req.Version, DefinitionID: v.ID,
		CreatedAt: f.now(), UpdatedAt: f.now(), CreatedBy: req.By, UpdatedBy: req.By,
	}
	created = len(f.aliases) == n
	f.aliases = append(f.aliases, a)
	return a, created, nil
}

func (f fakeReleases) drop(alias string) {
	f.aliases = slices.DeleteFunc(f.aliases, func(a parley.WorkflowAlias) bool { return a.Alias == alias })
}

func (f fakeReleases) RemoveAlias(_ context.Context, req parley.AliasRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return f.broken
	}
	n := len(f.aliases)
	if f.drop(req.Alias); len(f.aliases) == n {
		return parley.Errorf(parley.CodeNotFound, "workflow %q has no alias %q", req.Workflow, req.Alias)
	}
	return nil
}

func (f fakeReleases) Deprecate(_ context.Context, req parley.DeprecateRequest) (parley.WorkflowVersion, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.findWorkflow(req.Ref)
	switch {
	case err != nil:
		return parley.WorkflowVersion{}, err
	case req.Undo:
		v.Deprecated = nil
	case len(f.aliases) > 0:
		return parley.WorkflowVersion{}, parley.Errorf(parley.CodeConflict, "it is what %s stands for", f.aliases[0].Alias)
	default:
		v.Deprecated = &parley.Deprecation{At: f.now(), By: req.By, Reason: req.Reason}
	}
	return *v, nil
}
