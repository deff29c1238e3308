package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// definitionColumns are the columns of a definition in the order of readDefinition.
const definitionColumns = writtenColumns + `, deprecated_at, deprecated_by, deprecated_reason`

// writtenColumns are those of them that a new version is written with.
const writtenColumns = `id, workflow, name, version, number, description, format, source, digest, status,
 created_at, updated_at, created_by, updated_by`

func readDefinition(r *record) (Definition, error) {
	d := Definition{
		ID: r.str(), Workflow: r.str(), Name: r.str(), Version: r.str(), Number: int(r.int()), Description: r.str(),
		Format: r.str(), Source: r.bytes(), Digest: r.str(), Status: parley.AgentStatus(r.str()),
		CreatedAt: r.time(), UpdatedAt: r.time(), CreatedBy: r.str(), UpdatedBy: r.str(),
	}
	if at := (parley.Deprecation{At: r.time(), By: r.str(), Reason: r.str()}); !at.At.IsZero() {
		d.Deprecated = &at
	}
	return d, r.err
}

// one gives a function that keeps the first row in d.
func one(d *Definition, found *bool) func(*record) error {
	return func(r *record) (err error) {
		if !*found {
			*found = true
			*d, err = readDefinition(r)
		}
		return err
	}
}

// maxRef bounds a reference: a workflow_id or name of 255 characters and a
// version, at four bytes each.
const maxRef = 4 * 320

// maxSigns bounds the @ of a reference that are tried one by one: whoever makes it
// chooses how many there are. With more of them all versions are looked through.
const maxSigns = 8

// joinedVersion is one version by "workflow@version", "id@version" or
// "workflow@alias", wherever the @ is.
const joinedVersion = `SELECT ` + definitionColumns + ` FROM definition
 WHERE workflow || '@' || version = ? OR id || '@' || version = ? OR EXISTS (SELECT 1 FROM workflow_alias a
 WHERE a.workflow = definition.workflow AND a.version = definition.version AND a.workflow || '@' || a.alias = ?) ORDER BY number DESC LIMIT 1`

// exactVersion is one version by "workflow@version" or "id@version".
const exactVersion = `SELECT ` + definitionColumns + ` FROM definition
 WHERE (workflow = ? OR id = ?) AND version = ? ORDER BY number DESC LIMIT 1`

// byAlias is the version that an alias of a workflow stands for.
const byAlias = `SELECT ` + definitionColumns + ` FROM definition WHERE workflow = ? AND version =
 (SELECT version FROM workflow_alias a WHERE a.workflow = definition.workflow AND a.alias = ?) LIMIT 1`

// current is what a workflow_id means to a start that names no version (rule S11):
// what the alias stable stands for, else the newest active version that is not
// deprecated, else the newest active one.
const current = `SELECT ` + definitionColumns + ` FROM definition WHERE workflow = ? AND (status = 'active' OR version =
 (SELECT version FROM workflow_alias a WHERE a.workflow = definition.workflow AND a.alias = '` + parley.StableAlias + `'))
 ORDER BY CASE WHEN version = (SELECT version FROM workflow_alias a WHERE a.workflow = definition.workflow
 AND a.alias = '` + parley.StableAlias + `') THEN 0 WHEN deprecated_at IS NULL THEN 1 ELSE 2 END, created_at DESC, number DESC LIMIT 1`

// newest is the newest active version of a workflow_id.
const newest = `SELECT ` + definitionColumns + ` FROM definition WHERE workflow = ? AND status = 'active'
 ORDER BY created_at DESC, number DESC LIMIT 1`

// Definition gives the version that ref means to a start, by the first of these
// that it is: the id of a version (the newest under that id, whatever its
// status), "workflow@version" or "workflow@alias" (whatever its status), a
// workflow_id, or a name; the last two give what the alias stable stands for,
// else the newest active version that is not deprecated, else the newest active
// one (rule S11). Else the error is not_found.
//
// A run that is to stay on its version asks for "workflow@version": an id can
// come to stand for a newer version ([PutReplace]).
func (db *DB) Definition(ctx context.Context, ref string) (Definition, error) {
	return db.find(ctx, ref, current)
}

// Newest is [DB.Definition] for who looks at a workflow: a workflow_id or a name
// is its newest active version.
func (db *DB) Newest(ctx context.Context, ref string) (Definition, error) {
	return db.find(ctx, ref, newest)
}

// find gives the version that ref means; unnamed chooses one of a workflow.
func (db *DB) find(ctx context.Context, ref, unnamed string) (Definition, error) {
	var d Definition
	if len(ref) > maxRef {
		return d, parley.Errorf(parley.CodeNotFound, "there is no workflow with a name of %d bytes", len(ref))
	}
	found := false
	err := db.read(ctx, `SELECT `+definitionColumns+` FROM definition WHERE id = ? ORDER BY number DESC LIMIT 1`, one(&d, &found), ref)
	if err == nil && !found {
		err = db.findVersion(ctx, ref, one(&d, &found))
	}
	if err == nil && !found {
		err = db.read(ctx, unnamed, one(&d, &found), ref)
	}
	if err == nil && !found {
		var workflow string
		err = db.read(ctx, `SELECT workflow FROM definition WHERE name = ? AND status = 'active' ORDER BY created_at DESC, number DESC LIMIT 1`,
			func(r *record) error { workflow = r.str(); return r.err }, ref)
		if err == nil && workflow != "" {
			err = db.read(ctx, unnamed, one(&d, &found), workflow)
		}
	}
	if err == nil && !found {
		err = noDefinition(ref)
	}
	return d, err
}

// findVersion gives the version that ref names by its own name or by an alias.
func (db *DB) findVersion(ctx context.Context, ref string, each func(*record) error) (err error) {
	if strings.Count(ref, "@") > maxSigns {
		return db.read(ctx, joinedVersion, each, ref, ref, ref)
	}
	found := false
	first := func(r *record) error { found = true; return each(r) }
	// Either side of the @ may hold one.
	for i := 0; i < len(ref) && err == nil && !found; i++ {
		if ref[i] != '@' {
			continue
		}
		err = db.read(ctx, exactVersion, first, ref[:i], ref[:i], ref[i+1:])
		if err == nil && !found {
			err = db.read(ctx, byAlias, first, ref[:i], ref[i+1:])
		}
	}
	return err
}

func noDefinition(ref string) error {
	return parley.Errorf(parley.CodeNotFound, "there is no active workflow %q", ref)
}

// PutDefinition deploys a document as mode says, and gives the version that it
// is now. Number is always the store's; an empty Version becomes the whole
// number after all that the workflow has, and an empty Status active, or with PutReplace
// that of what is replaced, unless that is deleted. Number with PutReplace, if it is not
// 0, is that of the version to be replaced. The error is conflict if the version is
// deployed with other content, or there is a newer one than that to be replaced,
// not_found if there is nothing to replace. Synced.
func (db *DB) PutDefinition(ctx context.Context, d Definition, mode PutMode) (Definition, error) {
	if d.ID == "" || (d.Workflow == "" && mode != PutReplace) || d.Digest == "" || len(d.Source) == 0 || strings.Contains(d.ID, "@") {
		return Definition{}, parley.Errorf(parley.CodeInvalid, "a definition needs an id, a workflow, a source and its digest")
	}
	var out Definition
	err := db.submit(ctx, synced, func(s *session) error {
		out = d
		same, err := place(s, &out, mode)
		if err != nil {
			return err
		}
		if !same {
			if err := insertDefinition(s, &out); err != nil {
				return err
			}
		}
		return changed(s, out.Workflow)
	})
	if err != nil {
		return Definition{}, err
	}
	return out, nil
}

func insertDefinition(s *session, d *Definition) error {
	_, err := s.exec(`INSERT INTO definition (`+writtenColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		d.ID, d.Workflow, d.Name, d.Version, int64(d.Number), d.Description, d.Format, d.Source, d.Digest,
		string(d.Status), unixMicro(d.CreatedAt), unixMicro(d.UpdatedAt), d.CreatedBy, d.UpdatedBy)
	if err != nil {
		return err
	}
	if err := noAlias(s, d.Workflow, d.Version); err != nil {
		if refusal(err) { // another unit of the same transaction has set one since this one looked
			err = errLate
		}
		return err
	}
	return insertTriggers(s, d)
}

// place finds the number and the version of a definition to be written. same
// is true if it is there already: then d is the stored one.
func place(s *session, d *Definition, mode PutMode) (same bool, err error) {
	var old Definition
	found := false
	if mode == PutReplace {
		err := s.query(`SELECT `+definitionColumns+` FROM definition WHERE id = ? ORDER BY number DESC LIMIT 1`, one(&old, &found), d.ID)
		if err != nil {
			return false, err
		}
		if !found {
			return false, parley.Errorf(parley.CodeNotFound, "there is no workflow with the id %q", d.ID)
		}
		if d.Number != 0 && d.Number != old.Number {
			return false, parley.Errorf(parley.CodeConflict, "workflow %q was changed meanwhile: version %s is its newest now", d.ID, old.Version)
		}
		d.Workflow, d.CreatedAt, d.CreatedBy = old.Workflow, old.CreatedAt, old.CreatedBy
		if d.Status == "" && old.Status != parley.AgentDeleted {
			d.Status = old.Status
		}
	}
	var newest Definition
	found = false
	err = s.query(`SELECT `+definitionColumns+` FROM definition WHERE workflow = ? ORDER BY number DESC LIMIT 1`, one(&newest, &found), d.Workflow)
	if err != nil {
		return false, err
	}
	if mode == PutVersion && d.Version == "" && found && newest.Digest == d.Digest {
		return true, redeployed(s, d, newest)
	}
	if d.Version != "" {
		if err := noAlias(s, d.Workflow, d.Version); err != nil {
			return false, err
		}
	}
	d.Number = newest.Number + 1
	if d.Status == "" {
		d.Status = parley.AgentActive
	}
	if d.Version == "" {
		d.Version, err = nextVersion(s, d)
		return false, err
	}
	taken := false
	var there Definition
	if err := s.query(exactVersion, one(&there, &taken), d.Workflow, "", d.Version); err != nil || !taken {
		return false, err
	}
	if mode == PutVersion && there.Digest == d.Digest {
		return true, redeployed(s, d, there)
	}
	return false, parley.Errorf(parley.CodeConflict, "version %s of workflow %q is deployed and cannot change: give it another version", d.Version, d.Workflow).
		WithDetails(parley.ConflictDetails{Conflict: parley.ConflictVersion})
}

// nextVersion is the version of a definition that names none: the whole number
// after those that the workflow has, deleted ones too, and never less than how many
// there are. So it also stands after a version that was named, or imported, by its
// number. Larger numbers than a program in JavaScript can read are passed by.
func nextVersion(s *session, d *Definition) (string, error) {
	const most = 1 << 53
	next := int64(d.Number)
	err := s.query(`SELECT version FROM definition WHERE workflow = ?`, func(r *record) error {
		if n, err := strconv.ParseInt(r.str(), 10, 64); err == nil && n < most {
			next = max(next, n+1)
		}
		return r.err
	}, d.Workflow)
	return strconv.FormatInt(next, 10), err
}

// redeployed makes d the version that is deployed already. One that was deleted is
// there again, unless it is to be something else than active.
func redeployed(s *session, d *Definition, there Definition) error {
	wanted, by, at := d.Status, d.UpdatedBy, d.UpdatedAt
	*d = there
	if there.Status != parley.AgentDeleted || wanted != "" && wanted != parley.AgentActive {
		return nil
	}
	d.Status, d.UpdatedBy, d.UpdatedAt = parley.AgentActive, by, at
	_, err := s.exec(`UPDATE definition SET status = ?, updated_by = ?, updated_at = ? WHERE workflow = ? AND number = ?`,
		string(d.Status), by, unixMicro(at), d.Workflow, int64(d.Number))
	return err
}

// Definitions gives one page of the workflows, each as its newest version, and
// the number of all that q selects.
func (db *DB) Definitions(ctx context.Context, q parley.WorkflowQuery) ([]Definition, int, error) {
	var c condition
	c.add(`number = (SELECT max(number) FROM definition n WHERE n.workflow = definition.workflow)`)
	if q.Name != "" {
		c.add(`name = ?`, q.Name)
	}
	if q.Status != "" {
		c.add(`status = ?`, string(q.Status))
	}
	var list []Definition
	by := order(q.SortBy, q.Ascending, "workflow", "created_at", "updated_at", "name")
	total, err := db.list(ctx, &listing{definitionColumns, `definition`, c, by, q.Page}, func(r *record) error {
		d, err := readDefinition(r)
		list = append(list, d)
		return err
	})
	return list, total, err
}

// WorkflowOf gives the workflow_id of the workflow that ref (an id, a workflow_id
// or a name) belongs to, or the error not_found. Of several workflows of a name it is
// the one that [DB.Newest] gives; one that is deleted comes last.
func (db *DB) WorkflowOf(ctx context.Context, ref string) (workflow string, err error) {
	for _, column := range []string{"id", "workflow", "name"} {
		err := db.read(ctx, `SELECT workflow FROM definition WHERE `+column+` = ? ORDER BY CASE status WHEN 'active' THEN 0 WHEN 'deleted' THEN 2 ELSE 1 END,
 created_at DESC, number DESC LIMIT 1`,
			func(r *record) error { workflow = r.str(); return r.err }, ref)
		if err != nil || workflow != "" {
			return workflow, err
		}
	}
	return "", noDefinition(ref)
}

// Versions gives one page of the versions of the workflow that ref belongs to, as
// [DB.WorkflowOf] says, newest first, and the number of all of them.
func (db *DB) Versions(ctx context.Context, ref string, p parley.Page) ([]Definition, int, error) {
	workflow, err := db.WorkflowOf(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	var c condition
	c.add(`workflow = ?`, workflow)
	var list []Definition
	total, err := db.list(ctx, &listing{definitionColumns, `definition`, c, ` ORDER BY number DESC`, p}, func(r *record) error {
		d, err := readDefinition(r)
		list = append(list, d)
		return err
	})
	return list, total, err
}

// SetDefinitionStatus changes the status of every version under an id, or
// gives the error not_found. Synced.
func (db *DB) SetDefinitionStatus(ctx context.Context, id string, status parley.AgentStatus, by string, at time.Time) error {
	return db.submit(ctx, synced, func(s *session) error {
		n, err := s.exec(`UPDATE definition SET status = ?, updated_by = ?, updated_at = ? WHERE id = ?`,
			string(status), by, unixMicro(at), id)
		if err == nil && n == 0 {
			err = noDefinition(id)
		}
		if err != nil {
			return err
		}
		s.at(lastKey)
		return s.later(-1, markChangeOf, id)
	})
}
