package store

import (
	"context"
	"time"

	"github.com/parley-project/parley"
)

// publishAgain is how long a published attempt waits for a claim before it is
// published again (protocol.md P2).
const publishAgain = 5 * time.Second

// sweepLimit bounds the orphans that one Sweep settles.
const sweepLimit = 500

const (
	visible    = `state = 'open' AND held = 0 AND visible_at <= ?`
	anyVisible = `SELECT 1 FROM attempt WHERE ` + visible + ` LIMIT 1`
)

func publishAttempts(skipLocked string) string {
	return `UPDATE attempt SET visible_at = ? WHERE id IN (SELECT id FROM attempt WHERE ` + visible +
		` ORDER BY visible_at LIMIT ?` + skipLocked + `) AND ` + visible + ` RETURNING ` + attemptColumns
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
	query := publishAttempts(db.dialect.skipLocked)
	var list []Attempt
	err = db.transition(ctx, prompt, point("P2"), func(s *session) error {
		list = nil
		return s.query(query, attemptList(&list), now.Add(publishAgain).UnixMicro(), at, int64(limit), at)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Sweep is P17 and P10. Each of dead is declared dead, but only if its inc and
// beat are still as given; then claims under policy fail whose bridge is dead
// or replaced are settled as unknown. It gives the rows of all bridges as they
// are afterwards. Lazy.
func (db *DB) Sweep(ctx context.Context, dead []Worker, at time.Time) ([]Worker, error) {
	if len(dead) > 0 {
		err := db.transition(ctx, prompt, point("P17"), func(s *session) error {
			s.workersChanged()
			for _, w := range dead {
				_, err := s.exec(`UPDATE worker SET dead = 1 WHERE name = ? AND inc = ? AND beat = ? AND dead = 0`, w.Name, w.Inc, w.Beat)
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
	var workers []Worker
	err := db.read(ctx, `SELECT name, inc, beat, dead FROM worker ORDER BY name`, func(r *record) error {
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
			_, err = s.exec(`UPDATE attempt SET state = 'settled', outcome = 'unknown', meta = ?, settled_at = ?
 WHERE id = ? AND state = 'claimed' AND token = ? AND `+ownerGone, meta, unixMicro(at), o.id, o.token)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
