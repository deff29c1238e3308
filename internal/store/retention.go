package store

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"
)

// KeyKept is how long an idempotency key is kept at least, and its run with it
// (language rule C7).
const KeyKept = 24 * time.Hour

// What keeps a run that is over. Each condition is about the row run, and asks for
// no parameter; what else keeps a run is one more line here.
var keepsRun = []string{
	// it was retried or rerun, and that run is under way
	`EXISTS (SELECT 1 FROM run again WHERE again.retried_from = run.id AND again.ended_at IS NULL)`,
	// it was started by a step of a run that is under way, or has started one of which
	// somebody is still to be told
	`EXISTS (SELECT 1 FROM run parent WHERE parent.id = run.parent_run AND parent.ended_at IS NULL)`,
	`EXISTS (SELECT 1 FROM child c WHERE c.parent = run.id)`,
	// it was given up, and waits for somebody to look at it
	`EXISTS (SELECT 1 FROM dead_letter d WHERE d.run = run.id AND d.state = 'waiting')`,
}

// removable holds for runs that may be removed when they have ended. Its parameters are the time after
// which an idempotency key is young, and the one after which a run of an archive is.
var removable = `(idempotency_key IS NULL OR created_at <= ?)
 AND NOT EXISTS (SELECT 1 FROM imported i WHERE i.kind = '` + string(importArchived) + `' AND i.id = run.id AND i.imported_at > ?)
 AND NOT ` + strings.Join(keepsRun, `
 AND NOT `)

const (
	takeRetention = `INSERT INTO retention (name, holder, until) VALUES ('runs', ?, ?)
 ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE retention.holder = ? OR retention.until <= ?`
	leaveRetention = `UPDATE retention SET until = 0 WHERE name = 'runs' AND holder = ?`

	endedWorkflow = `SELECT workflow FROM run WHERE workflow > ? AND ended_at IS NOT NULL ORDER BY workflow LIMIT 1`
	oldestKept    = `SELECT ended_at, id FROM run WHERE workflow = ? AND ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT 1 OFFSET ?`

	markRemoved   = `INSERT INTO removed_run (id, removed_at) VALUES (?, ?) ON CONFLICT DO NOTHING`
	selectRemoved = `SELECT id FROM removed_run ORDER BY id LIMIT ?`
	isRemoved     = `SELECT 1 FROM removed_run WHERE id = ?`

	sizesOfEvents   = `SELECT seq, length(data) FROM event WHERE run = ? ORDER BY seq LIMIT ?`
	sizesOfAttempts = `SELECT id, length(input) + coalesce(length(output), 0) FROM attempt WHERE id >= ? AND id < ? AND run = ? ORDER BY id LIMIT ?`
)

var (
	selectPast = `SELECT id, ended_at FROM run WHERE workflow = ? AND (ended_at, id) < (?, ?) AND (ended_at, id) > (?, ?) AND ended_at IS NOT NULL AND ` + removable + `
 ORDER BY ended_at, id LIMIT ?`
	// see itsState
	deleteRun = `DELETE FROM run WHERE id = ? AND coalesce(ended_at, 0) > 0 AND ` + removable + `
 AND (SELECT count(*) FROM late WHERE attempt >= ? AND attempt < ? AND (SELECT a.run FROM attempt a WHERE a.id = late.attempt) = run.id) <= ?`
)

// purgeRows and purgeBytes bound what one transaction removes of runs that are
// gone, so that nobody who comes meanwhile waits for long.
const (
	purgeRows  = 100
	purgeBytes = 4 << 20
	purgeRuns  = 25
)

// TakeRetention makes holder the one that removes runs until then, and is false if
// somebody else is. It is called again by whom it was given to, to go on.
func (db *DB) TakeRetention(ctx context.Context, holder string, now, until time.Time) (bool, error) {
	won := false
	err := db.submit(ctx, prompt, func(s *session) error {
		n, err := s.exec(takeRetention, holder, until.UnixMicro(), holder, now.UnixMicro())
		won = n > 0
		return err
	})
	return won && err == nil, err
}

// LeaveRetention lets the next one remove runs at once.
func (db *DB) LeaveRetention(ctx context.Context, holder string) error {
	return db.submit(ctx, lazy, func(s *session) error { return s.later(-1, leaveRetention, holder) })
}

// EndedWorkflow gives the next workflow behind one, in order of their ids, that has
// runs which are over; "" is the end.
func (db *DB) EndedWorkflow(ctx context.Context, after string) (next string, err error) {
	err = db.read(ctx, endedWorkflow, func(r *record) error { next = r.str(); return r.err }, after)
	return next, err
}

// Ended is a run that is over, and where it stands in the order of the ends.
type Ended struct {
	ID string
	At time.Time
}

// Past says which runs of a workflow have been kept long enough.
type Past struct {
	Workflow string
	// Now is the time that ages are counted to.
	Now time.Time
	// Age: those that ended longer ago; 0 is none. Runs: those that are not among
	// so many that ended last; 0 is none.
	Age  time.Duration
	Runs int
	// Late, if not nil, is for [DB.RemoveRuns]: how many answers that came too late the
	// archive has of each run. One that has got another one since stays.
	Late map[string]int
}

// most is how many late answers a run may have to be removed.
func (p Past) most(run string) int64 {
	if p.Late == nil {
		return math.MaxInt64
	}
	return int64(p.Late[run])
}

// PastEnd gives the end of what p is about: all that ended before it. The zero
// Ended is nothing.
func (db *DB) PastEnd(ctx context.Context, p Past) (Ended, error) {
	var end Ended
	if p.Age > 0 {
		end.At = p.Now.Add(-p.Age)
	}
	if p.Runs <= 0 {
		return end, nil
	}
	err := db.read(ctx, oldestKept, func(r *record) error {
		if at, id := r.time(), r.str(); !at.Before(end.At) {
			end = Ended{ID: id, At: at}
		}
		return r.err
	}, p.Workflow, int64(p.Runs-1))
	return end, err
}

// PastRuns gives at most limit runs of a workflow that ended between two places and
// may be removed, in the order in which they ended.
func (db *DB) PastRuns(ctx context.Context, p Past, after, end Ended, limit int) ([]Ended, error) {
	if end.At.IsZero() {
		return nil, nil
	}
	var list []Ended
	err := db.read(ctx, selectPast, func(r *record) error {
		list = append(list, Ended{ID: r.str(), At: r.time()})
		return r.err
	}, p.Workflow, end.At.UnixMicro(), end.ID, unixMicro(after.At), after.ID, p.keysUntil(), p.arrivedUntil(), int64(limit))
	return list, err
}

func (p Past) keysUntil() int64 { return p.Now.Add(-KeyKept).UnixMicro() }

// arrivedUntil is when a run that came with an archive has to have come: it counts
// from then as others do from their end, and by number alone it stays for a day.
func (p Past) arrivedUntil() int64 {
	if p.Age > 0 {
		return p.Now.Add(-p.Age).UnixMicro()
	}
	return p.Now.Add(-KeyKept).UnixMicro()
}

// RemoveRuns removes those of some runs that may be, and gives their number. They
// are gone at once; [DB.PurgeRemoved] removes what is left of them.
func (db *DB) RemoveRuns(ctx context.Context, p Past, ids []string) (removed int, err error) {
	ids = slices.Sorted(slices.Values(ids))
	err = db.submit(ctx, prompt, func(s *session) error {
		gone := make([]int64, len(ids))
		for i, id := range ids {
			s.at(id)
			from, to := idRange(id)
			if err := s.laterCounted(&gone[i], deleteRun, bind(nil, id, p.keysUntil(), p.arrivedUntil(), from, to, p.most(id))); err != nil {
				return err
			}
		}
		if err := s.wait(); err != nil {
			return err
		}
		removed = 0
		for i, id := range ids {
			if gone[i] == 0 {
				continue
			}
			removed++
			s.at(id)
			if err := s.later(-1, deleteLabels, id); err != nil {
				return err
			}
			if err := s.later(-1, markRemoved, id, p.Now.UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}

// PurgeRemoved removes some of what is left of runs that are gone, a bounded number
// of rows and bytes, and reports whether there is more.
func (db *DB) PurgeRemoved(ctx context.Context) (more bool, err error) {
	var ids []string
	err = db.read(ctx, selectRemoved, func(r *record) error { ids = append(ids, r.str()); return r.err }, int64(purgeRuns+1))
	if err != nil || len(ids) == 0 {
		return false, err
	}
	var plan purge
	plan.rows, plan.bytes = purgeRows, purgeBytes
	for i, id := range ids {
		if i == purgeRuns || plan.full() {
			more = true
			break
		}
		whole, err := plan.add(ctx, db, id)
		if err != nil {
			return false, err
		}
		more = more || !whole
	}
	return more, db.submit(ctx, prompt, plan.write)
}

// purge is what one transaction removes. rows and bytes are what it may take yet.
type purge struct {
	rows, bytes     int64
	events          []purgedEvents
	attempts, whole []string
}

// purgedEvents are the first rows of a run's history.
type purgedEvents struct {
	run  string
	last int64
}

func (p *purge) full() bool { return p.rows <= 0 || p.bytes <= 0 }

func (p *purge) took(bytes int64) {
	p.rows--
	p.bytes -= bytes
}

// add takes up what is left of a run, as far as there is room, and reports whether
// that is all.
func (p *purge) add(ctx context.Context, db *DB, run string) (whole bool, err error) {
	whole = true
	events := purgedEvents{run: run}
	room := max(p.rows, 1) + 1
	err = db.read(ctx, sizesOfEvents, func(r *record) error {
		seq, size := r.int(), r.int()
		if p.full() {
			whole = false
			return r.err
		}
		events.last = seq
		p.took(size)
		return r.err
	}, run, room)
	if err != nil {
		return false, err
	}
	if events.last > 0 {
		p.events = append(p.events, events)
	}
	from, to := idRange(run)
	var list []string
	err = db.read(ctx, sizesOfAttempts, func(r *record) error {
		id, size := r.str(), r.int()
		if p.full() {
			whole = false
			return r.err
		}
		list = append(list, id)
		p.took(size)
		return r.err
	}, from, to, run, room)
	if err == nil {
		p.attempts = append(p.attempts, list...)
	}
	return whole && err == nil, p.end(run, whole, err)
}

// end notes that nothing of a run will be left.
func (p *purge) end(run string, whole bool, err error) error {
	if whole && err == nil {
		p.whole = append(p.whole, run)
	}
	return err
}

// write removes it. What was read before has not changed since: nobody writes to
// runs that are gone, but for answers that come late.
func (p *purge) write(s *session) error {
	for _, e := range p.events {
		s.at(e.run)
		if err := s.later(-1, `DELETE FROM event WHERE run = ? AND seq <= ?`, e.run, e.last); err != nil {
			return err
		}
	}
	texts := []string{
		`DELETE FROM waiter WHERE run = ?`, `DELETE FROM approval WHERE run = ?`, `DELETE FROM dead_letter WHERE run = ?`,
		`DELETE FROM imported WHERE kind = '` + string(importArchived) + `' AND id = ?`, `DELETE FROM removed_run WHERE id = ?`,
	}
	for _, id := range p.attempts {
		s.at(id)
		if err := s.later(-1, `DELETE FROM attempt WHERE id = ?`, id); err != nil {
			return err
		}
		if err := s.later(-1, `DELETE FROM late WHERE attempt = ?`, id); err != nil {
			return err
		}
	}
	for _, run := range p.whole {
		if err := dropReferences(s, run); err != nil {
			return err
		}
		for _, text := range texts {
			if err := s.later(-1, text, run); err != nil {
				return err
			}
		}
	}
	return nil
}
