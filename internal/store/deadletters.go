package store

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/parley-project/parley"
)

// Replay says that a start goes on with a run for whose task there are dead
// letters: those of Run.RetriedFrom that wait are replayed by it, in the same
// transaction.
type Replay struct {
	// ID, if set, is the dead letter that is replayed: the start is refused with
	// conflict unless it waits, or Force is set, and with not_found if it is gone.
	ID    string
	Force bool
	By    string
}

const (
	// headColumns are the columns of a dead letter without what the record held,
	// in the order of readDeadLetter.
	headColumns = `id, kind, state, code, reason, attempts, agent, workflow, run, step, task, http_status,
 source_subject, source_topic, source_partition, source_offset, source_group, first_failed_at, created_at,
 resolved_at, resolved_by, note, replays, replay_run, size, digest, cut, tombstone`
	deadLetterColumns = headColumns + `, record_key, headers, value`

	insertDeadLetter = `INSERT INTO dead_letter (` + headColumns + `, kept, busy_until, copy_at, record_key, headers, value)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`

	selectDeadLetter = `SELECT ` + deadLetterColumns + ` FROM dead_letter WHERE id = ?`

	replayed       = `UPDATE dead_letter SET state = 'replayed', resolved_at = ?, resolved_by = ?, note = NULL, replay_run = ?, replays = replays + 1, busy_until = 0`
	replayedOfRun  = replayed + ` WHERE run = ? AND state = 'waiting' AND kind = 'task'`
	replayedForced = replayed + ` WHERE id = ?`
	replayedAlone  = replayed + ` WHERE id = ? AND busy_until = ?`

	selectReplayable = `SELECT state, busy_until FROM dead_letter WHERE id = ?`
	holdDeadLetter   = `UPDATE dead_letter SET busy_until = ? WHERE id = ? AND busy_until = ? AND state = ?`
	freeDeadLetter   = `UPDATE dead_letter SET busy_until = 0 WHERE id = ? AND busy_until = ?`

	discardSet     = `UPDATE dead_letter SET state = 'discarded', resolved_at = ?, resolved_by = ?, note = ?, copy_at = NULL`
	discardDead    = discardSet + ` WHERE id = ? AND state = 'waiting'`
	anyCopy        = `SELECT 1 FROM dead_letter WHERE copy_at <= ? ORDER BY copy_at LIMIT 1`
	selectCopies   = `SELECT ` + deadLetterColumns + ` FROM dead_letter WHERE copy_at <= ? ORDER BY copy_at LIMIT ?`
	takeCopy       = `UPDATE dead_letter SET copy_at = ? WHERE id = ? AND copy_at <= ?`
	copied         = `UPDATE dead_letter SET copy_at = NULL WHERE id = ?`
	sumDeadLetters = `SELECT count(*), CAST(coalesce(sum(kept), 0) AS BIGINT) FROM dead_letter`
	oldDeadLetters = `SELECT id, kept FROM dead_letter WHERE created_at < ? ORDER BY created_at, id LIMIT ?`
)

const (
	// replayHold is how long whoever publishes a record again has for it, before
	// others may.
	replayHold = 30 * time.Second
	// copyAgain is how long a dead letter that was given by DeadLetterCopies is
	// left alone.
	copyAgain = 30 * time.Second
	// purgeBatch bounds the dead letters that one transaction removes.
	purgeBatch = 500
)

// bindDeadLetter gives the arguments of insertDeadLetter.
func bindDeadLetter(l *parley.DeadLetter) ([]driver.NamedValue, error) {
	if l.ID == "" || l.Kind == "" || l.State != parley.DeadLetterWaiting || l.CreatedAt.IsZero() {
		return nil, parley.Errorf(parley.CodeInvalid, "a dead letter needs an id, a kind and a time, and waits at first")
	}
	var headers []byte
	if len(l.Headers) > 0 {
		var err error
		if headers, err = json.Marshal(l.Headers); err != nil {
			return nil, parley.Errorf(parley.CodeInvalid, "dead letter %s: headers: %w", l.ID, err)
		}
	}
	var source parley.DeadLetterSource
	var partition, offset any
	if l.Source != nil {
		source = *l.Source
		partition, offset = int64(source.Partition), source.Offset
	}
	const rest = 512 // the columns that are always there, about
	kept := rest + len(l.Key) + len(headers) + len(l.Value) + len(l.Reason)
	return bind(make([]driver.NamedValue, 0, 33),
		l.ID, string(l.Kind), string(l.State), string(l.Code), l.Reason, int64(l.Attempts),
		text(l.Agent), text(l.Workflow), text(l.Run), text(l.Step), text(l.Task), int64(l.HTTPStatus),
		text(source.Subject), text(source.Topic), partition, offset, text(source.Group),
		unixMicro(l.FirstFailedAt), unixMicro(l.CreatedAt), nil, nil, nil, int64(0), nil,
		l.Size, text(l.Digest), flag(l.Cut), flag(l.Tombstone),
		int64(kept), unixMicro(l.CreatedAt), blob(l.Key), blob(headers), blob(l.Value)), nil
}

func readDeadLetter(r *record) parley.DeadLetter {
	l := parley.DeadLetter{
		ID: r.str(), Kind: parley.DeadLetterKind(r.str()), State: parley.DeadLetterState(r.str()),
		Code: parley.Code(r.str()), Reason: r.str(), Attempts: int(r.int()),
		Agent: r.str(), Workflow: r.str(), Run: r.str(), Step: r.str(), Task: r.str(), HTTPStatus: int(r.int()),
	}
	source := parley.DeadLetterSource{
		Subject: r.str(), Topic: r.str(), Partition: int32(r.int()), Offset: r.int(), Group: r.str(), //nolint:gosec // as it was stored
	}
	if source != (parley.DeadLetterSource{}) {
		l.Source = &source
	}
	l.FirstFailedAt, l.CreatedAt = r.time(), r.time()
	if at := r.time(); !at.IsZero() {
		l.ResolvedAt = &at
	}
	l.ResolvedBy, l.Note, l.Replays, l.ReplayRun = r.str(), r.str(), int(r.int()), r.str()
	l.Size, l.Digest, l.Cut, l.Tombstone = r.int(), r.str(), r.flag(), r.flag()
	return l
}

// readWhole is readDeadLetter for deadLetterColumns. unread says that its headers cannot
// be read: it has none then.
func readWhole(r *record) (l parley.DeadLetter, unread error) {
	l = readDeadLetter(r)
	l.Key = r.bytes()
	headers := r.bytes()
	l.Value = r.bytes()
	if headers != nil {
		if err := json.Unmarshal(headers, &l.Headers); err != nil {
			l.Headers, unread = nil, fmt.Errorf("headers of dead letter %s: %w", l.ID, err)
		}
	}
	return l, unread
}

func noDeadLetter(id string) error {
	return parley.Errorf(parley.CodeNotFound, "there is no dead letter %q (any more): list them with parley dlq list", id)
}

// KeepDeadLetter stores a dead letter; fresh is false if it was there already,
// in whatever state. Synced.
func (db *DB) KeepDeadLetter(ctx context.Context, l parley.DeadLetter) (fresh bool, err error) {
	args, err := bindDeadLetter(&l)
	if err != nil {
		return false, err
	}
	err = db.transition(ctx, synced, point("dead"), func(s *session) error {
		s.at(l.ID)
		n, err := s.execBound(insertDeadLetter, args)
		fresh = n == 1
		return err
	})
	return fresh, err
}

// DeadLetter gives one dead letter, or the error not_found.
func (db *DB) DeadLetter(ctx context.Context, id string) (parley.DeadLetter, error) {
	var l parley.DeadLetter
	found := false
	err := db.read(ctx, selectDeadLetter, func(r *record) (unread error) {
		l, unread = readWhole(r)
		found = true
		return cmp.Or(r.err, unread)
	}, id)
	if err == nil && !found {
		err = noDeadLetter(id)
	}
	return l, err
}

func deadLetterCondition(f *parley.DeadLetterFilter) condition {
	var c condition
	for _, m := range []struct{ part, value string }{
		{`state = ?`, string(f.State)},
		{`kind = ?`, string(f.Kind)},
		{`code = ?`, string(f.Code)},
		{`agent = ?`, f.Agent},
		{`workflow = ?`, f.Workflow},
		{`run = ?`, f.Run},
		{`source_topic = ?`, f.Topic},
	} {
		if m.value != "" {
			c.add(m.part, m.value)
		}
	}
	if f.Reason != "" {
		part, args := containing(f.Reason, `lower(reason)`)
		c.add(part, args...)
	}
	if !f.CreatedAfter.IsZero() {
		c.add(`created_at > ?`, f.CreatedAfter.UnixMicro())
	}
	if !f.CreatedBefore.IsZero() {
		c.add(`created_at < ?`, f.CreatedBefore.UnixMicro())
	}
	return c
}

// DeadLetters gives one page of the dead letters that q selects, without keys,
// headers and values, and the number of all of them.
func (db *DB) DeadLetters(ctx context.Context, q parley.DeadLetterQuery) ([]parley.DeadLetter, int, error) {
	var list []parley.DeadLetter
	by := order("created_at", q.Ascending, "id", "created_at")
	total, err := db.list(ctx, &listing{headColumns, `dead_letter`, deadLetterCondition(&q.Filter), by, q.Page}, func(r *record) error {
		list = append(list, readDeadLetter(r))
		return r.err
	})
	return list, total, err
}

// DeadLetterMark is where a dead letter stands in the order of age.
type DeadLetterMark struct {
	ID string
	At time.Time
}

// DeadLettersAfter gives at most limit (500) dead letters that f selects and
// that come after a mark, oldest first (the zero mark stands before the oldest),
// and how many there are in all behind it.
func (db *DB) DeadLettersAfter(ctx context.Context, f parley.DeadLetterFilter, after DeadLetterMark, limit int) ([]parley.DeadLetter, int, error) {
	c := deadLetterCondition(&f)
	if after != (DeadLetterMark{}) {
		at := unixMicro(after.At)
		c.add(`(created_at > ? OR (created_at = ? AND id > ?))`, at, at, after.ID)
	}
	var list []parley.DeadLetter
	page := parley.Page{Limit: limit}
	total, err := db.list(ctx, &listing{headColumns, `dead_letter`, c, order("created_at", true, "id", "created_at"), page}, func(r *record) error {
		list = append(list, readDeadLetter(r))
		return r.err
	})
	return list, total, err
}

// ErrReplaying says that somebody else has a dead letter in hand, or has just had it.
var ErrReplaying = errors.New("is being replayed by somebody else just now")

// replayable refuses what must not be replayed now: conflict, not_found.
func replayable(s *session, r *Replay, at time.Time) (state parley.DeadLetterState, busy int64, err error) {
	found := false
	err = s.query(selectReplayable, func(rec *record) error {
		state, busy, found = parley.DeadLetterState(rec.str()), rec.int(), true
		return nil
	}, r.ID)
	switch {
	case err != nil:
	case !found:
		err = noDeadLetter(r.ID)
	case state != parley.DeadLetterWaiting && !r.Force:
		err = parley.Errorf(parley.CodeConflict,
			"dead letter %s is %s already: look at it with parley dlq show %s, and add --force (force: true) to replay it all the same", r.ID, state, r.ID)
	case busy > unixMicro(at):
		err = parley.Errorf(parley.CodeConflict, "dead letter %s %w: look at it again in a minute", r.ID, ErrReplaying)
	}
	return state, busy, err
}

// replayByRun notes that a run was retried by the one that starts. The start was
// not refused before; a dead letter that somebody else has replayed meanwhile
// undoes it.
func replayByRun(s *session, st *Start) error {
	if st.Replay == nil || st.Run.RetriedFrom == "" {
		return nil
	}
	at, r := unixMicro(st.Run.CreatedAt), st.Replay
	forced := int64(0)
	if r.ID != "" && r.Force {
		// Before those that wait, of which it may be one: it is replayed once.
		s.at(r.ID)
		var err error
		if forced, err = s.exec(replayedForced, at, r.By, st.Run.ID, r.ID); err != nil {
			return err
		}
	}
	s.at(st.Run.RetriedFrom)
	n, err := s.exec(replayedOfRun, at, r.By, st.Run.ID, st.Run.RetriedFrom)
	if err == nil && r.ID != "" && n+forced == 0 {
		err = errLate
	}
	return err
}

// HoldDeadLetter takes a dead letter for a replay: for 30 s nobody else gets it,
// unless ResolveReplay or FreeDeadLetter gives it back before. The error is
// not_found, or conflict if it does not wait and Force is not set, or somebody
// else has it. until names the hold.
func (db *DB) HoldDeadLetter(ctx context.Context, r Replay, at time.Time) (until time.Time, err error) {
	until = at.Add(replayHold)
	err = db.submit(ctx, prompt, func(s *session) error {
		state, busy, err := replayable(s, &r, at)
		if err != nil {
			return err
		}
		s.at(r.ID)
		n, err := s.exec(holdDeadLetter, unixMicro(until), r.ID, busy, string(state))
		if err == nil && n == 0 {
			err = ErrStale
		}
		return err
	})
	return until, err
}

// ResolveReplay notes that a held dead letter was replayed. ErrStale: the hold is
// somebody else's by now. Synced.
func (db *DB) ResolveReplay(ctx context.Context, r Replay, until, at time.Time) error {
	return db.submit(ctx, synced, func(s *session) error {
		s.at(r.ID)
		n, err := s.exec(replayedAlone, unixMicro(at), r.By, nil, r.ID, unixMicro(until))
		if err == nil && n == 0 {
			err = ErrStale
		}
		return err
	})
}

// FreeDeadLetter gives a held dead letter back that was not replayed.
func (db *DB) FreeDeadLetter(ctx context.Context, id string, until time.Time) error {
	return db.submit(ctx, prompt, func(s *session) error {
		s.at(id)
		return s.later(-1, freeDeadLetter, id, unixMicro(until))
	})
}

// DiscardDeadLetter discards a dead letter. One that was discarded before stays
// as it is; the error is not_found, or conflict for one that was replayed.
// Synced.
func (db *DB) DiscardDeadLetter(ctx context.Context, req parley.DiscardRequest, at time.Time) error {
	return db.submit(ctx, synced, func(s *session) error {
		s.at(req.ID)
		n, err := s.exec(discardDead, unixMicro(at), req.By, text(req.Note), req.ID)
		if err != nil || n == 1 {
			return err
		}
		state, _, err := replayable(s, &Replay{ID: req.ID, Force: true}, at)
		if parley.CodeOf(err) == parley.CodeNotFound {
			return err
		}
		if state == parley.DeadLetterReplayed {
			return parley.Errorf(parley.CodeConflict, "dead letter %s was replayed already; there is nothing to discard", req.ID)
		}
		return nil
	})
}

// DiscardDeadLetters discards all waiting dead letters that a filter selects, and
// gives their number. Synced.
func (db *DB) DiscardDeadLetters(ctx context.Context, req parley.DiscardRequest, at time.Time) (n int, err error) {
	req.Filter.State = parley.DeadLetterWaiting
	c := deadLetterCondition(&req.Filter)
	args := append([]any{unixMicro(at), req.By, text(req.Note)}, c.args...)
	err = db.submit(ctx, synced, func(s *session) error {
		s.at(lastKey)
		changed, err := s.exec(discardSet+c.String(), args...)
		n = int(changed)
		return err
	})
	return n, err
}

// DeadLetterCopies gives at most limit dead letters whose copies are to be
// published at now, and leaves them alone for 30 s; DeadLettersCopied says that
// they were.
func (db *DB) DeadLetterCopies(ctx context.Context, now time.Time, limit int) ([]parley.DeadLetter, error) {
	at, due := unixMicro(now), false
	err := db.read(ctx, anyCopy, func(*record) error { due = true; return nil }, at)
	if err != nil || !due || limit <= 0 {
		return nil, err
	}
	var list []parley.DeadLetter
	err = db.submit(ctx, prompt, func(s *session) error {
		list = nil
		var found []parley.DeadLetter
		err := s.query(selectCopies, func(r *record) error {
			l, unread := readWhole(r)
			if unread != nil {
				db.options.Logger.Error("the copy of a dead letter has no headers: they cannot be read", "id", l.ID, "error", unread)
			}
			found = append(found, l)
			return r.err
		}, at, int64(limit))
		if err != nil {
			return err
		}
		for i := range found {
			s.at(found[i].ID)
			n, err := s.exec(takeCopy, unixMicro(now.Add(copyAgain)), found[i].ID, at)
			if err != nil {
				return err
			}
			if n == 1 {
				list = append(list, found[i])
			}
		}
		return nil
	})
	return list, err
}

// DeadLettersCopied notes that the copies of dead letters were published. Lazy:
// when that is lost, they are published again.
func (db *DB) DeadLettersCopied(ctx context.Context, ids []string) error {
	return db.submit(ctx, lazy, func(s *session) error {
		for _, id := range ids {
			s.at(id)
			if err := s.later(-1, copied, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeadLetterLimits bound what is kept.
type DeadLetterLimits struct {
	// Rows is their number, Bytes what they take, about.
	Rows, Bytes int64
	// Before is the time of the oldest that may stay.
	Before time.Time
}

// PurgeDeadLetters removes the oldest dead letters until the limits are kept,
// whatever their states, and gives their number. Any number of processes may do so.
func (db *DB) PurgeDeadLetters(ctx context.Context, l DeadLetterLimits) (removed int, err error) {
	for {
		ids, err := db.superfluous(ctx, l)
		if err != nil || len(ids) == 0 {
			return removed, err
		}
		err = db.submit(ctx, prompt, func(s *session) error {
			for _, id := range ids {
				s.at(id)
				if err := s.later(-1, `DELETE FROM dead_letter WHERE id = ?`, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return removed, err
		}
		removed += len(ids)
	}
}

// superfluous gives the oldest dead letters that are beyond the limits, at most
// purgeBatch. What counts them and what lists them see one state: else those that
// another process has removed meanwhile would be removed a second time, of what is left.
func (db *DB) superfluous(ctx context.Context, l DeadLetterLimits) (ids []string, err error) {
	err = db.snapshot(ctx, func(tx reader) error {
		rows, bytes := int64(0), int64(0)
		err := db.readOn(ctx, tx, sumDeadLetters, func(r *record) error { rows, bytes = r.int(), r.int(); return nil })
		if err != nil {
			return err
		}
		before := unixMicro(l.Before)
		if rows > l.Rows || bytes > l.Bytes {
			before = 1 << 62
		}
		return db.readOn(ctx, tx, oldDeadLetters, func(r *record) error {
			id, kept := r.str(), r.int()
			if before != 1<<62 || rows > l.Rows || bytes > l.Bytes {
				ids = append(ids, id)
			}
			rows, bytes = rows-1, bytes-kept
			return nil
		}, before, int64(purgeBatch))
	})
	return ids, err
}
