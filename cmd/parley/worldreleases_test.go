package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// worldReleases are a world's aliases and deprecated versions.
type worldReleases struct{ *world }

func (v worldReleases) Aliases(_ context.Context, ref string) ([]parley.WorkflowAlias, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := v.find(ref, "")
	if found == nil {
		return nil, missing("workflow", ref)
	}
	var list []parley.WorkflowAlias
	for _, a := range v.aliases {
		if a.Workflow == found.Workflow {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b parley.WorkflowAlias) int { return strings.Compare(a.Alias, b.Alias) })
	return list, nil
}

func (v worldReleases) SetAlias(_ context.Context, req parley.AliasRequest) (a parley.WorkflowAlias, created bool, err error) {
	if err := parley.CheckAlias(req.Alias); err != nil {
		return a, false, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	found := v.find(req.Workflow, req.Version)
	switch {
	case v.find(req.Workflow, "") == nil:
		return a, false, missing("workflow", req.Workflow)
	case found == nil:
		return a, false, missing("version", req.Version)
	case found.Deprecated != nil:
		return a, false, parley.Errorf(parley.CodeConflict, "version %s of workflow %q is deprecated and takes no new runs", found.Version, found.Workflow)
	}
	a = parley.WorkflowAlias{
		Workflow: found.Workflow, Alias: req.Alias, Version: found.Version, DefinitionID: found.ID,
		CreatedAt: epoch(), UpdatedAt: epoch().Add(time.Second), CreatedBy: req.By, UpdatedBy: req.By,
	}
	created = !v.drop(found.Workflow, req.Alias)
	found.Aliases = append(found.Aliases, req.Alias)
	v.aliases = append(v.aliases, a)
	return a, created, nil
}

// drop takes an alias away; it reports whether there was one.
func (v worldReleases) drop(workflow, alias string) bool {
	n := len(v.aliases)
	v.aliases = slices.DeleteFunc(v.aliases, func(a parley.WorkflowAlias) bool { return a.Workflow == workflow && a.Alias == alias })
	for _, x := range v.workflows {
		if x.Workflow == workflow {
			x.Aliases = slices.DeleteFunc(x.Aliases, func(a string) bool { return a == alias })
		}
	}
	return len(v.aliases) < n
}

func (v worldReleases) RemoveAlias(_ context.Context, req parley.AliasRequest) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.find(req.Workflow, "") == nil {
		return missing("workflow", req.Workflow)
	}
	if !v.drop(req.Workflow, req.Alias) {
		return missing("alias", req.Alias)
	}
	return nil
}

func (v worldReleases) Deprecate(_ context.Context, req parley.DeprecateRequest) (parley.WorkflowVersion, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !strings.Contains(req.Ref, "@") {
		return parley.WorkflowVersion{}, parley.Errorf(parley.CodeInvalid, "say which version of workflow %q", req.Ref)
	}
	found := v.find(req.Ref, "")
	switch {
	case found == nil:
		return parley.WorkflowVersion{}, missing("workflow", req.Ref)
	case req.Undo:
		found.Deprecated = nil
	case len(found.Aliases) > 0:
		return parley.WorkflowVersion{}, parley.Errorf(parley.CodeConflict, "version %s is what %s stands for", found.Version, found.Aliases[0])
	default:
		found.Deprecated = &parley.Deprecation{At: epoch(), By: req.By, Reason: req.Reason}
	}
	return *found, nil
}
