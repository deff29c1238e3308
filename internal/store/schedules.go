package store

import (
	"context"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// firingsKept is how many firings of a schedule are kept: the newest, and those
// that wait.
const firingsKept = 100

// Schedule is one row of table schedule.
type Schedule struct {
	ID, Workflow string
	// Version is the one that it stands in; "" for one that was added.
	Version, Name string
	// Spec is what the member schedule of a trigger holds, as JSON.
	Spec     []byte
	PausedAt time.Time
	PausedBy string
	// NextAt is the next firing, DueAt when it is to be handled.
	NextAt, DueAt time.Time
	// StartingAt is the firing whose run is being started, Run what the last one
	// has started.
	StartingAt time.Time
	Run        string
	// Waiting counts the firings that wait, Seq the changes of the row.
	Waiting int
	Seq     int64

	CreatedAt, UpdatedAt time.Time
	CreatedBy, UpdatedBy string
}

// ScheduleMove is the next state of a schedule: it is written if Seq is still that
// of the row.
type ScheduleMove struct {
	Schedule
	// Firings are recorded, in the place of what was recorded of the same times.
	Firings []parley.ScheduleFiring
	// Audit is an entry of the audit record with Changes; nil is none.
	Audit   *Audit
	Changes map[string]any
}

const (
	scheduleColumns = `id, workflow, version, name, spec, paused_at, paused_by, next_at, due_at, starting_at, run, waiting, seq,
 created_at, updated_at, created_by, updated_by`
	insertSchedule = `INSERT INTO schedule (` + scheduleColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	updateSchedule = `UPDATE schedule SET paused_at = ?, paused_by = ?, next_at = ?, due_at = ?, starting_at = ?, run = ?, waiting = ?,
 updated_at = ?, updated_by = ?, seq = seq + 1 WHERE id = ? AND seq = ?`
	selectSchedule     = `SELECT ` + scheduleColumns + ` FROM schedule WHERE id = ? OR (name = ? AND name <> '') ORDER BY CASE WHEN id = ? THEN 0 ELSE 1 END`
	selectDueSchedules = `SELECT ` + scheduleColumns + ` FROM schedule WHERE paused_at IS NULL AND due_at >= ? AND due_at <= ?
 AND (due_at > ? OR id > ?) ORDER BY due_at, id LIMIT ?`
	selectOpen     = `SELECT ` + scheduleColumns + ` FROM schedule WHERE (starting_at IS NOT NULL OR waiting > 0) AND id > ? ORDER BY id LIMIT ?`
	selectNextDue  = `SELECT min(due_at) FROM schedule WHERE paused_at IS NULL AND due_at > ?`
	deleteSchedule = `DELETE FROM schedule WHERE id = ?`

	firingColumns = `at, due_at, state, run, reason, backfill, recorded_at`
	upsertFiring  = `INSERT INTO schedule_firing (schedule, ` + firingColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
 ON CONFLICT (schedule, at) DO UPDATE SET due_at = excluded.due_at, state = excluded.state, run = excluded.run, reason = excluded.reason,
 backfill = excluded.backfill, recorded_at = excluded.recorded_at`
	purgeFirings = `DELETE FROM schedule_firing WHERE schedule = ? AND state NOT IN ('waiting', 'starting') AND at NOT IN
 (SELECT at FROM schedule_firing WHERE schedule = ? ORDER BY recorded_at DESC, at DESC LIMIT ?)`
	deleteFirings  = `DELETE FROM schedule_firing WHERE schedule = ?`
	selectWaits    = `SELECT ` + firingColumns + ` FROM schedule_firing WHERE schedule = ? AND state = 'waiting' ORDER BY backfill, at LIMIT ?`
	selectFirings  = `SELECT ` + firingColumns + ` FROM schedule_firing WHERE schedule = ? AND at >= ? AND at <= ? ORDER BY at`
	selectLastPart = ` FROM schedule_firing f WHERE state <> 'waiting' AND at =
 (SELECT max(at) FROM schedule_firing g WHERE g.schedule = f.schedule AND g.state <> 'waiting') AND schedule IN (?`
)

func readSchedule(r *record) (Schedule, error) {
	s := Schedule{
		ID: r.str(), Workflow: r.str(), Version: r.str(), Name: r.str(), Spec: r.bytes(), PausedAt: r.time(), PausedBy: r.str(),
		NextAt: r.time(), DueAt: r.time(), StartingAt: r.time(), Run: r.str(), Waiting: int(r.int()), Seq: r.int(),
		CreatedAt: r.time(), UpdatedAt: r.time(), CreatedBy: r.str(), UpdatedBy: r.str(),
	}
	return s, r.err
}

func scheduleList(list *[]Schedule) func(*record) error {
	return func(r *record) error {
		s, err := readSchedule(r)
		*list = append(*list, s)
		return err
	}
}

func readFiring(r *record) parley.ScheduleFiring {
	return parley.ScheduleFiring{
		ScheduledAt: r.time(), DueAt: r.time(), State: parley.FiringState(r.str()), Run: r.str(), Reason: r.str(), Backfill: r.flag(), RecordedAt: r.time(),
	}
}

func firingList(list *[]parley.ScheduleFiring) func(*record) error {
	return func(r *record) error {
		*list = append(*list, readFiring(r))
		return r.err
	}
}

func putSchedule(s *session, row *Schedule) (bool, error) {
	n, err := s.exec(insertSchedule, row.ID, row.Workflow, row.Version, row.Name, row.Spec, micros(row.PausedAt), text(row.PausedBy),
		micros(row.NextAt), micros(row.DueAt), micros(row.StartingAt), text(row.Run), int64(row.Waiting), row.Seq,
		unixMicro(row.CreatedAt), unixMicro(row.UpdatedAt), row.CreatedBy, row.UpdatedBy)
	return n == 1, err
}

// AddSchedule adds a schedule that stands in no definition. The error is conflict
// if another has its name. Synced.
func (db *DB) AddSchedule(ctx context.Context, m ScheduleMove) error {
	return db.transition(ctx, synced, point("schedule"), func(s *session) error {
		s.at(m.ID)
		added, err := putSchedule(s, &m.Schedule)
		if err != nil {
			return err
		}
		if !added {
			return parley.Errorf(parley.CodeConflict, "there is a schedule %q already", m.Name)
		}
		return auditMove(s, &m)
	})
}

// MoveSchedule writes the next state of a schedule, and records firings. When one of a
// definition has nothing left to start, its workflow is noted as changed. ErrStale:
// somebody else was faster. Synced.
func (db *DB) MoveSchedule(ctx context.Context, m ScheduleMove) error {
	return db.transition(ctx, synced, point("schedule"), func(s *session) error {
		s.at(m.ID)
		n, err := s.exec(updateSchedule, micros(m.PausedAt), text(m.PausedBy), micros(m.NextAt), micros(m.DueAt), micros(m.StartingAt), text(m.Run),
			int64(m.Waiting), unixMicro(m.UpdatedAt), m.UpdatedBy, m.ID, m.Seq)
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrStale
		}
		for i := range m.Firings {
			f := &m.Firings[i]
			err := s.later(-1, upsertFiring, m.ID, f.ScheduledAt.UnixMicro(), f.DueAt.UnixMicro(), string(f.State), text(f.Run), text(f.Reason),
				flag(f.Backfill), f.RecordedAt.UnixMicro())
			if err != nil {
				return err
			}
		}
		if len(m.Firings) > 0 {
			if err := s.later(-1, purgeFirings, m.ID, m.ID, int64(firingsKept)); err != nil {
				return err
			}
		}
		if err := changedBy(s, &m.Schedule); err != nil {
			return err
		}
		return auditMove(s, &m)
	})
}

func auditMove(s *session, m *ScheduleMove) error {
	if m.Audit == nil {
		return nil
	}
	return audit(s, m.Audit, m.Changes)
}

// RemoveSchedule removes a schedule and its firings. Their runs stay. ErrStale:
// the row has changed. Synced.
func (db *DB) RemoveSchedule(ctx context.Context, m ScheduleMove) error {
	return db.transition(ctx, synced, point("schedule"), func(s *session) error {
		s.at(m.ID)
		n, err := s.exec(`DELETE FROM schedule WHERE id = ? AND seq = ?`, m.ID, m.Seq)
		if err == nil && n == 0 {
			err = ErrStale
		}
		if err == nil {
			_, err = s.exec(deleteFirings, m.ID)
		}
		if err != nil {
			return err
		}
		return auditMove(s, &m)
	})
}

// Schedule gives the schedule of that id or name, or the error not_found.
func (db *DB) Schedule(ctx context.Context, ref string) (Schedule, error) {
	var list []Schedule
	err := db.read(ctx, selectSchedule, scheduleList(&list), ref, ref, ref)
	if err == nil && len(list) == 0 {
		err = parley.Errorf(parley.CodeNotFound, "there is no schedule %q", ref)
	}
	if err != nil {
		return Schedule{}, err
	}
	return list[0], nil
}

// Schedules gives one page of schedules by workflow and id, and the number of all
// that q selects.
func (db *DB) Schedules(ctx context.Context, q parley.ScheduleQuery) ([]Schedule, int, error) {
	var c condition
	if q.Workflow != "" {
		c.add(`workflow = ?`, q.Workflow)
	}
	switch q.Status {
	case "":
	case parley.ScheduleActive:
		c.add(`paused_at IS NULL`)
	case parley.SchedulePaused:
		c.add(`paused_at IS NOT NULL`)
	default:
		c.add(`1 = 0`)
	}
	var list []Schedule
	total, err := db.list(ctx, &listing{scheduleColumns, `schedule`, c, ` ORDER BY workflow, id`, q.Page}, scheduleList(&list))
	return list, total, err
}

// DueSchedules gives schedules that are to be handled, the longest due first: those
// that come after one of these. The zero Schedule stands before all.
func (db *DB) DueSchedules(ctx context.Context, now time.Time, after Schedule, limit int) ([]Schedule, error) {
	var list []Schedule
	from := unixMicro(after.DueAt)
	err := db.read(ctx, selectDueSchedules, scheduleList(&list), from, now.UnixMicro(), from, after.ID, int64(limit))
	return list, err
}

// OpenSchedules gives schedules with a firing that is being started or waits, by
// id, those after an id.
func (db *DB) OpenSchedules(ctx context.Context, after string, limit int) ([]Schedule, error) {
	var list []Schedule
	err := db.read(ctx, selectOpen, scheduleList(&list), after, int64(limit))
	return list, err
}

// NextSchedule gives when the next schedule is due that is not due at a time; zero if
// none ever is.
func (db *DB) NextSchedule(ctx context.Context, after time.Time) (at time.Time, err error) {
	err = db.read(ctx, selectNextDue, func(r *record) error { at = r.time(); return nil }, after.UnixMicro())
	return at, err
}

// WaitingFirings gives firings of a schedule that wait: the earliest first of those
// that nobody has asked for, then of the others.
func (db *DB) WaitingFirings(ctx context.Context, id string, limit int) ([]parley.ScheduleFiring, error) {
	var list []parley.ScheduleFiring
	err := db.read(ctx, selectWaits, firingList(&list), id, int64(limit))
	return list, err
}

// FiringsBetween gives what is recorded of the firings of a schedule from one time
// to another, both included.
func (db *DB) FiringsBetween(ctx context.Context, id string, from, to time.Time) ([]parley.ScheduleFiring, error) {
	var list []parley.ScheduleFiring
	err := db.read(ctx, selectFirings, firingList(&list), id, from.UnixMicro(), to.UnixMicro())
	return list, err
}

// Firings gives one page of the firings of a schedule, the latest first, and the
// number of all that are recorded.
func (db *DB) Firings(ctx context.Context, id string, page parley.Page) ([]parley.ScheduleFiring, int, error) {
	var c condition
	c.add(`schedule = ?`, id)
	var list []parley.ScheduleFiring
	total, err := db.list(ctx, &listing{firingColumns, `schedule_firing`, c, ` ORDER BY at DESC`, page}, firingList(&list))
	return list, total, err
}

// LastFirings gives the latest firing of each schedule that has one which waits no
// more.
func (db *DB) LastFirings(ctx context.Context, ids ...string) (map[string]parley.ScheduleFiring, error) {
	last := make(map[string]parley.ScheduleFiring, len(ids))
	if len(ids) == 0 {
		return last, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	err := db.read(ctx, `SELECT schedule, `+firingColumns+selectLastPart+strings.Repeat(`, ?`, len(ids)-1)+`)`, func(r *record) error {
		id := r.str()
		last[id] = readFiring(r)
		return r.err
	}, args...)
	return last, err
}
