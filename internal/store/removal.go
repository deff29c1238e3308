package store

import (
	"context"
	"time"

	"github.com/parley-project/parley"
)

// Removal takes a version of a workflow out of use, or the whole workflow.
type Removal struct {
	Workflow string
	// ID is that of the version; "" is all of them, with their aliases.
	ID string
	By string
	At time.Time
	// NewID gives the ids of the entries of the audit record about the aliases.
	NewID func() string
}

const (
	// deleteVersion looks whether an alias stands for the version when that is held:
	// none can come then before it is deleted.
	deleteVersion = `UPDATE definition SET status = 'deleted', updated_by = ?, updated_at = ? WHERE workflow = ? AND id = ? AND status <> 'deleted'
 AND NOT EXISTS (SELECT 1 FROM ` + aliasTables + ` WHERE a.workflow = ? AND d.id = ?)`
	deleteVersions = `UPDATE definition SET status = 'deleted', updated_by = ?, updated_at = ? WHERE workflow = ? AND status <> 'deleted'`

	selectAliasesOf = `SELECT ` + aliasColumns + ` FROM ` + aliasTables + ` WHERE a.workflow = ? ORDER BY a.alias`
)

// RemoveVersions marks a version deleted, or all versions of a workflow while it
// removes their aliases. That is one transaction: nobody gets an older version since
// the newest went first, and no alias is left of a version that is deleted. Again
// changes nothing. The error is conflict for a version that an alias stands for.
// Synced.
func (db *DB) RemoveVersions(ctx context.Context, r Removal) error {
	return db.submit(ctx, synced, func(s *session) error {
		if err := holdVersions(s, r.Workflow); err != nil {
			return err
		}
		remove := removeVersion
		if r.ID == "" {
			remove = removeAll
		}
		if err := remove(s, &r); err != nil {
			return err
		}
		return changed(s, r.Workflow)
	})
}

func removeVersion(s *session, r *Removal) error {
	n, err := s.exec(deleteVersion, r.By, unixMicro(r.At), r.Workflow, r.ID, r.Workflow, r.ID)
	if err != nil || n > 0 {
		return err
	}
	var aliases []parley.WorkflowAlias
	if err := s.query(selectAliasesOf, aliasList(&aliases), r.Workflow); err != nil {
		return err
	}
	for _, a := range aliases {
		if a.DefinitionID == r.ID {
			return standsFor(r.Workflow, a.Version, a.Alias)
		}
	}
	return nil // it was deleted before
}

func removeAll(s *session, r *Removal) error {
	// The versions first: afterwards no alias can be set.
	if _, err := s.exec(deleteVersions, r.By, unixMicro(r.At), r.Workflow); err != nil {
		return err
	}
	var aliases []parley.WorkflowAlias
	if err := s.query(selectAliasesOf, aliasList(&aliases), r.Workflow); err != nil {
		return err
	}
	for i := range aliases {
		c := AliasChange{
			WorkflowAlias: parley.WorkflowAlias{Workflow: r.Workflow, Alias: aliases[i].Alias, UpdatedAt: r.At, UpdatedBy: r.By}, AuditID: r.NewID(),
		}
		if err := dropAlias(s, &c, &aliases[i]); err != nil {
			return err
		}
	}
	return nil
}
