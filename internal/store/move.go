package store

import (
	"context"
	"errors"

	"github.com/parley-project/parley"
)

// maxOrphanings is how often an attempt may be sent again or looked up after
// its outcome was lost; then it is settled as unknown (protocol.md P9).
const maxOrphanings = 2

// mine is the fence of every move of an owner.
const mine = ` WHERE id = ? AND owner = ? AND owner_inc = ? AND token = ?`

const (
	// P5 leaves no trace of the claim, nor of what it was handed to.
	moveRelease = `UPDATE attempt SET state = 'open', visible_at = ?, owner = NULL, owner_inc = NULL, token = NULL,
 claimed_at = NULL, hand_off = nullif(hand_off, 'bus')` + mine + ` AND ` + itsState + ` = 'claimed' AND orphanings = 0`
	moveFollow = `UPDATE attempt SET state = 'following', agent_task_id = ?, agent_context_id = ?,
 agent_endpoint = ?, agent_version = ?` + mine +
		` AND (` + itsState + ` = 'claimed' OR (state = 'following' AND agent_task_id = ?))`
	moveSettle = `UPDATE attempt SET state = 'settled', outcome = ?, output = ?, meta = ?, settled_at = ?` + mine +
		` AND ` + itsState + ` IN ('claimed', 'following')`
	// Something may have been sent under an earlier claim: then this is no
	// proof that nothing was executed.
	moveFail  = moveSettle + ` AND (state = 'following' OR orphanings = 0)`
	moveAgain = `UPDATE attempt SET state = 'claimed', owner = ?, owner_inc = ?, token = ?, claimed_at = ?,
 orphanings = orphanings + 1, agent_task_id = NULL, agent_context_id = NULL, agent_endpoint = NULL, agent_version = NULL,` + noQuestion + mine +
		` AND ` + itsState + ` IN ('claimed', 'following') AND policy IN ('lookup', 'resend') AND orphanings < ?`
	// A task that is only followed is not sent again: nothing is counted. Who
	// takes it over must know that: it may have been claimed when it was seen.
	moveTakeover = `UPDATE attempt SET owner = ?, owner_inc = ?, token = ?, claimed_at = ?,
 orphanings = orphanings + CASE WHEN state = 'claimed' THEN 1 ELSE 0 END` + mine +
		` AND ` + itsState + ` IN ('claimed', 'following') AND ` + mayTakeOver + ` AND (state = 'following' OR orphanings < ?)
 AND ` + workerAlive + ` AND ` + ownerGone + ` AND (state = 'claimed' OR agent_task_id = ?)`
	// The limit is passed.
	moveSpent     = moveSettle + ` AND policy IN ('lookup', 'resend') AND orphanings >= ?`
	moveSpentLost = moveSpent + ` AND ` + itsState + ` = 'claimed' AND ` + ownerGone
)

// ownerGone holds for attempts whose owner is dead or was replaced.
const ownerGone = `EXISTS (SELECT 1 FROM worker w WHERE w.name = attempt.owner AND attempt.owner_inc < w.inc + w.dead)`

// Move is one transition by the owner of an attempt (P5, P6, P8) or by who
// takes it over (P9). ok is false, and nothing was written, if the row is not
// From's any more, or the transition's own condition does not hold:
//
//   - MoveRelease: claimed, never orphaned.
//   - MoveFollow: claimed, or followed under the same AgentTaskID already.
//   - MoveFail: claimed and never orphaned, or followed.
//   - MoveUnknown, MoveCancelled: claimed or followed.
//   - MoveAgain: claimed or followed, under lookup or resend. With two orphanings behind it the attempt
//     is settled as unknown instead, and ok is false.
//   - MoveTakeover: From's bridge is dead or replaced, To's alive, and the
//     attempt is followed under the given AgentTaskID, or claimed under lookup
//     or resend. With two orphanings behind it a claimed one is settled as
//     unknown, and ok is false.
//   - MoveQuestion: followed. A question is counted and clears the answer to
//     the former one; with Questions it must be the next, or be recorded under
//     that number already. Without a number the very same one, as long as it has
//     no answer, changes nothing. None where there is none changes nothing.
//   - MoveRetry: foreign, claimed or followed, never orphaned.
//   - MoveReply: followed, with an answer to the question of that number.
//
// MoveAgain forgets the question and its answer, MoveTakeover keeps them. A
// question that goes without an answer is news for the run.
//
// MoveAgain and MoveTakeover may be repeated when their reply was lost: ok is
// true if the row is To's. MoveFollow, MoveQuestion and MoveReply may be repeated
// as they are. Synced.
func (db *DB) Move(ctx context.Context, m Move) (ok bool, err error) {
	name, payload, err := checkMove(&m)
	if err != nil {
		return false, err
	}
	stored := storedMove{Move: &m, payload: payload}
	if stored.source, err = m.Source.encode(); err != nil {
		return false, err
	}
	if m.Result != nil && m.Result.Output != nil {
		stored.apart, err = db.apart(ctx, runOf(m.TaskID), true, func(c *cutter) (err error) {
			stored.output, err = c.value(m.Result.Output)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	if m.Kind != MoveAgain && m.Kind != MoveTakeover { // these begin a call
		ctx = endsCalls(ctx)
	}
	err = db.transition(ctx, synced, point(name), func(s *session) error {
		moved, written, err := move(s, &stored)
		if ok = moved; err == nil && !ok && !written {
			return ErrStale
		}
		return err
	})
	if errors.Is(err, ErrStale) {
		return false, nil
	}
	return ok && err == nil, err
}

// checkMove gives the protocol's name of a move, and the bytes that it stores:
// its result's meta data, or its question.
func checkMove(m *Move) (name string, payload []byte, err error) {
	want := parley.Outcome("")
	switch m.Kind {
	case MoveRelease:
		name = "P5"
	case MoveCancelled:
		name, want = "P5", parley.OutcomeCancelled
	case MoveFollow:
		name = "P6"
		if m.AgentTaskID == "" {
			return "", nil, parley.Errorf(parley.CodeInvalid, "following %q needs the agent's task id", m.TaskID)
		}
		return name, nil, checkFollow(m)
	case MoveQuestion:
		if m.Question != nil {
			payload, err = encodeQuestion(m.TaskID, m.Question)
		}
		return "P18", payload, err
	case MoveReply:
		return "P20", nil, nil
	case MoveRetry:
		return "P22", nil, nil
	case MoveFail:
		name, want = "P8", parley.OutcomeError
	case MoveUnknown:
		name, want = "P8", parley.OutcomeUnknown
	case MoveAgain, MoveTakeover:
		name = "P8"
		if m.Kind == MoveTakeover {
			name = "P9"
		}
		if m.To.Worker == "" || m.To.Token == "" || m.To.Token == m.From.Token {
			return "", nil, parley.Errorf(parley.CodeInvalid, "a %s of %q needs an owner and a new token", m.Kind, m.TaskID)
		}
	default:
		return "", nil, parley.Errorf(parley.CodeInvalid, "there is no move %q", m.Kind)
	}
	if want == "" {
		return name, nil, nil
	}
	if m.Result == nil || m.Result.Outcome != want || (m.Result.Err == nil && want != parley.OutcomeCancelled) {
		return "", nil, parley.Errorf(parley.CodeInvalid, "a %s of %q needs a result of outcome %s with an error", m.Kind, m.TaskID, want)
	}
	payload, err = encodeMeta(m.Result)
	return name, payload, err
}

// storedMove is a move with what it stores, encoded.
type storedMove struct {
	*Move
	payload, output []byte
	// source is nil, or bytes.
	source any
	apart  references
}

// move executes m. written is true if anything was written.
func move(s *session, m *storedMove) (ok, written bool, err error) {
	s.at(m.TaskID)
	at := unixMicro(m.At)
	from := []any{m.TaskID, m.From.Worker, m.From.Inc, m.From.Token}
	exec := func(query string, args ...any) (bool, error) {
		n, err := s.exec(query, args...)
		return n == 1, err
	}
	with := func(head, tail []any) []any { return append(append(head, from...), tail...) }
	settle := func(query string) (bool, error) {
		ok, err := exec(query, with([]any{string(m.Result.Outcome), blob(m.output), blob(m.payload), at}, nil)...)
		if ok && err == nil {
			err = m.apart.write(s, at)
		}
		return ok, err
	}
	switch m.Kind {
	case MoveRelease:
		ok, err = exec(moveRelease, with([]any{at}, nil)...)
	case MoveFollow:
		ok, err = exec(moveFollow, with([]any{m.AgentTaskID, text(m.AgentContextID), text(m.AgentEndpoint), text(m.AgentVersion)},
			[]any{m.AgentTaskID})...)
	case MoveQuestion:
		return ask(s, m.payload, int64(m.Questions), from)
	case MoveReply:
		ok, err = exec(moveReply, with(nil, []any{int64(m.Questions)})...)
	case MoveRetry:
		ok, err = exec(moveRetry, with([]any{at, m.source}, nil)...)
	case MoveCancelled, MoveUnknown:
		ok, err = settle(moveSettle)
	case MoveFail:
		ok, err = settle(moveFail)
	default:
		return moveOn(s, m.Move, from)
	}
	return ok, ok, err
}

// moveOn gives the attempt a new claim, or ends it when it had enough of them.
func moveOn(s *session, m *Move, from []any) (ok, written bool, err error) {
	again, spent := moveAgain, moveSpent
	args := append([]any{m.To.Worker, m.To.Inc, m.To.Token, micros(m.At)}, from...)
	args = append(args, int64(maxOrphanings))
	if m.Kind == MoveTakeover {
		// The statement asks as well. This keeps the answer true until it is written.
		if _, err := s.alive(m.To); err != nil {
			return false, false, err
		}
		again, spent = moveTakeover, moveSpentLost
		args = append(args, m.To.Worker, m.To.Inc, m.AgentTaskID)
	}
	n, err := s.exec(again, args...)
	if err != nil || n == 1 {
		return n == 1, n == 1, err
	}
	done, err := s.exists(`SELECT 1 FROM attempt`+mine+` AND `+itsState+` IN ('claimed', 'following')`,
		m.TaskID, m.To.Worker, m.To.Inc, m.To.Token)
	if err != nil || done {
		return done, false, err
	}
	meta, err := encodeMeta(&parley.Result{TaskID: m.TaskID, Err: errUnknown("")})
	if err != nil {
		return false, false, err
	}
	args = append([]any{string(parley.OutcomeUnknown), nil, meta, unixMicro(m.At)}, from...)
	n, err = s.exec(spent, append(args, int64(maxOrphanings))...)
	return false, n == 1, err
}
