package store

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// Tasks of executors of the existing platform (protocol.md §4.12, "old
// executor, our bridge with a store"). Their rows are inserted by the claim, or
// by a deferral, and carry held = 1: whatever publishes, hands over or pauses
// the attempts of runs passes them by. settled means here that a result record
// is to be published; when it was, the row is closed.

const (
	// ofRun holds for attempts that a run waits for. The text is that of index
	// attempt_settled.
	ofRun = `(hand_off IS NULL OR hand_off = 'bus')`

	insertForeign = `INSERT INTO attempt (id, run, step, number, agent, input, correlation_id, context_id, deadline,
 policy, attempt_timeout, silence, state, held, visible_at, owner, owner_inc, token, scheduled_at, claimed_at, hand_off, on_open, urgency, published,
 trace, source)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`

	claimForeignRow = `UPDATE attempt SET state = 'claimed', owner = ?, owner_inc = ?, token = ?, claimed_at = ?
 WHERE id = ? AND number = ? AND ` + itsState + ` = 'open' AND hand_off = 'foreign' RETURNING ` + attemptColumns

	moveRetry = `UPDATE attempt SET state = 'open', visible_at = ?, owner = NULL, owner_inc = NULL, token = NULL,
 claimed_at = NULL, number = number + 1, agent_task_id = NULL, agent_context_id = NULL, agent_endpoint = NULL,
 agent_version = NULL, source = coalesce(?, source),` + noQuestion + mine + ` AND ` + itsState + ` IN ('claimed', 'following') AND hand_off = 'foreign' AND orphanings = 0`

	foreignDue   = `hand_off = 'foreign' AND state IN ('open', 'settled')` + foreignTimes
	foreignStill = `hand_off = 'foreign' AND ` + itsState + ` IN ('open', 'settled')` + foreignTimes
	foreignTimes = ` AND visible_at <= ? AND (settled_at IS NULL OR settled_at <= ?)`

	anyForeign = `SELECT 1 FROM attempt WHERE ` + foreignDue + ` LIMIT 1`

	closeForeign = `UPDATE attempt SET state = 'closed' WHERE id = ? AND ` + itsState + ` = 'settled' AND hand_off = 'foreign'`

	purgeForeign = `DELETE FROM attempt WHERE id = ? AND ` + itsState + ` = 'closed' AND hand_off = 'foreign'`

	foreignOld = `SELECT id FROM attempt WHERE hand_off = 'foreign' AND state = 'closed' AND settled_at < ? ORDER BY settled_at LIMIT ?`
)

func takeForeign(d *dialect) string {
	return `UPDATE attempt SET visible_at = ? WHERE id ` + d.picked(`SELECT id FROM attempt WHERE `+foreignDue+` ORDER BY visible_at LIMIT ?`) +
		` AND ` + foreignStill + ` RETURNING ` + attemptColumns
}

// foreignAgain is how long a foreign attempt that [DB.Foreign] gave is left
// alone, and how long whoever settled one has to publish its result.
const foreignAgain = 5 * time.Second

// foreignPrefix begins the ids of foreign attempts, and no run's id;
// replayPrefix those of tasks that were replayed.
const (
	foreignPrefix = "foreign:"
	replayPrefix  = foreignPrefix + "again:"
)

// ForeignTaskID gives the id of the attempt that stands for the task of an
// executor of the existing platform. That platform tells tasks apart by 32 bits
// of chance and matches results by the correlation id alone, so all three of its
// ids together name one. replay is "", or names the replay of its dead letter,
// which makes another task of it.
func ForeignTaskID(run, task, correlation, replay string) string {
	ids, prefix := []string{run, task, correlation}, foreignPrefix
	if replay != "" {
		ids, prefix = append(ids, replay), replayPrefix
	}
	var buf [256]byte // on the stack: the usual ids fit in
	sums := make([]byte, 0, 4*sha256.Size)
	for _, s := range ids {
		sum := sha256.Sum256(append(buf[:0], s...))
		sums = append(sums, sum[:]...)
	}
	sum := sha256.Sum256(sums)
	return string(hex.AppendEncode(append(buf[:0], prefix...), sum[:20]))
}

// ForeignReplay tells the replay of a foreign task from the task and from others:
// it gives eight letters and digits of its id, and "" for a task that comes from
// its executor.
func ForeignReplay(id string) string {
	digest, ok := strings.CutPrefix(id, replayPrefix)
	if !ok {
		return ""
	}
	return digest[:min(8, len(digest))]
}

// checkForeign refuses what cannot be the row of a foreign task.
func checkForeign(list []Attempt, state AttemptState) error {
	for i := range list {
		a := &list[i]
		if !strings.HasPrefix(a.ID, foreignPrefix) || a.HandOff != HandOffForeign || a.State != state || len(a.Input) == 0 ||
			(state == AttemptClaimed && (a.Claim.Worker == "" || a.Claim.Token == "" || a.Claim.Worker != list[0].Claim.Worker || a.Claim.Inc != list[0].Claim.Inc)) {
			return parley.Errorf(parley.CodeInvalid, "attempt %q is no foreign one that becomes %s by one bridge", a.ID, state)
		}
	}
	return nil
}

// bindForeign gives the arguments of insertForeign for each of list.
func bindForeign(list []Attempt, at time.Time) ([][]driver.NamedValue, error) {
	rows := slices.Clone(list)
	for i := range rows {
		rows[i].Held = true
	}
	bound, err := bindAttempts(&cutter{}, rows, unixMicro(at))
	if err != nil {
		return nil, err
	}
	for i := range bound {
		source, err := list[i].Source.encode()
		if err != nil {
			return nil, err
		}
		bound[i] = bind(bound[i], source)
	}
	return bound, nil
}

// ClaimForeign is P4 for tasks that may have no row yet: each of list is
// claimed by its Claim, all of the same bridge, and inserted if it is not there.
// It gives what is the caller's now, as it stands in the store. What somebody
// else has, has ended, or has opened for another try, is left out. ErrStale: the bridge is not alive any
// more, and nothing is known about the tasks. Synced, if any is claimed.
func (db *DB) ClaimForeign(ctx context.Context, list []Attempt, at time.Time) ([]Attempt, error) {
	if err := checkForeign(list, AttemptClaimed); err != nil || len(list) == 0 {
		return nil, err
	}
	bound, err := bindForeign(list, at)
	if err != nil {
		return nil, err
	}
	var mine []Attempt
	alive := false
	err = db.transition(ctx, synced, point("P4"), func(s *session) error {
		mine = nil
		var err error
		if alive, err = s.alive(list[0].Claim); err != nil {
			return err
		}
		if !alive {
			return ErrStale
		}
		if mine, err = claimForeign(s, list, bound, at); err == nil && len(mine) == 0 {
			return ErrStale
		}
		return err
	})
	if alive && errors.Is(err, ErrStale) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return mine, nil
}

// claimForeign inserts what is not there, and claims what is there and open.
func claimForeign(s *session, list []Attempt, bound [][]driver.NamedValue, at time.Time) ([]Attempt, error) {
	inserted := make([]int64, len(list))
	for i := range list {
		s.at(list[i].ID)
		if err := s.laterCounted(&inserted[i], insertForeign, bound[i]); err != nil {
			return nil, err
		}
	}
	if err := s.wait(); err != nil {
		return nil, err
	}
	mine := make([]Attempt, 0, len(list))
	for i := range list {
		if inserted[i] > 0 {
			mine = append(mine, list[i])
			mine[len(mine)-1].Held = true
			continue
		}
		c := &list[i].Claim
		s.at(list[i].ID)
		if err := s.laterQuery(claimForeignRow, attemptList(&mine), c.Worker, c.Inc, c.Token, micros(at), list[i].ID, int64(list[i].Attempt)); err != nil {
			return nil, err
		}
	}
	err := s.wait() // which may add to mine
	return mine, err
}

// AnswerForeign is [DB.Answer] for several foreign attempts at once.
func (db *DB) AnswerForeign(ctx context.Context, list []Answer) (accepted []bool, err error) {
	metas := make([][]byte, len(list))
	for i := range list {
		if err = checkAnswer(&list[i].Result); err == nil {
			metas[i], err = encodeMeta(&list[i].Result)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	names := func() []string { return slices.Repeat(point("P7")(), len(list)) }
	err = db.transition(endsCalls(ctx), synced, names, func(s *session) error {
		accepted = make([]bool, len(list))
		settled := make([]int64, len(list))
		for i := range list {
			r := &list[i].Result
			s.at(r.TaskID)
			args := bind(make([]driver.NamedValue, 0, 5), string(r.Outcome), blob(plainValue(r.Output)), blob(metas[i]), unixMicro(list[i].At), r.TaskID)
			if err := s.laterCounted(&settled[i], answerAttempt, args); err != nil {
				return err
			}
		}
		if err := s.wait(); err != nil {
			return err
		}
		for i := range list {
			if accepted[i] = settled[i] == 1; accepted[i] {
				continue
			}
			if accepted[i], err = answeredBefore(s, &list[i], metas[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return accepted, nil
}

// DeferForeign is P3 for tasks that may have no row yet: each of list, which are
// open, waits until its VisibleAt. Those that are there are left as they are.
// Synced: nobody else knows of these tasks.
func (db *DB) DeferForeign(ctx context.Context, list []Attempt, at time.Time) error {
	if err := checkForeign(list, AttemptOpen); err != nil || len(list) == 0 {
		return err
	}
	bound, err := bindForeign(list, at)
	if err != nil {
		return err
	}
	return db.transition(ctx, synced, point("P3"), func(s *session) error {
		for i := range bound {
			s.at(list[i].ID)
			if err := s.laterBound(-1, insertForeign, bound[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Foreign gives at most limit foreign attempts that want attention at now, and
// leaves them alone for 5 s: open ones whose time has come, and settled ones
// whose result nobody has published for 5 s. Lazy.
func (db *DB) Foreign(ctx context.Context, now time.Time, limit int) ([]Attempt, error) {
	at, before := now.UnixMicro(), now.Add(-foreignAgain).UnixMicro()
	any := false
	err := db.read(ctx, anyForeign, func(*record) error { any = true; return nil }, at, before)
	if err != nil || !any || limit <= 0 {
		return nil, err
	}
	query := takeForeign(&db.dialect)
	var list []Attempt
	err = db.transition(ctx, prompt, point("P23"), func(s *session) error {
		list = nil
		s.at(lastKey)
		return s.query(query, db.readableList(&list), now.Add(foreignAgain).UnixMicro(), at, before, int64(limit), at, before)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// CloseForeign notes that the results of these attempts were published. Lazy: a
// result that is published again harms nobody.
func (db *DB) CloseForeign(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return db.transition(endsCalls(ctx), lazy, point("P24"), func(s *session) error {
		for _, id := range ids {
			s.at(id)
			if err := s.later(-1, closeForeign, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// PurgeForeign removes at most limit foreign attempts that were settled before
// that time and are closed, with their late answers, and gives their number. A
// record that comes again later is a new task. Lazy.
func (db *DB) PurgeForeign(ctx context.Context, before time.Time, limit int) (n int, err error) {
	var ids []string
	err = db.read(ctx, foreignOld, func(r *record) error { ids = append(ids, r.str()); return nil }, before.UnixMicro(), limit)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	err = db.transition(ctx, lazy, point("P25"), func(s *session) error {
		for _, id := range ids {
			s.at(id)
			if err := s.later(-1, `DELETE FROM late WHERE attempt = ?`, id); err != nil {
				return err
			}
			if err := s.later(-1, purgeForeign, id); err != nil {
				return err
			}
		}
		return nil
	})
	return len(ids), err
}
