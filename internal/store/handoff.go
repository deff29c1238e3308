package store

import (
	"context"
	"errors"
	"time"

	"github.com/parley-project/parley"
)

// Hand-off to a bridge of the existing platform (protocol.md §4.12). It has no
// dedup and claims nothing, so the claim is written in its place, before the
// one time that the attempt is published; from then on the attempt is as much
// in doubt as any claimed one until its result record comes (P7) or its time is
// over (P8).

const (
	// handOffEnd is when an attempt that was handed to the bus has had its time:
	// rule T2 counts from the publication. NULL is never. The text is that of
	// index attempt_overdue.
	handOffEnd = `(claimed_at + CASE WHEN attempt_timeout > 0 AND (silence = 0 OR attempt_timeout < silence) THEN attempt_timeout WHEN silence > 0 THEN silence END)`

	selectOverdue = `SELECT ` + handOffEnd + `, ` + attemptColumns + ` FROM attempt WHERE state = 'claimed' AND hand_off = 'bus' AND ` +
		handOffEnd + ` <= ? AND ` + handOffEnd + ` >= ? AND (` + handOffEnd + ` > ? OR id > ?) ORDER BY ` + handOffEnd + `, id LIMIT ?`

	selectHanded = `SELECT published, ` + attemptColumns + ` FROM attempt WHERE state = 'claimed' AND hand_off = 'bus' AND token = ?`

	selectForResult = `SELECT (SELECT count(*) FROM late WHERE late.attempt = attempt.id), ` + attemptColumns + ` FROM attempt WHERE id = ?`
)

func handOverAttempts(d *dialect) string {
	return `UPDATE attempt SET state = 'claimed', hand_off = 'bus', owner = ?, owner_inc = 0, token = ?, claimed_at = ?
 WHERE id ` + d.picked(`SELECT id FROM attempt WHERE `+visible+` ORDER BY visible_at LIMIT ?`) + ` AND ` + visibleStill +
		` RETURNING published, ` + attemptColumns
}

// Handed is an attempt that was handed to the bus.
type Handed struct {
	Attempt
	// Doubtful: it may have been published before, for bridges that claim. It
	// must not be published now; what becomes of it is found out like that of one
	// whose publication is in doubt.
	Doubtful bool
	// Away: its input is kept apart and cannot be fetched now. It was not published by
	// this claim, so that it can be given back.
	Away bool
}

// HandOver is P2 and P4 for a bridge of the existing platform (named P21): at
// most limit open attempts that are visible at now are claimed by
// [BusClaim](token), oldest first. The caller puts each on the bus once. A token
// is used for one call: if the error leaves the outcome unknown, [DB.HandedOver]
// gives what was written. Synced.
func (db *DB) HandOver(ctx context.Context, token string, now time.Time, limit int) ([]Handed, error) {
	if token == "" {
		return nil, parley.Errorf(parley.CodeInvalid, "a hand-over needs a token")
	}
	at := now.UnixMicro()
	any := false
	err := db.read(ctx, anyVisible, func(*record) error { any = true; return nil }, at)
	if err != nil || !any || limit <= 0 {
		return nil, err
	}
	query := handOverAttempts(&db.dialect)
	var list []Handed
	err = db.transition(ctx, synced, point("P21"), func(s *session) error {
		list = nil
		s.at(lastKey)
		return s.query(query, db.handedList(&list), busOwner, token, at, at, int64(limit), at)
	})
	if err != nil {
		return nil, err
	}
	db.wholeHanded(ctx, list)
	return list, nil
}

// wholeHanded fetches the inputs of attempts that were handed over, and says of which
// that is not possible now. One whose input is gone for good is not published: that is
// like a publication in doubt.
func (db *DB) wholeHanded(ctx context.Context, list []Handed) {
	for i := range list {
		h := &list[i]
		f := fetcher{db: db}
		f.attempt(&h.Attempt)
		err := f.fetch(ctx)
		if err == nil {
			continue
		}
		h.Away = ctx.Err() != nil || errors.Is(err, ErrAway)
		h.Doubtful = h.Doubtful || !h.Away
		db.options.Logger.Warn("a value cannot be fetched; its task is not handed over", "task_id", h.ID, "error", err)
	}
}

// HandedOver gives the attempts that are claimed by [BusClaim](token).
func (db *DB) HandedOver(ctx context.Context, token string) ([]Handed, error) {
	var list []Handed
	err := db.read(ctx, selectHanded, db.handedList(&list), token)
	if err == nil {
		db.wholeHanded(ctx, list)
	}
	return list, err
}

func (db *DB) handedList(list *[]Handed) func(*record) error {
	return func(r *record) error {
		doubtful := r.flag()
		a, ok, err := db.readable(r)
		if ok {
			*list = append(*list, Handed{Attempt: a, Doubtful: doubtful})
		}
		return err
	}
}

// Overdue gives at most limit attempts that were handed to the bus and whose
// attempt timeout or silence (rule T2), whichever is shorter, is over at now,
// the longest overdue first. Where there are more, the next call goes on behind
// them, so that those which nobody can end now keep no others back.
func (db *DB) Overdue(ctx context.Context, now time.Time, limit int) ([]Attempt, error) {
	list, err := inTurn(db, selectOverdue, limit, func(after dueAt) (list []Attempt, last dueAt, err error) {
		err = db.read(ctx, selectOverdue, func(r *record) error {
			last.at = r.int()
			a, ok, err := db.readable(r)
			if last.id = a.ID; ok {
				list = append(list, a)
			}
			return err
		}, now.UnixMicro(), after.at, after.at, after.id, limit)
		return list, last, err
	})
	if err != nil {
		return nil, err
	}
	return db.fetchable(ctx, list), nil
}

// ForResult gives the attempt that a result record is about, and how many late
// answers to it are kept; ok is false if there is none of that id. Values that are
// kept apart are not fetched.
func (db *DB) ForResult(ctx context.Context, task string) (a Attempt, late int, ok bool, err error) {
	err = db.read(ctx, selectForResult, func(r *record) (err error) {
		ok, late = true, int(r.int())
		a, err = readAttempt(r)
		return err
	}, task)
	return a, late, ok && err == nil, err
}
