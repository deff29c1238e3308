package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/parley-project/parley"
)

// attemptLog are the columns of readAttemptLog: of values above 64 KiB only the
// size is read.
const attemptLog = `id, step, number, agent, state, outcome, meta, orphanings, agent_task_id, agent_endpoint,
 scheduled_at, visible_at, claimed_at, settled_at, length(input), CASE WHEN length(input) <= 65536 THEN input END,
 length(output), CASE WHEN length(output) <= 65536 THEN output END`

// AttemptLog gives one page of the attempts that q selects, in the order in
// which they were scheduled, and the number of all of them. It is empty for a
// run that is not there.
func (db *DB) AttemptLog(ctx context.Context, q parley.AttemptQuery) ([]parley.Attempt, int, error) {
	var c condition
	from, to := idRange(q.Run)
	c.add(`id >= ? AND id < ? AND run = ?`, from, to, q.Run)
	if q.Step != "" {
		c.add(`step = ?`, q.Step)
	}
	items := []parley.Attempt{}
	total, err := db.list(ctx, &listing{
		columns: attemptLog, from: `attempt`, where: c, order: ` ORDER BY scheduled_at, step, number`, page: q.Page,
	}, func(r *record) error {
		a, unread := readAttemptLog(r)
		if r.err != nil {
			return r.err
		}
		if a.Unreadable = unread != nil; unread != nil {
			db.damaged("an attempt", a.TaskID, unread)
		}
		items = append(items, a)
		return nil
	})
	if err == nil && len(items) > 0 {
		err = db.showLate(ctx, q.Run, items)
	}
	return items, total, err
}

// selectBegun finds the attempts of a run that were claimed and not given back.
const selectBegun = `SELECT id, step, number, claimed_at, agent_task_id FROM attempt
 WHERE id >= ? AND id < ? AND run = ? AND claimed_at IS NOT NULL AND state <> 'open' ORDER BY step, number`

// Begun gives the attempts of a run that have begun, ended or not, those of one
// step in their order. Of each it tells what it is, when it was claimed, and the
// agent's own name for it. It is empty for a run that is not there.
func (db *DB) Begun(ctx context.Context, run string) (list []Attempt, err error) {
	from, to := idRange(run)
	err = db.read(ctx, selectBegun, func(r *record) error {
		var a Attempt
		a.ID, a.Run, a.Step, a.Attempt = r.str(), run, r.str(), int(r.int())
		a.ClaimedAt, a.AgentTaskID = r.time(), r.str()
		list = append(list, a)
		return r.err
	}, from, to, run)
	return list, err
}

// readAttemptLog reads one attempt; unread says what of it cannot be read and is left
// out.
func readAttemptLog(r *record) (a parley.Attempt, unread error) {
	a = parley.Attempt{TaskID: r.str(), Step: r.str(), Number: int(r.int()), Agent: r.str(), State: r.str()}
	outcome, meta := parley.Outcome(r.str()), r.bytes()
	a.Sendings, a.AgentTaskID, a.Endpoint = int(r.int()), r.str(), r.str()
	scheduled, visible, claimed, settled := r.time(), r.time(), r.time(), r.time()
	a.RequestBytes, a.Request = r.int(), r.bytes()
	a.ResponseBytes, a.Response = r.int(), r.bytes()
	if r.err != nil {
		return a, r.err
	}
	var request, response error
	a.RequestBytes, a.Request, request = sized(a.RequestBytes, a.Request)
	a.ResponseBytes, a.Response, response = sized(a.ResponseBytes, a.Response)
	unread = errors.Join(request, response)
	a.ScheduledAt, a.EndedAt = scheduled, timeOrNil(settled)
	if AttemptState(a.State) == AttemptOpen {
		a.NotBefore = timeOrNil(visible)
	}
	if !claimed.IsZero() {
		a.Sendings++ // besides those that nobody knows the outcome of
		a.StartedAt = &claimed
		if !settled.IsZero() {
			took := max(settled.Sub(claimed), 0).Milliseconds()
			a.TookMS = &took
		}
	}
	if outcome == "" {
		return a, unread
	}
	a.Outcome = outcome
	res, err := decodeResult(a.TaskID, outcome, nil, meta)
	if err != nil {
		return a, errors.Join(unread, err)
	}
	a.Error, a.Status, a.RetryAfterMS = res.Err, res.Status, res.RetryAfter.Milliseconds()
	if a.AgentTaskID == "" {
		a.AgentTaskID = res.AgentTaskID
	}
	if a.Status == 0 {
		a.Status = statusOf(res.Err)
	}
	return a, unread
}

// sized gives a value and its size; of one that is kept apart, or was not read,
// only the size.
func sized(size int64, column []byte) (int64, []byte, error) {
	if len(column) == 0 || column[0] != frame {
		return size, column, nil
	}
	v, a, err := unframe(column)
	switch {
	case err != nil:
		return size, nil, err
	case a != nil:
		return a.Size, nil, nil
	}
	return int64(len(v)), v, nil
}

// statusOf is the HTTP status in the details of an error, or of what led to it.
func statusOf(err *parley.Error) int {
	for ; err != nil; err = err.Cause {
		var d struct {
			Status int `json:"status"`
		}
		if len(err.Details) > 0 && json.Unmarshal(err.Details, &d) == nil && d.Status > 0 {
			return d.Status
		}
	}
	return 0
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
