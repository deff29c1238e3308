package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// runColumns are the columns of a run in the order of readRun.
const runColumns = `id, workflow, name, version, definition_id, seq, status, phase, paused, cancelling, hidden, labels,
 retried_from, triggered_by, error, cancelled_by, cancel_reason, due, created_at, updated_at, started_at, ended_at, parent_run, parent_step`

func readRun(r *record) (Run, error) {
	run := Run{
		ID: r.str(), Workflow: r.str(), Name: r.str(), Version: r.str(), DefinitionID: r.str(),
		Seq: r.int(), Status: parley.RunStatus(r.str()), Phase: r.str(),
		Paused: r.flag(), Cancelling: r.flag(), Hidden: r.flag(),
	}
	labels := r.str()
	run.RetriedFrom, run.TriggeredBy, run.Error = r.str(), r.str(), r.bytes()
	run.CancelledBy, run.CancelReason, run.Due = r.str(), r.str(), r.time()
	run.CreatedAt, run.UpdatedAt, run.StartedAt, run.EndedAt = r.time(), r.time(), r.time(), r.time()
	run.ParentRun, run.ParentStep = r.str(), r.str()
	if r.err != nil {
		return Run{}, r.err
	}
	var err error
	run.Labels, err = decodeLabels(labels)
	return run, err
}

// listedRun is readRun for a list: one that cannot be read keeps nobody from the others.
func listedRun(r *record) (Run, error) {
	run, err := readRun(r)
	if err != nil && r.err == nil {
		run.Labels, run.Unread, err = nil, err, nil
	}
	return run, err
}

func noRun(id string) error { return parley.Errorf(parley.CodeNotFound, "there is no run %q", id) }

const (
	selectEvents    = `SELECT seq, last, data FROM event WHERE run = ? ORDER BY seq`
	selectEventPage = `SELECT seq, last, data FROM event WHERE run = ?
 AND seq >= (SELECT coalesce(max(seq), 0) FROM event WHERE run = ? AND seq <= ?) ORDER BY seq LIMIT ?`
	selectUnclosed = `SELECT ` + attemptColumns + ` FROM attempt
 WHERE id >= ? AND id < ? AND run = ? AND state <> 'closed' ORDER BY id`
)

const selectRun = `SELECT ` + runColumns + ` FROM run WHERE id = ?`

// RunRow gives one run, or the error not_found.
func (db *DB) RunRow(ctx context.Context, id string) (Run, error) {
	run, found := Run{}, false
	err := db.read(ctx, selectRun, func(r *record) (err error) {
		found = true
		run, err = readRun(r)
		return err
	}, id)
	if err == nil && !found {
		err = noRun(id)
	}
	return run, err
}

// RunByKey gives the id of the run of a workflow that was started with an
// idempotency key, or the error not_found.
func (db *DB) RunByKey(ctx context.Context, workflow, key string) (id string, err error) {
	err = db.read(ctx, selectByKey, func(r *record) error { id = r.str(); return nil }, workflow, key)
	if err == nil && id == "" {
		err = parley.Errorf(parley.CodeNotFound, "no run of workflow %q has the idempotency key %q", workflow, key)
	}
	return id, err
}

// History gives everything that is needed to go on with a run, as it was at
// one instant, or the error not_found. Of the values that are kept apart it
// fetches those of the events, each once, and outputs of attempts; of inputs only
// those of attempts that were handed to the bus.
func (db *DB) History(ctx context.Context, id string) (History, error) {
	var h History
	var cuts [][]cut
	found := false
	from, to := idRange(id)
	err := db.together(ctx, inquiry{selectRun, func(r *record) (err error) {
		found = true
		h.Run, err = readRun(r)
		return err
	}, []any{id}}, inquiry{selectEvents, func(r *record) error {
		events, out, err := decodeEvents(id, r.int(), r.int(), r.bytes())
		if out != nil {
			cuts = append(append(cuts, make([][]cut, len(h.Events)-len(cuts))...), out...)
		}
		h.Events = append(h.Events, events...)
		return err
	}, []any{id}}, inquiry{selectUnclosed, attemptList(&h.Attempts), []any{from, to, id}})
	if err == nil && !found {
		err = noRun(id)
	}
	if err != nil {
		return h, err
	}
	f := fetcher{db: db}
	f.events(id, h.Events, cuts)
	for i := range h.Attempts {
		f.output(&h.Attempts[i])
		if h.Attempts[i].HandOff == HandOffBus {
			f.input(&h.Attempts[i]) // it may have to be published once more
		}
	}
	return h, f.fetch(ctx)
}

// Events gives at most limit (1 to 1000; 0 is 1000) events of a run with a seq
// greater than after, in order. It is empty for a run that is not there.
func (db *DB) Events(ctx context.Context, run string, after int64, limit int) ([]parley.Event, error) {
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	var list []parley.Event
	var cuts [][]cut
	// The first row is the one that holds after, each other an event at least.
	err := db.read(ctx, selectEventPage, func(r *record) error {
		events, out, err := decodeEvents(run, r.int(), r.int(), r.bytes())
		for i, e := range events {
			if e.Seq <= after || len(list) >= limit {
				continue
			}
			list = append(list, e)
			if out != nil {
				cuts = append(cuts, make([][]cut, len(list)-len(cuts))...)
				cuts[len(list)-1] = out[i]
			}
		}
		return err
	}, run, run, after, limit+1)
	if err != nil {
		return nil, err
	}
	f := fetcher{db: db}
	f.events(run, list, cuts)
	return list, f.fetch(ctx)
}

// condition collects the parts of a WHERE clause.
type condition struct {
	parts []string
	args  []any
}

func (c *condition) add(part string, args ...any) {
	c.parts = append(c.parts, part)
	c.args = append(c.args, args...)
}

func (c *condition) String() string {
	if len(c.parts) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.parts, " AND ")
}

// window gives the LIMIT and OFFSET of a page.
func window(p parley.Page) (limit, offset int64) {
	limit, offset = int64(p.Limit), max(int64(p.Offset), 0)
	if limit <= 0 {
		limit = 20
	}
	return min(limit, 500), offset
}

// order gives an ORDER BY clause. by is one of allowed, or the first is meant;
// tie breaks ties, so that pages don't overlap.
func order(by string, ascending bool, tie string, allowed ...string) string {
	column := allowed[0]
	for _, a := range allowed {
		if a == by {
			column = a
		}
	}
	direction := " DESC"
	if ascending {
		direction = " ASC"
	}
	return " ORDER BY " + column + direction + ", " + tie + direction
}

// listing is what a list is made of.
type listing struct {
	columns, from string
	where         condition
	order         string
	page          parley.Page
}

// list runs the two queries of a list: the count of all, and one page.
func (db *DB) list(ctx context.Context, l *listing, each func(*record) error) (int, error) {
	args := l.where.args
	total := 0
	err := db.snapshot(ctx, func(tx reader) error {
		err := db.readOn(ctx, tx, `SELECT count(*) FROM `+l.from+l.where.String(),
			func(r *record) error { total = int(r.int()); return nil }, args...)
		if err != nil {
			return err
		}
		limit, offset := window(l.page)
		return db.readOn(ctx, tx, `SELECT `+l.columns+` FROM `+l.from+l.where.String()+l.order+` LIMIT ? OFFSET ?`,
			each, append(slices.Clip(args), limit, offset)...)
	})
	return total, err
}

// Runs gives one page of the runs that q selects, and the number of all of them.
func (db *DB) Runs(ctx context.Context, q parley.RunQuery) ([]Run, int, error) {
	c := runCondition(&q)
	if q.Text != "" {
		part, args := textCondition(q.Text)
		c.add(part, args...)
	}
	var runs []Run
	by := order(q.SortBy, q.Ascending, "id", "created_at", "updated_at", "status")
	total, err := db.list(ctx, &listing{runColumns, `run`, c, by, q.Page}, func(r *record) error {
		run, err := listedRun(r)
		runs = append(runs, run)
		return err
	})
	return runs, total, err
}

// LiveRuns counts the runs that have not ended, up to most.
func (db *DB) LiveRuns(ctx context.Context, most int) (n int, err error) {
	err = db.read(ctx, `SELECT count(*) FROM (SELECT 1 FROM run WHERE ended_at IS NULL LIMIT ?) AS live`,
		func(r *record) error { n = int(r.int()); return nil }, int64(most))
	return n, err
}

const (
	selectSettled = `SELECT DISTINCT run FROM attempt WHERE state = 'settled' AND ` + ofRun + ` AND run > ? ORDER BY run LIMIT ?`
	selectDue     = `SELECT id, due FROM run WHERE due IS NOT NULL AND ended_at IS NULL AND due <= ? AND due >= ? AND (due > ? OR id > ?)
 ORDER BY due, id LIMIT ?`
)

// Wakeups gives at most limit runs of each kind that want attention at now. Where
// there are more, the next call goes on behind them: those that nobody can attend to
// keep no others back.
func (db *DB) Wakeups(ctx context.Context, now time.Time, limit int) (w Wakeups, err error) {
	for _, kind := range []struct {
		list  *[]string
		query string
	}{
		{&w.Settled, selectSettled},
		{&w.News, selectNews},
		{&w.Signals, selectWaiterNews},
		{&w.Turns, selectNextTurns},
		{&w.Children, selectChildNews},
		{&w.Late, selectLateRuns},
	} {
		*kind.list, err = inTurn(db, kind.query, limit, func(after string) (list []string, last string, err error) {
			err = db.read(ctx, kind.query, func(r *record) error { last = r.str(); list = append(list, last); return nil }, after, limit)
			return list, last, err
		})
		if err != nil {
			return Wakeups{}, err
		}
	}
	w.Due, err = inTurn(db, selectDue, limit, func(after dueAt) (list []string, last dueAt, err error) {
		err = db.read(ctx, selectDue, func(r *record) error {
			last = dueAt{id: r.str(), at: r.int()}
			list = append(list, last.id)
			return nil
		}, now.UnixMicro(), after.at, after.at, after.id, limit)
		return list, last, err
	})
	if err != nil {
		return Wakeups{}, err
	}
	return w, nil
}
