package executor_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// row is one row of the journal's tables, as far as it is judged.
type row struct {
	State      store.AttemptState
	Owner      string
	Inc        int64
	Token      string
	Orphanings int
	Held       int
	Outcome    parley.Outcome
	Output     string
	Policy     parley.OutcomePolicy
	// These are of a run: Parent and Step say what has started it.
	Seq          int64
	Workflow     string
	Begun, Ended int
	Parent, Step string
	// Dead is that of a worker.
	Dead int
}

// change is one entry of the journal; was is nil for a new row. Entries of one tx
// were committed together; "" is each alone.
type change struct {
	n            int64
	tx, what, id string
	was          *row
	now          row
}

// observed is what the processes did, beside what the database holds.
type observed struct {
	// moves are those that bridges have asked for, answers those that were to be
	// stored, both by task.
	moves   map[string][]store.Move
	answers map[string][]parley.Result
	// wrong is what was seen to be wrong when it happened.
	wrong []string
	// ended is when runs and attempts have ended, by their ids.
	ended map[string]time.Time
	// cancels are the runs whose end somebody was told of, forced those that were
	// ended at once.
	cancels map[string]bool
	// said are the answers of people that were taken, with the run that they were for.
	said map[string]string
	// published are the events that were taken, of those that start runs.
	published map[string]bool
}

// moves notes what a bridge asks for.
func (w *simWorld) moves(m store.Move) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.moves[m.TaskID] = append(w.seen.moves[m.TaskID], m)
}

// holds notes that somebody has an answer to be stored.
func (w *simWorld) holds(r parley.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.answers[r.TaskID] = append(w.seen.answers[r.TaskID], r)
}

// asked notes that somebody was told that a run ends.
func (w *simWorld) asked(run, _ string, err error) {
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.cancels[run] = true
}

// decided notes when something has ended: a decision is committed.
func (w *simWorld) decided(d store.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if d.Run.Status.Terminal() {
		w.seen.ended[d.Run.ID] = now
	}
	for _, c := range d.Close {
		w.seen.ended[c.TaskID] = now
	}
}

// answered looks at the row of an answer that was just taken, or refused (I10).
func (w *simWorld) answered(ctx context.Context, r parley.Result, taken bool) {
	a, ok, err := w.db.Attempt(ctx, r.TaskID)
	if err != nil || !ok {
		return
	}
	known := a.Result != nil && a.Result.Outcome != parley.OutcomeUnknown
	ended := a.State == store.AttemptClosed || a.State == store.AttemptSettled && known
	if ended {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	text := "I10: an answer to " + r.TaskID + " was refused, its row is " + string(a.State)
	if taken {
		text = "I2: an answer to " + r.TaskID + " was taken, its row is " + string(a.State)
	}
	w.seen.wrong = append(w.seen.wrong, text)
}

// close ends the world and gives what is known of it.
func (w *simWorld) close(ctx context.Context) (story, error) {
	s := story{observed: w.seen, tasks: w.agents.tasks, apart: w.apart, started: w.started, histories: map[string]store.History{}}
	runs, _, err := w.db.Runs(ctx, parley.RunQuery{Page: parley.Page{Limit: 500}})
	if err != nil {
		return s, err
	}
	for _, run := range runs {
		if s.histories[run.ID], err = w.db.History(ctx, run.ID); err != nil {
			return s, err
		}
	}
	err = w.hub.Close()
	for _, name := range w.names() {
		if db := w.stores[name]; db != w.db {
			err = errors.Join(err, db.Close())
		}
	}
	if err := errors.Join(err, w.db.Close()); err != nil {
		return s, err
	}
	db, err := sql.Open(w.engine.driver, w.target)
	if err != nil {
		return s, err
	}
	defer db.Close()
	for table, rows := range map[string]*int{"child": &s.kids, "turn": &s.turns, "lane": &s.lanes} {
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM `+table).Scan(rows); err != nil {
			return s, err
		}
	}
	rows, err := db.QueryContext(ctx, `SELECT n, tx, what, id, was, is_now FROM journal ORDER BY `+w.engine.order)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var c change
		var was sql.NullString
		var now string
		if err := rows.Scan(&c.n, &c.tx, &c.what, &c.id, &was, &now); err != nil {
			return s, err
		}
		if c.was, err = readRow(was.String); err != nil {
			return s, err
		}
		is, err := readRow(now)
		if err != nil {
			return s, err
		}
		c.now = *is
		s.changes = append(s.changes, c)
	}
	return s, rows.Err()
}
