package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

const (
	// lateLimit is how much of a late answer's output is kept, in bytes, lateShown how
	// many are shown of one attempt, and lateKept how many are kept: whoever goes on
	// answering fills neither the database nor the history of the run.
	lateLimit = 64 << 10
	lateShown = 10
	lateKept  = 100
	// lateOfPage is how much output of late answers one page of attempts has, in
	// bytes.
	lateOfPage = 4 << 20
)

const (
	// keepAttempt keeps an attempt from being removed until the transaction has ended:
	// of one that is gone nobody would ever see a late answer, or remove it.
	keepAttempt = `UPDATE attempt SET state = state WHERE id = ?`
	// A second time it is no other answer: the reply to the first may have been lost.
	isRecorded = `SELECT 1 FROM late WHERE attempt = ? AND at = ? AND source = ? AND outcome = ?`
	// Runs of foreign tasks are somebody else's: nobody here takes notice.
	insertLateNews = `INSERT INTO late (attempt, at, source, outcome, output, meta, news_for) SELECT ?, ?, ?, ?, ?, ?,
 (SELECT CASE WHEN hand_off = 'foreign' THEN NULL ELSE run END FROM attempt WHERE id = ?)
 WHERE (SELECT count(*) FROM late WHERE attempt = ?) < ?`
	seeLate = `UPDATE late SET news_for = NULL WHERE id = ?`

	selectLate     = `SELECT at, source, outcome, output, meta FROM late WHERE attempt = ? ORDER BY id LIMIT ?`
	countLate      = `SELECT count(*) FROM late WHERE attempt >= ? AND attempt < ?`
	selectHaveLate = `SELECT DISTINCT attempt FROM late WHERE attempt >= ? AND attempt < ?`
	selectLateRuns = `SELECT DISTINCT news_for FROM late WHERE news_for > ? ORDER BY news_for LIMIT ?`
	// Joined, all attempts might be read for the few of a run that were late.
	selectLateNews = `SELECT id, attempt, (SELECT step FROM attempt a WHERE a.id = late.attempt),
 (SELECT number FROM attempt a WHERE a.id = late.attempt), at, source, length(output), outcome, meta
 FROM late WHERE news_for = ? ORDER BY id LIMIT ?`
)

// LateAnswer is one row of table late: an answer that came after the end of
// its attempt. It is shown to people and never acted upon.
type LateAnswer struct {
	TaskID string
	// At is when the answer was complete, From who brought it.
	At   time.Time
	From string
	// Result's Output is cut off after 64 KiB, and need not be JSON then.
	Result parley.Result
}

// LateNews is a late answer of which its run has not taken notice.
type LateNews struct {
	// ID is for Decision.LateSeen and SawLate.
	ID           int64
	TaskID, Step string
	Number       int
	// At is when the answer was complete, From who brought it.
	At   time.Time
	From string
	// Bytes is how much of its output is kept; Result has none of it.
	Bytes  int64
	Result parley.Result
}

// recordLate keeps an answer that nobody waits for any more, if it is one of the first
// lateKept of its attempt.
func recordLate(s *session, a *Answer, meta []byte) error {
	r := &a.Result
	s.at(r.TaskID)
	if there, err := s.exec(keepAttempt, r.TaskID); there == 0 || err != nil {
		return err
	}
	if again, err := s.exists(isRecorded, r.TaskID, unixMicro(a.At), a.From, string(r.Outcome)); again || err != nil {
		return err
	}
	output := r.Output[:min(len(r.Output), lateLimit)]
	if len(meta) > lateLimit {
		short := parley.Result{}
		if r.Err != nil {
			short.Err = parley.Errorf(r.Err.Code, "%s", r.Err.Message[:min(len(r.Err.Message), lateLimit/8)])
		}
		var err error
		if meta, err = encodeMeta(&short); err != nil {
			return err
		}
	}
	return s.later(-1, insertLateNews, r.TaskID, unixMicro(a.At), a.From, string(r.Outcome), blob(output), blob(meta), r.TaskID, r.TaskID, int64(lateKept))
}

// sawLate notes of which late answers their run has taken notice.
func sawLate(s *session, ids []int64) error {
	for _, id := range ids {
		if err := s.later(-1, seeLate, id); err != nil {
			return err
		}
	}
	return nil
}

// SawLate says that late answers are news no more: their run has ended. Lost, that
// is found out again.
func (db *DB) SawLate(ctx context.Context, ids []int64) error {
	return db.transition(ctx, prompt, point("late.seen"), func(s *session) error { return sawLate(s, ids) })
}

// LateNews gives at most limit late answers to attempts of a run of which it has
// not taken notice, oldest first.
func (db *DB) LateNews(ctx context.Context, run string, limit int) (list []LateNews, err error) {
	err = db.read(ctx, selectLateNews, func(r *record) error {
		n := LateNews{ID: r.int(), TaskID: r.str(), Step: r.str(), Number: int(r.int()), At: r.time(), From: r.str(), Bytes: r.int()}
		res, err := decodeResult(n.TaskID, parley.Outcome(r.str()), nil, r.bytes())
		if err != nil {
			return err
		}
		n.Result = *res
		list = append(list, n)
		return nil
	}, run, int64(limit))
	return list, err
}

// Late gives the answers that came after the end of an attempt, oldest first, at
// most 10.
func (db *DB) Late(ctx context.Context, task string) ([]LateAnswer, error) {
	var list []LateAnswer
	err := db.read(ctx, selectLate, func(r *record) error {
		l := LateAnswer{TaskID: task, At: r.time(), From: r.str()}
		res, err := decodeResult(task, parley.Outcome(r.str()), r.bytes(), r.bytes())
		if err != nil {
			db.damaged("a late answer", task, err)
			return nil
		}
		l.Result = *res
		list = append(list, l)
		return nil
	}, task, int64(lateShown))
	return list, err
}

// LateCount counts the answers that came after the end of attempts of a run.
func (db *DB) LateCount(ctx context.Context, run string) (n int, err error) {
	from, to := idRange(run)
	err = db.read(ctx, countLate, func(r *record) error { n = int(r.int()); return r.err }, from, to)
	return n, err
}

// showLate adds the late answers to a page of a run's attempts.
func (db *DB) showLate(ctx context.Context, run string, page []parley.Attempt) error {
	from, to := idRange(run)
	have := make(map[string]bool)
	err := db.read(ctx, selectHaveLate, func(r *record) error { have[r.str()] = true; return nil }, from, to)
	room := lateOfPage
	for i := range page {
		if err != nil || !have[page[i].TaskID] {
			continue
		}
		var list []LateAnswer
		list, err = db.Late(ctx, page[i].TaskID)
		for j := range list {
			l := shownLate(&list[j])
			if room -= int(l.ResponseBytes); room < 0 {
				l.Response, l.ResponseStart = nil, ""
			}
			page[i].Late = append(page[i].Late, l)
		}
	}
	return err
}

func shownLate(l *LateAnswer) parley.LateAnswer {
	r := &l.Result
	shown := parley.LateAnswer{
		At: l.At, From: l.From, Outcome: r.Outcome, Status: r.Status, Error: r.Err, AgentTaskID: r.AgentTaskID,
		ResponseBytes: int64(len(r.Output)),
	}
	if shown.Status == 0 {
		shown.Status = statusOf(r.Err)
	}
	if json.Valid(r.Output) {
		shown.Response = r.Output
	} else {
		shown.ResponseStart = strings.ToValidUTF8(string(r.Output), "")
	}
	return shown
}
