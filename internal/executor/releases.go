package executor

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// maxDeprecationReason bounds why a version is deprecated, in characters.
const maxDeprecationReason = 500

func (c *Catalog) now() time.Time { return c.cfg.Now().UTC().Truncate(time.Microsecond) }

// named notes which aliases stand for versions.
func (c *Catalog) named(ctx context.Context, list []parley.WorkflowVersion) error {
	workflows := make([]string, 0, len(list))
	for i := range list {
		workflows = append(workflows, list[i].Workflow)
	}
	slices.Sort(workflows)
	aliases, err := c.cfg.DB.Aliases(ctx, slices.Compact(workflows)...)
	if err != nil {
		return err
	}
	for _, a := range aliases {
		for i := range list {
			if list[i].Workflow == a.Workflow && list[i].Version == a.Version {
				list[i].Aliases = append(list[i].Aliases, a.Alias)
			}
		}
	}
	return nil
}

// Aliases gives the aliases of the workflow that ref (an id, a workflow_id or a
// name) belongs to, by name. The error has code not_found for an unknown ref.
func (c *Catalog) Aliases(ctx context.Context, ref string) ([]parley.WorkflowAlias, error) {
	workflow, err := c.cfg.DB.WorkflowOf(ctx, ref)
	if err != nil {
		return nil, err
	}
	return c.cfg.DB.Aliases(ctx, workflow)
}

// SetAlias makes an alias stand for a version, or for the version that another
// alias stands for. created is false if it was there before. The error has code
// invalid for a name that no alias can have, not_found for an unknown workflow or
// version, conflict for a version that takes no new runs, or if a version has the
// alias's name.
func (c *Catalog) SetAlias(ctx context.Context, req parley.AliasRequest) (a parley.WorkflowAlias, created bool, err error) {
	if err := parley.CheckAlias(req.Alias); err != nil {
		return a, false, err
	}
	workflow, err := c.cfg.DB.WorkflowOf(ctx, req.Workflow)
	if err != nil {
		return a, false, err
	}
	row, err := c.cfg.DB.Definition(ctx, workflow+"@"+req.Version)
	if parley.CodeOf(err) == parley.CodeNotFound {
		return a, false, parley.Errorf(parley.CodeNotFound, "workflow %q has no version %q", workflow, req.Version)
	}
	if err != nil {
		return a, false, err
	}
	defer c.changed(ctx)
	return c.cfg.DB.SetAlias(ctx, store.AliasChange{
		WorkflowAlias: parley.WorkflowAlias{
			Workflow: workflow, Alias: req.Alias, Version: row.Version, UpdatedAt: c.now(), UpdatedBy: req.By,
		},
		AuditID: c.cfg.NewID(),
	})
}

// RemoveAlias removes an alias; the error has code not_found if there is none.
// Version of req is not looked at.
func (c *Catalog) RemoveAlias(ctx context.Context, req parley.AliasRequest) error {
	workflow, err := c.cfg.DB.WorkflowOf(ctx, req.Workflow)
	if err != nil {
		return err
	}
	defer c.changed(ctx)
	return c.cfg.DB.RemoveAlias(ctx, store.AliasChange{
		WorkflowAlias: parley.WorkflowAlias{Workflow: workflow, Alias: req.Alias, UpdatedAt: c.now(), UpdatedBy: req.By}, AuditID: c.cfg.NewID(),
	})
}

// Deprecate lets a version take no new runs any more, or undoes that; again is no
// error. What is under way goes on, retries of its runs and children of running
// parents too (rule C10). The error has code not_found for an unknown ref, invalid
// for one that names no version, conflict if an alias stands for the version.
func (c *Catalog) Deprecate(ctx context.Context, req parley.DeprecateRequest) (parley.WorkflowVersion, error) {
	if n := utf8.RuneCountInString(req.Reason); n > maxDeprecationReason {
		return parley.WorkflowVersion{}, parley.Errorf(parley.CodeInvalid, "reason: %d characters, the limit is %d", n, maxDeprecationReason)
	}
	row, err := c.cfg.DB.Definition(ctx, req.Ref)
	if err != nil {
		return parley.WorkflowVersion{}, err
	}
	if whole(row, req.Ref) {
		return parley.WorkflowVersion{}, parley.Errorf(parley.CodeInvalid, "say which version of workflow %q: %s@%s is the one that starts take", row.Workflow, row.Workflow, row.Version)
	}
	defer c.changed(ctx)
	err = c.cfg.DB.SetDeprecation(ctx, store.DeprecationChange{
		Workflow: row.Workflow, Version: row.Version, Undo: req.Undo, AuditID: c.cfg.NewID(),
		Deprecation: parley.Deprecation{At: c.now(), By: req.By, Reason: strings.ToValidUTF8(req.Reason, "\uFFFD")},
	})
	if err != nil {
		return parley.WorkflowVersion{}, err
	}
	return c.Get(ctx, row.Workflow+"@"+row.Version)
}

// whole reports whether ref names a workflow and no version of it.
func whole(row store.Definition, ref string) bool {
	return ref != row.ID && (ref == row.Workflow || !strings.Contains(ref, "@") || ref == row.Name)
}

// Remove marks a version deleted, if ref is its id or workflow@version, else
// the whole workflow with its aliases: an older version must not take the place of
// the newest. What is deleted takes no new runs, and those under way go on. Again
// is no error. The error has code conflict for a version that an alias stands for.
func (c *Catalog) Remove(ctx context.Context, ref, by string) error {
	r, err := c.removal(ctx, ref)
	if err != nil {
		return err
	}
	r.By, r.At, r.NewID = by, c.now(), c.cfg.NewID
	defer c.changed(ctx)
	return c.cfg.DB.RemoveVersions(ctx, r)
}

// removal says what ref means to who removes it.
func (c *Catalog) removal(ctx context.Context, ref string) (store.Removal, error) {
	row, err := c.cfg.DB.Newest(ctx, ref)
	switch {
	case parley.CodeOf(err) == parley.CodeNotFound: // no version of it is active
		workflow, err := c.cfg.DB.WorkflowOf(ctx, ref)
		return store.Removal{Workflow: workflow}, err
	case err != nil:
		return store.Removal{}, err
	case ref == row.Workflow || ref == row.Name:
		return store.Removal{Workflow: row.Workflow}, nil
	}
	return store.Removal{Workflow: row.Workflow, ID: row.ID}, nil
}
