package store

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"

	"github.com/parley-project/parley"
)

const insertRun = `INSERT INTO run (id, workflow, name, version, definition_id, seq, status, phase, paused, cancelling,
 hidden, labels, retried_from, triggered_by, error, cancelled_by, cancel_reason, due, idempotency_key, input_digest,
 created_at, updated_at, started_at, ended_at, parent_run, parent_step)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

const insertEvents = `INSERT INTO event (run, seq, last, data) VALUES (?, ?, ?, ?)`

// workerAlive holds for a bridge that was neither replaced nor declared dead.
const workerAlive = `EXISTS (SELECT 1 FROM worker WHERE name = ? AND inc = ? AND dead = 0)`

// StartRun is P1, with P4 for attempts that are claimed at once. If the
// workflow has a run with the same idempotency key and the same digest, its id
// is returned and nothing is written; with another digest the error is
// idempotency_conflict. A run id that is taken is a conflict, and so is a run for
// which there is no room ([Turn]). ErrStale: the worker that claims is not alive, or
// a dead letter was replayed by somebody else meanwhile. Unavailable: what is left of
// a removed run of that id is not removed yet, see [Start.Named]. Synced.
func (db *DB) StartRun(ctx context.Context, st Start) (existing string, err error) {
	if st.Refuse != nil {
		return db.startedUnder(ctx, &st)
	}
	begins, err := db.prepareStart(ctx, &st)
	if err != nil {
		return "", err
	}
	waits, err := db.prepareWait(ctx, &st)
	if err != nil {
		return "", err
	}
	// Two who use the same key wait for each other, and for nobody else: the
	// run's own row is new.
	key := st.Run.ID
	if st.IdempotencyKey != "" {
		key = st.Run.Workflow + "\x00" + st.IdempotencyKey
	}
	removing := false
	err = db.transition(ctx, synced, startPoints(begins.owner), func(s *session) error {
		s.at(key)
		var err error
		if removing, err = beingRemoved(s, &st); removing || err != nil {
			return cmp.Or(err, ErrStale)
		}
		if err := mayBeginNow(s, &st, begins); err != nil {
			return err
		}
		w, place := begins, int64(0)
		started := true
		if st.Turn != nil {
			if place, err = takeTurn(s, &st, begins.owner); err != nil {
				return err
			}
			if started = place != 0; started && st.Turn.Waits {
				w = waits
			}
			s.at(key)
		}
		if started {
			if started, err = insertStart(s, w.owner, w.row); err != nil {
				return err
			}
		}
		if !started {
			if place != 0 {
				if err := returnTurn(s, &st); err != nil {
					return err
				}
			}
			existing, err = startedBefore(s, &st)
			return err
		}
		existing = ""
		return w.write(s, &st, place)
	})
	if removing && errors.Is(err, ErrStale) {
		return "", parley.Errorf(parley.CodeUnavailable, "run %q is being removed here: start it again in a minute", st.Run.ID)
	}
	if err != nil && st.Turn != nil && st.IdempotencyKey != "" && !errors.Is(err, ErrStale) {
		// Somebody may have started it just now, and have the place that this one
		// did not get.
		st.Refuse = err
		return db.startedUnder(ctx, &st)
	}
	return existing, err
}

// beingRemoved says whether the run has a name whose former run is not gone yet:
// what is left of that would be this one's, or this one be removed.
func beingRemoved(s *session, st *Start) (bool, error) {
	if !st.Named {
		return false, nil
	}
	return s.exists(isRemoved, st.Run.ID)
}

// mayBeginNow refuses a start that something else stands against.
func mayBeginNow(s *session, st *Start, begins *startRows) error {
	if st.Replay != nil && st.Replay.ID != "" {
		if _, _, err := replayable(s, st.Replay, st.Run.CreatedAt); err != nil {
			return err
		}
	}
	if err := begins.signals.foresee(s); err != nil {
		return err
	}
	return mayBegin(s, st.Child)
}

// startRows are the rows of a run that is started, made outside the writer.
type startRows struct {
	run      *Run
	owner    Claim
	row      []driver.NamedValue
	events   []byte
	attempts [][]driver.NamedValue
	signals  *signals
	children *children
	apart    references
}

// prepareStart checks and encodes a start.
func (db *DB) prepareStart(ctx context.Context, st *Start) (*startRows, error) {
	w := &startRows{run: &st.Run}
	var err error
	if w.owner, err = checkAttempts(w.run.ID, st.Attempts); err != nil {
		return nil, err
	}
	if len(st.Events) == 0 || w.run.Seq != int64(len(st.Events)) {
		return nil, parley.Errorf(parley.CodeInvalid, "run %q starts at event %d with %d events", w.run.ID, w.run.Seq, len(st.Events))
	}
	labels, err := encodeLabels(w.run.Labels)
	if err != nil {
		return nil, err
	}
	if w.signals, err = checkSignals(w.run, &st.Signals); err != nil {
		return nil, err
	}
	if w.children, err = checkChildren(w.run, &st.Children); err != nil {
		return nil, err
	}
	w.row = bindStart(w.run, st, labels)
	w.apart, err = db.apart(ctx, w.run.ID, false, func(c *cutter) (err error) {
		if w.events, err = encodeEvents(c, w.run.ID, 1, st.Events); err == nil {
			w.attempts, err = bindAttempts(c, st.Attempts, unixMicro(w.run.UpdatedAt))
		}
		return err
	})
	return w, err
}

// prepareWait is prepareStart for a run that has to wait for its turn; nil if it
// never has to.
func (db *DB) prepareWait(ctx context.Context, st *Start) (*startRows, error) {
	if st.Turn == nil {
		return nil, nil
	}
	idle := *st
	idle.Run, idle.Events = st.Turn.Run, st.Turn.Events
	idle.Attempts, idle.Signals, idle.Children = nil, Signals{}, Children{}
	return db.prepareStart(ctx, &idle)
}

// write writes what belongs to the run's row, which is there.
func (w *startRows) write(s *session, st *Start, place int64) error {
	if err := s.later(1, insertEvents, w.run.ID, int64(1), w.run.Seq, w.events); err != nil {
		return err
	}
	if err := insertAttempts(s, w.attempts); err != nil {
		return err
	}
	if err := searchable(s, w.run); err != nil {
		return err
	}
	if err := w.signals.write(s); err != nil {
		return err
	}
	if err := beginsChild(s, st.Child, w.run); err != nil {
		return err
	}
	if err := w.children.write(s); err != nil {
		return err
	}
	if err := w.apart.write(s, unixMicro(w.run.UpdatedAt)); err != nil {
		return err
	}
	if place != 0 {
		if err := writeTurn(s, st, place); err != nil {
			return err
		}
	}
	return replayByRun(s, st)
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
func bindStart(r *Run, st *Start, labels any) []driver.NamedValue {
	return bind(make([]driver.NamedValue, 0, 24),
		r.ID, r.Workflow, r.Name, r.Version, r.DefinitionID, r.Seq, string(r.Status), text(r.Phase), flag(r.Paused), flag(r.Cancelling),
		flag(r.Hidden), labels, text(r.RetriedFrom), text(r.TriggeredBy), blob(r.Error), text(r.CancelledBy), text(r.CancelReason), micros(r.Due),
		text(st.IdempotencyKey), text(st.InputDigest), unixMicro(r.CreatedAt), unixMicro(r.UpdatedAt), micros(r.StartedAt), micros(r.EndedAt),
		text(r.ParentRun), text(r.ParentStep))
}

// insertStart inserts the run's row, if no other stands in its way and the
// bridge that claims its first attempts, if any, is alive.
func insertStart(s *session, owner Claim, row []driver.NamedValue) (bool, error) {
	if ok, err := ownerAlive(s, owner); !ok || err != nil {
		return false, err
	}
	return s.changesOne(insertRun, row)
}

// ownerAlive reports whether the bridge that claims first attempts, if any, is alive.
func ownerAlive(s *session, owner Claim) (bool, error) {
	if owner.Worker == "" {
		return true, nil
	}
	return s.alive(owner)
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
	key, what := st.IdempotencyKey, "input"
	if st.GivenKey != "" {
		key, what = st.GivenKey, "request"
	}
	return parley.Errorf(parley.CodeIdempotencyConflict, "the idempotency key %q was used with another %s, for run %q", key, what, run)
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
