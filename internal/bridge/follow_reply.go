package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

// What is said to a person whose answer did not get through.
const (
	noteDoubt   = "It is not known whether the last answer reached the agent."
	noteRefused = "The agent refused the last answer: "
)

// noteQuestion makes what the agent waits for in state, or that it waits no more,
// durable; the run shows it from there. False if the bridge ends before that is
// known.
func (c *call) noteQuestion(q *parley.Question, state string) (known bool) {
	was := c.row.Question
	q = bounded(q)
	switch {
	case q == nil && was == nil:
		return true
	case q != nil && was != nil && sameQuestion(q, was):
		if !c.row.ReplySent || !c.inDoubt {
			return true
		}
		return c.stillAsks(state)
	}
	return c.moveQuestion(q)
}

// doubt notes that an answer was sent, and that nobody knows whether it arrived.
func (c *call) doubt() { c.inDoubt, c.doubted = true, c.b.cfg.Now() }

// stillAsks: the agent asks what it asked before an answer was sent of which
// nobody knows whether it arrived. If it has moved meanwhile, the answer did; if
// not, it may still be about to take it. To send it again is what the policy says.
func (c *call) stillAsks(state string) (known bool) {
	now := c.b.cfg.Now()
	c.mu.Lock()
	moved := c.state != "" && state != "" && state != c.state
	if moved {
		c.answeredAt, c.answeredState, c.answeredTo = now, state, c.row.Question
	}
	c.mu.Unlock()
	switch {
	case moved:
		return c.moveQuestion(nil)
	case now.Sub(c.doubted) < doubtSettles:
		return true
	}
	c.inDoubt = false
	if c.policy() != parley.OutcomeFail {
		c.offerAgain(c.row.Reply)
		nudge(c.poke)
		return true
	}
	return c.askAgain(noteDoubt)
}

// forgetTalk forgets questions and answers, as the ledger does with a task that
// is sent once more: what the agent's new task asks is new.
func (c *call) forgetTalk() {
	c.row.Question, c.row.Reply, c.row.ReplySent = nil, nil, false
	c.inDoubt, c.resend, c.deaf, c.replyFrom = false, false, 0, time.Time{}
	c.mu.Lock()
	c.replies, c.answeredAt = nil, time.Time{}
	c.mu.Unlock()
}

// askAgain puts the question that stands once more, with a note.
func (c *call) askAgain(note string) (known bool) {
	q := *c.row.Question
	q.Note = cut(note, maxNote)
	return c.moveQuestion(&q)
}

func (c *call) moveQuestion(q *parley.Question) (known bool) {
	if c.b.failpoint("question.before") {
		return false
	}
	m := store.Move{Kind: store.MoveQuestion, Question: q}
	if q != nil {
		m.Questions = c.row.Questions + 1
	}
	ok, known := c.move(m)
	if !known {
		return false
	}
	c.row.Question, c.row.Reply, c.row.ReplySent = q, nil, false
	c.inDoubt = false
	if q != nil && ok {
		c.row.Questions++
	}
	if ok {
		c.wake()
	}
	return true
}

// The most bytes of a question's text and note; of its parts the ledger holds
// 64 KiB.
const (
	maxQuestionText  = 48 << 10
	maxQuestionParts = 64 << 10
	maxNote          = 4 << 10
)

// bounded gives q as the ledger can hold it. An agent that says too much asks
// all the same.
func bounded(q *parley.Question) *parley.Question {
	if q == nil {
		return nil
	}
	b := *q
	b.Text = cut(b.Text, maxQuestionText)
	if len(b.Parts) > maxQuestionParts || !json.Valid(b.Parts) {
		b.Parts = nil
	}
	if b.Kind == "" {
		b.Kind = parley.QuestionInput
	}
	return &b
}

// cut gives at most limit bytes of s, whole characters only.
func cut(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "")
}

func sameQuestion(a, b *parley.Question) bool {
	return a.Kind == b.Kind && a.Text == b.Text && bytes.Equal(a.Parts, b.Parts)
}

// offer hands the call an answer to send, for the question of that number.
func (c *call) offer(r *parley.Reply, number int) {
	c.mu.Lock()
	c.replies, c.replyTo = r, number
	poke := c.poke
	c.mu.Unlock()
	nudge(poke)
}

// offered takes what was offered, if it is for the question that stands, and the
// agent does not want it later. What was sent once is sent again only on purpose: a
// look at the row may offer it again while it is under way.
func (c *call) offered() *parley.Reply {
	if c.b.cfg.Now().Before(c.replyFrom) {
		return nil
	}
	c.mu.Lock()
	r := c.replies
	c.replies = nil
	to := c.replyTo
	c.mu.Unlock()
	resend := c.resend
	if r == nil || c.row.Question == nil || to != c.row.Questions || (c.row.ReplySent && !resend) {
		return nil
	}
	c.resend = false
	return r
}

// offerAgain offers an answer that was sent, or may have been, to be sent once
// more at the next look.
func (c *call) offerAgain(r *parley.Reply) {
	c.resend = true
	c.mu.Lock()
	c.replies, c.replyTo = r, c.row.Questions
	c.mu.Unlock()
}

// resumeReply goes on with an answer that a former bridge had in hand.
func (c *call) resumeReply() {
	switch {
	case c.row.Question == nil || c.row.Reply == nil:
	case c.row.ReplySent:
		c.doubt() // the next looks decide
	default:
		c.offer(c.row.Reply, c.row.Questions)
	}
}

// reply sends the answer of a person, if there is one, to the waiting agent.
// That it is sent is durable before the first byte, as for a call.
func (c *call) reply(ctx context.Context) step {
	r := c.offered()
	if r == nil {
		return nil
	}
	b := c.b
	if err := c.meet(ctx); err != nil && c.adapter == nil {
		c.offerAgain(r)
		return nil
	}
	answerer, ok := c.adapter.(Answerer)
	if !ok {
		return c.refusedReply("agents of protocol " + c.agent.Protocol + " take no answers")
	}
	if b.failpoint("reply.before-mark") {
		return (*call).leave
	}
	ok, known := c.move(store.Move{Kind: store.MoveReply, Questions: c.row.Questions})
	switch {
	case !known:
		return (*call).leave
	case !ok:
		return nil // the row has changed; the next look at it says how
	}
	c.row.Reply, c.row.ReplySent = r, true
	if b.failpoint("reply.before-send") {
		return (*call).leave
	}
	out, err := c.shielded("Answer", func() (Outcome, error) {
		return answerer.Answer(ctx, c.task(), c.agent, TaskReply{At: c.agentTask(), Number: c.row.Questions, Reply: *r})
	})
	if err != nil {
		return c.refusedReply(c.untranslatable(err).Message)
	}
	if b.failpoint("reply.after-send") {
		return (*call).leave
	}
	return c.replied(r, out)
}

// replied weighs what came of sending an answer.
func (c *call) replied(r *parley.Reply, out Outcome) step {
	e := out.Result.Err
	switch out.Disposition {
	case Answered:
		c.out = out
		return (*call).answer
	case Accepted:
		c.mu.Lock()
		c.answeredAt, c.answeredState, c.answeredTo = c.b.cfg.Now(), c.state, c.row.Question
		c.mu.Unlock()
		c.hangUp() // what the agent told before it asked
		c.stream, c.deaf = out.Stream, 0
		if !c.moveQuestion(nil) {
			return (*call).leave
		}
		_, next := c.stand(out)
		return next
	case NotSent:
		if e != nil && !e.Retryable {
			return c.refusedReply(e.Message)
		}
		c.replyFrom = c.b.cfg.Now().Add(min(out.Result.RetryAfter, holdAtMost))
		c.offerAgain(r)
	default:
		c.doubt()
	}
	c.b.log.LogAttrs(c.b.hard, slog.LevelWarn, "answer not known to have reached the agent", c.attrs("agent_reply",
		slog.String("agent_task_id", c.row.AgentTaskID), slog.String("error", c.name(e).Message))...)
	return nil
}

// refusedReply: the answer will not do. The person is asked again.
func (c *call) refusedReply(why string) step {
	c.b.log.LogAttrs(c.b.hard, slog.LevelWarn, "the agent did not take the answer", c.attrs("agent_reply",
		slog.String("agent_task_id", c.row.AgentTaskID), slog.String("error", why))...)
	if !c.askAgain(noteRefused + why) {
		return (*call).leave
	}
	return nil
}

// taskHint is the handler of [bus.SubjectHint].
func (b *Bridge) taskHint(_ context.Context, m bus.Message) error {
	b.mu.Lock()
	c := b.calls[m.Key]
	b.mu.Unlock()
	if c == nil {
		return nil
	}
	nudge(b.reconcile) // a person's answer stands in the row
	c.mu.Lock()
	poke := c.poke
	c.mu.Unlock()
	nudge(poke)
	return nil
}
