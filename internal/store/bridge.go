package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// Register is P16: the bridge process of that name begins anew. All claims of
// its earlier incarnations are orphans from now on. inc grows with each call for a
// name, from 1; for a name that was forgotten (see [DB.Sweep]) it goes on above all
// that was. Synced.
func (db *DB) Register(ctx context.Context, worker string, at time.Time) (inc int64, err error) {
	if worker == "" || worker == busOwner {
		return 0, parley.Errorf(parley.CodeInvalid, "a bridge needs a name other than %q", worker)
	}
	err = db.transition(ctx, synced, point("P16"), func(s *session) error {
		s.workersChanged()
		s.at(worker)
		return s.query(`INSERT INTO worker (name, inc, beat, dead, registered_at)
 VALUES (?, 1 + COALESCE((SELECT f.inc FROM worker f WHERE f.name = ''), 0), 0, 0, ?)
 ON CONFLICT (name) DO UPDATE SET inc = worker.inc + 1, dead = 0, died_at = NULL, registered_at = excluded.registered_at RETURNING inc`,
			func(r *record) error { inc = r.int(); return nil }, worker, unixMicro(at))
	})
	return inc, err
}

const beatWorker = `UPDATE worker SET beat = beat + 1 WHERE name = ? AND inc = ? AND dead = 0`

const laterLife = `SELECT 1 FROM worker WHERE name = ? AND inc > ? AND dead = 0`

// Beat renews the lease of all of a bridge's claims. ErrStale: it was declared
// dead and has to register; ErrReplaced: somebody else has registered. Lazy.
func (db *DB) Beat(ctx context.Context, worker string, inc int64) error {
	return db.transition(endsCalls(ctx), lazy, point("beat"), func(s *session) error {
		s.at(worker)
		n, err := s.exec(beatWorker, worker, inc)
		if err != nil || n > 0 {
			return err
		}
		stale := ErrStale
		if err := s.query(laterLife, func(*record) error { stale = ErrReplaced; return nil }, worker, inc); err != nil {
			return err
		}
		return stale
	})
}

const selectOwned = `SELECT id, token, state, orphanings, cancel_requested, questions,
 CASE WHEN reply_sent = 0 THEN reply END FROM attempt
 WHERE owner = ? AND owner_inc = ? AND state IN ('claimed', 'following')`

// Owned gives the claimed and followed attempts of one incarnation, for
// reconciliation and to learn of cancels and answers. A row that a bridge has in hand and
// that is missing here was settled, closed or taken over.
func (db *DB) Owned(ctx context.Context, worker string, inc int64) ([]Owned, error) {
	var list []Owned
	err := db.read(endsCalls(ctx), selectOwned, func(r *record) error {
		o := Owned{
			TaskID: r.str(), Token: r.str(), State: AttemptState(r.str()), Orphanings: int(r.int()), CancelRequested: r.flag(),
			Questions: int(r.int()),
		}
		var unread error
		if o.Reply, unread = decodeStored[parley.Reply](o.TaskID, r.bytes()); unread != nil {
			db.damaged("the answer to an agent", o.TaskID, unread)
		}
		list = append(list, o)
		return r.err
	}, worker, inc)
	return list, err
}

// mayTakeOver holds for attempts that an orphaned claim does not end. An
// attempt without a policy counts as one that is never sent again.
const mayTakeOver = `(state = 'following' OR policy IN ('lookup', 'resend'))`

// Incarnations only grow: all those below the present one are replaced. The
// cross join begins with the workers, which are few, and the text of the last
// condition is that of no index, which PostgreSQL would begin with.
const selectOrphans = `SELECT ` + attemptColumns + ` FROM attempt WHERE id IN (
 SELECT a.id FROM worker w CROSS JOIN attempt a WHERE a.owner = w.name AND a.owner_inc < w.inc + w.dead
 AND a.state IN ('claimed', 'following') AND (a.id || '') > ?) AND ` + mayTakeOver + ` AND ` + workerAlive + ` ORDER BY id LIMIT ?`

// Orphans gives at most limit attempts that wait for a takeover (P9): their
// owner is dead or was replaced. If there are more, the next call goes on behind
// them, so that those which nobody can take over now keep no others back. Claimed ones under policy fail are not among
// them, those are settled by Sweep. The caller must itself be alive, or there
// are none for it; its own earlier incarnations count as replaced.
func (db *DB) Orphans(ctx context.Context, worker string, inc int64, limit int) ([]Attempt, error) {
	list, err := inTurn(db, "orphans for "+worker, limit, func(after string) (list []Attempt, last string, err error) {
		err = db.read(ctx, selectOrphans, func(r *record) error {
			a, ok, err := db.readable(r)
			if last = a.ID; ok {
				list = append(list, a)
			}
			return err
		}, after, worker, inc, limit)
		return list, last, err
	})
	if err != nil {
		return nil, err
	}
	return db.fetchable(ctx, list), nil
}

const (
	claimAttempt = `UPDATE attempt SET state = 'claimed', owner = ?, owner_inc = ?, token = ?, claimed_at = ?, source = ?
 WHERE id = ? AND ` + itsState + ` = 'open' AND held = 0 RETURNING ` + attemptColumns
	selectClaimed = `SELECT ` + attemptColumns + ` FROM attempt WHERE id = ? AND ` + itsState + ` = 'claimed' AND owner = ? AND owner_inc = ? AND token = ?`
	deferAttempt  = `UPDATE attempt SET visible_at = ? WHERE id = ? AND number <= ? AND ` + itsState + ` = 'open'`
)

// Claim is P4 for a batch: it gives the attempts that are the caller's now, in
// the order of reqs. Those that somebody else has, that are held, or whose
// bridge is not alive any more, are left out, and so are those whose input is kept
// apart and cannot be fetched now, which are claimed all the same: whoever finds
// such a claim among its own gives it back. One that is the caller's under
// the very token of its request is given again, so that a call whose reply was
// lost may be repeated. Synced, if any is claimed.
func (db *DB) Claim(ctx context.Context, c Claim, reqs []ClaimRequest, at time.Time) ([]Attempt, error) {
	var list []Attempt
	sources := make([]any, len(reqs))
	for i, q := range reqs {
		if q.Token == "" {
			return nil, parley.Errorf(parley.CodeInvalid, "a claim of %q needs a token", q.TaskID)
		}
		var err error
		if sources[i], err = q.Source.encode(); err != nil {
			return nil, err
		}
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	err := db.transition(ctx, synced, point("P4"), func(s *session) (err error) {
		list, err = db.claimAll(s, claims{c, reqs, sources}, at)
		if err == nil && len(list) == 0 {
			return ErrStale
		}
		return err
	})
	if errors.Is(err, ErrStale) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return db.fetchable(ctx, list), nil
}

// claims is a batch of P4, sources what the rows get of it.
type claims struct {
	Claim
	reqs    []ClaimRequest
	sources []any
}

func (db *DB) claimAll(s *session, c claims, at time.Time) ([]Attempt, error) {
	reqs := c.reqs
	got := make([][]Attempt, len(reqs))
	alive, err := s.alive(c.Claim)
	if err != nil {
		return nil, err
	}
	if alive {
		for i, q := range reqs {
			s.at(q.TaskID)
			if err := s.laterQuery(claimAttempt, db.readableList(&got[i]), c.Worker, c.Inc, q.Token, micros(at), c.sources[i], q.TaskID); err != nil {
				return nil, err
			}
		}
		if err := s.wait(); err != nil {
			return nil, err
		}
	}
	for i, q := range reqs {
		if len(got[i]) > 0 {
			continue
		}
		if err := s.laterQuery(selectClaimed, db.readableList(&got[i]), q.TaskID, c.Worker, c.Inc, q.Token); err != nil {
			return nil, err
		}
	}
	if err := s.wait(); err != nil {
		return nil, err
	}
	return slices.Concat(got...), nil
}

// Defer is P3: open attempts wait until their time; others are left alone. Lazy.
func (db *DB) Defer(ctx context.Context, list []Deferral) error {
	if len(list) == 0 {
		return nil
	}
	return db.transition(ctx, lazy, point("P3"), func(s *session) error {
		for _, d := range list {
			s.at(d.TaskID)
			most := int64(math.MaxInt64)
			if d.Attempt > 0 {
				most = int64(d.Attempt)
			}
			if err := s.later(-1, deferAttempt, unixMicro(d.At), d.TaskID, most); err != nil {
				return err
			}
		}
		return nil
	})
}
