package store

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/parley-project/parley"
)

// AliasChange sets an alias of a workflow, or removes it, with the entry of the
// audit record that says so.
type AliasChange struct {
	// Alias has Workflow and Alias; Version is what it is to stand for, "" to
	// remove it; UpdatedAt and UpdatedBy are when and who.
	parley.WorkflowAlias
	// AuditID is the id of the entry.
	AuditID string
}

const aliasColumns = `a.workflow, a.alias, a.version, d.id, a.created_at, a.updated_at, a.created_by, a.updated_by`

const aliasTables = `workflow_alias a JOIN definition d ON d.workflow = a.workflow AND d.version = a.version`

func readAlias(r *record) (parley.WorkflowAlias, error) {
	a := parley.WorkflowAlias{
		Workflow: r.str(), Alias: r.str(), Version: r.str(), DefinitionID: r.str(),
		CreatedAt: r.time(), UpdatedAt: r.time(), CreatedBy: r.str(), UpdatedBy: r.str(),
	}
	return a, r.err
}

func aliasList(list *[]parley.WorkflowAlias) func(*record) error {
	return func(r *record) error {
		a, err := readAlias(r)
		*list = append(*list, a)
		return err
	}
}

// Aliases gives the aliases of workflows, by workflow and alias.
func (db *DB) Aliases(ctx context.Context, workflows ...string) ([]parley.WorkflowAlias, error) {
	if len(workflows) == 0 {
		return nil, nil
	}
	args := make([]any, len(workflows))
	for i, w := range workflows {
		args[i] = w
	}
	var list []parley.WorkflowAlias
	err := db.read(ctx, `SELECT `+aliasColumns+` FROM `+aliasTables+` WHERE a.workflow IN (?`+strings.Repeat(`, ?`, len(args)-1)+
		`) ORDER BY a.workflow, a.alias`, aliasList(&list), args...)
	return list, err
}

// SetAlias makes an alias stand for a version, whatever it stood for before, and
// gives it as it is then. created is false if it was there. To set it to what it
// stands for changes nothing. The error is not_found for a version that is not
// deployed, conflict for one that takes no new runs, or if there is a version of
// the alias's name. Synced.
func (db *DB) SetAlias(ctx context.Context, c AliasChange) (a parley.WorkflowAlias, created bool, err error) {
	if err := parley.CheckAlias(c.Alias); err != nil {
		return a, false, err
	}
	err = db.submit(ctx, synced, func(s *session) error {
		a, created = c.WorkflowAlias, false
		if err := holdVersions(s, c.Workflow); err != nil {
			return err
		}
		old, err := aliasOf(s, c.Workflow, c.Alias)
		if err != nil {
			return err
		}
		if err := mayName(s, &a); err != nil {
			return err
		}
		a.CreatedAt, a.CreatedBy = a.UpdatedAt, a.UpdatedBy
		switch created = old == nil; {
		case created:
		case old.Version == a.Version:
			a = *old
			return nil
		default:
			a.CreatedAt, a.CreatedBy = old.CreatedAt, old.CreatedBy
		}
		n, err := s.exec(insertAlias, a.Alias, unixMicro(a.CreatedAt), unixMicro(a.UpdatedAt), a.CreatedBy, a.UpdatedBy, a.Workflow, a.Version)
		if err != nil {
			return err
		}
		if n == 0 { // since it was looked at
			return noRuns(&a)
		}
		if err := auditAlias(s, &c, old); err != nil {
			return err
		}
		return changed(s, c.Workflow)
	})
	return a, created, err
}

// insertAlias looks once more: what was read before may have changed by another
// unit of the same transaction.
const insertAlias = `INSERT INTO workflow_alias (workflow, alias, version, created_at, updated_at, created_by, updated_by)
 SELECT workflow, CAST(? AS TEXT), version, CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT) FROM definition
 WHERE workflow = ? AND version = ? AND status = 'active' AND deprecated_at IS NULL
 ON CONFLICT (workflow, alias) DO UPDATE SET version = excluded.version, updated_at = excluded.updated_at, updated_by = excluded.updated_by`

// holdVersion keeps other transactions from changing a version, and from reading
// whether they may, until this one has ended.
func holdVersion(s *session, workflow, version string) error {
	s.at(workflow + "@" + version)
	_, err := s.exec(`UPDATE definition SET status = status WHERE workflow = ? AND version = ?`, workflow, version)
	return err
}

// holdVersions is holdVersion for all versions of a workflow: it also keeps one of the
// name of an alias, and an alias of the name of a version, from coming beside it.
func holdVersions(s *session, workflow string) error {
	s.at(workflow + "@")
	_, err := s.exec(`UPDATE definition SET status = status WHERE workflow = ?`, workflow)
	return err
}

// noRuns refuses an alias of a version that is deprecated.
func noRuns(a *parley.WorkflowAlias) error {
	return parley.Errorf(parley.CodeConflict, "version %s of workflow %q is deprecated and takes no new runs", a.Version, a.Workflow).
		WithDetails(parley.ConflictDetails{Conflict: parley.ConflictDeprecated})
}

// RemoveAlias removes an alias; the error is not_found if there is none. Synced.
func (db *DB) RemoveAlias(ctx context.Context, c AliasChange) error {
	return db.submit(ctx, synced, func(s *session) error {
		old, err := aliasOf(s, c.Workflow, c.Alias)
		if err != nil {
			return err
		}
		if old == nil {
			return parley.Errorf(parley.CodeNotFound, "workflow %q has no alias %q", c.Workflow, c.Alias)
		}
		if err := dropAlias(s, &c, old); err != nil {
			return err
		}
		return changed(s, c.Workflow)
	})
}

// dropAlias removes an alias that is there, and says so in the audit record.
func dropAlias(s *session, c *AliasChange, old *parley.WorkflowAlias) error {
	if _, err := s.exec(`DELETE FROM workflow_alias WHERE workflow = ? AND alias = ?`, c.Workflow, c.Alias); err != nil {
		return err
	}
	return auditAlias(s, c, old)
}

func aliasOf(s *session, workflow, alias string) (*parley.WorkflowAlias, error) {
	var list []parley.WorkflowAlias
	err := s.query(`SELECT `+aliasColumns+` FROM `+aliasTables+` WHERE a.workflow = ? AND a.alias = ?`, aliasList(&list), workflow, alias)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// mayName finds the version that an alias is to stand for.
func mayName(s *session, a *parley.WorkflowAlias) error {
	taken, err := s.exists(`SELECT 1 FROM definition WHERE workflow = ? AND version = ?`, a.Workflow, a.Alias)
	if err != nil {
		return err
	}
	if taken {
		return parley.Errorf(parley.CodeConflict, "workflow %q has a version %q: an alias needs another name", a.Workflow, a.Alias).
			WithDetails(parley.ConflictDetails{Conflict: parley.ConflictAlias})
	}
	var d Definition
	found := false
	if err := s.query(exactVersion, one(&d, &found), a.Workflow, "", a.Version); err != nil {
		return err
	}
	switch {
	case !found:
		return parley.Errorf(parley.CodeNotFound, "workflow %q has no version %q", a.Workflow, a.Version)
	case d.Status != parley.AgentActive:
		return parley.Errorf(parley.CodeConflict, "version %s of workflow %q is %s and takes no new runs", a.Version, a.Workflow, d.Status)
	case d.Deprecated != nil:
		return noRuns(a)
	}
	a.DefinitionID = d.ID
	return nil
}

// noAlias refuses a version that is named as an alias of its workflow is.
func noAlias(s *session, workflow, version string) error {
	if mayBe := parley.CheckAlias(version) == nil; !mayBe {
		return nil // no alias has such a name
	}
	if err := holdVersions(s, workflow); err != nil {
		return err
	}
	taken, err := s.exists(`SELECT 1 FROM workflow_alias WHERE workflow = ? AND alias = ?`, workflow, version)
	if err != nil {
		return err
	}
	if taken {
		return parley.Errorf(parley.CodeConflict, "workflow %q has an alias %q: a version needs another name", workflow, version).
			WithDetails(parley.ConflictDetails{Conflict: parley.ConflictAlias})
	}
	return nil
}

func auditAlias(s *session, c *AliasChange, old *parley.WorkflowAlias) error {
	changes := map[string]any{"alias": c.Alias, "version": c.Version}
	action := "alias"
	if c.Version == "" {
		action = "unalias"
		delete(changes, "version")
	}
	if old != nil {
		changes["from"] = old.Version
	}
	return audit(s, &Audit{ID: c.AuditID, At: c.UpdatedAt, EntityType: "workflow", EntityID: c.Workflow, Action: action, By: c.UpdatedBy}, changes)
}

// audit writes an entry of the audit record.
func audit(s *session, a *Audit, changes map[string]any) error {
	b, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	_, err = s.exec(`INSERT INTO audit (id, at, entity_type, entity_id, action, actor, changes) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		a.ID, unixMicro(a.At), a.EntityType, a.EntityID, a.Action, a.By, b)
	return err
}

// DeprecationChange deprecates one version of a workflow, or undoes that.
type DeprecationChange struct {
	Workflow, Version string
	parley.Deprecation
	Undo bool
	// AuditID is the id of the entry of the audit record.
	AuditID string
}

// updateDeprecated looks once more, as insertAlias does.
const updateDeprecated = `UPDATE definition SET deprecated_at = ?, deprecated_by = ?, deprecated_reason = ? WHERE workflow = ? AND number = ?
 AND (CAST(? AS BIGINT) = 1 OR NOT EXISTS (SELECT 1 FROM workflow_alias a WHERE a.workflow = definition.workflow AND a.version = definition.version))`

// SetDeprecation deprecates a version: it takes no new runs any more, and what is
// under way goes on (rule C10). Again changes nothing, nor does undoing what was
// not done. The error is not_found for a version that is not deployed, conflict
// if an alias stands for it. Synced.
func (db *DB) SetDeprecation(ctx context.Context, c DeprecationChange) error {
	return db.submit(ctx, synced, func(s *session) error {
		if err := holdVersion(s, c.Workflow, c.Version); err != nil {
			return err
		}
		var d Definition
		found := false
		if err := s.query(exactVersion, one(&d, &found), c.Workflow, "", c.Version); err != nil {
			return err
		}
		switch {
		case !found:
			return parley.Errorf(parley.CodeNotFound, "workflow %q has no version %q", c.Workflow, c.Version)
		case (d.Deprecated == nil) == c.Undo:
			return nil
		}
		action, at := "undeprecate", parley.Deprecation{}
		if !c.Undo {
			if err := unnamed(s, c.Workflow, c.Version); err != nil {
				return err
			}
			action, at = "deprecate", c.Deprecation
		}
		n, err := s.exec(updateDeprecated, micros(at.At), text(at.By), text(at.Reason), c.Workflow, int64(d.Number), flag(c.Undo))
		if err != nil {
			return err
		}
		if n == 0 { // since it was looked at
			return standsFor(c.Workflow, c.Version, "an alias")
		}
		changes := map[string]any{"version": c.Version}
		if c.Reason != "" {
			changes["reason"] = c.Reason
		}
		if err := audit(s, &Audit{ID: c.AuditID, At: c.At, EntityType: "workflow", EntityID: c.Workflow, Action: action, By: c.By}, changes); err != nil {
			return err
		}
		return changed(s, c.Workflow)
	})
}

// unnamed refuses what would leave an alias with a version that takes no runs.
func unnamed(s *session, workflow, version string) error {
	var names []string
	err := s.query(`SELECT alias FROM workflow_alias WHERE workflow = ? AND version = ? ORDER BY alias`, func(r *record) error {
		names = append(names, r.str())
		return r.err
	}, workflow, version)
	if err != nil || len(names) == 0 {
		return err
	}
	return standsFor(workflow, version, strings.Join(names, ", "))
}

func standsFor(workflow, version, names string) error {
	return parley.Errorf(parley.CodeConflict, "version %s of workflow %q is what %s stands for: move that to another version first, or remove it",
		version, workflow, names).WithDetails(parley.ConflictDetails{Conflict: parley.ConflictAlias})
}
