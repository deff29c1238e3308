package store

import (
	"context"
	"database/sql/driver"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// ImportKind is what kind of record was taken over from another platform.
type ImportKind string

// The kinds of records that [DB.Import] takes.
const (
	ImportAgent      ImportKind = "agent"
	ImportDefinition ImportKind = "definition"
	ImportRun        ImportKind = "run"
	ImportAudit      ImportKind = "audit"
)

// ImportState says how a record over there compares with what was imported.
type ImportState string

// The states of a record that is imported.
const (
	// ImportNew: it was not imported before.
	ImportNew ImportState = "new"
	// ImportSame: it was, and has not changed there since.
	ImportSame ImportState = "same"
	// ImportChanged: it was, and has changed there since.
	ImportChanged ImportState = "changed"
)

// Import is one record of another platform, as it is to stand here. One of
// Agent, Definition, Run and Audit is set.
type Import struct {
	Kind ImportKind
	// ID is the record's id there, and here.
	ID string
	// Digest stands for the content there: equal digests are equal records. It
	// must not be made of secrets.
	Digest string
	// At is the time of the import.
	At time.Time

	Agent      *parley.Agent
	Definition *Definition
	// Run has ended, and is on no version: Version is "". Events are its whole
	// history, from seq 1 without a gap.
	Run    *Run
	Events []parley.Event
	Audit  *Audit
}

// ImportState compares a digest with the one of the last import of the record.
func (db *DB) ImportState(ctx context.Context, kind ImportKind, id, digest string) (state ImportState, err error) {
	state = ImportNew
	err = db.read(ctx, `SELECT digest FROM imported WHERE kind = ? AND id = ?`, func(r *record) error {
		if state = ImportChanged; r.str() == digest {
			state = ImportSame
		}
		return nil
	}, string(kind), id)
	return state, err
}

// Import writes one record, or changes the one that an earlier import has
// written, and says which. The error is conflict, and nothing was written, if
// the id or the name belongs to something that was not imported, or if what was
// imported was changed here and there since. Synced.
//
// A run that has changed there since (it was under way when it was imported)
// gets its new history in place of the one that it had.
func (db *DB) Import(ctx context.Context, in Import) (ImportState, error) {
	prepare, err := db.importPreparer(ctx, &in, false)
	if err != nil {
		return "", err
	}
	var state ImportState
	err = db.submit(ctx, synced, func(s *session) error {
		var write importWrite
		if state, write, err = prepareImport(s, &in, prepare); err != nil || write == nil {
			return err
		}
		stamp, err := write()
		if err != nil {
			return err
		}
		_, err = s.exec(`INSERT INTO imported (kind, id, digest, stamp, imported_at) VALUES (?, ?, ?, ?, ?)
 ON CONFLICT (kind, id) DO UPDATE SET digest = excluded.digest, stamp = excluded.stamp, imported_at = excluded.imported_at`,
			string(in.Kind), in.ID, in.Digest, stamp, unixMicro(in.At))
		return err
	})
	if err != nil {
		return "", err
	}
	return state, nil
}

// ForeseeImport gives what [DB.Import] would give now, its refusals too, and
// writes nothing.
func (db *DB) ForeseeImport(ctx context.Context, in Import) (ImportState, error) {
	prepare, err := db.importPreparer(ctx, &in, true)
	if err != nil {
		return "", err
	}
	var state ImportState
	err = db.submit(ctx, prompt, func(s *session) error {
		state, _, err = prepareImport(s, &in, prepare)
		return err
	})
	if err != nil {
		return "", err
	}
	return state, nil
}

// importMark is what is remembered of an import: the digest of the record
// there, and the updated_at of what was written here.
type importMark struct {
	digest string
	stamp  int64
}

// importPrepare refuses a record that cannot be written, new or in place of the
// one with the stamp. It only reads.
type importPrepare func(s *session, fresh bool, stamp int64) (importWrite, error)

// importWrite writes a record that was not refused, and gives its new stamp.
type importWrite func() (int64, error)

// prepareImport compares a record with what was imported. write is nil if it is
// there as it is.
func prepareImport(s *session, in *Import, prepare importPrepare) (state ImportState, write importWrite, err error) {
	mark := importMark{}
	state = ImportNew
	err = s.query(`SELECT digest, stamp FROM imported WHERE kind = ? AND id = ?`, func(r *record) error {
		mark, state = importMark{r.str(), r.int()}, ImportChanged
		return nil
	}, string(in.Kind), in.ID)
	if err != nil {
		return "", nil, err
	}
	if state == ImportChanged && mark.digest == in.Digest {
		return ImportSame, nil, nil
	}
	write, err = prepare(s, state == ImportNew, mark.stamp)
	return state, write, err
}

// importPreparer checks what can be checked without the database. dry says that
// nothing may be written anywhere.
func (db *DB) importPreparer(ctx context.Context, in *Import, dry bool) (importPrepare, error) {
	if in.ID == "" || in.Digest == "" {
		return nil, parley.Errorf(parley.CodeInvalid, "what is imported needs an id and a digest")
	}
	switch {
	case in.Kind == ImportAgent && in.Agent != nil:
		return importAgent(in.Agent)
	case in.Kind == ImportDefinition && in.Definition != nil:
		return importDefinition(in.Definition)
	case in.Kind == ImportRun && in.Run != nil:
		return db.importRun(ctx, in, dry)
	case in.Kind == ImportAudit && in.Audit != nil:
		return importAudit(in.Audit), nil
	}
	return nil, parley.Errorf(parley.CodeInvalid, "there is no record of kind %q to be imported", in.Kind)
}

// changedHere is the refusal of what was changed on both sides.
func changedHere(what, name string) error {
	return parley.Errorf(parley.CodeConflict,
		"%s %q was changed here and on the existing platform since it was imported: what is here stays; make the change here", what, name)
}

func importAgent(a *parley.Agent) (importPrepare, error) {
	args, err := agentArgs(a)
	if err != nil {
		return nil, err
	}
	stamp := unixMicro(a.UpdatedAt)
	args = append(args, string(a.Status), unixMicro(a.CreatedAt), stamp, a.CreatedBy, a.UpdatedBy, a.ID, a.Name)
	return func(s *session, fresh bool, seen int64) (importWrite, error) {
		if fresh {
			taken, err := s.exists(`SELECT 1 FROM agents WHERE id = ? OR name = ?`, a.ID, a.Name)
			refusal := parley.Errorf(parley.CodeConflict, "there is an agent with the name or the id of agent %q here already, and it was not imported", a.Name)
			if taken || err != nil {
				return nil, cmpError(err, refusal)
			}
			return func() (int64, error) {
				n, err := s.exec(insertAgent, args...)
				if err == nil && n == 0 {
					err = refusal
				}
				return stamp, err
			}, nil
		}
		there, err := s.exists(`SELECT 1 FROM agents WHERE id = ? AND updated_at = ?`, a.ID, seen)
		if !there || err != nil {
			return nil, cmpError(err, changedHere("agent", a.Name))
		}
		return func() (int64, error) {
			// What the platform over there does not know stays as it is here.
			n, err := s.exec(`UPDATE agents SET url = ?, description = ?, protocol = ?, protocol_config = ?, auth_type = ?, auth_header = ?,
 auth_secret = ?, auth_config = ?, timeout_ms = ?, retry_config = ?, status = ?, updated_at = ?, updated_by = ? WHERE id = ? AND updated_at = ?`,
				args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[13], args[7], args[8],
				string(a.Status), stamp, a.UpdatedBy, a.ID, seen)
			if err == nil && n == 0 {
				err = changedHere("agent", a.Name)
			}
			return stamp, err
		}, nil
	}, nil
}

func importDefinition(d *Definition) (importPrepare, error) {
	if d.ID == "" || d.Workflow == "" || d.Version == "" || d.Digest == "" || len(d.Source) == 0 || strings.Contains(d.ID, "@") {
		return nil, parley.Errorf(parley.CodeInvalid, "a definition that is imported needs an id, a workflow, a version, a source and its digest")
	}
	return func(s *session, fresh bool, stamp int64) (importWrite, error) {
		var old Definition
		found := false
		err := s.query(`SELECT `+definitionColumns+` FROM definition WHERE id = ? ORDER BY number DESC LIMIT 1`, one(&old, &found), d.ID)
		if err != nil {
			return nil, err
		}
		switch {
		case fresh && found:
			return nil, parley.Errorf(parley.CodeConflict, "there is a workflow with the id %s here already, and it was not imported", d.ID)
		case !fresh && (!found || unixMicro(old.UpdatedAt) != stamp):
			return nil, changedHere("workflow", d.Name)
		case !fresh && old.Version == d.Version && old.Digest == d.Digest:
			return func() (int64, error) {
				_, err := s.exec(`UPDATE definition SET description = ?, status = ?, updated_at = ?, updated_by = ? WHERE id = ? AND number = ?`,
					d.Description, string(d.Status), unixMicro(d.UpdatedAt), d.UpdatedBy, d.ID, int64(old.Number))
				return unixMicro(d.UpdatedAt), err
			}, nil
		}
		row := *d
		if _, err := place(s, &row, PutAlways); err != nil {
			return nil, err
		}
		return func() (int64, error) { return unixMicro(d.UpdatedAt), insertDefinition(s, &row) }, nil
	}, nil
}

func (db *DB) importRun(ctx context.Context, in *Import, dry bool) (importPrepare, error) {
	run, events := in.Run, in.Events
	if run.ID == "" || !run.Imported() || !run.Status.Terminal() || run.EndedAt.IsZero() || run.Seq != int64(len(events)) || run.Seq == 0 {
		return nil, parley.Errorf(parley.CodeInvalid, "run %q cannot be imported: it has not ended, or its events are not all there", run.ID)
	}
	w := runImport{run: run}
	encode := func(c *cutter) (err error) {
		w.rows, err = eventRows(c, run.ID, events)
		return err
	}
	var err error
	if dry {
		err = encode(&cutter{}) // no value is put apart
	} else {
		w.apart, err = db.apart(ctx, run.ID, false, encode)
	}
	if err != nil {
		return nil, err
	}
	labels, err := encodeLabels(run.Labels)
	if err != nil {
		return nil, err
	}
	w.row = bindStart(run, &Start{}, labels)
	return w.prepare, nil
}

// runImport is a run that is imported.
type runImport struct {
	run   *Run
	row   []driver.NamedValue
	rows  []eventRow
	apart references
}

func (w *runImport) prepare(s *session, fresh bool, _ int64) (importWrite, error) {
	id := w.run.ID
	if going, err := s.exists(isRemoved, id); going || err != nil {
		return nil, cmpError(err, parley.Errorf(parley.CodeConflict, "run %q is being removed here: import it again in a minute", id))
	}
	// What was imported was carried out elsewhere, and is on no version.
	mine := `SELECT 1 FROM run WHERE id = ? AND version <> ''`
	if fresh {
		mine = `SELECT 1 FROM run WHERE id = ?`
	}
	if taken, err := s.exists(mine, id); taken || err != nil {
		return nil, cmpError(err, w.taken())
	}
	return func() (int64, error) {
		if !fresh {
			// Nothing but an import changes a run that has ended.
			if err := w.clear(s); err != nil {
				return 0, err
			}
		}
		return unixMicro(w.run.UpdatedAt), w.write(s)
	}, nil
}

func (w *runImport) taken() error {
	return parley.Errorf(parley.CodeConflict, "there is a run %q here already, and it was not imported", w.run.ID)
}

// clear removes what an earlier import has written.
func (w *runImport) clear(s *session) error {
	for _, statement := range []string{`DELETE FROM event WHERE run = ?`, deleteLabels} {
		if _, err := s.exec(statement, w.run.ID); err != nil {
			return err
		}
	}
	if err := dropReferences(s, w.run.ID); err != nil {
		return err
	}
	_, err := s.exec(`DELETE FROM run WHERE id = ?`, w.run.ID)
	return err
}

func (w *runImport) write(s *session) error {
	n, err := s.execBound(insertRun, w.row)
	if err == nil && n == 0 {
		err = w.taken()
	}
	if err != nil {
		return err
	}
	if err := searchable(s, w.run); err != nil {
		return err
	}
	for _, e := range w.rows {
		if _, err := s.exec(insertEvents, w.run.ID, e.first, e.last, e.data); err != nil {
			return err
		}
	}
	return w.apart.write(s, unixMicro(w.run.UpdatedAt))
}

// eventRow is one row of table event.
type eventRow struct {
	first, last int64
	data        []byte
}

// The bounds of one row of an imported history, in events and in bytes of their
// data. A row is read as a whole.
const (
	maxRowEvents = 64
	maxRowBytes  = 256 << 10
)

// eventRows spreads a whole history over rows. The first and the last event, of
// which lists are made, have a row each.
func eventRows(c *cutter, run string, events []parley.Event) ([]eventRow, error) {
	var rows []eventRow
	for from := 0; from < len(events); {
		to, size := from+1, len(events[from].Data)
		for from > 0 && to < len(events)-1 && to-from < maxRowEvents && size+len(events[to].Data) <= maxRowBytes {
			size += len(events[to].Data)
			to++
		}
		data, err := encodeEvents(c, run, int64(from)+1, events[from:to])
		if err != nil {
			return nil, err
		}
		rows = append(rows, eventRow{int64(from) + 1, int64(to), data})
		from = to
	}
	return rows, nil
}

// Audit is one entry of the record of who changed what on the platform that a
// database was taken over from.
type Audit struct {
	ID string
	At time.Time
	// EntityType is agent, workflow, run or schedule, Action create, update, delete,
	// execute, retry or cancel; other words are kept as they are.
	EntityType, EntityID, Action string
	// By is who did it, "" if that is not known.
	By string
	// Changes is one JSON value without credentials, or nil.
	Changes []byte
}

func importAudit(a *Audit) importPrepare {
	return func(s *session, _ bool, _ int64) (importWrite, error) {
		return func() (int64, error) {
			_, err := s.exec(`INSERT INTO audit (id, at, entity_type, entity_id, action, actor, changes) VALUES (?, ?, ?, ?, ?, ?, ?)
 ON CONFLICT (id) DO UPDATE SET at = excluded.at, entity_type = excluded.entity_type, entity_id = excluded.entity_id,
 action = excluded.action, actor = excluded.actor, changes = excluded.changes`,
				a.ID, unixMicro(a.At), a.EntityType, a.EntityID, a.Action, a.By, blob(a.Changes))
			return unixMicro(a.At), err
		}, nil
	}
}

// AuditQuery selects entries of the audit record. Zero members don't restrict.
type AuditQuery struct {
	EntityType, EntityID, Action string
	// Without is the type of entities whose entries are left out.
	Without string
	Page    parley.Page
}

// Audits gives one page of the audit record, newest first, and the number of
// all entries that q selects.
func (db *DB) Audits(ctx context.Context, q AuditQuery) ([]Audit, int, error) {
	var c condition
	if q.EntityType != "" {
		c.add(`entity_type = ?`, q.EntityType)
	}
	if q.EntityID != "" {
		c.add(`entity_id = ?`, q.EntityID)
	}
	if q.Action != "" {
		c.add(`action = ?`, q.Action)
	}
	if q.Without != "" {
		c.add(`entity_type <> ?`, q.Without)
	}
	var list []Audit
	total, err := db.list(ctx, &listing{
		`id, at, entity_type, entity_id, action, actor, changes`, `audit`, c, ` ORDER BY at DESC, id DESC`, q.Page,
	}, func(r *record) error {
		a := Audit{
			ID: r.str(), At: r.time(), EntityType: r.str(), EntityID: r.str(), Action: r.str(), By: r.str(), Changes: r.bytes(),
		}
		list = append(list, a)
		return r.err
	})
	return list, total, err
}
