package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

const (
	zoneColumns = `id, event_id, team, channel, ts, thread_ts, user_id, text, attachments, correlation_id, state, outcome, affinity, task_id,
 attempts, polls, tries, answer, posted, due_at, lease_owner, fence, created_at, expires_at, sent_at, answered_at, ended_at, trace`
	insertZone = `INSERT INTO zone_question (` + zoneColumns + `)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	selectZone = `SELECT ` + zoneColumns + ` FROM zone_question WHERE id = ?`

	// The text of the condition is that of index zone_question_due.
	anyZoneDue = `SELECT due_at FROM zone_question WHERE ended_at IS NULL AND due_at > 0 ORDER BY due_at LIMIT 1`
	countZone  = `SELECT count(*) FROM (SELECT 1 FROM zone_question WHERE ended_at IS NULL LIMIT ?) AS open`
	pickZone   = `SELECT id FROM zone_question WHERE ended_at IS NULL AND due_at <= ? ORDER BY due_at LIMIT ?`
	// zoneLasts is the same for a question that is found by its id: see itsState.
	zoneLasts = `coalesce(ended_at, 0) = 0`
	beatZone  = `UPDATE zone_question SET due_at = ? WHERE id = ? AND fence = ? AND lease_owner = ? AND ` + zoneLasts
	freeZone  = `UPDATE zone_question SET lease_owner = NULL, fence = fence + 1, due_at = CASE WHEN state = 'posting' THEN CAST(? AS BIGINT) ELSE CAST(? AS BIGINT) END
 WHERE ended_at IS NULL AND lease_owner IS NOT NULL AND due_at > ?`
	saveZoneSet = `UPDATE zone_question SET state = ?, outcome = ?, affinity = ?, task_id = ?, attempts = ?, polls = ?, tries = ?, posted = ?,
 due_at = ?, lease_owner = ?, sent_at = ?, answered_at = ?, ended_at = ?`
	saveZone       = saveZoneSet + ` WHERE id = ? AND fence = ? AND ` + zoneLasts
	saveZoneAnswer = saveZoneSet + `, answer = ? WHERE id = ? AND fence = ? AND ` + zoneLasts
	endZone        = saveZoneSet + `, text = NULL, attachments = NULL, answer = NULL WHERE id = ? AND fence = ? AND ` + zoneLasts
)

func claimZone(d *dialect) string {
	return `UPDATE zone_question SET due_at = ?, lease_owner = ?, fence = fence + 1 WHERE ended_at IS NULL AND due_at <= ? AND id ` +
		d.picked(pickZone) + ` RETURNING ` + zoneColumns
}

func forgetZone(d *dialect) string {
	return `DELETE FROM zone_question WHERE id ` + d.picked(`SELECT id FROM zone_question WHERE ended_at IS NOT NULL AND ended_at < ? ORDER BY ended_at LIMIT ?`)
}

// ZoneState is how far the answer to a question of a person has come.
type ZoneState string

// The states. A question in ZoneSent may have reached the other zone, one in
// ZonePosting may have its part number Posted in the thread: whoever finds it so
// looks before doing it again.
const (
	ZoneReceived ZoneState = "received"
	ZoneSent     ZoneState = "sent"
	ZoneAccepted ZoneState = "accepted"
	ZoneAnswered ZoneState = "answered"
	ZonePosting  ZoneState = "posting"
	ZoneDone     ZoneState = "done"
	ZoneFailed   ZoneState = "failed"
)

// ZoneQuestion is a question that a person has asked the Verification Zone. It
// never holds a token.
type ZoneQuestion struct {
	// ID is the id of the request to the other zone.
	ID string
	// EventID, Team, Channel and TS name the message, once; EventID may be "".
	EventID, Team, Channel, TS string
	// ThreadTS is the thread that the answer goes to, User is who asked.
	ThreadTS, User string
	// Text and Attachments, JSON, are what was asked; nothing is left of them when
	// the question has ended.
	Text          string
	Attachments   []byte
	CorrelationID string
	// Trace is that of the request that has brought it.
	Trace parley.Trace

	State ZoneState
	// Outcome says in one word what it came to.
	Outcome string
	// Affinity and TaskID are what the other zone is asked by.
	Affinity, TaskID string
	// Attempts counts how often it was sent, Polls how often was asked what became
	// of it, Tries the failed tries to post in a row.
	Attempts, Polls, Tries int
	// Answer is what is posted, in a form of the zone's own; nil until it is known,
	// and when it has ended. Posted counts the parts that were posted.
	Answer []byte
	Posted int

	// DueAt is when somebody looks at it next, or the end of the lease.
	DueAt time.Time
	// Owner is who has it, "" for nobody; Fence counts how often it was taken.
	Owner string
	Fence int64
	// CreatedAt is when it was asked, ExpiresAt until when the other zone may answer.
	CreatedAt, ExpiresAt        time.Time
	SentAt, AnsweredAt, EndedAt time.Time
}

func readZone(r *record) ZoneQuestion {
	return ZoneQuestion{
		ID: r.str(), EventID: r.str(), Team: r.str(), Channel: r.str(), TS: r.str(), ThreadTS: r.str(), User: r.str(),
		Text: r.str(), Attachments: slices.Clone(r.bytes()), CorrelationID: r.str(), State: ZoneState(r.str()), Outcome: r.str(),
		Affinity: r.str(), TaskID: r.str(), Attempts: int(r.int()), Polls: int(r.int()), Tries: int(r.int()),
		Answer: slices.Clone(r.bytes()), Posted: int(r.int()), DueAt: r.time(), Owner: r.str(), Fence: r.int(),
		CreatedAt: r.time(), ExpiresAt: r.time(), SentAt: r.time(), AnsweredAt: r.time(), EndedAt: r.time(),
		Trace: parley.ParseTrace(r.str()),
	}
}

func (q *ZoneQuestion) check() error {
	ended := q.State == ZoneDone || q.State == ZoneFailed
	if ended == q.EndedAt.IsZero() || q.ID == "" || q.DueAt.IsZero() {
		return parley.Errorf(parley.CodeInvalid, "a question needs an id, a state, the time of the next look, and the time of its end if it has ended")
	}
	return nil
}

// AddZoneQuestion stores a new question. It is false, and nothing was written, if
// the event or the message is there already. Synced.
func (db *DB) AddZoneQuestion(ctx context.Context, q ZoneQuestion) (added bool, err error) {
	if err := q.check(); err != nil {
		return false, err
	}
	err = db.transition(ctx, synced, point("zone.add"), func(s *session) error {
		s.at(q.ID)
		n, err := s.exec(insertZone, q.ID, text(q.EventID), q.Team, q.Channel, q.TS, q.ThreadTS, q.User, text(q.Text), blob(q.Attachments),
			q.CorrelationID, string(q.State), text(q.Outcome), text(q.Affinity), text(q.TaskID), int64(q.Attempts), int64(q.Polls), int64(q.Tries),
			blob(q.Answer), int64(q.Posted), unixMicro(q.DueAt), text(q.Owner), q.Fence, unixMicro(q.CreatedAt), unixMicro(q.ExpiresAt),
			micros(q.SentAt), micros(q.AnsweredAt), micros(q.EndedAt), text(q.Trace.String()))
		added = n > 0
		return err
	})
	return added && err == nil, err
}

// ClaimZoneQuestions takes at most limit questions whose time has come at now,
// those that have waited longest first: they are the caller's until the time
// until, or longer with [DB.BeatZoneQuestions]. Synced, if there are any.
func (db *DB) ClaimZoneQuestions(ctx context.Context, owner string, now, until time.Time, limit int) ([]ZoneQuestion, error) {
	due, err := db.ZoneDue(ctx)
	if err != nil || due.IsZero() || due.After(now) {
		return nil, err
	}
	var list []ZoneQuestion
	err = db.transition(ctx, synced, point("zone.claim"), func(s *session) error {
		list = nil
		return s.query(claimZone(&db.dialect), func(r *record) error {
			list = append(list, readZone(r))
			return r.err
		}, unixMicro(until), owner, unixMicro(now), unixMicro(now), int64(limit))
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b ZoneQuestion) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, nil
}

// BeatZoneQuestions makes the leases of questions as they were claimed last until
// then. Those that somebody else has, that were left or have ended are left alone.
func (db *DB) BeatZoneQuestions(ctx context.Context, held []ZoneQuestion, until time.Time) error {
	held = slices.Clone(held)
	slices.SortFunc(held, func(a, b ZoneQuestion) int { return strings.Compare(a.ID, b.ID) })
	return db.submit(ctx, prompt, func(s *session) error {
		for i := range held {
			s.at(held[i].ID)
			if err := s.later(-1, beatZone, unixMicro(until), held[i].ID, held[i].Fence, held[i].Owner); err != nil {
				return err
			}
		}
		return s.wait()
	})
}

// FreeZoneQuestions ends the leases of all others, for a process that has the
// database for itself: questions are due now, or at posted if what was posted last
// may still appear. It gives how many there were. Synced.
func (db *DB) FreeZoneQuestions(ctx context.Context, now, posted time.Time) (n int, err error) {
	err = db.transition(ctx, synced, point("zone.free"), func(s *session) error {
		freed, err := s.exec(freeZone, unixMicro(posted), unixMicro(now), unixMicro(now))
		n = int(freed)
		return err
	})
	return n, err
}

// SaveZoneQuestion stores how far a question has come: everything but what was
// asked. answer says that Answer is new. A question that has ended loses what was
// asked and its answer. ErrStale: somebody else has claimed it since, or it has
// ended. Synced.
func (db *DB) SaveZoneQuestion(ctx context.Context, q ZoneQuestion, answer bool) error {
	if err := q.check(); err != nil {
		return err
	}
	statement := saveZone
	values := []any{
		string(q.State), text(q.Outcome), text(q.Affinity), text(q.TaskID), int64(q.Attempts), int64(q.Polls), int64(q.Tries), int64(q.Posted),
		unixMicro(q.DueAt), text(q.Owner), micros(q.SentAt), micros(q.AnsweredAt), micros(q.EndedAt),
	}
	switch {
	case !q.EndedAt.IsZero():
		statement = endZone
	case answer:
		statement, values = saveZoneAnswer, append(values, blob(q.Answer))
	}
	return db.transition(ctx, synced, point("zone."+string(q.State)), func(s *session) error {
		s.at(q.ID)
		n, err := s.exec(statement, append(values, q.ID, q.Fence)...)
		if err == nil && n == 0 {
			err = ErrStale
		}
		return err
	})
}

// ZoneQuestion gives the question with that id; a *parley.Error not_found if
// there is none.
func (db *DB) ZoneQuestion(ctx context.Context, id string) (ZoneQuestion, error) {
	var q ZoneQuestion
	err := db.read(ctx, selectZone, func(r *record) error {
		q = readZone(r)
		return r.err
	}, id)
	if err == nil && q.ID == "" {
		err = parley.Errorf(parley.CodeNotFound, "there is no question %q", id)
	}
	return q, err
}

// ZoneDue gives the time of the next look at any question, the zero time if none
// is open.
func (db *DB) ZoneDue(ctx context.Context) (due time.Time, err error) {
	err = db.read(ctx, anyZoneDue, func(r *record) error {
		due = r.time()
		return r.err
	})
	return due, err
}

// ZoneBacklog counts the questions that have not ended, up to limit.
func (db *DB) ZoneBacklog(ctx context.Context, limit int) (n int, err error) {
	err = db.read(ctx, countZone, func(r *record) error {
		n = int(r.int())
		return r.err
	}, int64(limit))
	return n, err
}

// ForgetZoneQuestions removes at most limit questions that ended before that
// time, and gives how many it has removed.
func (db *DB) ForgetZoneQuestions(ctx context.Context, before time.Time, limit int) (int, error) {
	var n int64
	err := db.submit(ctx, lazy, func(s *session) (err error) {
		n, err = s.exec(forgetZone(&db.dialect), unixMicro(before), int64(limit))
		return err
	})
	return int(n), err
}
