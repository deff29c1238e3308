package store

import (
	"context"

	"github.com/parley-project/parley"
)

const (
	markChange = `INSERT INTO schedule_change (workflow, news, seen) VALUES (?, 1, 0)
 ON CONFLICT (workflow) DO UPDATE SET news = schedule_change.news + 1`
	markChangeOf = `INSERT INTO schedule_change (workflow, news, seen) SELECT DISTINCT workflow, 1, 0 FROM definition WHERE id = ?
 ON CONFLICT (workflow) DO UPDATE SET news = schedule_change.news + 1`
	markAll = `INSERT INTO schedule_change (workflow, news, seen) SELECT DISTINCT workflow, 1, 0 FROM definition WHERE 1 = 1
 ON CONFLICT (workflow) DO UPDATE SET news = schedule_change.news + 1`
	selectChanges = `SELECT workflow, news FROM schedule_change WHERE news > seen AND workflow > ? ORDER BY workflow LIMIT ?`
	selectChange  = `SELECT workflow, news FROM schedule_change WHERE news > seen AND workflow = ?`
	seeChange     = `UPDATE schedule_change SET seen = ? WHERE workflow = ? AND news = ? AND seen < ?`
	selectDefined = `SELECT ` + scheduleColumns + ` FROM schedule WHERE workflow = ?`
	updateDefined = `UPDATE schedule SET version = ?, updated_at = ?, next_at = coalesce(next_at, ?), due_at = coalesce(due_at, ?), seq = seq + 1
 WHERE id = ? AND (version <> ? OR next_at IS NULL)`
	deleteIdle = `DELETE FROM schedule WHERE id = ? AND starting_at IS NULL AND (waiting = 0 OR paused_at IS NOT NULL)`
	endDefined = `UPDATE schedule SET next_at = NULL, due_at = NULL, seq = seq + 1 WHERE id = ? AND next_at IS NOT NULL`
)

// changed notes, in the transaction that changes versions or aliases of a
// workflow, that its schedules may not agree any more.
func changed(s *session, workflow string) error {
	s.at(lastKey)
	return s.later(-1, markChange, workflow)
}

// changedBy notes, in the transaction that writes row, that the schedules of its workflow
// are to be looked at if it is one of a definition with nothing left to start: it may stand
// there no more, and have stayed for its last firings.
func changedBy(s *session, row *Schedule) error {
	if row.Version == "" || !row.NextAt.IsZero() || !row.StartingAt.IsZero() || row.Waiting > 0 && row.PausedAt.IsZero() {
		return nil
	}
	return changed(s, row.Workflow)
}

// WorkflowChange says that versions or aliases of a workflow have changed since
// its schedules were made to agree, and how often they ever have.
type WorkflowChange struct {
	Workflow string
	News     int64
}

// WorkflowChanges gives workflows whose schedules may not agree with their versions,
// by their ids, those after an id.
func (db *DB) WorkflowChanges(ctx context.Context, after string, limit int) ([]WorkflowChange, error) {
	var list []WorkflowChange
	err := db.read(ctx, selectChanges, changeList(&list), after, int64(limit))
	return list, err
}

// WorkflowChanged is WorkflowChanges for one workflow.
func (db *DB) WorkflowChanged(ctx context.Context, workflow string) (list []WorkflowChange, err error) {
	err = db.read(ctx, selectChange, changeList(&list), workflow)
	return list, err
}

func changeList(list *[]WorkflowChange) func(*record) error {
	return func(r *record) error {
		*list = append(*list, WorkflowChange{r.str(), r.int()})
		return r.err
	}
}

// ChangeAllWorkflows has the schedules of all workflows looked at.
func (db *DB) ChangeAllWorkflows(ctx context.Context) error {
	return db.submit(ctx, prompt, func(s *session) error {
		s.at(lastKey)
		_, err := s.exec(markAll)
		return err
	})
}

// Defined are the schedules that stand in the version of a workflow which a plain
// start runs.
type Defined struct {
	WorkflowChange
	Schedules []Schedule
	// Deleted: the workflow is, and the schedules that were added to it go too.
	Deleted bool
}

// SetDefined makes the schedules of definitions agree with a version: those that
// are there stay as they are, paused or not, others come and go. One that goes and has
// firings that are being started, or wait and are not paused, has no others from now on;
// it goes with the change of the workflow that [DB.MoveSchedule] notes after these. It is
// done as of the change that was seen; ErrStale: there was another one since, or somebody
// else has done it. Synced.
func (db *DB) SetDefined(ctx context.Context, d Defined) error {
	return db.transition(ctx, synced, point("schedules"), func(s *session) error {
		s.at(d.Workflow)
		n, err := s.exec(seeChange, d.News, d.Workflow, d.News, d.News)
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrStale
		}
		var there []Schedule
		if err := s.query(selectDefined, scheduleList(&there), d.Workflow); err != nil {
			return err
		}
		wanted := make(map[string]bool, len(d.Schedules))
		for i := range d.Schedules {
			wanted[d.Schedules[i].ID] = true
		}
		for i := range there {
			old := &there[i]
			if wanted[old.ID] || old.Version == "" && !d.Deleted {
				continue
			}
			if err := undefine(s, old.ID, d.Deleted); err != nil {
				return err
			}
		}
		for i := range d.Schedules {
			if err := define(s, &d.Schedules[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func define(s *session, row *Schedule) error {
	s.at(row.ID)
	added, err := putSchedule(s, row)
	if err != nil || added {
		return err
	}
	_, err = s.exec(updateDefined, row.Version, unixMicro(row.UpdatedAt), micros(row.NextAt), micros(row.DueAt), row.ID, row.Version)
	return err
}

// undefine removes a schedule, or ends it if it has yet something to start: a firing that
// was decided about is not lost by a deployment.
func undefine(s *session, id string, atOnce bool) error {
	remove := deleteIdle
	if atOnce {
		remove = deleteSchedule
	}
	s.at(id)
	n, err := s.exec(remove, id)
	if err != nil {
		return err
	}
	then := deleteFirings
	if n == 0 {
		then = endDefined
	}
	_, err = s.exec(then, id)
	return err
}

// CurrentVersion gives the version that a plain start of a workflow_id runs; ok is
// false if there is none that takes new runs. deleted: all versions are.
func (db *DB) CurrentVersion(ctx context.Context, workflow string) (d Definition, ok, deleted bool, err error) {
	err = db.read(ctx, current, one(&d, &ok), workflow)
	if err != nil {
		return d, false, false, err
	}
	if ok {
		return d, d.Status == parley.AgentActive && d.Deprecated == nil, false, nil
	}
	deleted = true
	err = db.read(ctx, `SELECT 1 FROM definition WHERE workflow = ? AND status <> 'deleted' LIMIT 1`, func(*record) error { deleted = false; return nil }, workflow)
	return d, false, deleted, err
}
