package store

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/parley-project/parley"
)

// The most bytes of what an agent asks, of what is answered, and of the words
// in which an adapter remembers where a task is.
const (
	maxQuestion      = 64 << 10
	maxReply         = 1 << 20
	maxAgentEndpoint = 2 << 10
	maxAgentVersion  = 64
)

const (
	// A question that is repeated while it stands without an answer is the same
	// one. Where the owner says which number it gets, that alone decides: it may
	// have been answered before its owner knew that it was recorded.
	moveAsk = `UPDATE attempt SET question = ?, questions = questions + 1, news = news + 1, reply = NULL, reply_sent = 0` + mine +
		` AND ` + itsState + ` = 'following' AND (question IS NULL OR question <> ? OR reply IS NOT NULL)`
	moveAskNumbered = `UPDATE attempt SET question = ?, questions = questions + 1, news = news + 1, reply = NULL, reply_sent = 0` + mine +
		` AND ` + itsState + ` = 'following' AND questions = ?`
	// Whoever answered knows that the agent need not wait any more: this is no
	// news then.
	moveGoOn = `UPDATE attempt SET question = NULL, news = news + CASE WHEN reply IS NULL THEN 1 ELSE 0 END,
 reply = NULL, reply_sent = 0` + mine + ` AND ` + itsState + ` = 'following' AND question IS NOT NULL`
	// Whether what may have left before leaves once more is the owner's decision.
	moveReply = `UPDATE attempt SET reply_sent = 1` + mine +
		` AND ` + itsState + ` = 'following' AND question IS NOT NULL AND reply IS NOT NULL AND questions = ?`

	// noQuestion forgets the present question; the run hears of it, unless it
	// has the answer to it.
	noQuestion = ` news = news + CASE WHEN question IS NOT NULL AND reply IS NULL THEN 1 ELSE 0 END,
 question = NULL, reply = NULL, reply_sent = 0`

	isFollowed = `SELECT 1 FROM attempt` + mine + ` AND ` + itsState + ` = 'following'`
	isAsked    = isFollowed + ` AND questions = ? AND question = ?`

	// awaits holds for an attempt whose question, the given one, has no answer.
	awaits     = ` WHERE id = ? AND ` + itsState + ` = 'following' AND questions = ? AND question IS NOT NULL AND reply IS NULL`
	replyTo    = `UPDATE attempt SET reply = ?, reply_sent = 0` + awaits
	isAwaiting = `SELECT 1 FROM attempt` + awaits
	markNews   = `UPDATE attempt SET news_seen = ? WHERE id = ? AND news_seen < ?`
	hasNews    = `state IN ('claimed', 'following') AND news > news_seen`
	selectNews = `SELECT DISTINCT run FROM attempt WHERE ` + hasNews + ` AND run > ? ORDER BY run LIMIT ?`
)

// encodeQuestion gives a question as it is stored. Equal ones are equal bytes.
func encodeQuestion(task string, q *parley.Question) ([]byte, error) {
	switch {
	case len(q.Text)+len(q.Note) > maxQuestion || len(q.Parts) > maxQuestion:
		return nil, parley.Errorf(parley.CodeLimit, "the question of %q has %d bytes of text and %d of parts, at most %d of each are kept",
			task, len(q.Text)+len(q.Note), len(q.Parts), maxQuestion)
	case q.Kind == "":
		return nil, parley.Errorf(parley.CodeInvalid, "the question of %q has no kind", task)
	case q.Parts != nil && !json.Valid(q.Parts):
		return nil, parley.Errorf(parley.CodeInvalid, "the parts of the question of %q are no JSON", task)
	}
	b := append(make([]byte, 0, len(q.Text)+len(q.Parts)+48), `{"kind":`...)
	b = appendString(b, string(q.Kind))
	if q.Text != "" {
		b = append(b, `,"text":`...)
		b = appendString(b, q.Text)
	}
	if q.Parts != nil {
		b = append(b, `,"parts":`...)
		b = append(b, q.Parts...)
	}
	if q.Note != "" {
		b = append(b, `,"note":`...)
		b = appendString(b, q.Note)
	}
	return append(b, '}'), nil
}

// encodeReply gives an answer as it is stored, its data byte for byte.
func encodeReply(task string, r *parley.Reply) ([]byte, error) {
	size := len(r.Text) + len(r.Data) + len(r.By)
	switch {
	case size > maxReply:
		return nil, parley.Errorf(parley.CodeLimit, "the answer to %q has %d bytes, at most %d are taken", task, size, maxReply)
	case r.Text == "" && r.Data == nil:
		return nil, parley.Errorf(parley.CodeInvalid, "the answer to %q has neither text nor data", task)
	case r.Data != nil && !json.Valid(r.Data):
		return nil, parley.Errorf(parley.CodeInvalid, "the data of the answer to %q is no JSON", task)
	}
	b := append(make([]byte, 0, size+32), `{"text":`...)
	b = appendString(b, r.Text)
	if r.By != "" {
		b = append(b, `,"by":`...)
		b = appendString(b, r.By)
	}
	if r.Data != nil {
		b = append(b, `,"data":`...)
		b = append(b, r.Data...)
	}
	return append(b, '}'), nil
}

// decodeStored reads what encodeQuestion or encodeReply has written; nil is
// none.
func decodeStored[T any](task string, b []byte) (*T, error) {
	if b == nil {
		return nil, nil
	}
	v := new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("question or answer of %q: %w", task, err)
	}
	return v, nil
}

// checkFollow refuses what is too long to be remembered about a task.
func checkFollow(m *Move) error {
	if len(m.AgentEndpoint) > maxAgentEndpoint || len(m.AgentVersion) > maxAgentVersion {
		return parley.Errorf(parley.CodeLimit, "the endpoint of %q has %d bytes (at most %d), its version %d (at most %d)",
			m.TaskID, len(m.AgentEndpoint), maxAgentEndpoint, len(m.AgentVersion), maxAgentVersion)
	}
	return nil
}

// ask executes MoveQuestion; number is that of the question, or 0.
func ask(s *session, question []byte, number int64, from []any) (ok, written bool, err error) {
	write, done := moveGoOn, isFollowed
	args, same := from, from
	if question != nil {
		write, args = moveAsk, append(append([]any{question}, from...), question)
		if number > 0 {
			write, args[len(args)-1] = moveAskNumbered, number-1
			done, same = isAsked, append(slices.Clip(from), number, question)
		}
	}
	n, err := s.exec(write, args...)
	if err != nil || n == 1 {
		return n == 1, n == 1, err
	}
	ok, err = s.exists(done, same...)
	return ok, false, err
}

// encodeReplies gives the answers of a decision as they are stored.
func encodeReplies(list []TaskReply) ([][]byte, error) {
	if len(list) == 0 {
		return nil, nil
	}
	encoded := make([][]byte, len(list))
	for i := range list {
		var err error
		if encoded[i], err = encodeReply(list[i].TaskID, &list[i].Reply); err != nil {
			return nil, err
		}
	}
	return encoded, nil
}

// foreseeReplies refuses answers to questions that do not stand.
func foreseeReplies(s *session, list []TaskReply) error {
	for i := range list {
		ok, err := s.exists(isAwaiting, list[i].TaskID, int64(list[i].Questions))
		if err != nil {
			return err
		}
		if !ok {
			return ErrStale
		}
	}
	return nil
}

// converse stores the answers of a decision, and what it has seen of the news.
func converse(s *session, d *decision) error {
	for i := range d.Replies {
		r := &d.Replies[i]
		s.at(r.TaskID)
		if err := s.later(1, replyTo, d.replies[i], r.TaskID, int64(r.Questions)); err != nil {
			return err
		}
	}
	for _, seen := range d.NewsSeen {
		s.at(seen.TaskID)
		if err := s.later(-1, markNews, int64(seen.News), seen.TaskID, int64(seen.News)); err != nil {
			return err
		}
	}
	return sawLate(s, d.LateSeen)
}
