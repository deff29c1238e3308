package executor_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// journal has the database itself note what becomes of its rows, in the order of
// its commits: whatever a statement's condition says, this is what it did.
const journal = `
CREATE TABLE journal (n INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL, id TEXT NOT NULL, was TEXT, is_now TEXT NOT NULL);
CREATE TRIGGER journal_begun AFTER INSERT ON attempt BEGIN
 INSERT INTO journal (what, id, is_now) VALUES ('attempt', new.id, json_object('state', new.state, 'owner', new.owner, 'inc', new.owner_inc,
  'token', new.token, 'orphanings', new.orphanings, 'held', new.held, 'outcome', new.outcome, 'output', CAST(new.output AS TEXT), 'policy', new.policy));
END;
CREATE TRIGGER journal_changed AFTER UPDATE ON attempt
 WHEN (old.state, old.owner, old.owner_inc, old.token, old.orphanings, old.held, old.outcome, old.output) IS NOT
  (new.state, new.owner, new.owner_inc, new.token, new.orphanings, new.held, new.outcome, new.output) BEGIN
 INSERT INTO journal (what, id, was, is_now) VALUES ('attempt', new.id, json_object('state', old.state, 'owner', old.owner, 'inc', old.owner_inc,
  'token', old.token, 'orphanings', old.orphanings, 'held', old.held, 'outcome', old.outcome, 'output', CAST(old.output AS TEXT), 'policy', old.policy),
  json_object('state', new.state, 'owner', new.owner, 'inc', new.owner_inc,
  'token', new.token, 'orphanings', new.orphanings, 'held', new.held, 'outcome', new.outcome, 'output', CAST(new.output AS TEXT), 'policy', new.policy));
END;
CREATE TRIGGER journal_started AFTER INSERT ON run BEGIN
 INSERT INTO journal (what, id, is_now) VALUES ('run', new.id, json_object('seq', new.seq, 'ended', new.ended_at IS NOT NULL,
  'parent', coalesce(new.parent_run, ''), 'step', coalesce(new.parent_step, '')));
END;
CREATE TRIGGER journal_decided AFTER UPDATE ON run WHEN (old.seq, old.ended_at IS NULL) IS NOT (new.seq, new.ended_at IS NULL) BEGIN
 INSERT INTO journal (what, id, was, is_now) VALUES ('run', new.id, json_object('seq', old.seq, 'ended', old.ended_at IS NOT NULL),
  json_object('seq', new.seq, 'ended', new.ended_at IS NOT NULL));
END;
CREATE TRIGGER journal_registered AFTER INSERT ON worker BEGIN
 INSERT INTO journal (what, id, is_now) VALUES ('worker', new.name, json_object('inc', new.inc, 'dead', new.dead));
END;
CREATE TRIGGER journal_worker AFTER UPDATE ON worker WHEN (old.inc, old.dead) IS NOT (new.inc, new.dead) BEGIN
 INSERT INTO journal (what, id, is_now) VALUES ('worker', new.name, json_object('inc', new.inc, 'dead', new.dead));
END;`

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
	// Seq and Ended are those of a run, Parent and Step say what has started it;
	// Dead is that of a worker.
	Seq          int64
	Ended        int
	Parent, Step string
	Dead         int
}

// change is one entry of the journal; was is nil for a new row.
type change struct {
	n        int64
	what, id string
	was      *row
	now      row
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

// journaled gives a database with a journal.
func journaled(t *testing.T, file string) []byte {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), journal+`PRAGMA wal_checkpoint(TRUNCATE);`)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// close ends the world and gives what is known of it.
func (w *simWorld) close(ctx context.Context) (story, error) {
	s := story{observed: w.seen, tasks: w.agents.tasks, apart: w.apart, histories: map[string]store.History{}}
	runs, _, err := w.db.Runs(ctx, parley.RunQuery{Page: parley.Page{Limit: 500}})
	if err != nil {
		return s, err
	}
	for _, run := range runs {
		if s.histories[run.ID], err = w.db.History(ctx, run.ID); err != nil {
			return s, err
		}
	}
	if err := errors.Join(w.hub.Close(), w.db.Close()); err != nil {
		return s, err
	}
	db, err := sql.Open("sqlite", w.file)
	if err != nil {
		return s, err
	}
	defer db.Close()
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM child`).Scan(&s.kids); err != nil {
		return s, err
	}
	rows, err := db.QueryContext(ctx, `SELECT n, what, id, was, is_now FROM journal ORDER BY n`)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var c change
		var was sql.NullString
		var now string
		if err := rows.Scan(&c.n, &c.what, &c.id, &was, &now); err != nil {
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
