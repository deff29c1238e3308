package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parley-project/parley"
)

// signalKept is how long an event is kept, and its id remembered (language rule
// C8). maxSignalPage bounds what one look at the events gives.
const (
	signalKept    = 24 * time.Hour
	maxSignalPage = 20
)

// Signals is what a decision changes about events and approvals: in its
// transaction, so that what the history says of them is so.
type Signals struct {
	// Subscribe holds the steps that begin to wait, Unsubscribe those that do so no
	// more. A step that begins to wait has not looked for its event yet.
	Subscribe   []Waiter
	Unsubscribe []string
	// Emit are events that are published: one whose id there was within 24 h is
	// not. The decision is refused with [SignalsFullErrors] if as many of a name
	// and key as Limit wait already; 0 is no limit.
	Emit  []parley.Signal
	Limit int
	// Chain counts the runs that have led to the one that publishes them, each by an
	// event, and that one.
	Chain int
	// Taken are the ids of events that the run has taken.
	Taken []string
	// Seen says up to which news steps have looked for their events. It is nothing
	// that anybody waits for.
	Seen []WaiterSeen
	// Ask opens approvals, or says what is new about them; Answered closes those of
	// these steps.
	Ask      []Approval
	Answered []string
}

// changes counts what has to be on the disk.
func (g *Signals) changes() int {
	return len(g.Subscribe) + len(g.Unsubscribe) + len(g.Emit) + len(g.Taken) + len(g.Ask) + len(g.Answered)
}

// Waiter is a step that waits for an event: one row of table waiter.
type Waiter struct {
	Run, Step string
	Name, Key string
	// Since is the time of the oldest event that counts.
	Since time.Time
	// News counts what the step was told; it has looked for all but the last
	// News-Seen of it.
	News, Seen int
}

// WaiterSeen says that a step has looked for its event since it was told News
// times.
type WaiterSeen struct {
	Step string
	News int
}

// SignalsFullError says that as many events of a name and key wait as may.
type SignalsFullError struct {
	Name, Key string
	Limit     int
}

// Error says which events wait.
func (e *SignalsFullError) Error() string { return e.limit().Error() }

// Unwrap gives the same as an error of code limit.
func (e *SignalsFullError) Unwrap() error { return e.limit() }

func (e *SignalsFullError) limit() *parley.Error {
	return parley.Errorf(parley.CodeLimit, "waiting events: %d named %.100q with key %.100q wait to be taken, and more may not", e.Limit, e.Name, e.Key).
		WithDetails(map[string]any{"limit": "waiting events", "value": e.Limit, "event": e.Name, "key": e.Key})
}

// SignalsFullErrors says so of all names and keys of the events of a decision: one at a
// time it would have to be made again for each. There is at least one.
type SignalsFullErrors []*SignalsFullError

// Error says which events wait.
func (e SignalsFullErrors) Error() string {
	if n := len(e) - 1; n > 0 {
		return fmt.Sprintf("%v (and so for %d more)", e[0], n)
	}
	return e[0].Error()
}

// Unwrap gives all of them.
func (e SignalsFullErrors) Unwrap() []error {
	list := make([]error, len(e))
	for i := range e {
		list[i] = e[i]
	}
	return list
}

const (
	insertSignal = `INSERT INTO signal (id, run, name, signal_key, data, at, taken, spread, starts_at, chain, trace)
 VALUES (?, ?, ?, ?, ?, ?, 0, 0, ` + startsAt + `, ?, ?)
 ON CONFLICT (id, run) DO UPDATE SET name = excluded.name, signal_key = excluded.signal_key, data = excluded.data, at = excluded.at,
 taken = 0, spread = 0, starts_at = excluded.starts_at, chain = excluded.chain, trace = excluded.trace WHERE signal.at < ? AND signal.starts_at = 0`
	selectSignalAt = `SELECT at FROM signal WHERE id = ? AND run = ?`
	hasSignal      = `SELECT 1 FROM signal WHERE id = ? AND run = ? AND at >= ?`
	countSignals   = `SELECT count(*) FROM (SELECT 1 FROM signal WHERE name = ? AND signal_key = ? AND taken = 0 LIMIT ?) AS waiting`
	takeSignal     = `UPDATE signal SET taken = 1 WHERE id = ? AND (run = '' OR run = ?) AND taken = 0`
	selectSignals  = `SELECT id, data, at FROM signal WHERE name = ? AND signal_key = ? AND (run = '' OR run = ?)
 AND at >= ? AND (at > ? OR id > ?) ORDER BY at, id LIMIT ?`

	selectUnspread = `SELECT id, run, name, signal_key, at FROM signal WHERE spread = 0 ORDER BY at LIMIT ?`
	anyUnspread    = `SELECT 1 FROM signal WHERE spread = 0 LIMIT 1`
	markSpread     = `UPDATE signal SET spread = 1 WHERE id = ? AND run = ?`
	tellWaiters    = `UPDATE waiter SET news = news + 1 WHERE name = ? AND signal_key = ? AND since <= ? RETURNING run`
	tellWaitersOf  = `UPDATE waiter SET news = news + 1 WHERE name = ? AND signal_key = ? AND since <= ? AND run = ? RETURNING run`

	selectOldSignals = `SELECT id, run FROM signal WHERE at < ? AND starts_at = 0 ORDER BY at LIMIT ?`
	deleteOldSignal  = `DELETE FROM signal WHERE id = ? AND run = ? AND at < ? AND starts_at = 0`

	insertWaiter = `INSERT INTO waiter (run, step, name, signal_key, since, news, seen) VALUES (?, ?, ?, ?, ?, 1, 0)
 ON CONFLICT (run, step) DO UPDATE SET name = excluded.name, signal_key = excluded.signal_key, since = excluded.since, news = waiter.news + 1`
	deleteWaiter     = `DELETE FROM waiter WHERE run = ? AND step = ?`
	seeWaiter        = `UPDATE waiter SET seen = ? WHERE run = ? AND step = ? AND seen < ?`
	selectWaiters    = `SELECT step, name, signal_key, since, news, seen FROM waiter WHERE run = ? AND news > seen ORDER BY since, step`
	selectWaiterNews = `SELECT DISTINCT run FROM waiter WHERE news > seen AND run > ? ORDER BY run LIMIT ?`
)

// signals is a Signals that was checked outside the writer.
type signals struct {
	*Signals
	run   string
	asked [][]byte
}

func checkSignals(run *Run, g *Signals) (*signals, error) {
	c := &signals{Signals: g, run: run.ID}
	for i := range g.Emit {
		if err := checkSignal(&g.Emit[i]); err != nil {
			return nil, err
		}
	}
	for i := range g.Ask {
		b, err := encodeApproval(&g.Ask[i])
		if err != nil {
			return nil, err
		}
		c.asked = append(c.asked, b)
	}
	return c, nil
}

func checkSignal(e *parley.Signal) error {
	if e.ID == "" || e.Time.IsZero() {
		return parley.Errorf(parley.CodeInvalid, "the event %.100q needs an id and a time", e.Name)
	}
	return e.Validate()
}

// foresee refuses what write would have to refuse.
func (g *signals) foresee(s *session) error {
	var full SignalsFullErrors
	known := map[[2]string]bool{}
	for i := range g.Emit {
		e := &g.Emit[i]
		if known[[2]string{e.Name, e.Key}] {
			continue
		}
		err := mayPut(s, "", e, g.Limit)
		if one, ok := errors.AsType[*SignalsFullError](err); ok {
			full, known[[2]string{e.Name, e.Key}] = append(full, one), true
		} else if err != nil {
			return err
		}
	}
	if len(full) > 0 {
		return full
	}
	return nil
}

// mayPut refuses an event if too many wait already.
func mayPut(s *session, run string, e *parley.Signal, limit int) error {
	if limit <= 0 {
		return nil
	}
	n := int64(0)
	if err := s.query(countSignals, func(r *record) error { n = r.int(); return nil }, e.Name, e.Key, int64(limit)); err != nil {
		return err
	}
	if n < int64(limit) {
		return nil
	}
	there, err := s.exists(hasSignal, e.ID, run, e.Time.Add(-signalKept).UnixMicro())
	if err == nil && !there {
		err = &SignalsFullError{Name: e.Name, Key: e.Key, Limit: limit}
	}
	return err
}

// write writes it all. Nothing of it can be refused.
func (g *signals) write(s *session) error {
	for _, step := range g.Unsubscribe {
		s.at(g.run)
		if err := s.later(-1, deleteWaiter, g.run, step); err != nil {
			return err
		}
	}
	for i := range g.Subscribe {
		w := &g.Subscribe[i]
		s.at(g.run)
		if err := s.later(-1, insertWaiter, g.run, w.Step, w.Name, w.Key, w.Since.UnixMicro()); err != nil {
			return err
		}
	}
	for _, seen := range g.Seen {
		s.at(g.run)
		if err := s.later(-1, seeWaiter, int64(seen.News), g.run, seen.Step, int64(seen.News)); err != nil {
			return err
		}
	}
	for i := range g.Emit {
		s.at(g.Emit[i].ID)
		if err := s.later(-1, insertSignal, signalArgs("", &g.Emit[i], g.Chain)...); err != nil {
			return err
		}
	}
	for _, id := range g.Taken {
		s.at(id)
		if err := s.later(-1, takeSignal, id, g.run); err != nil {
			return err
		}
	}
	return g.writeApprovals(s)
}

func signalArgs(run string, e *parley.Signal, chain int) []any {
	data, triggers, trace := []byte(e.Data), e.Name, e.Trace
	if data == nil {
		data = []byte("null")
	}
	if run != "" {
		triggers, trace = "", parley.Trace{} // it is for that run and starts none
	}
	return []any{
		e.ID, run, e.Name, e.Key, data, e.Time.UnixMicro(), triggers, e.Time.UnixMicro(), int64(chain), text(trace.String()), e.Time.Add(-signalKept).UnixMicro(),
	}
}

// PutSignal publishes an event to one run, or to all of them with run "". If
// there was one of its id within 24 h, nothing is written and at is the time of
// that one. As many as limit may wait of a name and key: one more is refused with
// a [*SignalsFullError]. Synced.
func (db *DB) PutSignal(ctx context.Context, run string, e parley.Signal, limit int) (at time.Time, repeated bool, err error) {
	if err := checkSignal(&e); err != nil {
		return at, false, err
	}
	err = db.transition(ctx, synced, point("signal"), func(s *session) error {
		at, repeated = e.Time, false
		if err := mayPut(s, run, &e, limit); err != nil {
			return err
		}
		s.at(e.ID)
		n, err := s.exec(insertSignal, signalArgs(run, &e, 0)...)
		if err != nil || n == 1 {
			return err
		}
		repeated = true
		return s.query(selectSignalAt, func(r *record) error { at = r.time(); return nil }, e.ID, run)
	})
	return at, repeated, err
}

// SpreadSignals tells the steps that wait of at most limit new events that they
// may wait for, oldest first, and gives their runs. It may be repeated at will: a
// step that was told for nothing looks once more. Since it is done after an event
// was committed, a step either waits by then and is told, or looks for the event
// afterwards and finds it. more: there may be further events.
func (db *DB) SpreadSignals(ctx context.Context, limit int) (runs []string, more bool, err error) {
	err = db.read(ctx, anyUnspread, func(*record) error { more = true; return nil })
	if err != nil || !more {
		return nil, false, err
	}
	err = db.transition(ctx, prompt, point("spread"), func(s *session) error {
		type event struct {
			id, run, name, key string
			at                 int64
		}
		var events []event
		told := map[string]bool{}
		runs = nil
		err := s.query(selectUnspread, func(r *record) error {
			events = append(events, event{r.str(), r.str(), r.str(), r.str(), r.int()})
			return nil
		}, int64(limit))
		if err != nil {
			return err
		}
		more = len(events) == limit
		tell := func(r *record) error {
			if run := r.str(); !told[run] {
				told[run], runs = true, append(runs, run)
			}
			return nil
		}
		for _, e := range events {
			s.at(lastKey)
			if e.run == "" {
				err = s.query(tellWaiters, tell, e.name, e.key, e.at)
			} else {
				err = s.query(tellWaitersOf, tell, e.name, e.key, e.at, e.run)
			}
			if err != nil {
				return err
			}
			s.at(e.id)
			if err := s.later(-1, markSpread, e.id, e.run); err != nil {
				return err
			}
		}
		return nil
	})
	return runs, more, err
}

// Waiters gives the steps of a run that were told of events and have not looked
// for them since.
func (db *DB) Waiters(ctx context.Context, run string) ([]Waiter, error) {
	var list []Waiter
	err := db.read(ctx, selectWaiters, func(r *record) error {
		list = append(list, Waiter{
			Run: run, Step: r.str(), Name: r.str(), Key: r.str(), Since: r.time(), News: int(r.int()), Seen: int(r.int()),
		})
		return nil
	}, run)
	return list, err
}

// SignalMark is where an event stands in the order of age. The zero ID stands
// before all of that time.
type SignalMark struct {
	At time.Time
	ID string
}

// SignalsFor gives some events that a step may take, taken by others or not,
// which come after a mark: oldest first. When there is none, those were all.
func (db *DB) SignalsFor(ctx context.Context, w Waiter, after SignalMark) ([]parley.Signal, error) {
	var list []parley.Signal
	at := after.At.UnixMicro()
	err := db.read(ctx, selectSignals, func(r *record) error {
		list = append(list, parley.Signal{ID: r.str(), Name: w.Name, Key: w.Key, Data: r.bytes(), Time: r.time()})
		return nil
	}, w.Name, w.Key, w.Run, at, at, after.ID, maxSignalPage)
	if err != nil {
		return nil, fmt.Errorf("events named %.100q: %w", w.Name, err)
	}
	return list, nil
}

// PurgeSignals removes at most limit events that were published more than 24 h
// before a time, and gives their number.
func (db *DB) PurgeSignals(ctx context.Context, now time.Time, limit int) (removed int, err error) {
	type old struct{ id, run string }
	var list []old
	before := now.Add(-signalKept).UnixMicro()
	err = db.read(ctx, selectOldSignals, func(r *record) error {
		list = append(list, old{r.str(), r.str()})
		return nil
	}, before, int64(limit))
	if err != nil || len(list) == 0 {
		return 0, err
	}
	err = db.submit(ctx, prompt, func(s *session) error {
		removed = len(list)
		for _, e := range list {
			s.at(e.id)
			if err := s.later(-1, deleteOldSignal, e.id, e.run, before); err != nil {
				return err
			}
		}
		return nil
	})
	return removed, err
}
