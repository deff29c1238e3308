package bridge

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// deafAfter is after how many streams in a row that were of no use the agent is
// only asked.
const deafAfter = 3

// listens reports whether the agent may tell by itself how it goes on. While it
// waits for a person there is nothing to hear.
func (c *call) listens() bool {
	if c.row.Question != nil {
		return false
	}
	if c.stream != nil {
		return true
	}
	_, ok := c.adapter.(Subscriber)
	return ok && c.deaf < deafAfter
}

// listen passes on what the agent tells, and asks it beside that when it is
// silent for long or somebody pokes. heard is false if there was no stream.
func (c *call) listen(ctx context.Context) (next step, heard bool) {
	if c.stream == nil {
		if next, ok := c.subscribe(ctx); !ok {
			return next, false
		}
	}
	began := c.b.cfg.Now()
	heardOf := make(chan struct{}, 1)
	ended := make(chan Outcome, 1)
	stream := c.stream
	go func() {
		out, _ := c.shielded("Listen", func() (Outcome, error) {
			return stream.Listen(ctx, func(r Report) {
				c.progress(r)
				nudge(heardOf)
			}), nil
		})
		ended <- out
	}()
	next, out := c.beside(ctx, heardOf, ended)
	c.hangUp()
	if next != nil {
		return next, true
	}
	if out.Disposition == Lost && ctx.Err() == nil {
		c.b.log.LogAttrs(ctx, slog.LevelInfo, "the agent's stream broke; the agent is asked", c.attrs("agent_stream",
			slog.String("agent_task_id", c.row.AgentTaskID), slog.String("error", c.name(out.Result.Err).Message))...)
	}
	if c.b.cfg.Now().Sub(began) < pollFirst {
		c.deaf++ // such an agent would be called without a pause
	} else {
		c.deaf = 0
	}
	return c.heardOut(ctx, out), true
}

// subscribe opens the stream of a task that was begun without one.
func (c *call) subscribe(ctx context.Context) (next step, ok bool) {
	subscriber, is := c.adapter.(Subscriber)
	if !is {
		c.deaf = deafAfter
		return nil, false
	}
	if c.b.failpoint("subscribe.before") {
		return (*call).leave, false
	}
	out, err := c.shielded("Subscribe", func() (Outcome, error) { return subscriber.Subscribe(ctx, c.task(), c.agent, c.agentTask()) })
	switch {
	case ctx.Err() != nil && out.Disposition != Answered:
		if out.Stream != nil {
			out.Stream.Close()
		}
		return (*call).disturbed, false
	case err == nil && out.Stream != nil:
		c.stream = out.Stream
		return nil, true
	case err == nil && out.Disposition == Answered:
		return c.heardOut(ctx, out), false
	case err == nil && out.Disposition == Accepted:
		c.deaf = deafAfter // it has no streams
	default:
		c.deaf++
	}
	return nil, false
}

// beside waits for the end of a stream and asks the agent in between. With a
// next step the stream is of no more use.
func (c *call) beside(ctx context.Context, heard <-chan struct{}, ended <-chan Outcome) (next step, out Outcome) {
	quiet := time.NewTimer(listenQuiet)
	defer quiet.Stop()
	for {
		select {
		case out := <-ended:
			return nil, out
		case <-heard:
			quiet.Reset(listenQuiet)
			if c.b.failpoint("stream.event") {
				next = (*call).leave
			}
		case <-c.poke:
			if pause(ctx, pollSpacing) {
				_, next = c.poll(ctx)
			}
		case <-quiet.C:
			quiet.Reset(listenQuiet)
			_, next = c.poll(ctx)
		}
		if next != nil || c.row.Question != nil {
			c.hangUp()
			if out = <-ended; out.Disposition == Lost {
				out = Outcome{} // it was closed here
			}
			return next, out
		}
	}
}

// heardOut weighs what a stream has told by its end.
func (c *call) heardOut(ctx context.Context, out Outcome) step {
	switch {
	case out.Disposition == Answered:
		return c.confirm(ctx, out)
	case ctx.Err() != nil:
		return (*call).disturbed
	case out.Disposition == Accepted && c.row.Question == nil:
		_, next := c.stand(out)
		return next
	}
	return nil
}

// confirm asks an agent whose events say that the task has ended: the task as a
// whole may say more than its events. But an answer in hand is never given up
// for one that cannot be had, and one that may be a part of it only where the task is
// gone.
func (c *call) confirm(ctx context.Context, told Outcome) step {
	for try := range confirmTries {
		if try > 0 && !pause(ctx, pollFirst) {
			break
		}
		if c.ask(ctx) != nil || forgot(c.out) {
			break
		}
		if c.out.Disposition != Answered {
			continue
		}
		if told.Result.Outcome == parley.OutcomeOK && c.out.Result.Outcome != parley.OutcomeOK {
			break // an end is final; this is about the question
		}
		return (*call).answer
	}
	if told.Partial && c.out.Disposition != Answered && !forgot(c.out) {
		c.partial = &told
		return nil
	}
	c.out = told
	return (*call).answer
}

// hangUp closes the stream, if there is one.
func (c *call) hangUp() {
	if c.stream != nil {
		c.stream.Close()
		c.stream = nil
	}
}

// standing is what the agent waits for, as far as that is news.
func (c *call) standing(out Outcome) *parley.Question {
	c.mu.Lock()
	defer c.mu.Unlock()
	if out.Question != nil && c.row.Question == nil && c.staleLocked(out) {
		return nil
	}
	return out.Question
}

// staleLocked: right after an answer was taken the agent may still show the question
// that it was for, or that it waits and no question any more. The answer itself may be
// one more message that it counts.
func (c *call) staleLocked(out Outcome) bool {
	if c.answeredAt.IsZero() || c.b.cfg.Now().Sub(c.answeredAt) >= answerSettles || uncounted(out.State) != uncounted(c.answeredState) {
		return false
	}
	q := bounded(out.Question)
	return q.Text == "" && len(q.Parts) == 0 || c.answeredTo == nil || sameQuestion(q, c.answeredTo)
}

// uncounted is a state without what an adapter counts behind it.
func uncounted(state string) string {
	before, _, _ := strings.Cut(state, ", ")
	return before
}
