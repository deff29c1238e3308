package store

import (
	"context"
	"time"

	"github.com/parley-project/parley"
)

// publishAgain is how long a published attempt waits for a claim before it is
// published again (protocol.md P2).
const publishAgain = 5 * time.Second

// sweepLimit bounds the orphans that one Sweep settles, and forgetLimit the
// bridges that it forgets.
const (
	sweepLimit  = 500
	forgetLimit = 100
)

// forgetAfter is how long a bridge has been dead before it is forgotten.
const forgetAfter = 24 * time.Hour

const (
	visible      = `state = 'open' AND held = 0 AND visible_at <= ?`
	visibleStill = itsState + ` = 'open' AND held = 0 AND visible_at <= ?`
	anyVisible   = `SELECT 1 FROM attempt WHERE ` + visible + ` LIMIT 1`
)

// lastKey orders statements that wait for no row behind those that do.
const lastKey = "\xff"

func publishAttempts(d *dialect) string {
	return `UPDATE attempt SET visible_at = ?, published = 1 WHERE id ` + d.picked(`SELECT id FROM attempt WHERE `+visible+` ORDER BY visible_at LIMIT ?`) +
		` AND ` + visibleStill + ` RETURNING ` + attemptColumns + `, scheduled_at`
}

// Publish is P2: it gives at most limit open attempts that are visible at now,
// oldest first, and hides them for 5 s. The caller puts them on the bus. Lazy:
// after a crash they are simply given again.
func (db *DB) Publish(ctx context.Context, now time.Time, limit int) ([]Attempt, error) {
	at := now.UnixMicro()
	any := false
	err := db.read(ctx, anyVisible,
		func(*record) error { any = true; return nil }, at)
	if err != nil || !any || limit <= 0 {
		return nil, err
	}
	query := publishAttempts(&db.dialect)
	var list []Attempt
	err = db.transition(ctx, prompt, point("P2"), func(s *session) error {
		list = nil
		s.at(lastKey)
		return s.query(query, func(r *record) error {
			a, ok, err := db.readable(r)
			if a.ScheduledAt = r.time(); ok {
				list = append(list, a)
			}
			return err
		}, now.Add(publishAgain).UnixMicro(), at, int64(limit), at)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Sweep is P17 and P10. Each of dead is declared dead, but only if its inc and
// beat are still as given; then claims under policy fail whose bridge is dead
// or replaced are settled as unknown. Bridges that have been dead for more than a
// day at that time, and have nothing in hand, are forgotten, some at a time. It
// gives the rows of the others as they are afterwards. Lazy.
func (db *DB) Sweep(ctx context.Context, dead []Worker, at time.Time) ([]Worker, error) {
	if len(dead) > 0 {
		err := db.transition(ctx, prompt, point("P17"), func(s *session) error {
			s.workersChanged()
			for _, w := range dead {
				s.at(w.Name)
				err := s.later(-1, `UPDATE worker SET dead = 1, died_at = ? WHERE name = ? AND inc = ? AND beat = ? AND dead = 0`, unixMicro(at), w.Name, w.Inc, w.Beat)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if err := db.settleLost(ctx, at); err != nil {
		return nil, err
	}
	if err := db.forgetWorkers(ctx, at.Add(-forgetAfter)); err != nil {
		return nil, err
	}
	var workers []Worker
	err := db.read(ctx, `SELECT name, inc, beat, dead FROM worker WHERE name <> '' ORDER BY name`, func(r *record) error {
		workers = append(workers, Worker{r.str(), r.int(), r.int(), r.flag()})
		return nil
	})
	return workers, err
}

const lostClaims = ` FROM worker w CROSS JOIN attempt a WHERE a.owner = w.name AND a.owner_inc < w.inc + w.dead
 AND a.state IN ('claimed', 'following') AND a.state = 'claimed' AND a.policy NOT IN ('lookup', 'resend') LIMIT ?`

// settleLost is P10.
func (db *DB) settleLost(ctx context.Context, at time.Time) error {
	any := false
	err := db.read(ctx, `SELECT 1`+lostClaims, func(*record) error { any = true; return nil }, 1)
	if err != nil || !any {
		return err
	}
	return db.transition(ctx, prompt, point("P10"), func(s *session) error {
		type orphan struct {
			id, token, agent, step string
			number                 int
		}
		var orphans []orphan
		err := s.query(`SELECT a.id, a.token, a.agent, a.step, a.number`+lostClaims, func(r *record) error {
			orphans = append(orphans, orphan{r.str(), r.str(), r.str(), r.str(), int(r.int())})
			return nil
		}, int64(sweepLimit))
		if err != nil {
			return err
		}
		for _, o := range orphans {
			e := errUnknown(o.agent)
			e.Step, e.Attempt = o.step, o.number
			meta, err := encodeMeta(&parley.Result{TaskID: o.id, Err: e})
			if err != nil {
				return err
			}
			s.at(o.id)
			err = s.later(-1, `UPDATE attempt SET state = 'settled', outcome = 'unknown', meta = ?, settled_at = ?
 WHERE id = ? AND `+itsState+` = 'claimed' AND token = ? AND `+ownerGone, meta, unixMicro(at), o.id, o.token)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

const (
	// gone holds for bridges that have been dead since a time and have nothing in
	// hand. A dead one claims nothing more, so that stays so.
	gone = ` dead = 1 AND died_at < ? AND NOT EXISTS (SELECT 1 FROM attempt a
 WHERE a.owner = worker.name AND a.state IN ('claimed', 'following'))`
	selectGone = `SELECT name, inc FROM worker WHERE` + gone + ` LIMIT ?`
	// The row without a name remembers the highest incarnation of all that were
	// forgotten: a process that is continued after all must not be taken for the
	// next one of its name.
	rememberInc = `INSERT INTO worker (name, inc, beat, dead, registered_at) VALUES ('', ?, 0, 1, ?)
 ON CONFLICT (name) DO UPDATE SET inc = excluded.inc WHERE worker.inc < excluded.inc`
	forgetWorker = `DELETE FROM worker WHERE name = ? AND inc = ? AND` + gone
)

// forgetWorkers removes the rows of bridges that died before then: a process
// without a name of its own leaves one each time that it is started.
func (db *DB) forgetWorkers(ctx context.Context, then time.Time) error {
	var list []Worker
	highest := int64(0)
	err := db.read(ctx, selectGone, func(r *record) error {
		w := Worker{Name: r.str(), Inc: r.int()}
		list, highest = append(list, w), max(highest, w.Inc)
		return nil
	}, then.UnixMicro(), forgetLimit)
	if err != nil || len(list) == 0 {
		return err
	}
	return db.transition(ctx, prompt, point("forget"), func(s *session) error {
		s.workersChanged()
		s.at("")
		if err := s.later(-1, rememberInc, highest, then.UnixMicro()); err != nil {
			return err
		}
		for _, w := range list {
			s.at(w.Name)
			if err := s.later(-1, forgetWorker, w.Name, w.Inc, then.UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
}
