package store

import (
	"context"
	"database/sql/driver"

	"github.com/parley-project/parley"
)

const insertRun = `INSERT INTO run (id, workflow, name, version, definition_id, seq, status, phase, paused, cancelling,
 hidden, labels, retried_from, triggered_by, error, cancelled_by, cancel_reason, due, idempotency_key, input_digest,
 created_at, updated_at, started_at, ended_at)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

const insertEvents = `INSERT INTO event (run, seq, last, data) VALUES (?, ?, ?, ?)`

// workerAlive holds for a bridge that was neither replaced nor declared dead.
const workerAlive = `EXISTS (SELECT 1 FROM worker WHERE name = ? AND inc = ? AND dead = 0)`

// StartRun is P1, with P4 for attempts that are claimed at once. If the
// workflow has a run with the same idempotency key and the same digest, its id
// is returned and nothing is written; with another digest the error is
// idempotency_conflict. A run id that is taken is a conflict. ErrStale: the
// worker that claims is not alive, or a dead letter was replayed by somebody else
// meanwhile. Synced.
func (db *DB) StartRun(ctx context.Context, st Start) (existing string, err error) {
	if st.Refuse != nil {
		return db.startedUnder(ctx, &st)
	}
	owner, err := checkAttempts(st.Run.ID, st.Attempts)
	if err != nil {
		return "", err
	}
	if len(st.Events) == 0 || st.Run.Seq != int64(len(st.Events)) {
		return "", parley.Errorf(parley.CodeInvalid, "run %q starts at event %d with %d events", st.Run.ID, st.Run.Seq, len(st.Events))
	}
	events, err := encodeEvents(st.Run.ID, 1, st.Events)
	if err != nil {
		return "", err
	}
	labels, err := encodeLabels(st.Run.Labels)
	if err != nil {
		return "", err
	}
	signals, err := checkSignals(&st.Run, &st.Signals)
	if err != nil {
		return "", err
	}
	row := bindStart(&st, labels)
	attempts := bindAttempts(st.Attempts, unixMicro(st.Run.UpdatedAt))
	// Two who use the same key wait for each other, and for nobody else: the
	// run's own row is new.
	key := st.Run.ID
	if st.IdempotencyKey != "" {
		key = st.Run.Workflow + "\x00" + st.IdempotencyKey
	}
	err = db.transition(ctx, synced, startPoints(owner), func(s *session) error {
		s.at(key)
		if st.Replay != nil && st.Replay.ID != "" {
			if _, _, err := replayable(s, st.Replay, st.Run.CreatedAt); err != nil {
				return err
			}
		}
		if err := signals.foresee(s); err != nil {
			return err
		}
		started, err := insertStart(s, owner, row)
		if err != nil {
			return err
		}
		if !started {
			existing, err = startedBefore(s, &st)
			return err
		}
		existing = ""
		if err := s.later(1, insertEvents, st.Run.ID, int64(1), st.Run.Seq, events); err != nil {
			return err
		}
		if err := insertAttempts(s, attempts); err != nil {
			return err
		}
		if err := searchable(s, &st.Run); err != nil {
			return err
		}
		if err := signals.write(s); err != nil {
			return err
		}
		return replayByRun(s, &st)
	})
	return existing, err
}

// startPoints names the transitions of a start: a claim is one of them if somebody
// begins at once.
func startPoints(owner Claim) func() []string {
	return func() []string {
		if owner.Worker == "" {
			return []string{"P1"}
		}
		return []string{"P1", "P4"}
	}
}

// bindStart gives the arguments of insertRun.
func bindStart(st *Start, labels any) []driver.NamedValue {
	r := &st.Run
	return bind(make([]driver.NamedValue, 0, 24),
		r.ID, r.Workflow, r.Name, r.Version, r.DefinitionID, r.Seq, string(r.Status), text(r.Phase), flag(r.Paused), flag(r.Cancelling),
		flag(r.Hidden), labels, text(r.RetriedFrom), text(r.TriggeredBy), blob(r.Error), text(r.CancelledBy), text(r.CancelReason), micros(r.Due),
		text(st.IdempotencyKey), text(st.InputDigest), unixMicro(r.CreatedAt), unixMicro(r.UpdatedAt), micros(r.StartedAt), micros(r.EndedAt))
}

// insertStart inserts the run's row, if no other stands in its way and the
// bridge that claims its first attempts, if any, is alive.
func insertStart(s *session, owner Claim, row []driver.NamedValue) (bool, error) {
	if owner.Worker != "" {
		if ok, err := s.alive(owner); !ok || err != nil {
			return false, err
		}
	}
	n, err := s.execBound(insertRun, row)
	return n == 1, err
}

const selectByKey = `SELECT id, input_digest FROM run WHERE workflow = ? AND idempotency_key = ?`

// startedUnder gives the run that was started under a key before, or why there is
// no new one.
func (db *DB) startedUnder(ctx context.Context, st *Start) (string, error) {
	var id, digest string
	err := db.read(ctx, selectByKey, func(r *record) error { id, digest = r.str(), r.str(); return r.err }, st.Run.Workflow, st.IdempotencyKey)
	switch {
	case err != nil:
		return "", err
	case id == "":
		return "", st.Refuse
	case digest != st.InputDigest:
		return "", usedOtherwise(st, id)
	}
	return id, nil
}

func usedOtherwise(st *Start, run string) error {
	return parley.Errorf(parley.CodeIdempotencyConflict,
		"the idempotency key %q was used with another input, for run %q", st.IdempotencyKey, run)
}

// startedBefore tells why no row was inserted: ErrStale if no other run stands
// in the way.
func startedBefore(s *session, st *Start) (string, error) {
	var id, digest string
	if st.IdempotencyKey != "" {
		err := s.query(selectByKey,
			func(r *record) error { id, digest = r.str(), r.str(); return nil }, st.Run.Workflow, st.IdempotencyKey)
		if err != nil {
			return "", err
		}
	}
	if id != "" && digest == st.InputDigest {
		return id, nil
	}
	if id != "" {
		return "", usedOtherwise(st, id)
	}
	taken, err := s.exists(`SELECT 1 FROM run WHERE id = ?`, st.Run.ID)
	if err != nil {
		return "", err
	}
	if taken {
		return "", parley.Errorf(parley.CodeConflict, "there is a run %q already", st.Run.ID)
	}
	return "", ErrStale
}
