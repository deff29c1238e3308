package store

import (
	"bytes"
	"context"
	"strings"

	"github.com/parley-project/parley"
)

const answerAttempt = `UPDATE attempt SET state = 'settled', outcome = ?, output = ?, meta = ?, settled_at = ?
 WHERE id = ? AND (` + unsettled + ` OR (state = 'settled' AND outcome = 'unknown'))`

// checkAnswer refuses what is no answer: only an agent, or a cancel that it
// has confirmed, ends a task.
func checkAnswer(r *parley.Result) error {
	ok := r.Outcome == parley.OutcomeOK && r.Err == nil && len(r.Output) > 0
	failed := (r.Outcome == parley.OutcomeError || r.Outcome == parley.OutcomeCancelled) && r.Err != nil
	if ok || failed {
		return nil
	}
	return parley.Errorf(parley.CodeInvalid, "no answer to %q: outcome %q, %d bytes of output", r.TaskID, r.Outcome, len(r.Output))
}

// Answer is P7 alone. The first answer wins, from whoever holds it, until the
// attempt is closed; it also displaces an unknown outcome. accepted is true,
// too, if this very answer is there already, with its time, so that a call whose
// reply was lost may be repeated. The same words from somebody else, who followed
// the task as well, change nothing: the first one hands them on. Otherwise the
// answer is recorded as late, unless the attempt is gone. Synced.
func (db *DB) Answer(ctx context.Context, a Answer) (accepted bool, err error) {
	if err := checkAnswer(&a.Result); err != nil {
		return false, err
	}
	meta, err := encodeMeta(&a.Result)
	if err != nil {
		return false, err
	}
	var output []byte
	apart, err := db.apart(ctx, runOf(a.Result.TaskID), true, func(c *cutter) (err error) {
		output, err = c.value(a.Result.Output)
		return err
	})
	if err != nil {
		return false, err
	}
	err = db.transition(endsCalls(ctx), synced, point("P7"), func(s *session) error {
		r := &a.Result
		s.at(r.TaskID)
		n, err := s.exec(answerAttempt, string(r.Outcome), blob(output), blob(meta), unixMicro(a.At), r.TaskID)
		if err != nil {
			return err
		}
		if accepted = n == 1; accepted {
			return apart.write(s, unixMicro(a.At))
		}
		accepted, err = answeredBefore(s, &a, meta)
		return err
	})
	return accepted && err == nil, err
}

// runOf gives the run of a task id, which is "{run}.{path}.{attempt}"; run ids
// hold no dot.
func runOf(task string) string {
	run, _, _ := strings.Cut(task, ".")
	return run
}

// answeredBefore deals with an answer that was not taken: it reports whether it
// is there already, or records it as late.
func answeredBefore(s *session, a *Answer, meta []byte) (own bool, err error) {
	alike, own, err := answeredAlike(s, a, meta)
	if alike || err != nil {
		return own, err
	}
	return false, recordLate(s, a, meta)
}

// answeredAlike reports whether the attempt holds an answer of the same words,
// and whether that is this very one.
func answeredAlike(s *session, a *Answer, meta []byte) (alike, own bool, err error) {
	res := &a.Result
	var plain []byte
	if plain, err = withoutStatus(res.TaskID, meta); err != nil {
		return false, false, err
	}
	err = s.query(`SELECT outcome, output, meta, settled_at FROM attempt WHERE id = ?`, func(r *record) error {
		outcome := r.str()
		same, err := holds(r.bytes(), res.Output)
		if err != nil {
			return err
		}
		alike = same && outcome == string(res.Outcome)
		stored, err := withoutStatus(res.TaskID, r.bytes())
		alike = alike && err == nil && bytes.Equal(stored, plain)
		own = alike && r.int() == unixMicro(a.At)
		return err
	}, res.TaskID)
	return alike, own, err
}

// withoutStatus gives the meta of a result without what depends on the way by
// which it came.
func withoutStatus(task string, meta []byte) ([]byte, error) {
	r, err := decodeResult(task, parley.OutcomeOK, nil, meta)
	if err != nil {
		return nil, err
	}
	r.Status = 0
	return encodeMeta(r)
}
