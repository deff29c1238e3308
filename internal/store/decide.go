package store

import (
	"cmp"
	"context"
	"database/sql/driver"
	"slices"

	"github.com/parley-project/parley"
)

// unsettled holds for an attempt that nobody has an answer to. (For a list of
// more than two values SQLite would build a table each time.)
const unsettled = `state NOT IN ('settled', 'closed')`

const (
	// updateRun writes every column that may change.
	updateRun = `UPDATE run SET seq = ?, phase = ?, paused = ?, cancelling = ?, updated_at = ?,
 status = ?, due = ?, error = ?, cancelled_by = ?, cancel_reason = ?, started_at = ?, ended_at = ?` + ifSeen
	// touchRun does the same for a run whose columns with an index, and those
	// that rarely change, are as they have to be already. PostgreSQL finds out
	// by itself that an index need not be changed.
	touchRun = `UPDATE run SET seq = ?, phase = ?, paused = ?, cancelling = ?, updated_at = ?` + ifSeen + `
 AND status = ? AND due IS NOT DISTINCT FROM ? AND error IS NOT DISTINCT FROM ?
 AND cancelled_by IS NOT DISTINCT FROM ? AND cancel_reason IS NOT DISTINCT FROM ? AND started_at IS NOT DISTINCT FROM ?`

	// The last condition is not that of an index: PostgreSQL would go through all
	// live runs of it instead of looking for a few by their ids.
	ifSeen    = ` WHERE id = ? AND seq = ? AND coalesce(ended_at, 0) = 0`
	ifOpen    = ` AND EXISTS (SELECT 1 FROM attempt WHERE id = ? AND ` + unsettled + `)`
	ifSettled = ` AND EXISTS (SELECT 1 FROM attempt WHERE id = ? AND state = 'settled')`
)

// fences are the texts of one write to a run's row: where one attempt is closed
// and nothing else, the state of that attempt is a condition of it.
type fences struct{ plain, open, settled string }

// touch and update are the two ways to write a run's row.
func touch() fences  { return fences{touchRun, touchRun + ifOpen, touchRun + ifSettled} }
func update() fences { return fences{updateRun, updateRun + ifOpen, updateRun + ifSettled} }

// An answer of a person is forgotten with its attempt: what may be known of it
// stands in the run's history.
const (
	closeAnswered = `UPDATE attempt SET state = 'closed', reply = NULL, outcome = ?, output = ?, meta = ?, settled_at = ?,
 cancel_requested = cancel_requested | ? WHERE id = ? AND ` + unsettled
	settleAnswered = `UPDATE attempt SET state = 'settled', outcome = ?, output = ?, meta = ?, settled_at = ?
 WHERE id = ? AND ` + unsettled
	closeSettled = `UPDATE attempt SET state = 'closed', reply = NULL, cancel_requested = cancel_requested | ? WHERE id = ? AND state = 'settled'`
	// What is not known may have become an answer since it was read.
	closeUnknown    = closeSettled + ` AND outcome = 'unknown'`
	closeUnanswered = `UPDATE attempt SET state = 'closed', reply = NULL, outcome = ?, settled_at = ?, cancel_requested = cancel_requested | ?
 WHERE id = ? AND ` + unsettled
	// A cancelled attempt that was settled meanwhile keeps its own result.
	closeCancelled = `UPDATE attempt SET state = 'closed', reply = NULL, outcome = coalesce(outcome, 'cancelled'),
 settled_at = coalesce(settled_at, ?), cancel_requested = cancel_requested | ? WHERE id = ? AND state <> 'closed'`
	requestCancel = `UPDATE attempt SET cancel_requested = 1,
 outcome = CASE WHEN state = 'open' THEN 'cancelled' ELSE outcome END,
 settled_at = CASE WHEN state = 'open' THEN ? ELSE settled_at END,
 state = CASE WHEN state = 'open' THEN 'settled' ELSE state END
 WHERE id = ? AND ` + unsettled
	// A claimed attempt goes on, but if it is released unsent nobody may begin it.
	holdAttempts = `UPDATE attempt SET held = ? WHERE id >= ? AND id < ? AND run = ? AND state IN ('open', 'claimed')`
)

// decision is a Decision that was checked and encoded outside the writer.
type decision struct {
	*Decision
	events  []byte
	output  []byte
	meta    []byte
	inserts [][]driver.NamedValue
	apart   references
	signals *signals
	family  *children
	replies [][]byte
	owner   Claim
	at      int64
}

// Decide is P11, P12, P13, P14, P15 or P19, with P7 if the decision brings an
// answer, and with P4 if it inserts claimed attempts. ErrStale: the run's seq
// is not Seen any more, the run has ended, an attempt is not in the state that
// its Close, its Reply or the Answer asks for, or the worker that claims is not
// alive.
// Nothing was written then. Synced, unless it is Prompt.
func (db *DB) Decide(ctx context.Context, d Decision) error {
	c, err := checkDecision(&d)
	if err == nil {
		c.apart, err = db.apart(ctx, d.Run.ID, true, c.encode)
	}
	if err != nil {
		return err
	}
	durability := synced
	if d.Prompt {
		durability = prompt
	}
	return db.transition(ctx, durability, d.points, func(s *session) error { return decide(s, c) })
}

func checkDecision(d *Decision) (*decision, error) {
	c := &decision{Decision: d, at: unixMicro(d.Run.UpdatedAt)}
	if d.Run.Seq != d.Seen+int64(len(d.Events)) {
		return nil, parley.Errorf(parley.CodeInvalid, "a decision about run %q goes from event %d to %d with %d events",
			d.Run.ID, d.Seen, d.Run.Seq, len(d.Events))
	}
	if d.Run.Status.Terminal() == d.Run.EndedAt.IsZero() {
		return nil, parley.Errorf(parley.CodeInvalid, "run %q is %s without agreeing about its end", d.Run.ID, d.Run.Status)
	}
	if d.Prompt && (d.Answer != nil || d.Hold != nil || d.Run.Status.Terminal() ||
		len(d.Close)+len(d.RequestCancel)+len(d.Insert)+len(d.Replies)+len(d.DeadLetters)+d.Signals.changes()+d.Children.changes() > 0) {
		return nil, parley.Errorf(parley.CodeInvalid, "a decision about run %q that is not waited for changes more than its events", d.Run.ID)
	}
	var err error
	if c.owner, err = checkAttempts(d.Run.ID, d.Insert); err != nil {
		return nil, err
	}
	if d.Answer != nil {
		if err := checkAnswer(&d.Answer.Result); err != nil {
			return nil, err
		}
		if c.meta, err = encodeMeta(&d.Answer.Result); err != nil {
			return nil, err
		}
	}
	for _, x := range d.Close {
		if !x.Absorb && x.Outcome != parley.OutcomeCancelled && x.Outcome != parley.OutcomeTimeout {
			return nil, parley.Errorf(parley.CodeInvalid, "attempt %q cannot be closed as %q", x.TaskID, x.Outcome)
		}
	}
	if c.replies, err = encodeReplies(d.Replies); err != nil {
		return nil, err
	}
	if c.signals, err = checkSignals(&d.Run, &d.Signals); err != nil {
		return nil, err
	}
	if c.family, err = checkChildren(&d.Run, &d.Children); err != nil {
		return nil, err
	}
	for i := range d.DeadLetters {
		if _, err := bindDeadLetter(&d.DeadLetters[i]); err != nil {
			return nil, err
		}
	}
	// Rows are locked in the order of their ids.
	if len(d.Close) > 1 {
		d.Close = slices.SortedStableFunc(slices.Values(d.Close), func(a, b Close) int { return cmp.Compare(a.TaskID, b.TaskID) })
	}
	if len(d.RequestCancel) > 1 {
		d.RequestCancel = slices.Sorted(slices.Values(d.RequestCancel))
	}
	return c, nil
}

// encode encodes what holds values.
func (d *decision) encode(c *cutter) (err error) {
	if len(d.Events) > 0 {
		if d.events, err = encodeEvents(c, d.Run.ID, d.Seen+1, d.Events); err != nil {
			return err
		}
	}
	if d.Answer != nil && d.Answer.Result.Output != nil {
		if d.output, err = c.value(d.Answer.Result.Output); err != nil {
			return err
		}
	}
	d.inserts, err = bindAttempts(c, d.Insert, d.at)
	return err
}

// points are the protocol's names of what the decision consists of.
func (d *Decision) points() []string {
	if d.Prompt {
		return []string{"progress"}
	}
	var p []string
	if d.Answer != nil {
		p = append(p, "P7")
	}
	absorbs, timeouts := false, false
	for _, c := range d.Close {
		absorbs = absorbs || c.Absorb
		timeouts = timeouts || !c.Absorb && c.Outcome == parley.OutcomeTimeout
	}
	switch {
	case absorbs:
		p = append(p, "P11")
	case timeouts:
		p = append(p, "P12")
	case d.Run.Status == parley.RunCancelled:
		p = append(p, "P14")
	case len(d.RequestCancel) > 0 || d.Run.Cancelling:
		p = append(p, "P13")
	case d.Hold != nil:
		p = append(p, "P15")
	case len(d.Replies) > 0:
		p = append(p, "P19")
	default:
		p = append(p, "P11")
	}
	for i := range d.Insert {
		if d.Insert[i].State == AttemptClaimed {
			return append(p, "P4")
		}
	}
	return p
}

// answers reports whether id is the attempt of the decision's answer.
func (d *decision) answers(id string) bool { return d.Answer != nil && d.Answer.Result.TaskID == id }

// decide writes a decision. All of its conditions are checked before or within
// the first write, so that a refusal has written nothing; where two writers
// share rows without a common lock the later statements check again.
func decide(s *session, d *decision) error {
	dead, err := locateAll(s, d.DeadLetters)
	if err != nil {
		return err
	}
	usual := len(d.Replies) == 0 && len(d.Close) == 1 && d.Close[0].Absorb &&
		(d.Answer == nil && !d.Close[0].unknown() || d.answers(d.Close[0].TaskID))
	if !usual {
		if err := foresee(s, d); err != nil {
			return err
		}
	}
	if err := d.signals.foresee(s); err != nil {
		return err
	}
	if err := foreseeTurn(s, d.Turn); err != nil {
		return err
	}
	s.at(d.Run.ID)
	if d.owner.Worker != "" {
		if ok, err := s.alive(d.owner); err != nil {
			return err
		} else if !ok {
			return ErrStale
		}
	}
	written := false
	if s.touches && !d.Run.Status.Terminal() {
		written, err = fence(s, d, touch(), usual)
	}
	if err == nil && !written {
		written, err = fence(s, d, update(), usual)
	}
	if err != nil {
		return err
	}
	if !written {
		return ErrStale
	}
	if err := searchableError(s, &d.Run); err != nil {
		return err
	}
	if err := moveTurn(s, d.Run.ID, d.Turn); err != nil {
		return err
	}
	if err := endAttempts(s, d); err != nil {
		return err
	}
	if err := converse(s, d); err != nil {
		return err
	}
	return writeNew(s, d, dead)
}

// writeNew writes the rows that a decision adds.
func writeNew(s *session, d *decision, dead [][]driver.NamedValue) error {
	if len(d.Events) > 0 {
		if err := s.later(1, insertEvents, d.Run.ID, d.Seen+1, d.Run.Seq, d.events); err != nil {
			return err
		}
	}
	if err := insertAttempts(s, d.inserts); err != nil {
		return err
	}
	if err := d.signals.write(s); err != nil {
		return err
	}
	if err := d.apart.write(s, d.at); err != nil {
		return err
	}
	if err := d.family.write(s); err != nil {
		return err
	}
	for _, args := range dead {
		s.at(args[0].Value.(string))
		if err := s.laterBound(-1, insertDeadLetter, args); err != nil {
			return err
		}
	}
	return nil
}

// fence writes the run's row if the decision's conditions hold. In the usual
// case the one attempt's state is among them.
func fence(s *session, d *decision, f fences, usual bool) (bool, error) {
	r := &d.Run
	args := bind(s.args[:0], r.Seq, text(r.Phase), flag(r.Paused), flag(r.Cancelling), d.at)
	if f.plain == updateRun {
		args = bind(args, string(r.Status), micros(r.Due), blob(r.Error), text(r.CancelledBy), text(r.CancelReason), micros(r.StartedAt),
			micros(r.EndedAt), r.ID, d.Seen)
	} else {
		args = bind(args, r.ID, d.Seen,
			string(r.Status), micros(r.Due), blob(r.Error), text(r.CancelledBy), text(r.CancelReason), micros(r.StartedAt))
	}
	query := f.plain
	if usual {
		query = f.settled
		if d.Answer != nil {
			query = f.open
		}
		args = bind(args, d.Close[0].TaskID)
	}
	s.args = args
	return s.changesOne(query, args)
}

// foresee refuses a decision that endAttempts would have to refuse.
func foresee(s *session, d *decision) error {
	state := func(id string) (st AttemptState, o parley.Outcome, err error) {
		err = s.query(`SELECT state, outcome FROM attempt WHERE id = ?`,
			func(r *record) error { st, o = AttemptState(r.str()), parley.Outcome(r.str()); return nil }, id)
		return st, o, err
	}
	if d.Answer != nil {
		st, _, err := state(d.Answer.Result.TaskID)
		if err != nil {
			return err
		}
		if !st.unsettled() {
			return ErrStale
		}
	}
	for _, c := range d.Close {
		if d.answers(c.TaskID) {
			continue
		}
		st, outcome, err := state(c.TaskID)
		if err != nil {
			return err
		}
		ok := st.unsettled()
		switch {
		case c.Absorb:
			ok = st == AttemptSettled && (!c.unknown() || outcome == parley.OutcomeUnknown)
		case !c.unanswered():
			ok = ok || st == AttemptSettled
		}
		if !ok {
			return ErrStale
		}
	}
	return foreseeReplies(s, d.Replies)
}

// unknown reports whether it was absorbed that nobody knows what became of the attempt.
func (c Close) unknown() bool { return c.Absorb && c.Outcome == parley.OutcomeUnknown }

// unanswered reports whether an answer is a reason not to close the attempt.
func (c Close) unanswered() bool { return c.Unanswered || c.Outcome == parley.OutcomeTimeout }

// unsettled reports whether nobody has an answer to the attempt.
func (st AttemptState) unsettled() bool {
	return st == AttemptOpen || st == AttemptClaimed || st == AttemptFollowing
}

// endAttempts settles, closes, cancels and holds what the decision says.
func endAttempts(s *session, d *decision) error {
	must := func(query string, args ...any) error { return s.later(1, query, args...) }
	closed := false
	for _, c := range d.Close {
		s.at(c.TaskID)
		var err error
		switch {
		case d.answers(c.TaskID):
			closed = true
			err = must(closeAnswered, string(d.Answer.Result.Outcome), blob(d.output), blob(d.meta),
				unixMicro(d.Answer.At), flag(c.CancelAgent), c.TaskID)
		case c.unknown():
			err = must(closeUnknown, flag(c.CancelAgent), c.TaskID)
		case c.Absorb:
			err = must(closeSettled, flag(c.CancelAgent), c.TaskID)
		case c.unanswered():
			err = must(closeUnanswered, string(c.Outcome), d.at, flag(c.CancelAgent), c.TaskID)
		default:
			err = must(closeCancelled, d.at, flag(c.CancelAgent), c.TaskID)
		}
		if err != nil {
			return err
		}
	}
	if d.Answer != nil && !closed {
		r := &d.Answer.Result
		s.at(r.TaskID)
		if err := must(settleAnswered, string(r.Outcome), blob(d.output), blob(d.meta), unixMicro(d.Answer.At), r.TaskID); err != nil {
			return err
		}
	}
	for _, id := range d.RequestCancel {
		s.at(id)
		if err := s.later(-1, requestCancel, d.at, id); err != nil {
			return err
		}
	}
	if d.Hold != nil {
		from, to := idRange(d.Run.ID)
		s.at(from)
		if err := s.later(-1, holdAttempts, flag(*d.Hold), from, to, d.Run.ID); err != nil {
			return err
		}
		if err := s.later(-1, holdChildren, flag(*d.Hold), d.Run.ID); err != nil {
			return err
		}
	}
	return nil
}
